package localserver

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// portHolder names the process that listens on a TCP port of this machine, such
// as "nginx (pid 12)"; "" if it cannot be told.
func portHolder(port string) string {
	n, err := strconv.Atoi(port)
	if err != nil {
		return ""
	}
	inodes := map[string]bool{}
	for _, file := range [...]string{"/proc/net/tcp", "/proc/net/tcp6"} {
		addListeners(file, n, inodes)
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(to, "socket:[") || !inodes[strings.TrimSuffix(to[len("socket:["):], "]")] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(comm)), filepath.Base(dir))
	}
	return ""
}

// addListeners collects the socket inodes that listen on port.
func addListeners(file string, port int, inodes map[string]bool) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	want := fmt.Sprintf(":%04X", port)
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		const listen = "0A"
		if len(fields) > 9 && strings.HasSuffix(fields[1], want) && fields[3] == listen {
			inodes[fields[9]] = true
		}
	}
}

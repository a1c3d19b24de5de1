package agent

import (
	"bytes"
	"os"
	"strconv"
)

// sshTerminals reports whether somebody has a terminal on this machine through
// sshd: a process with a controlling terminal that descends from one.
func sshTerminals() bool {
	dir, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	parents := map[int]int{}
	sshd := map[int]bool{}
	var terminals []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
		if open < 0 || end < open {
			continue
		}
		f := bytes.Fields(data[end+1:])
		if len(f) < 5 {
			continue
		}
		parents[pid], _ = strconv.Atoi(string(f[1]))
		sshd[pid] = bytes.HasPrefix(data[open+1:end], []byte("sshd")) || bytes.HasPrefix(data[open+1:end], []byte("dropbear"))
		if string(f[4]) != "0" { // tty_nr
			terminals = append(terminals, pid)
		}
	}
	for _, pid := range terminals {
		for range 100 { // the table is not of one moment: no endless loop
			if pid = parents[pid]; pid <= 1 {
				break
			}
			if sshd[pid] {
				return true
			}
		}
	}
	return false
}

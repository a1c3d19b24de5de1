package proc

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// NewCgroup makes a cgroup (version 2) below this process's own and returns its
// path. What is started in it stays in it, with all its descendants, whatever
// they do to get away. The error is errors.ErrUnsupported where there are no
// such cgroups or we may not make one.
func NewCgroup(name string) (string, error) {
	own := ownCgroup()
	if own == "" {
		return "", errors.ErrUnsupported
	}
	path := filepath.Join(own, "sky-"+name)
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", errors.ErrUnsupported
	}
	return path, nil
}

// InCgroup returns the processes in a cgroup and those below it, without zombies.
func InCgroup(path string) (pids []int) {
	if path == "" {
		return nil
	}
	_ = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(p, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for word := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(word); err == nil && Alive(pid, "") {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// RemoveCgroup removes a cgroup that has no processes, and those below it.
func RemoveCgroup(path string) {
	if path == "" {
		return
	}
	var dirs []string
	_ = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, p)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		_ = os.Remove(dirs[i])
	}
}

// ownCgroup is the folder of this process's cgroup, "" if there is none.
var ownCgroup = sync.OnceValue(func() string {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			if mount := cgroupMount(); mount != "" {
				return filepath.Join(mount, strings.TrimSuffix(rest, "\n"))
			}
		}
	}
	return ""
})

// cgroupMount is where cgroup version 2 is mounted.
func cgroupMount() string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		head, tail, ok := strings.Cut(sc.Text(), " - ")
		if fields := strings.Fields(head); ok && strings.HasPrefix(tail, "cgroup2 ") && len(fields) > 4 {
			return fields[4]
		}
	}
	return ""
}

//go:build unix

package filesync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	journalSuffix = ".open"
	// A temporary file older than this belongs to nobody: it lives for the
	// time of writing one small file.
	tempAge = time.Minute
)

// A journal names the folders that a sync writes to before it does, in a file
// that is locked as long as the sync lives. When the process is killed, the
// next sync to the same destination finds the journal without its lock and
// removes the unfinished files that lie in those folders. Without a writable
// home there is no journal, and nothing else changes.
type journal struct {
	file  *os.File // nil: none
	id    string   // of the destination
	dir   string
	mu    sync.Mutex
	noted map[string]bool
}

// openJournal starts the journal of a sync to dst.
func openJournal(dir, dst string) *journal {
	j := &journal{id: pathID(dst), dir: dir, noted: map[string]bool{}}
	if os.MkdirAll(dir, 0o700) != nil {
		return j
	}
	name := fmt.Sprintf("%s-%016x%s", j.id, rand.Uint64(), journalSuffix)
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return j
	}
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		file.Close()
		return j
	}
	j.file = file
	return j
}

// note says that unfinished files may lie in a folder from now on.
func (j *journal) note(folder string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil || j.noted[folder] {
		return
	}
	j.noted[folder] = true
	j.file.WriteString(folder + "\x00")
}

// leave ends a sync that failed: its unfinished files stay for the next one.
func (j *journal) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return
	}
	if len(j.noted) == 0 {
		os.Remove(j.file.Name())
	}
	j.file.Close()
	j.file = nil
}

// done ends a sync that succeeded, and tidies up after earlier ones.
func (j *journal) done(d *dest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return
	}
	os.Remove(j.file.Name())
	j.file.Close()
	j.file = nil
	names, err := os.ReadDir(j.dir)
	if err != nil {
		return
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), j.id+"-") && strings.HasSuffix(n.Name(), journalSuffix) {
			settle(filepath.Join(j.dir, n.Name()), d)
		}
	}
}

// lockSuffix ends the name of the file that the sync to a destination holds.
const lockSuffix = ".lock"

// lockDest waits until no other sync writes to dst: one whose connection broke
// may not have noticed yet, and would change folders after this one has given
// them their times. waiting is called now and then meanwhile. Where locks cannot
// be had, there is none.
func lockDest(ctx context.Context, dir, dst string, waiting func()) (unlock func(), err error) {
	if os.MkdirAll(dir, 0o700) != nil {
		return func() {}, nil
	}
	file, err := os.OpenFile(filepath.Join(dir, pathID(dst)+lockSuffix), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return func() {}, nil
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { file.Close() }, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			file.Close()
			return func() {}, nil
		}
		waiting()
		select {
		case <-time.After(lockStep):
		case <-ctx.Done():
			file.Close()
			return nil, context.Cause(ctx)
		}
	}
}

// settle removes what a dead sync has left, and then its journal.
func settle(path string, d *dest) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // it is alive
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return
	}
	clear := true
	for folder := range strings.SplitSeq(string(data), "\x00") {
		if folder == "" || validPath(folder) {
			clear = sweep(d, folder) && clear
		}
	}
	if clear {
		os.Remove(path)
	}
}

// sweep removes the unfinished files of a folder that nobody works on. It
// returns false if some may have to be removed later.
func sweep(d *dest, path string) bool {
	fd, err := d.folder(path)
	if err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
	}
	folder := os.NewFile(uintptr(fd), path)
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	clear, found := true, false
	for _, name := range names {
		if isPartName(name) {
			found = true
			clear = remove(fd, name) && clear
		}
	}
	if found { // the folder had its time already
		_ = unix.UtimesNanoAt(fd, ".", times(st.Mtim.Nano()), 0) // the next sync sets it otherwise
	}
	return clear
}

// remove removes an unfinished file that nobody works on; false means that it
// may have to be removed later.
func remove(fd int, name string) bool {
	if strings.HasSuffix(name, partSuffix) {
		p, err := openPart(fd, name, 0)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return true // whoever holds it will
		}
		if err == nil {
			defer unix.Close(p.fd)
			return unix.Unlinkat(fd, name, 0) == nil
		}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	if time.Since(time.Unix(0, st.Ctim.Nano())) < tempAge {
		return false
	}
	return unix.Unlinkat(fd, name, 0) == nil
}

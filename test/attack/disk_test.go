//go:build attack && linux

package attack

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// TestAFullDisk fills the disk of the server's home under it. What reads still
// works, what is refused leaves nothing, clusters can be given back, and a start
// says what is wrong.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	c := count(t)
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	home, err := os.MkdirTemp("", "sky-home-")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", home).CombinedOutput(); err != nil {
		os.Remove(home)
		t.Skipf("no file system can be mounted here: %s", out)
	}
	w := harness.At(t, home)
	ballast := filepath.Join(home, "ballast")
	t.Cleanup(func() {
		os.Remove(ballast)
		w.Close()
		if err := syscall.Unmount(home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
		os.RemoveAll(home)
	})
	w.Sky("launch", "-y", "-d", "-c", "before", "--infra", "local", "--", "true")
	w.Sky("launch", "-y", "-d", "-c", "other", "--infra", "local", "--", "sleep", "3000")
	w.Sky("jobs", "launch", "-y", "-d", "-n", "noisy", "--infra", "local", "--", "while :; do echo a line of the noisy job; sleep 0.05; done")
	harness.Eventually(t, "the managed job prints", time.Minute, func() bool {
		out, _ := w.Run("jobs", "logs", "-n", "noisy", "--no-follow")
		return strings.Contains(out, "a line of the noisy job")
	})
	fill(t, ballast)
	for range 3 { // what an operation leaves to others is filled as well
		if out, code := w.Run("status"); code != 0 || !strings.Contains(out, "before") {
			c.add("wrong", 1)
			t.Errorf("sky status on a full disk: exit %d\n%s", code, tail(out))
		}
		fill(t, ballast)
	}
	out, code := w.Run("launch", "-y", "-d", "-c", "during", "--infra", "local", "--", "true")
	if code == 0 {
		t.Logf("sky launch on a full disk succeeded")
	} else if !disk.MatchString(out) {
		c.add("wrong", 1)
		t.Errorf("sky launch on a full disk does not say so: exit %d\n%s", code, tail(out))
	}
	for _, cancel := range [][]string{{"jobs", "cancel", "-y", "-n", "noisy"}, {"cancel", "-y", "other", "1"}} {
		fill(t, ballast)
		if out, code := w.Run(cancel...); code != 0 {
			c.add("wrong", 1)
			t.Errorf("sky %v on a full disk: exit %d\n%s", cancel, code, tail(out))
		}
	}
	fill(t, ballast)
	if out, code := w.Run("down", "-y", "before"); code != 0 {
		c.add("wrong", 1)
		t.Errorf("sky down on a full disk: exit %d\n%s", code, tail(out))
	}
	fill(t, ballast)
	w.KillServer()
	fill(t, ballast)
	out, code = w.Run("api", "start")
	if code != 0 && !disk.MatchString(out) {
		c.add("wrong", 1)
		t.Errorf("sky api start on a full disk does not say so: exit %d\n%s", code, tail(out))
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	w.Sky("api", "start")
	var records []record
	var wrong []string
	if !harness.Within(time.Minute, func() bool {
		wrong = nil
		if err := w.JSON(&records, "status", "-r", "-o", "json"); err != nil {
			wrong = []string{err.Error()}
			return false
		}
		for _, r := range records {
			if r.Name == "during" && code != 0 || r.Name == "other" && r.Status != "UP" || r.Status == "INIT" {
				wrong = append(wrong, r.Name+" is "+r.Status)
			}
		}
		return len(wrong) == 0
	}) {
		c.add("wrong statuses", len(wrong))
		t.Errorf("once the disk has room again: %v", wrong)
	}
	harness.Eventually(t, "what was cancelled on the full disk is so", time.Minute, func() bool {
		jobs, _ := w.Run("jobs", "queue")
		queue, _ := w.Run("queue", "other")
		return strings.Contains(jobs, "CANCELLED") && strings.Contains(queue, "CANCELLED")
	})
	for _, line := range faults(w.ServerLog()) {
		if !strings.Contains(line, "status=503") && !strings.Contains(line, "status=507") {
			c.add("5xx and panics", 1)
			t.Errorf("server log: %s", line)
		}
	}
}

var disk = regexp.MustCompile(`(?i)disk|no space|full`)

// fill writes a file until no byte more fits.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		b := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(b)
			if size == 1 {
				break
			}
		}
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, io.ErrShortWrite) {
		t.Fatal(err)
	}
}

// TestLostDatabaseFiles takes away, damages and replaces the database's files while
// the server is dead and a cluster runs. The next server knows the cluster, or
// refuses to start and tells the ways out; it never begins empty.
func TestLostDatabaseFiles(t *testing.T) {
	t.Parallel()
	c := count(t)
	w := harness.New(t)
	base := filepath.Join(w.Home, ".sky/api_server")
	db := filepath.Join(base, "sky.db")
	w.Sky("launch", "-y", "-d", "-c", "early", "--infra", "local", "--", "true")
	w.Sky("api", "stop")
	older := filepath.Join(w.Home, "older")
	copyFiles(t, base, older)
	w.Sky("launch", "-y", "-d", "-c", "young", "--infra", "local", "--", "true")
	w.KillServer()
	whole := filepath.Join(w.Home, "whole")
	copyFiles(t, base, whole)
	for _, harm := range []struct {
		name string
		do   func() error
	}{
		{"the write-ahead log is lost", func() error { os.Remove(db + "-shm"); return ignoreMissing(os.Remove(db + "-wal")) }},
		{"the database is lost", func() error { return os.Remove(db) }},
		{"all of its files are lost", func() error { os.Remove(db + "-wal"); os.Remove(db + "-shm"); return os.Remove(db) }},
		{"the database is empty", func() error { os.Remove(db + "-wal"); os.Remove(db + "-shm"); return os.Truncate(db, 0) }},
		{"the database is cut in half", func() error { os.Remove(db + "-wal"); return os.Truncate(db, 40<<10) }},
		{"the database is damaged", func() error {
			os.Remove(db + "-wal")
			os.Remove(db + "-shm")
			f, err := os.OpenFile(db, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			for at := int64(0); at < 20; at++ {
				if _, err := f.WriteAt([]byte(strings.Repeat("\xa5", 512)), 1000+at*4096); err != nil {
					return err
				}
			}
			return nil
		}},
		{"the database is an older one", func() error {
			os.Remove(db + "-wal")
			os.Remove(db + "-shm")
			return copyOne(filepath.Join(older, "sky.db"), db)
		}},
		{"the database is no database", func() error { os.Remove(db + "-wal"); return os.WriteFile(db, []byte("hello\n"), 0o600) }},
	} {
		c.add("harms", 1)
		w.KillServer()
		restore(t, whole, base)
		if err := harm.do(); err != nil {
			t.Fatalf("%s: %v", harm.name, err)
		}
		out, code := w.Run("api", "start")
		if code != 0 {
			c.add("refused", 1)
			if !waysOut.MatchString(out) {
				c.add("wrong", 1)
				t.Errorf("%s: the refusal tells no way out: exit %d\n%s", harm.name, code, tail(out))
			}
			continue
		}
		status, code := w.Run("status")
		if code != 0 || !strings.Contains(status, "early") || !strings.Contains(status, "young") {
			c.add("began without what runs", 1)
			t.Errorf("%s: the server started, and machines run that it does not know: exit %d\n%s%s", harm.name, code, tail(out), tail(status))
		}
	}
	w.KillServer()
	restore(t, whole, base)
	w.Sky("api", "start")
	harness.Wants(t, w.Sky("status"), "early", "young")
}

var waysOut = regexp.MustCompile(`(?i)restore|adopt|backup`)

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func copyOne(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// restore puts a folder back as it was copied.
func restore(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	copyFiles(t, from, to)
}

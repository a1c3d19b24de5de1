//go:build stores && linux

package stores

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/storage"
)

// mountRclone mounts the bucket by the peer; end unmounts.
func (x *bench) mountRclone(b *testing.B, options ...string) (dir string, end func()) {
	b.Helper()
	dir = b.TempDir()
	cmd := exec.Command(program(b, "rclone"), append([]string{"mount2", "v:bench", dir, "--config", "/dev/null", "--cache-dir", b.TempDir()}, options...)...)
	cmd.Env = append(os.Environ(), x.rcloneEnv()...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	end = func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	var up, here unix.Stat_t
	for stop := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if unix.Stat(filepath.Dir(dir), &up) == nil && unix.Stat(dir, &here) == nil && up.Dev != here.Dev {
			return dir, end
		}
		if time.Now().After(stop) {
			end()
			b.Fatalf("rclone does not mount: %s", said.String())
		}
	}
}

// memory is what a process takes now, and took at most, in MB.
func memory(b *testing.B, pid int) (now, most float64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			now = kb / 1024
		case "VmHWM:":
			most = kb / 1024
		}
	}
	return now, most
}

func readAll(b *testing.B, path string) time.Duration {
	b.Helper()
	settle()
	began := time.Now()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// BenchmarkMountRead reads 1 GB in one file from its beginning to its end, and measures
// how long the first byte takes and what the process of the mount takes of memory.
func BenchmarkMountRead(b *testing.B) {
	x := newBench(b)
	dir, amount := oneFile(b)
	x.ours(b, upload(dir, x.bucket, "d"))
	m := startMounts(b)
	var first []float64
	var idle float64
	pairs(b, amount, "MiB/s", func() time.Duration {
		mine := m.mount(x.bucket, mountapi.Direct)
		if idle == 0 {
			idle, _ = memory(b, m.cmd.Process.Pid)
		}
		settle()
		began := time.Now()
		f, err := os.Open(filepath.Join(mine, "d/one"))
		if err == nil {
			_, err = f.Read(make([]byte, 1))
		}
		if err != nil {
			b.Fatal(err)
		}
		first = append(first, float64(time.Since(began).Microseconds())/1000)
		f.Close()
		m.unmount(mine)
		mine = m.mount(x.bucket, mountapi.Direct)
		defer m.unmount(mine)
		return readAll(b, filepath.Join(mine, "d/one"))
	}, func() time.Duration {
		theirs, end := x.mountRclone(b)
		defer end()
		return readAll(b, filepath.Join(theirs, "d/one"))
	})
	_, most := memory(b, m.cmd.Process.Pid)
	b.ReportMetric(median(first), "ms-first-byte")
	b.ReportMetric(idle, "MB-idle")
	b.ReportMetric(most, "MB-at-most")
}

// BenchmarkMountList lists a folder of 10,000 entries that nothing is known of. x is how
// many times as long the peer takes.
func BenchmarkMountList(b *testing.B) { benchMountList(b, 0) }

// BenchmarkMountListFar is with answers that take 50 ms, as those of real stores do at least.
func BenchmarkMountListFar(b *testing.B) { benchMountList(b, 50*time.Millisecond) }

func benchMountList(b *testing.B, delay time.Duration) {
	x := newBench(b)
	if delay > 0 {
		x.far(b, delay)
	}
	entries := scaled(10_000)
	folder := filepath.Join(x.dir, "bench", "many")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		b.Fatal(err)
	}
	for i := range entries {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("file-%05d", i)), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	list := func(dir string) time.Duration {
		settle()
		began := time.Now()
		f, err := os.Open(filepath.Join(dir, "many"))
		if err != nil {
			b.Fatal(err)
		}
		names, err := f.Readdirnames(-1)
		f.Close()
		if err != nil || len(names) != entries {
			b.Fatalf("%d names, %v", len(names), err)
		}
		return time.Since(began)
	}
	m := startMounts(b)
	pairs(b, float64(entries), "entries/s", func() time.Duration {
		mine := m.mount(x.bucket, mountapi.Direct)
		defer m.unmount(mine)
		return list(mine)
	}, func() time.Duration {
		theirs, end := x.mountRclone(b)
		defer end()
		return list(theirs)
	})
}

// BenchmarkMountCachedWrite writes and syncs 1 GB: to the peer's cache, to ours, and to the
// disk itself; then it waits for the uploads, and measures how long after the last one a
// barrier ends.
func BenchmarkMountCachedWrite(b *testing.B) {
	x := newBench(b)
	m := startMounts(b)
	megabytes := scaled(1000)
	buf := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	write := func(path string) time.Duration {
		settle()
		began := time.Now()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) // as open(path, "wb") does
		if err != nil {
			b.Fatal(err)
		}
		for range megabytes {
			if _, err := f.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	var late time.Duration
	ours := func() time.Duration {
		mine := m.mount(x.bucket, mountapi.Cached)
		defer m.unmount(mine)
		took := write(filepath.Join(mine, "large"))
		flush := func() {
			if _, err := m.client.Flush(b.Context(), mountapi.FlushRequest{Path: mine}); err != nil {
				b.Fatal(err)
			}
		}
		flush()
		// The barrier: from when the store has the object to the end of the wait.
		if err := os.WriteFile(filepath.Join(mine, "barrier"), []byte("text"), 0o644); err != nil {
			b.Fatal(err)
		}
		up := make(chan time.Time, 1)
		go func() {
			for {
				if _, err := x.bucket.Stat(b.Context(), "barrier"); err == nil || b.Context().Err() != nil {
					up <- time.Now()
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		flush()
		ended := time.Now()
		late = max(late, ended.Sub(<-up))
		for _, key := range []string{"large", "barrier"} {
			if err := x.bucket.Remove(b.Context(), []storage.ID{{Key: key}}); err != nil {
				b.Fatal(err)
			}
		}
		return took
	}
	disk := func() time.Duration {
		plain := filepath.Join(b.TempDir(), "large")
		defer os.Remove(plain)
		return write(plain)
	}
	peer := func() time.Duration {
		theirs, end := x.mountRclone(b, "--vfs-cache-mode", "full", "--vfs-write-back", "1h")
		defer end()
		return write(filepath.Join(theirs, "large"))
	}
	pairs(b, float64(megabytes), "MiB/s", ours, peer)
	_, _, ratio := turns(b, ours, disk)
	b.ReportMetric(ratio, "x-disk")
	_, most := memory(b, m.cmd.Process.Pid)
	b.ReportMetric(float64(late.Microseconds())/1000, "ms-barrier-at-most")
	b.ReportMetric(most, "MB-at-most")
}

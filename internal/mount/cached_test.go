//go:build linux

package mount

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/owner"
)

func (r *rig) cached(writeBack time.Duration) mountapi.MountRequest {
	q := r.request()
	q.Spec.Mode = mountapi.Cached
	q.Spec.Config.WriteBack = writeBack
	return q
}

// as runs a script as a process of a job.
func (r *rig) as(rank, script string) error {
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = r.path
	cmd.Env = []string{owner.Variable + "=" + rank, "PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func TestACachedMountIsAFileSystem(t *testing.T) {
	r := newRig(t)
	r.mount(r.cached(time.Millisecond))
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Mkdir(r.file("d"), 0o755))
	check(os.WriteFile(r.file("d/x"), []byte("hello world"), 0o600))
	f, err := os.OpenFile(r.file("d/x"), os.O_RDWR, 0)
	check(err)
	_, err = f.WriteAt([]byte("HELLO"), 0) // in any order
	check(err)
	mapped, err := unix.Mmap(int(f.Fd()), 0, 11, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(err)
	copy(mapped[6:], "WORLD")
	check(unix.Msync(mapped, unix.MS_SYNC))
	check(unix.Munmap(mapped))
	check(os.Rename(r.file("d/x"), r.file("d/y"))) // while it is open
	check(f.Sync())
	check(f.Close())
	got, err := os.ReadFile(r.file("d/y"))
	check(err)
	if string(got) != "HELLO WORLD" {
		t.Errorf("it reads %q", got)
	}
	g, err := os.Create(r.file("gone"))
	check(err)
	_, err = g.WriteString("still here")
	check(err)
	check(os.Remove(r.file("gone")))
	p := make([]byte, 10)
	if n, err := g.ReadAt(p, 0); err != nil || string(p[:n]) != "still here" {
		t.Errorf("deleted while open it reads %q, %v", p[:n], err)
	}
	if info, err := g.Stat(); err != nil || info.Size() != 10 {
		t.Errorf("deleted while open: %v, %v", info, err)
	}
	check(g.Close())
	check(os.Symlink("d/y", r.file("link")))
	if err := os.Link(r.file("d/y"), r.file("hard")); !errors.Is(err, syscall.ENOTSUP) {
		t.Errorf("a hard link: %v", err)
	}
	check(os.Rename(r.file("d"), r.file("e")))
	a, err := r.client.Flush(t.Context(), mountapi.FlushRequest{})
	if err != nil {
		t.Fatalf("%v: %+v", err, a)
	}
	if got := r.content("e/y"); got != "HELLO WORLD" {
		t.Errorf("the bucket has %q", got)
	}
	info, err := os.Stat(r.file("e/y"))
	check(err)
	if info.Mode() != 0o600 {
		t.Errorf("its mode is %v", info.Mode())
	}
	if target, err := os.Readlink(r.file("link")); err != nil || target != "d/y" {
		t.Errorf("the link: %q, %v", target, err)
	}
	for _, key := range []string{"d/x", "d/y", "d/", "gone"} {
		if got := r.content(key); !strings.Contains(got, "does not exist") {
			t.Errorf("the bucket still has %s: %q", key, got)
		}
	}
}

func TestAKilledHelperLosesNothingThatWasClosed(t *testing.T) {
	r := newRig(t)
	q := r.cached(time.Hour) // nothing is uploaded yet
	r.mount(q)
	if err := r.as("h-1-run-0", "echo one > one; mkdir d; echo two > d/two; mv one d/three"); err != nil {
		t.Fatal(err)
	}
	if err := r.as("h-2-run-0", "echo other > other"); err != nil {
		t.Fatal(err)
	}
	r.kill(syscall.SIGKILL)
	r.start()
	s, err := r.client.Stats(t.Context())
	if err != nil || len(s.Waiting) != 1 || s.Waiting[0].Files < 3 || s.Waiting[0].Spec.URL != "s3://bucket" {
		t.Errorf("what waits: %+v, %v", s, err)
	}
	if did := r.mount(q); did != mountapi.Restored {
		t.Errorf("the call %s", did)
	}
	if got, err := os.ReadFile(r.file("d/three")); err != nil || string(got) != "one\n" {
		t.Errorf("it reads %q, %v", got, err)
	}
	// What a dead process has left is uploaded without any delay.
	if _, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Ranks: []string{"h-1-run-0"}, Timeout: time.Minute}); err != nil {
		t.Errorf("the job's flush: %v", err)
	}
	if got := r.content("d/three") + r.content("d/two"); got != "one\ntwo\n" {
		t.Errorf("the bucket has %q", got)
	}
	if got := r.content("one"); !strings.Contains(got, "does not exist") {
		t.Errorf("the bucket has the old name: %q", got)
	}
	if err := os.WriteFile(r.file("last"), []byte("last"), 0o644); err != nil {
		t.Fatal(err)
	}
	// An unmount uploads what is left.
	if err := r.client.Unmount(t.Context(), mountapi.UnmountRequest{Path: r.path}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the rest", func() bool { return r.content("other")+r.content("last") == "other\nlast" })
	waitFor(t, "the end", func() bool { s, err := r.client.Stats(t.Context()); return err == nil && len(s.Mounts) == 0 })
}

func TestACacheIsNotTakenForAnotherBucket(t *testing.T) {
	r := newRig(t)
	if err := r.store.Bucket("other").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	q := r.cached(time.Hour)
	r.mount(q)
	if err := os.WriteFile(r.file("x"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := q
	other.Spec.URL = "s3://other"
	if _, err := r.client.Mount(t.Context(), other); code(err) != mountapi.InUse {
		t.Errorf("another bucket over what is not uploaded: %v", err)
	}
	r.kill(syscall.SIGKILL)
	r.start()
	if _, err := r.client.Mount(t.Context(), other); code(err) != mountapi.InUse || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("the same after a death: %v", err)
	}
	r.mount(q)
	if _, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Path: r.path}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the other bucket", func() bool {
		_, err := r.client.Mount(t.Context(), other)
		return err == nil
	})
	if names, err := os.ReadDir(r.path); err != nil || len(names) > 0 {
		t.Errorf("the other bucket has %v, %v", names, err)
	}
}

func TestAFlushFailsForALastingReasonAndGoesOnWithOtherCredentials(t *testing.T) {
	r := newRig(t)
	r.mount(r.cached(time.Millisecond))
	r.refuse.Store(http.StatusForbidden)
	if err := r.as("h-1-run-0", "echo text > x"); err != nil {
		t.Fatal(err)
	}
	_, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Ranks: []string{"h-1-run-0"}, Timeout: time.Minute})
	e, _ := errors.AsType[*mountapi.Error](err)
	if e == nil || e.Code != mountapi.NotStored || len(e.Files) != 1 || e.Files[0].Path != "x" {
		t.Fatalf("the flush: %v", err)
	}
	r.refuse.Store(0)
	if did := r.mount(r.cached(time.Millisecond)); did != mountapi.Kept {
		t.Errorf("the call %s", did)
	}
	if _, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if got := r.content("x"); got != "text\n" {
		t.Errorf("the bucket has %q", got)
	}
}

func TestAFlushEndsWhenItsCallerIsGone(t *testing.T) {
	r := newRig(t)
	r.mount(r.cached(time.Millisecond))
	r.refuse.Store(http.StatusServiceUnavailable)
	if err := os.WriteFile(r.file("x"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.client.Flush(ctx, mountapi.FlushRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	_, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Timeout: 50 * time.Millisecond})
	if code(err) != mountapi.TimedOut {
		t.Errorf("%v", err)
	}
	r.refuse.Store(0)
	if _, err := r.client.Flush(t.Context(), mountapi.FlushRequest{}); err != nil {
		t.Error(err)
	}
}

func TestALargeFileIsCachedAndUploadedInParts(t *testing.T) {
	r := newRig(t)
	r.mount(r.cached(time.Millisecond))
	data := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)
	if err := os.WriteFile(r.file("x"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Flush(t.Context(), mountapi.FlushRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := r.content("x"); got != string(data) {
		t.Errorf("the bucket has %d bytes", len(got))
	}
	other := t.TempDir() + "/other"
	q := r.cached(time.Millisecond)
	q.Spec.Path = other
	r.mount(q)
	defer func() { _ = r.client.Unmount(context.Background(), mountapi.UnmountRequest{Path: other, Lazy: true}) }()
	got, err := os.ReadFile(other + "/x")
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("another mount reads %d bytes, %v", len(got), err)
	}
}

// What a handle that only writes has written is what every other handle reads from then on,
// also if it was read at the same time.
func TestWhatOthersReadMeanwhileIsNotKept(t *testing.T) {
	r := newRig(t)
	r.mount(r.cached(time.Hour))
	name := r.file("counter")
	writer, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	read := func() (uint64, error) {
		var p [8]byte
		_, err := reader.ReadAt(p[:], 0)
		return binary.BigEndian.Uint64(p[:]), err
	}
	write := func(n uint64) error {
		_, err := writer.WriteAt(binary.BigEndian.AppendUint64(nil, n), 0)
		return err
	}
	if err := write(0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					_, _ = read()
				}
			}
		})
	}
	defer all.Wait()
	defer close(ended)
	for n := uint64(1); n <= 2000; n++ {
		if err := write(n); err != nil {
			t.Fatal(err)
		}
		if got, err := read(); got != n || err != nil {
			t.Fatalf("%d was written, %d is read (%v)", n, got, err)
		}
	}
}

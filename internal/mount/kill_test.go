//go:build linux

package mount

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
)

// Real kills, at any moment of real writes through the kernel: what a close or a rename
// has returned for is in the mount after the next start, and in the bucket in the end.
func TestRealKillsLoseNothing(t *testing.T) {
	kills, seed := 4, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("SKY_MOUNT_REAL_KILLS")); err == nil {
		kills, seed = n, uint64(time.Now().UnixNano())
		t.Log("the seed is ", seed)
	}
	rnd := rand.New(rand.NewPCG(seed, 5))
	r := newRig(t)
	q := r.cached(time.Millisecond)
	r.mount(q)
	sure := map[string]string{}    // what calls have returned for
	maybe := map[string][]string{} // what a call that failed may have left; "": nothing
	n := 0
	write := func() error {
		n++
		name := fmt.Sprintf("f%d", rnd.IntN(8))
		text := strings.Repeat(fmt.Sprintf("%d ", n), 1+rnd.IntN(30_000))
		if rnd.IntN(2) == 0 { // as programs do that want all or nothing
			if err := os.WriteFile(r.file("tmp"), []byte(text), 0o644); err != nil {
				return err
			}
			if err := os.Rename(r.file("tmp"), r.file(name)); err != nil {
				maybe[name] = []string{sure[name], text}
				return err
			}
		} else {
			fresh := fmt.Sprintf("new%d", n)
			if err := os.WriteFile(r.file(fresh), []byte(text), 0o644); err != nil {
				return nil
			}
			name = fresh
		}
		sure[name] = text
		return nil
	}
	for kill := range kills {
		stop, after := make(chan struct{}), time.Duration(rnd.IntN(40))*time.Millisecond
		go func() {
			time.Sleep(after)
			_ = r.helper.Process.Kill()
			close(stop)
		}()
		for failed := false; !failed; {
			select {
			case <-stop:
				failed = true
			default:
				failed = write() != nil
			}
		}
		<-stop
		r.kill(syscall.SIGKILL)
		r.start()
		r.mount(q)
		for name, want := range sure {
			if _, open := maybe[name]; open {
				continue
			}
			if got, err := os.ReadFile(r.file(name)); err != nil || string(got) != want {
				t.Fatalf("kill %d: %s has %d bytes (%v), want %d", kill, name, len(got), err, len(want))
			}
		}
		for name, options := range maybe {
			got, err := os.ReadFile(r.file(name))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if string(got) != options[0] && string(got) != options[1] {
				t.Fatalf("kill %d: %s has %d bytes, which nobody wrote", kill, name, len(got))
			}
			if delete(sure, name); err == nil {
				sure[name] = string(got)
			}
		}
		clear(maybe)
	}
	a, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Conflicts) > 0 {
		t.Errorf("conflicts with nobody: %+v", a.Conflicts)
	}
	for name, want := range sure {
		if got := r.content(name); got != want {
			t.Errorf("the bucket has %d bytes of %s, want %d", len(got), name, len(want))
		}
	}
}

// A process that is killed is gone, whatever it did: none of its threads waits for a mount
// that it serves, which nobody would end then.
func TestAKilledProcessIsGone(t *testing.T) {
	r := newRig(t)
	rnd := rand.New(rand.NewPCG(1, 7))
	for kill := range 30 {
		client, helper := r.client, r.helper
		var asking sync.WaitGroup
		for _, call := range []func() error{
			func() error { _, err := client.Mount(t.Context(), r.cached(time.Millisecond)); return err },
			func() error {
				_, err := client.Flush(t.Context(), mountapi.FlushRequest{Path: r.path})
				return err
			},
		} {
			asking.Go(func() {
				for err := call(); err == nil || code(err) != ""; { // for as long as it answers
					err = call()
				}
			})
		}
		time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
		_ = helper.Process.Kill()
		gone := make(chan struct{})
		go func() { _ = helper.Wait(); close(gone) }()
		select {
		case <-gone:
		case <-time.After(time.Minute):
			if err := mountpoints.Abort(func(path string) bool { return path == r.path }); err != nil {
				t.Error(err)
			}
			<-gone
			t.Fatalf("kill %d: the process was killed a minute ago and is still there", kill)
		}
		asking.Wait()
		r.helper = nil
		client.Close()
		r.start()
	}
}

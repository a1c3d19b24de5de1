//go:build linux

package cached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/mount/direct"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/vfs"
)

// A history of writes, each of which is closed; the process dies at a random step, again
// and again. What a close has returned for is there afterwards.
func TestWhatWasClosedSurvivesEveryKill(t *testing.T) {
	for seed := range number("SKY_MOUNT_KILLS", 20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			killed(t, uint64(seed))
		})
	}
}

func killed(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 11))
	b, dir := bucket(t), t.TempDir()
	// sure is what calls returned for; maybe is what a call that failed may have done.
	sure, maybe := map[string]string{}, map[string][]string{}
	const nothing = "\x00"
	content := func(v vfs.Volume, path string) (string, error) {
		h, err := v.Open(t.Context(), path, vfs.OpenOptions{Read: true})
		if err != nil {
			return "", err
		}
		defer h.Release()
		p := make([]byte, 300_000)
		n, err := h.ReadAt(t.Context(), p, 0)
		return string(p[:n]), err
	}
	paths := []string{"a", "b", "c"}
	text := func() string {
		p := make([]byte, 1+r.IntN(20_000))
		for i := range p {
			p[i] = byte('a' + r.IntN(26))
		}
		return string(p)
	}
	for life := range 6 {
		p := failpoint.New(context.Background(), r.IntN(60), errors.New("killed"))
		o := Options{Dir: dir, Node: "node", Retry: time.Millisecond, Config: mountapi.Config{WriteBack: time.Duration(1+r.IntN(3)) * time.Millisecond}, Step: p.Do, Owner: func(int) string { return "job" }}
		v, err := Open(b, o)
		if err != nil {
			if !errors.Is(err, failpoint.ErrDead) {
				t.Fatalf("life %d: %v", life, err)
			}
			continue
		}
		for !p.Dead() {
			path := paths[r.IntN(len(paths))]
			var err error
			before, known := sure[path]
			if !known {
				before = nothing
			}
			switch k := r.IntN(6); k {
			case 0, 1, 2: // a new content
				after := text()
				err = rewrite(p.Context(), v, path, after)
				outcome(sure, maybe, path, before, after, err)
			case 3: // more of it
				if before == nothing {
					continue
				}
				more := text()
				err = add(p.Context(), v, path, more)
				if err == nil {
					sure[path] = before + more
				} else { // a part of it may be there
					maybe[path] = append(maybe[path], before, before+more, "prefix")
					delete(sure, path)
				}
			case 4:
				if before == nothing {
					continue
				}
				err = v.Unlink(p.Context(), path)
				outcome(sure, maybe, path, before, nothing, err)
			case 5:
				to := paths[r.IntN(len(paths))]
				if before == nothing || to == path {
					continue
				}
				old, ok := sure[to]
				if !ok {
					old = nothing
				}
				err = v.Rename(p.Context(), path, to, false)
				outcome(sure, maybe, path, before, nothing, err)
				outcome(sure, maybe, to, old, before, err)
			}
			if err != nil && !p.Dead() {
				t.Fatalf("life %d: %v", life, err)
			}
			if r.IntN(10) == 0 {
				time.Sleep(time.Millisecond) // uploads begin
			}
			if r.IntN(30) == 0 {
				_, _ = v.Flush(p.Context(), everyone)
			}
		}
		v.Close()
		// The next process: what was sure is there; what was not, is one or the other.
		v, err = Open(b, Options{Dir: dir, Node: "node", Retry: time.Millisecond})
		if err != nil {
			t.Fatalf("life %d: opening the cache: %v", life, err)
		}
		for _, path := range paths {
			got, err := content(v, path)
			switch {
			case vfs.Errno(err) == vfs.Errno(vfsMissing):
				got = nothing
			case err != nil:
				t.Fatalf("life %d: reading %s: %v", life, path, err)
			}
			want, known := sure[path]
			if options := maybe[path]; len(options) > 0 {
				if !oneOf(got, options) {
					t.Fatalf("life %d: %s has %d bytes, which nobody wrote", life, path, len(got))
				}
			} else if known && got != want || !known && got != nothing {
				t.Fatalf("life %d: %s has %d bytes (%.20q), want %d (%.20q)", life, path, len(got), got, len(want), want)
			}
			delete(maybe, path)
			delete(sure, path)
			if got != nothing {
				sure[path] = got
			}
		}
		if r.IntN(2) == 0 {
			if _, err := v.Flush(t.Context(), everyone); err != nil {
				t.Fatalf("life %d: flush: %v", life, err)
			}
		}
		if len(v.conflicts) > 0 {
			t.Fatalf("life %d: conflicts with nobody: %+v", life, v.conflicts)
		}
		v.Close()
	}
	v := opened(t, b, Options{Dir: dir})
	if _, err := v.Flush(t.Context(), everyone); err != nil {
		t.Fatal(err)
	}
	d := direct.New(b, direct.Options{})
	for _, path := range paths {
		got, err := content(d, path)
		if vfs.Errno(err) == vfs.Errno(vfsMissing) {
			got = nothing
		} else if err != nil {
			t.Fatal(err)
		}
		want, known := sure[path]
		if known && got != want || !known && got != nothing {
			t.Errorf("the bucket has %d bytes of %s, want %d", len(got), path, len(want))
		}
	}
	var names []string
	for a, err := range d.ReadDir(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, a.Name)
	}
	if len(names) != len(sure) {
		t.Errorf("the bucket has %q, want %d files", names, len(sure))
	}
}

var vfsMissing = &vfs.Error{Errno: 2}

func oneOf(got string, options []string) bool {
	for i, o := range options {
		if o == got {
			return true
		}
		if o == "prefix" && i >= 2 && len(got) >= len(options[i-2]) && len(got) <= len(options[i-1]) && options[i-1][:len(got)] == got {
			return true
		}
	}
	return false
}

// outcome notes what a call did, or may have done.
func outcome(sure map[string]string, maybe map[string][]string, path, before, after string, err error) {
	const nothing = "\x00"
	if err == nil {
		if after == nothing {
			delete(sure, path)
		} else {
			sure[path] = after
		}
		return
	}
	maybe[path] = append(maybe[path], before, after)
}

func rewrite(ctx context.Context, v vfs.Volume, path, text string) error {
	h, err := v.Open(ctx, path, vfs.OpenOptions{Write: true, Create: true, Trunc: true, Perm: 0o644})
	if err != nil {
		return err
	}
	defer h.Release()
	if _, err := h.WriteAt(ctx, []byte(text), 0); err != nil {
		return err
	}
	return h.Flush(ctx)
}

func add(ctx context.Context, v vfs.Volume, path, text string) error {
	h, err := v.Open(ctx, path, vfs.OpenOptions{Write: true, Append: true})
	if err != nil {
		return err
	}
	defer h.Release()
	n, err := h.WriteAt(ctx, []byte(text), 0)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return err
	}
	return h.Flush(ctx)
}

//go:build linux

package direct

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/mount/readahead"
	"github.com/skypilot-go/sky/internal/storage"
)

func TestPartsReachAllThatIsAllowed(t *testing.T) {
	for _, same := range []bool{false, true} {
		caps := storage.Caps{MinPart: 5 * mib, MaxPart: 5 << 30, MaxParts: 10_000, SamePart: same}
		var all, last int64
		for n := 1; n <= caps.MaxParts; n++ {
			size := partSize(n, caps)
			if size < caps.MinPart || size < last || same && n > 1 && size != last {
				t.Fatalf("part %d has %d bytes after %d (same %v)", n, size, last, same)
			}
			all, last = all+size, size
		}
		if all < 150<<30 {
			t.Errorf("a file has at most %d bytes (same %v)", all, same)
		}
	}
}

func TestOldContentIsKeptWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		caps := storage.Caps{CopyPart: rapid.Bool().Draw(t, "copies"), SamePart: rapid.Bool().Draw(t, "same"), MinPart: 5 * mib, MaxParts: 10_000}
		r := readahead.Span{At: rapid.Int64Range(0, 1<<40).Draw(t, "at"), N: rapid.Int64Range(0, 3<<30).Draw(t, "n")}
		waiting := rapid.Int64Range(0, 8*mib).Draw(t, "waiting")
		at := r.At
		for i, s := range keepOld(r, waiting, 1, caps) {
			if s.At != at {
				t.Fatalf("step %d begins at %d, want %d", i, s.At, at)
			}
			at = s.End()
			if !s.copied {
				waiting += s.N
				continue
			}
			if !caps.CopyPart || caps.SamePart {
				t.Fatal("the store cannot copy parts")
			}
			if s.N < caps.MinPart || waiting > 0 && waiting < caps.MinPart {
				t.Fatalf("step %d makes a part of %d bytes after one of %d", i, s.N, waiting)
			}
			waiting = 0
		}
		if at != r.End() {
			t.Fatalf("it ends at %d, want %d", at, r.End())
		}
	})
}

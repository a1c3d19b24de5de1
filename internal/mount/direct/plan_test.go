//go:build linux

package direct

import (
	"testing"

	"pgregory.net/rapid"

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
		r := span{rapid.Int64Range(0, 1<<40).Draw(t, "at"), rapid.Int64Range(0, 3<<30).Draw(t, "n")}
		waiting := rapid.Int64Range(0, 8*mib).Draw(t, "waiting")
		at := r.at
		for i, s := range keepOld(r, waiting, 1, caps) {
			if s.at != at {
				t.Fatalf("step %d begins at %d, want %d", i, s.at, at)
			}
			at = s.end()
			if !s.copied {
				waiting += s.n
				continue
			}
			if !caps.CopyPart || caps.SamePart {
				t.Fatal("the store cannot copy parts")
			}
			if s.n < caps.MinPart || waiting > 0 && waiting < caps.MinPart {
				t.Fatalf("step %d makes a part of %d bytes after one of %d", i, s.n, waiting)
			}
			waiting = 0
		}
		if at != r.end() {
			t.Fatalf("it ends at %d, want %d", at, r.end())
		}
	})
}

func TestMissingCoversWhatIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 100*mib).Draw(t, "size")
		var have []span
		for at := int64(0); at < size; {
			at += rapid.Int64Range(0, 20*mib).Draw(t, "gap")
			n := rapid.Int64Range(1, rangeSize).Draw(t, "n")
			if at+n > size {
				break
			}
			have = append(have, span{at, n})
			at += n
		}
		off := rapid.Int64Range(0, size-1).Draw(t, "off")
		must := rapid.Int64Range(1, mib).Draw(t, "must")
		wanted := must + rapid.SampledFrom([]int64{0, mib, 8 * mib, 64 * mib}).Draw(t, "ahead")
		got := missing(off, wanted, must, size, have)
		all := append(append([]span(nil), have...), got...)
		for at := off; at < min(off+must, size); {
			next := at
			for _, s := range all {
				if s.at <= at && at < s.end() {
					next = s.end()
				}
			}
			if next == at {
				t.Fatalf("nothing brings byte %d", at)
			}
			at = next
		}
		for i, a := range all {
			if a.n < 1 || a.n > rangeSize || a.end() > size {
				t.Fatalf("a range of %d bytes at %d", a.n, a.at)
			}
			for _, b := range all[i+1:] {
				if a.at < b.end() && b.at < a.end() {
					t.Fatalf("%v and %v overlap", a, b)
				}
			}
		}
	})
}

func TestTheWindowGrowsWithASequence(t *testing.T) {
	var w window
	const step = 128 * kib
	if got := w.see(0, step); got != step+8*mib {
		t.Errorf("the first read at the beginning looks %d ahead", got-step)
	}
	last := w.size
	for off := int64(step); off < 4<<30; off += step {
		w.see(off, step)
		if w.size < last {
			t.Fatalf("at %d the window shrank to %d", off, w.size)
		}
		last = w.size
	}
	if last != maxWindow {
		t.Errorf("after 4 GB the window is %d", last)
	}
	// A jump ends it.
	if got := w.see(1<<30, step); got != step {
		t.Errorf("after a jump it looks %d ahead", got-step)
	}
	for i := range int64(20) {
		w.see(1<<30+(i+1)*step, step)
	}
	if w.size < mib {
		t.Errorf("a sequence after the jump looks %d ahead", w.size)
	}
}

func TestRandomReadsLookNowhere(t *testing.T) {
	var w window
	for i := range int64(100) {
		if got := w.see((i*7919%100)*10*mib+5*mib, 4096); got != 4096 {
			t.Fatalf("read %d looks %d ahead", i, got-4096)
		}
	}
}

func TestReadsInAnyOrderOfTheKernelAreASequence(t *testing.T) {
	var w window
	const step = 128 * kib
	for i := int64(0); i < 400; i += 4 {
		for _, j := range []int64{1, 0, 3, 2} {
			w.see((i+j)*step, step)
		}
	}
	if w.size < 32*mib {
		t.Errorf("the window is %d after 50 MB", w.size)
	}
}

//go:build linux

package readahead

import (
	"testing"

	"pgregory.net/rapid"
)

func TestMissingCoversWhatIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 100*mib).Draw(t, "size")
		var have []Span
		for at := int64(0); at < size; {
			at += rapid.Int64Range(0, 20*mib).Draw(t, "gap")
			n := rapid.Int64Range(1, RangeSize).Draw(t, "n")
			if at+n > size {
				break
			}
			have = append(have, Span{at, n})
			at += n
		}
		off := rapid.Int64Range(0, size-1).Draw(t, "off")
		must := rapid.Int64Range(1, mib).Draw(t, "must")
		wanted := must + rapid.SampledFrom([]int64{0, mib, 8 * mib, 64 * mib}).Draw(t, "ahead")
		got := Missing(off, wanted, must, size, have)
		all := append(append([]Span(nil), have...), got...)
		for at := off; at < min(off+must, size); {
			next := at
			for _, s := range all {
				if s.At <= at && at < s.End() {
					next = s.End()
				}
			}
			if next == at {
				t.Fatalf("nothing brings byte %d", at)
			}
			at = next
		}
		for i, a := range all {
			if a.N < 1 || a.N > RangeSize || a.End() > size {
				t.Fatalf("a range of %d bytes at %d", a.N, a.At)
			}
			for _, b := range all[i+1:] {
				if a.At < b.End() && b.At < a.End() {
					t.Fatalf("%v and %v overlap", a, b)
				}
			}
		}
	})
}

func TestTheWindowGrowsWithASequence(t *testing.T) {
	var w Window
	const step = 128 * kib
	if got := w.See(0, step); got != step+8*mib {
		t.Errorf("the first read at the beginning looks %d ahead", got-step)
	}
	last := w.size
	for off := int64(step); off < 4<<30; off += step {
		w.See(off, step)
		if w.size < last {
			t.Fatalf("at %d the window shrank to %d", off, w.size)
		}
		last = w.size
	}
	if last != MaxWindow {
		t.Errorf("after 4 GB the window is %d", last)
	}
	// A jump ends it.
	if got := w.See(1<<30, step); got != step {
		t.Errorf("after a jump it looks %d ahead", got-step)
	}
	for i := range int64(20) {
		w.See(1<<30+(i+1)*step, step)
	}
	if w.size < mib {
		t.Errorf("a sequence after the jump looks %d ahead", w.size)
	}
}

func TestRandomReadsLookNowhere(t *testing.T) {
	var w Window
	for i := range int64(100) {
		if got := w.See((i*7919%100)*10*mib+5*mib, 4096); got != 4096 {
			t.Fatalf("read %d looks %d ahead", i, got-4096)
		}
	}
}

func TestReadsInAnyOrderOfTheKernelAreASequence(t *testing.T) {
	var w Window
	const step = 128 * kib
	for i := int64(0); i < 400; i += 4 {
		for _, j := range []int64{1, 0, 3, 2} {
			w.See((i+j)*step, step)
		}
	}
	if w.size < 32*mib {
		t.Errorf("the window is %d after 50 MB", w.size)
	}
}

//go:build linux

package direct

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/internal/mount/vfs"
)

func TestLentContentStaysUntilItIsGivenBack(t *testing.T) {
	b := real(t)
	v := New(b, Options{Memory: 64 * mib})
	data := random(40*mib, 1)
	put(t, b, "large", data)
	h := open(t, v, "large", vfs.OpenOptions{Read: true})
	l := h.(vfs.Lender)
	p := make([]byte, mib)
	var lent [][]byte
	var done []func()
	at := []int64{0, 8*mib - kib} // the second one is in two pieces
	for _, off := range at {
		d, end, err := l.Lend(t.Context(), p, off)
		if err != nil {
			t.Fatal(err)
		}
		lent, done = append(lent, slices.Concat(d...)), append(done, end)
		if len(d) != len(lent) {
			t.Errorf("%d slices at %d", len(d), off)
		}
	}
	first, end, err := l.Lend(t.Context(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The reader moves on, and others use the memory that is free.
	for off := int64(0); off < int64(len(data)); off += mib {
		if n, err := h.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p[:n], data[off:off+mib]) {
			t.Fatalf("at %d: %d bytes, %v", off, n, err)
		}
	}
	h.Release()
	if v.budget.Left() == v.memory {
		t.Error("the memory is free while it is lent")
	}
	if !bytes.Equal(first[0], data[:mib]) {
		t.Error("what is lent has changed")
	}
	for i, off := range at {
		if !bytes.Equal(lent[i], data[off:off+mib]) {
			t.Errorf("another content at %d", off)
		}
		done[i]()
	}
	end()
	waitFor(t, "the memory to be free", func() bool { return v.budget.Left() == v.memory })
}

// Readers that need more memory together than there is read what is in the objects.
func TestManyReadersShareTheMemory(t *testing.T) {
	b := real(t)
	v := New(b, Options{Memory: 20 * mib})
	const size = 12*mib + 345
	var wg sync.WaitGroup
	for i := range 6 {
		data := random(size, uint64(i))
		name := string(rune('a' + i))
		put(t, b, name, data)
		h := open(t, v, name, vfs.OpenOptions{Read: true})
		wg.Go(func() {
			defer h.Release()
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			p := make([]byte, mib)
			for off, n := int64(0), 0; n < 60; n++ {
				want := rng.IntN(mib) + 1
				if rng.IntN(5) == 0 {
					off = rng.Int64N(size)
				}
				d, done, err := h.(vfs.Lender).Lend(t.Context(), p[:want], off)
				if err != nil {
					t.Error(err)
					return
				}
				end := min(off+int64(want), size)
				if got := slices.Concat(d...); !bytes.Equal(got, data[off:end]) {
					t.Errorf("%s: another content at %d", name, off)
				}
				done()
				if n, err := h.ReadAt(t.Context(), p[:want], off); err != nil || !bytes.Equal(p[:n], data[off:end]) {
					t.Errorf("%s: another content at %d is copied, %v", name, off, err)
				}
				if off = end; off == size {
					off = 0
				}
			}
		})
	}
	wg.Wait()
	waitFor(t, "the memory to be free", func() bool { return v.budget.Left() == v.memory })
}

//go:build linux

package block

import "testing"

const mib = 1 << 20

func TestFreedBlocksAreUsedAgain(t *testing.T) {
	b := New(64 * mib)
	other := b.Try(mib) // something is in use
	x := b.Try(8 * mib)
	x.Data[0] = 1
	first := &x.Data[0]
	x.Free()
	if y := b.Try(4 * mib); len(y.Data) != 4*mib {
		t.Fatalf("a block of %d bytes", len(y.Data))
	}
	y := b.Try(8 * mib)
	if &y.Data[0] != first {
		t.Error("the freed block of the same size is not used again")
	}
	y.Free()
	other.Free()
}

func TestSpareBlocksTakeNoMemoryThatBlocksNeed(t *testing.T) {
	b := New(24 * mib)
	x, y := b.Try(8*mib), b.Try(8*mib)
	x.Free()
	if b.spared != 8*mib {
		t.Fatalf("%d bytes are spare", b.spared)
	}
	z := b.Try(12 * mib) // 20 of 24: there is no room for the spare ones
	if z == nil || b.spared != 0 {
		t.Fatalf("%v, %d bytes are spare", z, b.spared)
	}
	forced := b.Force(16 * mib)
	if b.Left() != -12*mib {
		t.Errorf("%d bytes are left", b.Left())
	}
	forced.Free()
	z.Free()
	if b.spared+(b.total-b.left) > b.total {
		t.Errorf("%d bytes are spare, %d in use", b.spared, b.total-b.left)
	}
	y.Free()
	if b.spared != 0 || len(b.spare) != 0 || b.Left() != 24*mib {
		t.Errorf("nothing is in use, but %d bytes are spare and %d left", b.spared, b.Left())
	}
}

func TestSpareBlocksAreFew(t *testing.T) {
	b := New(1024 * mib)
	var all []*Block
	for range 20 {
		all = append(all, b.Try(8*mib))
	}
	for _, x := range all[1:] {
		x.Free()
		x.Free() // a second time does nothing
	}
	if b.spared != maxSpare {
		t.Errorf("%d bytes are spare", b.spared)
	}
	if b.Left() != 1016*mib {
		t.Errorf("%d bytes are left", b.Left())
	}
	all[0].Free()
	if b.spared != 0 {
		t.Errorf("nothing is in use, but %d bytes are spare", b.spared)
	}
}

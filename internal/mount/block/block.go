//go:build linux

// Package block hands out memory for content on its way, within a budget. The memory is
// mapped for each block and returned to the system with it: an idle mount holds none.
package block

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"
)

// A Budget is how much memory blocks may take together.
type Budget struct {
	mu    sync.Mutex
	left  int64
	freed chan struct{} // closed when something is given back
}

// New is a budget of so many bytes.
func New(bytes int64) *Budget { return &Budget{left: bytes, freed: make(chan struct{})} }

// Left is what is free. It is negative while more is used than there is.
func (b *Budget) Left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left
}

// A Block is a piece of memory.
type Block struct {
	Data   []byte
	budget *Budget
}

// Try takes a block if the budget has room for it.
func (b *Budget) Try(size int) *Block {
	if !b.take(int64(size), false) {
		return nil
	}
	return b.map_(size)
}

// Force takes a block, whether there is room or not: for callers who hold nothing that
// would be given back if they waited.
func (b *Budget) Force(size int) *Block {
	b.take(int64(size), true)
	return b.map_(size)
}

// Wait takes a block as soon as there is room.
func (b *Budget) Wait(ctx context.Context, size int) (*Block, error) {
	for {
		b.mu.Lock()
		freed := b.freed
		ok := b.left >= int64(size)
		if ok {
			b.left -= int64(size)
		}
		b.mu.Unlock()
		if ok {
			return b.map_(size), nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (b *Budget) take(n int64, force bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < n && !force {
		return false
	}
	b.left -= n
	return true
}

func (b *Budget) map_(size int) *Block {
	data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil { // no more mappings are allowed
		data = nil
	}
	x := &Block{Data: data, budget: b}
	if data == nil {
		x.Data = make([]byte, size)
	}
	return x
}

// Free returns the block. Nothing may use its data any more.
func (x *Block) Free() {
	if x == nil || x.budget == nil {
		return
	}
	b, n := x.budget, int64(len(x.Data))
	_ = unix.Munmap(x.Data) // of memory that was not mapped, it is an error without effect
	x.Data, x.budget = nil, nil
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	close(b.freed)
	b.freed = make(chan struct{})
}

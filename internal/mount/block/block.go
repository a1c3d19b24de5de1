//go:build linux

// Package block hands out memory for content on its way, within a budget. The memory is
// mapped for each block. As the system clears each page that is used for the first time, a
// few freed blocks are kept for the next ones, within the budget and only while others are in
// use: an idle mount holds no memory.
package block

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// maxSpare is the most memory that is kept for later blocks.
const maxSpare = 32 << 20

// A Budget is how much memory blocks may take together.
type Budget struct {
	mu     sync.Mutex
	total  int64
	left   int64
	freed  chan struct{} // closed when something is given back
	spare  [][]byte      // mapped and unused, the oldest first
	spared int64         // bytes of spare
}

// New is a budget of so many bytes.
func New(bytes int64) *Budget {
	return &Budget{total: bytes, left: bytes, freed: make(chan struct{})}
}

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
	heap   bool // Data is not mapped
}

// Try takes a block if the budget has room for it. What the block holds is arbitrary.
func (b *Budget) Try(size int) *Block {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < int64(size) {
		return nil
	}
	return b.take(size)
}

// Force takes a block, whether there is room or not: for callers who hold nothing that
// would be given back if they waited.
func (b *Budget) Force(size int) *Block {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(size)
}

// Wait takes a block as soon as there is room.
func (b *Budget) Wait(ctx context.Context, size int) (*Block, error) {
	for {
		b.mu.Lock()
		if b.left >= int64(size) {
			x := b.take(size)
			b.mu.Unlock()
			return x, nil
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take maps a block, or reuses one of the same size. b.mu is held.
func (b *Budget) take(size int) *Block {
	b.left -= int64(size)
	for i := len(b.spare) - 1; i >= 0; i-- {
		if data := b.spare[i]; len(data) == size {
			b.spare = slices.Delete(b.spare, i, i+1)
			b.spared -= int64(size)
			return &Block{Data: data, budget: b}
		}
	}
	b.shrink(b.left)
	data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil { // no more mappings are allowed
		return &Block{Data: make([]byte, size), budget: b, heap: true}
	}
	return &Block{Data: data, budget: b}
}

// shrink keeps at most so many spare bytes. b.mu is held.
func (b *Budget) shrink(most int64) {
	for len(b.spare) > 0 && b.spared > most {
		b.spared -= int64(len(b.spare[0]))
		_ = unix.Munmap(b.spare[0]) // it was mapped as a whole: nothing can fail
		b.spare = slices.Delete(b.spare, 0, 1)
	}
}

// Free returns the block. Nothing may use its data any more.
func (x *Block) Free() {
	if x == nil || x.budget == nil {
		return
	}
	b, data := x.budget, x.Data
	x.Data, x.budget = nil, nil
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += int64(len(data))
	if !x.heap {
		b.spare = append(b.spare, data)
		b.spared += int64(len(data))
	}
	most := min(b.left, maxSpare)
	if b.left == b.total {
		most = 0
	}
	b.shrink(most)
	close(b.freed)
	b.freed = make(chan struct{})
}

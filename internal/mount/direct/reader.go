//go:build linux

package direct

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"

	"github.com/skypilot-go/sky/internal/mount/block"
	"github.com/skypilot-go/sky/internal/mount/readahead"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// maxJumps is how many ranges a reader keeps that belong to no sequence.
const maxJumps = 16

// A reader reads one object as it was when it was opened, ahead of whoever reads.
type reader struct {
	bucket storage.Bucket
	obj    storage.Object
	budget *block.Budget
	total  int64 // of the budget
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	window readahead.Window
	pieces []*piece // in order of their ranges, which do not overlap
	jumps  int      // since the beginning
	closed bool
}

// A piece is a range that is there or under way.
type piece struct {
	readahead.Span
	block   *block.Block
	filled  int64
	err     error
	done    bool
	dropped bool
	lent    int           // how many are using its data
	jump    int           // 0: of a sequence
	more    chan struct{} // closed when filled, err or done change
	cancel  context.CancelFunc
}

func newReader(b storage.Bucket, o storage.Object, budget *block.Budget, total int64) *reader {
	r := &reader{bucket: b, obj: o, budget: budget, total: total}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *reader) close() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, p := range r.pieces {
		r.drop(p)
	}
	r.pieces = nil
}

// drop gives up a piece. r.mu is held.
func (r *reader) drop(p *piece) {
	p.dropped = true
	p.cancel()
	p.mayFree()
}

// mayFree frees the memory of a piece that nobody fills, uses or will use. r.mu is held.
func (p *piece) mayFree() {
	if p.dropped && p.done && p.lent == 0 {
		p.block.Free()
	}
}

// lend reads up to len(p) bytes: fewer mean the end. The content is in data until done is
// called; what is in no piece is read into p, to where a copy of the whole has it.
func (r *reader) lend(ctx context.Context, p []byte, off int64) (data [][]byte, done func(), err error) {
	end := min(off+int64(len(p)), r.obj.Size)
	if off >= end {
		return nil, func() {}, nil
	}
	r.ahead(off, end-off)
	start := off
	var used []*piece
	done = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, x := range used {
			x.lent--
			x.mayFree()
		}
	}
	for off < end {
		x, err := r.piece(ctx, off, end)
		if err != nil {
			done()
			return nil, nil, err
		}
		if x == nil {
			p = p[off-start : end-start]
			if err := r.straight(ctx, p, off); err != nil {
				done()
				return nil, nil, err
			}
			return append(data, p), done, nil
		}
		used = append(used, x)
		n := min(end, x.End()) - off
		data = append(data, x.block.Data[off-x.At:][:n])
		off += n
	}
	return data, done, nil
}

// piece waits until the piece with the byte at off has all of its bytes before end, and
// marks it as lent; nil: there is no such piece.
func (r *reader) piece(ctx context.Context, off, end int64) (*piece, error) {
	for {
		r.mu.Lock()
		i := slices.IndexFunc(r.pieces, func(x *piece) bool { return x.At <= off && off < x.End() })
		if i < 0 {
			r.mu.Unlock()
			return nil, nil
		}
		x := r.pieces[i]
		if x.At+x.filled >= min(end, x.End()) {
			x.lent++
			r.mu.Unlock()
			return x, nil
		}
		err, more := x.err, x.more
		r.mu.Unlock()
		if err != nil {
			return nil, replaced(r.obj.Key, err)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ahead asks for what is wanted from now on, and gives up what is behind.
func (r *reader) ahead(off, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	wanted := r.window.See(off, n)
	jump := 0
	if r.window.Jumped() {
		wanted = max(n, readahead.JumpSize)
		r.jumps++
		jump = r.jumps
	}
	r.pieces = slices.DeleteFunc(r.pieces, func(p *piece) bool {
		old := p.jump > 0 && p.jump <= r.jumps-maxJumps || p.jump == 0 && (p.End() <= off-readahead.Near || p.At > off+wanted+readahead.MaxWindow)
		failed := p.err != nil
		if old || failed {
			r.drop(p)
		}
		return old || failed
	})
	have := make([]readahead.Span, len(r.pieces))
	for i, p := range r.pieces {
		have[i] = p.Span
	}
	for i, s := range readahead.Missing(off, wanted, n, r.obj.Size, have) {
		// Others who begin to read find some room.
		if i > 0 && len(r.pieces) > 1 && r.budget.Left() < r.total/4 {
			return
		}
		b := r.budget.Try(int(s.N))
		if b == nil {
			return
		}
		r.fetch(s, b, jump)
	}
}

// fetch asks for a range. r.mu is held.
func (r *reader) fetch(s readahead.Span, b *block.Block, jump int) {
	p := &piece{Span: s, block: b, jump: jump, more: make(chan struct{})}
	ctx, cancel := context.WithCancel(r.ctx)
	p.cancel = cancel
	i, _ := slices.BinarySearchFunc(r.pieces, s.At, func(p *piece, at int64) int { return int(min(max(p.At-at, -1), 1)) })
	r.pieces = slices.Insert(r.pieces, i, p)
	go func() {
		defer cancel()
		err := r.fill(ctx, p)
		r.mu.Lock()
		defer r.mu.Unlock()
		p.done = true
		p.err = err
		p.mayFree()
		close(p.more)
	}()
}

func (r *reader) fill(ctx context.Context, p *piece) error {
	got, err := r.bucket.Get(ctx, r.obj.Key, storage.GetOptions{Offset: p.At, Length: p.N, IfMatch: r.obj.ETag})
	if err != nil {
		return err
	}
	defer got.Close()
	for p.filled < p.N {
		n, err := got.Read(p.block.Data[p.filled:min(p.filled+256*kib, p.N)])
		r.mu.Lock()
		p.filled += int64(n)
		if n > 0 && p.filled < p.N {
			close(p.more)
			p.more = make(chan struct{})
		}
		r.mu.Unlock()
		if err == io.EOF {
			if p.filled < p.N {
				return io.ErrUnexpectedEOF
			}
			break
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// straight reads a range without any block: when all memory is in use.
func (r *reader) straight(ctx context.Context, p []byte, off int64) error {
	got, err := r.bucket.Get(ctx, r.obj.Key, storage.GetOptions{Offset: off, Length: int64(len(p)), IfMatch: r.obj.ETag})
	if err != nil {
		return replaced(r.obj.Key, err)
	}
	defer got.Close()
	_, err = io.ReadFull(got, p)
	return replaced(r.obj.Key, err)
}

// replaced says that an object is not any more what was opened.
func replaced(key string, err error) error {
	_, changed := errors.AsType[*storage.ConflictError](err)
	gone, missing := errors.AsType[*storage.NotFoundError](err)
	if changed || missing && gone.Key != "" {
		return &vfs.Error{Errno: syscall.ESTALE, Reason: "the object " + key + " was replaced or deleted while it was read: open it again", Err: err}
	}
	return err
}

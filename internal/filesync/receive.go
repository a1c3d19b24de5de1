//go:build unix

package filesync

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/destination"
)

// A receiver is the receiving end of one sync. One goroutine reads frames and
// hands them out (pump); another leads the sync through its steps: compare,
// prepare, write, finish. Nothing is changed before the sender has listed all
// that it has.
type receiver struct {
	*link
	home    string
	place   func(ctx context.Context, path string, folder bool) (string, error) // see Receiver
	hello   hello
	dest    *dest
	plan    *plan
	hashes  *hashes
	journal *journal
	brought *brought // nil: nothing is removed
	removed int      // entries
	kept    []string // paths of what could not be removed

	metaMu     sync.Mutex
	folderMeta map[string]*block // folders of the source, for their modes and times
	hellos     chan hello
	blocks     chan *block   // closed at the end of the manifest
	files      chan []byte   // payloads of files frames; closed at the end
	chunks     []chan *chunk // by writer; the same
}

// writers is how many files are written at once, comparers how many folders
// are looked at.
var (
	writers   = min(max(runtime.GOMAXPROCS(0), 2), 8)
	comparers = writers
)

// errAborted means that the sender gave up.
var errAborted = errors.New("the sender gave up")

func (r *receiver) run(ctx context.Context) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for range writers {
		r.chunks = append(r.chunks, make(chan *chunk, 2))
	}
	pumped := make(chan error, 1)
	go func() {
		err := r.pump(work, stop)
		if err != nil {
			stop(err)
		}
		pumped <- err
	}()
	err := r.lead(work)
	stop(err)
	done := appendError(newFrame(frameDone), err)
	if err == nil && r.hello.mirror != "" {
		done = binary.AppendUvarint(done, uint64(r.removed))
	}
	r.send(ctx, done) // if it fails, so has the link
	r.flush()
	return <-pumped
}

// lead takes the sync through its steps.
func (r *receiver) lead(ctx context.Context) (err error) {
	select {
	case r.hello = <-r.hellos:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	path, err := destination.Path(r.hello.dst, r.home)
	if err != nil {
		return err
	}
	if r.place != nil {
		if path, err = r.place(ctx, path, !r.hello.file); err != nil {
			return err
		}
	}
	unlock, err := lockDest(ctx, stateDir(r.home), path, func() { r.work.Add(1) })
	if err != nil {
		return err
	}
	defer unlock()
	if r.dest, err = openDest(r.hello, path); err != nil {
		return err
	}
	defer r.dest.close()
	defer r.dropParts()
	r.hashes = hashesOf(stateDir(r.home), r.dest.path)
	defer r.hashes.save()
	if r.hello.mirror != "" && !r.hello.file {
		r.brought, r.folderMeta = broughtTo(stateDir(r.home), r.dest.path, r.hello.mirror), map[string]*block{}
	}
	if err := r.compareAll(ctx); err != nil {
		return err
	}
	if err := r.send(ctx, newFrame(frameCompared)); err != nil {
		return err
	}
	r.journal = openJournal(stateDir(r.home), r.dest.path)
	defer r.journal.leave()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.writeAll(ctx); err != nil {
		return err
	}
	if n := r.plan.left.Load(); n != 0 {
		return badf("the sender ended %d files too early", n)
	}
	if err := r.finish(ctx); err != nil {
		return err
	}
	if r.brought != nil && (r.brought.changes || len(r.brought.gone()) > 0) {
		_ = r.brought.end(r.kept) // or what begin wrote holds
	}
	r.journal.done(r.dest)
	return nil
}

const wantsGoal = 8 << 10 // of a wants frame

func (r *receiver) compareAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range comparers {
		g.Go(func() error {
			c := &comparer{receiver: r}
			f := newFrame(frameWants)
			for {
				b, err := r.nextBlock(ctx, &f)
				if b == nil || err != nil {
					return err
				}
				wants, all, err := c.compare(ctx, b)
				if err != nil {
					return err
				}
				if len(wants) == 0 {
					continue
				}
				if all {
					wants = nil
				}
				if f = appendWants(f, b.id, wants); len(f) > wantsGoal {
					if err := r.send(ctx, f); err != nil {
						return err
					}
					f = newFrame(frameWants)
				}
			}
		})
	}
	return g.Wait()
}

// nextBlock waits for a block; nil is the end. Before it waits it sends the
// wants that have been collected.
func (r *receiver) nextBlock(ctx context.Context, f *[]byte) (*block, error) {
	select {
	case b, ok := <-r.blocks:
		if ok {
			return b, nil
		}
	default:
	}
	if len(*f) > headerLen {
		if err := r.send(ctx, *f); err != nil {
			return nil, err
		}
		*f = newFrame(frameWants)
	}
	select {
	case b := <-r.blocks:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *receiver) writeAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range writers {
		g.Go(func() error {
			w := &writer{receiver: r}
			defer w.leave()
			files, chunks := r.files, r.chunks[i]
			for files != nil || chunks != nil {
				select {
				case p, ok := <-files:
					if !ok {
						files = nil
						continue
					}
					if err := w.records(ctx, p); err != nil {
						return err
					}
					putBuffer(p)
				case c, ok := <-chunks:
					if !ok {
						chunks = nil
						continue
					}
					if err := w.chunk(c); err != nil {
						return err
					}
					putBuffer(c.payload)
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// A listCount checks a manifest against its limits.
type listCount struct {
	blocks, items, bytes int
	seen                 []uint64 // bit set of the blocks' ids
	file                 bool     // a single file is listed
	done                 bool
}

func (c *listCount) add(b *block) error {
	c.blocks++
	c.items += len(b.items)
	if c.items > maxItems || c.blocks > maxBlocks {
		return badf("too many files")
	}
	word, bit := b.id/64, uint64(1)<<(b.id%64)
	if word >= len(c.seen) {
		c.seen = append(c.seen, make([]uint64, word+1-len(c.seen))...)
	}
	if c.seen[word]&bit != 0 {
		return badf("a folder is listed twice")
	}
	c.seen[word] |= bit
	if c.file && (c.blocks > 1 || b.path != "" || len(b.items) != 1 || b.items[0].kind != kindFile) {
		return badf("a single file was promised")
	}
	return nil
}

// pump reads frames until the sender has ended its part, hands them out while
// the work goes on, and drops them when it has failed. An error means that
// the connection cannot be used any more.
func (r *receiver) pump(work context.Context, stop context.CancelCauseFunc) error {
	var count listCount
	for first := true; ; first = false {
		kind, p, err := r.read()
		if err != nil {
			err = cutError(err)
			if _, ok := errors.AsType[*protocolError](err); !ok {
				r.fail(err)
			}
			return err
		}
		if (kind == frameHello) != first {
			return badf("a sync must open once")
		}
		switch kind {
		case frameHello:
			h, err := readHello(p)
			if err != nil {
				return err
			}
			r.hellos <- h
			count.file = h.file
		case frameFolders:
			err = r.pumpBlocks(work, p, &count)
		case frameListed:
			d := decoder{b: p}
			if n := d.below(maxBlocks + 1); d.end() != nil || count.done || n != count.blocks {
				return badf("the list of files is not whole")
			}
			count.done = true
			close(r.blocks)
		case frameFiles:
			if !count.done {
				return badf("content came before the list of files")
			}
			give(work, r.files, p)
		case frameChunk:
			var c chunk
			if c, err = readChunk(p); err == nil && count.done {
				c.payload = p
				give(work, r.chunks[(c.block+c.item)%len(r.chunks)], &c)
			}
		case frameEnd:
			if !count.done {
				return badf("the sender ended too early")
			}
			close(r.files)
			for _, c := range r.chunks {
				close(c)
			}
			return nil
		case frameAbort:
			stop(errAborted)
			return nil
		default:
			err = badf("an unknown frame")
		}
		if err != nil {
			return err
		}
	}
}

// give hands something over, or drops it when the work has ended.
func give[T any](work context.Context, to chan<- T, v T) {
	select {
	case to <- v:
	case <-work.Done():
	}
}

func (r *receiver) pumpBlocks(work context.Context, p []byte, count *listCount) error {
	defer putBuffer(p)
	if count.bytes += len(p); count.bytes > maxManifest || count.done {
		return badf("the list of files is too long, or goes on after its end")
	}
	for d := (decoder{b: p}); len(d.b) > 0; {
		b := readBlock(&d)
		if d.err != nil {
			return d.err
		}
		if err := count.add(b); err != nil {
			return err
		}
		give(work, r.blocks, b)
	}
	return nil
}

package filesync

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Send makes the receiver that runs Serve at the other end of conn have what
// o.Src has. It deletes nothing there. When it returns nil, *NoSpaceError or
// *ConflictError, or an error about the source, conn can be used for another
// Send; after a failure of the connection or the end of ctx it must be closed.
// To be cut short, conn must be a net.Conn or an io.Closer.
func Send(ctx context.Context, conn io.ReadWriter, o Options) (Stats, error) {
	if err := ctx.Err(); err != nil {
		return Stats{}, context.Cause(ctx)
	}
	t, err := openTree(o.Src, o.Ignore)
	if err != nil {
		return Stats{}, err
	}
	defer t.close()
	if t.file && o.Contents {
		return Stats{}, fmt.Errorf("%q is a file, but the contents of a folder are wanted", o.Src.String())
	}
	if o.Dst == "" || len(o.Dst) > maxPath || len(o.Mirror) > maxPath {
		return Stats{}, fmt.Errorf("file sync: %q is no destination", o.Dst)
	}
	l, ctx := newLink(ctx, conn, bufio.NewReaderSize(conn, 32<<10), o.Timeout)
	s := &sender{link: l, tree: t, opts: o, hashes: hashesOf(o.cacheDir(), t.folder())}
	s.wants.init()
	err = s.run(ctx)
	if broken := l.close(ctx); broken != nil {
		err = broken
	}
	s.stats.WireBytes, s.stats.Removed = l.wire.Load(), s.removed
	s.hashes.save()
	return s.stats, err
}

// A sender is the sending end of one sync.
type sender struct {
	*link
	tree    *tree
	opts    Options
	hashes  *hashes
	wants   wantQueue
	meter   meter
	mu      sync.Mutex
	blocks  []*sentBlock // by id
	removed int
	stats   Stats // folders, links and what is left are counted under mu
}

// A sentBlock remembers what has been asked for.
type sentBlock struct {
	block
	asked []bool // by item
}

func (s *sender) run(ctx context.Context) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	verdict := make(chan error, 1)
	go func() {
		err := s.receive()
		stop(errPeerDone)
		verdict <- err
	}()
	err := s.produce(ctx, work)
	last := newFrame(frameEnd)
	if err != nil {
		last = appendError(newFrame(frameAbort), err)
	}
	s.send(ctx, last) // if it fails, so has the link
	s.flush()
	done := <-verdict
	switch {
	case errors.Is(err, errPeerDone) && done == nil:
		return badf("the receiver finished too early")
	case errors.Is(err, errPeerDone):
		return done
	case err != nil:
		return err
	}
	return done
}

// receive reads what the receiver says until it has finished.
func (s *sender) receive() error {
	defer s.wants.close()
	for compared := false; ; {
		kind, p, err := s.read()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			err = fmt.Errorf("file sync: the connection broke: %w", err)
			s.fail(err)
			return err
		}
		d := decoder{b: p}
		switch {
		case kind == frameWants && !compared:
			err = s.take(&d)
		case kind == frameCompared && !compared:
			compared = true
			s.wants.close()
			err = d.end()
		case kind == frameDone:
			verdict := readError(&d)
			if verdict == nil && s.opts.Mirror != "" {
				s.removed = d.below(maxItems * 2)
			}
			if err = d.end(); err == nil && (verdict != nil || compared) {
				return verdict
			}
			err = cmp.Or(err, badf("the receiver finished too early"))
		default:
			err = badf("the receiver sent an unexpected frame")
		}
		if err != nil {
			s.fail(err)
			return err
		}
		putBuffer(p)
	}
}

// take queues what the receiver asks for, each file once.
func (s *sender) take(d *decoder) error {
	for d.err == nil && len(d.b) > 0 {
		id, wants := readWants(d)
		if d.err != nil {
			break
		}
		s.mu.Lock()
		var b *sentBlock
		if id < len(s.blocks) {
			b = s.blocks[id]
		}
		s.mu.Unlock()
		if b == nil {
			return badf("the receiver wants files of an unknown folder")
		}
		if len(wants) == 0 {
			for i := range b.items {
				if b.items[i].kind == kindFile {
					wants = append(wants, want{item: i})
				}
			}
		}
		refs := make([]ref, 0, len(wants))
		for _, w := range wants {
			if w.item >= len(b.items) || b.items[w.item].kind != kindFile || b.asked[w.item] {
				return badf("the receiver wants what is no file, or a file twice")
			}
			b.asked[w.item] = true
			s.meter.wanted(b.items[w.item].size)
			refs = append(refs, ref{b, w})
		}
		s.wants.add(refs)
	}
	return d.err
}

// produce sends everything that leads to the end of the sync. Its frames are
// sent under work, which ends early when the receiver has finished.
func (s *sender) produce(ctx, work context.Context) error {
	if err := s.send(work, hello{file: s.tree.file, contents: s.opts.Contents, dst: s.opts.Dst, mirror: s.opts.Mirror}.frame()); err != nil {
		return err
	}
	stop := s.meter.report(ctx, s.opts.Progress)
	defer stop()
	err := s.list(work)
	if err == nil {
		err = s.supply(work)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter.addTo(&s.stats)
	return err
}

// list sends the manifest.
func (s *sender) list(ctx context.Context) error {
	var err error
	if s.tree.file {
		v := &lister{s: s, ctx: ctx}
		it := s.tree.meta
		it.name = "file" // the receiver takes it from the destination
		err = errors.Join(v.visit("", &item{}, &listing{items: []item{it}}), v.idle())
	} else {
		err = crawlTree(ctx, s.tree, func() visitor { return &lister{s: s, ctx: ctx} })
	}
	if err != nil {
		return err
	}
	f := binary.AppendUvarint(newFrame(frameListed), uint64(len(s.blocks)))
	return s.send(ctx, f)
}

// A lister turns the folders of one crawler into frames.
type lister struct {
	s     *sender
	ctx   context.Context
	frame []byte
}

const frameGoal = 32 << 10 // of a folders frame

func (v *lister) visit(path string, meta *item, l *listing) error {
	v.s.work.Add(1)
	v.s.mu.Lock()
	st := &v.s.stats
	st.Left.add(&l.left)
	if !v.s.tree.file {
		st.Folders++
	}
	v.s.mu.Unlock()
	for first := true; first || len(l.items) > 0; first = false {
		n, bytes := 0, 0
		for n < len(l.items) && n < maxBlockItems && bytes < frameGoal {
			bytes += 40 + len(l.items[n].name) + len(l.items[n].target)
			n++
		}
		b := &sentBlock{block: block{path: path, perm: meta.perm, mtime: meta.mtime, items: append([]item(nil), l.items[:n]...)}, asked: make([]bool, n)}
		l.items = l.items[n:]
		if err := v.add(b); err != nil {
			return err
		}
	}
	return nil
}

func (v *lister) add(b *sentBlock) error {
	links, bytes := 0, int64(0)
	for i := range b.items {
		if b.items[i].kind == kindLink {
			links++
		} else {
			bytes += b.items[i].size
		}
	}
	v.s.meter.found(len(b.items)-links, bytes)
	v.s.mu.Lock()
	v.s.stats.Links += links
	b.id = len(v.s.blocks)
	v.s.blocks = append(v.s.blocks, b)
	v.s.mu.Unlock()
	if b.id >= maxBlocks {
		return errors.New("file sync: the source has too many folders")
	}
	if v.frame == nil {
		v.frame = newFrame(frameFolders)
	}
	v.frame = appendBlock(v.frame, &b.block)
	if len(v.frame) > frameGoal {
		return v.idle()
	}
	return nil
}

// idle sends what has been collected.
func (v *lister) idle() error {
	if v.frame == nil {
		return nil
	}
	f := v.frame
	v.frame = nil
	return v.s.send(v.ctx, f)
}

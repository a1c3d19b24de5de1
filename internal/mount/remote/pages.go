//go:build linux

package remote

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
)

// A store gives a list in pages, each of which says where the next one begins. Where it also
// lists what follows any key, pages that are far ahead are asked for at the same time, by
// guessing where they begin: each guess parts the keys that are not listed yet in two, so that
// a wrong one costs a request and no key.

const (
	mostAhead   = 4 // pages that are asked for at the same time
	worthAhead  = 100
	wrongBefore = 2 // rounds of wrong guesses before a list is read page by page
)

// pages are the pages of one level, in the order of their keys; pages that come after are
// asked for while one is used. Prefixes may be in more than one.
func (t *Tree) pages(ctx context.Context, prefix string) iter.Seq2[storage.Page, error] {
	return func(yield func(storage.Page, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		l := &lister{bucket: t.Bucket, prefix: prefix, answers: make(chan answer, mostAhead)}
		go func() {
			defer close(l.answers)
			if err := l.run(ctx); err != nil && ctx.Err() == nil {
				l.send(ctx, storage.Page{}, err)
			}
		}()
		for a := range l.answers {
			if !yield(a.page, a.err) || a.err != nil {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(storage.Page{}, err)
		}
	}
}

type answer struct {
	page storage.Page
	err  error
}

type lister struct {
	bucket  storage.Bucket
	prefix  string
	answers chan answer
}

func (l *lister) send(ctx context.Context, p storage.Page, err error) bool {
	select {
	case l.answers <- answer{p, err}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *lister) get(ctx context.Context, token, after string) (storage.Page, error) {
	return l.bucket.List(ctx, storage.ListOptions{Prefix: l.prefix, Delimiter: "/", Token: token, After: after})
}

func (l *lister) run(ctx context.Context) error {
	width, wrong := 2, 0
	p, err := l.get(ctx, "", "")
	for {
		if err != nil {
			return err
		}
		if !l.send(ctx, p, nil) || p.Next == "" {
			return nil
		}
		var splits []string
		if wrong < wrongBefore && l.bucket.Caps().After {
			splits = guess(l.prefix, p, width-1)
		}
		if len(splits) == 0 {
			p, err = l.get(ctx, p.Next, "")
			width = 2
			continue
		}
		var right bool
		if p, right, err = l.round(ctx, p.Next, splits); right {
			width = min(2*width, mostAhead)
		} else {
			width, wrong = 2, wrong+1
		}
	}
}

// round lists what follows a token, in spans that end at the splits and one behind them, of
// which it sends all but the last page: the one it returns. right: each span was one page.
func (l *lister) round(ctx context.Context, token string, splits []string) (last storage.Page, right bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	spans := make([]chan answer, len(splits))
	for i, after := range splits {
		spans[i] = make(chan answer, 1)
		go func() {
			p, err := l.get(ctx, "", after)
			spans[i] <- answer{p, err}
		}()
	}
	p, err := l.get(ctx, token, "")
	right = true
	for i, until := range splits {
		for {
			if err != nil {
				return p, false, err
			}
			n, found := slices.BinarySearchFunc(p.Objects, until, func(o storage.Object, key string) int { return strings.Compare(o.Key, key) })
			if found {
				n++
			}
			over := n < len(p.Objects)
			if !over && p.Next == "" {
				return p, false, nil // the list ends before the split
			}
			if over {
				ahead := <-spans[i]
				if ahead.err != nil || !follows(ahead.page, until) {
					// The store does not list what follows a key, or in another order.
					return p, false, nil
				}
				if !l.send(ctx, storage.Page{Objects: p.Objects[:n], Prefixes: p.Prefixes}, nil) {
					return p, false, context.Cause(ctx)
				}
				p = ahead.page
				break
			}
			right = false
			if !l.send(ctx, p, nil) {
				return p, false, context.Cause(ctx)
			}
			p, err = l.get(ctx, p.Next, "")
		}
	}
	return p, right && len(p.Objects) > 0, nil
}

// follows reports whether a page is in order and behind a key.
func follows(p storage.Page, after string) bool {
	for _, o := range p.Objects {
		if o.Key <= after {
			return false
		}
		after = o.Key
	}
	return true
}

// guess gives n keys, or fewer, that are about a page apart from each other and from the end
// of a page, if the names go on as they do in the page.
func guess(prefix string, p storage.Page, n int) []string {
	if n < 1 || len(p.Objects) < worthAhead || len(p.Prefixes) > 0 || !follows(p, "") {
		return nil
	}
	first, last := p.Objects[0].Key[len(prefix):], p.Objects[len(p.Objects)-1].Key[len(prefix):]
	same := 0
	for same < min(len(first), len(last)) && first[same] == last[same] {
		same++
	}
	// Names are numbers. Their digits are the characters that are used where they differ.
	var used [128]bool
	differs := make([]bool, len(last))
	for _, o := range p.Objects {
		name := o.Key[len(prefix):]
		for i := same; i < max(len(name), len(last)); i++ {
			if i < min(len(name), len(last)) && name[i] == last[i] {
				continue
			}
			if i < len(last) {
				differs[i] = true
			}
			if i < len(name) {
				if name[i] >= 128 {
					return nil
				}
				used[name[i]] = true
			}
		}
	}
	for i := same; i < len(last); i++ {
		if last[i] >= 128 {
			return nil
		}
		used[last[i]] = used[last[i]] || differs[i]
	}
	var digits []byte
	for c, ok := range used {
		if ok {
			digits = append(digits, byte(c))
		}
	}
	from := same
	for from > max(0, same-4) && last[from-1] < 128 && used[last[from-1]] {
		from--
		differs[from] = true
	}
	base, length, limit := uint64(len(digits)), 0, uint64(1)
	for length < 20 && from+length < len(last) && limit < 1<<53/base {
		if differs[from+length] {
			limit *= base
		}
		length++
	}
	number := func(name string) (x uint64) {
		for i := range length {
			if !differs[from+i] {
				continue
			}
			x *= base
			if from+i < len(name) {
				d, _ := slices.BinarySearch(digits, name[from+i])
				x += uint64(d)
			}
		}
		return x
	}
	a, b := number(first), number(last)
	if b <= a {
		return nil
	}
	step := (b - a) / 20 * 19 // a little less than a page, so that one page reaches it
	var splits []string
	end := p.Objects[len(p.Objects)-1].Key
	for i := 1; i <= n; i++ {
		x := b + uint64(i)*step
		if x >= limit {
			break
		}
		text := []byte(last[from : from+length])
		for j := length - 1; j >= 0; j-- {
			if differs[from+j] {
				text[j] = digits[x%base]
				x /= base
			}
		}
		key := prefix + last[:from] + string(text)
		if key <= end {
			break
		}
		splits, end = append(splits, key), key
	}
	return splits
}

package filesync

import (
	"context"
	"runtime"
	"sync"

	"github.com/skypilot-go/sky/internal/filesync/ignore"
)

// crawlers is how many folders are read at once.
var crawlers = min(max(runtime.GOMAXPROCS(0), 2), 8)

// A crawl reads all folders of a tree in no order, several at once.
type crawl struct {
	tree  *tree
	mu    sync.Mutex
	more  *sync.Cond
	stack []pending // folders to read
	busy  int       // crawlers that may still find folders
	err   error
}

type pending struct {
	path  string
	meta  item
	rules *ignore.Matcher
}

// A visitor gets the folders that one crawler reads. The listing's items are
// valid until visit returns. idle is called before the crawler waits and when
// it ends.
type visitor interface {
	visit(path string, meta *item, l *listing) error
	idle() error
}

// crawlTree reads the whole tree; start makes the visitor of each crawler.
func crawlTree(ctx context.Context, t *tree, start func() visitor) error {
	c := &crawl{tree: t, stack: []pending{{"", t.meta, t.ignored}}}
	c.more = sync.NewCond(&c.mu)
	stop := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })
	defer stop()
	var wg sync.WaitGroup
	for range crawlers {
		wg.Go(func() {
			v := start()
			err := c.run(v)
			if err == nil {
				err = v.idle()
			}
			c.end(err)
		})
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *crawl) run(v visitor) error {
	var buf []item
	for {
		p, ok, err := c.next(v)
		if !ok {
			return err
		}
		l, gone, err := c.tree.list(p.path, p.rules, buf)
		if err == nil && !gone {
			buf = l.items
			c.push(p.path, &l)
			err = v.visit(p.path, &p.meta, &l)
		}
		c.mu.Lock()
		c.busy--
		c.mu.Unlock()
		c.more.Broadcast()
		if err != nil {
			return err
		}
	}
}

// next waits for a folder; ok is false when there will be none.
func (c *crawl) next(v visitor) (p pending, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stack) == 0 && c.busy > 0 && c.err == nil {
		c.mu.Unlock()
		err := v.idle()
		c.mu.Lock()
		if err != nil {
			return p, false, err
		}
	}
	for len(c.stack) == 0 && c.busy > 0 && c.err == nil {
		c.more.Wait()
	}
	if c.err != nil || len(c.stack) == 0 {
		return p, false, nil
	}
	p = c.stack[len(c.stack)-1]
	c.stack = c.stack[:len(c.stack)-1]
	c.busy++
	return p, true, nil
}

func (c *crawl) push(path string, l *listing) {
	if len(l.folders) == 0 {
		return
	}
	c.mu.Lock()
	for _, it := range l.folders {
		c.stack = append(c.stack, pending{join(path, it.name), it, l.rules})
	}
	c.mu.Unlock()
	c.more.Broadcast()
}

// end stops the crawl if err is not nil; the first error counts.
func (c *crawl) end(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.more.Broadcast()
}

//go:build linux

package remote

import (
	"container/list"
	"sync"
	"time"
)

// cache is what is known of paths, for a limited time and a limited number.
type cache struct {
	ttl time.Duration
	max int
	now func() time.Time

	mu       sync.Mutex
	entries  map[string]*list.Element
	listings map[string]*list.Element
	order    *list.List // of entries and listings, the latest used first
	count    int
	changes  uint64 // of what this mount did
}

type cached struct {
	path    string
	listing []Entry // of the folder at path, if entry is nil
	names   map[string]int
	entry   *Entry
	at      time.Time
}

func newCache(ttl time.Duration, most int, now func() time.Time) *cache {
	return &cache{ttl: ttl, max: most, now: now, entries: map[string]*list.Element{}, listings: map[string]*list.Element{}, order: list.New()}
}

func (c *cached) size() int { return 1 + len(c.listing) }

func (c *cache) drop(e *list.Element) {
	x := e.Value.(*cached)
	c.order.Remove(e)
	c.count -= x.size()
	if x.entry != nil {
		delete(c.entries, x.path)
	} else {
		delete(c.listings, x.path)
	}
}

func (c *cache) add(table map[string]*list.Element, x *cached) {
	if old := table[x.path]; old != nil {
		c.drop(old)
	}
	if x.size() > c.max {
		return
	}
	c.count += x.size()
	table[x.path] = c.order.PushFront(x)
	for c.count > c.max {
		c.drop(c.order.Back())
	}
}

// fresh is what is known, if it is young enough.
func (c *cache) fresh(table map[string]*list.Element, path string) *cached {
	e := table[path]
	if e == nil {
		return nil
	}
	x := e.Value.(*cached)
	if c.now().Sub(x.at) > c.ttl {
		c.drop(e)
		return nil
	}
	c.order.MoveToFront(e)
	return x
}

// lookup is what is known of a path, by itself or of its folder's listing.
func (c *cache) lookup(path string) (Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.fresh(c.entries, path); x != nil {
		return *x.entry, true
	}
	dir, name := split(path)
	if x := c.fresh(c.listings, dir); x != nil {
		if i, ok := x.names[name]; ok {
			return x.listing[i], true
		}
	}
	return Entry{}, false
}

func (c *cache) listing(dir string) ([]Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.fresh(c.listings, dir); x != nil {
		return x.listing, true
	}
	return nil, false
}

// state is to be asked before a request whose answer is then given to learn or
// learnListing: an answer that is older than a change is not kept.
func (c *cache) state() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

func (c *cache) learn(e Entry, state uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes == state {
		c.add(c.entries, &cached{path: e.Path, entry: &e, at: c.now()})
	}
}

func (c *cache) learnListing(dir string, all []Entry, state uint64) {
	names := make(map[string]int, len(all))
	for i, e := range all {
		_, name := split(e.Path)
		names[name] = i
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes == state {
		c.add(c.listings, &cached{path: dir, listing: all, names: names, at: c.now()})
	}
}

// changed forgets what is known of paths and of the listings that they are in, and
// keeps what is known instead, if anything is.
func (c *cache) changed(now *Entry, paths ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	for _, path := range paths {
		dir, _ := split(path)
		for _, e := range []*list.Element{c.entries[path], c.listings[dir]} {
			if e != nil {
				c.drop(e)
			}
		}
		if e := c.listings[path]; e != nil {
			c.drop(e)
		}
	}
	if now != nil {
		c.add(c.entries, &cached{path: now.Path, entry: now, at: c.now()})
	}
}

// forget forgets everything.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	clear(c.entries)
	clear(c.listings)
	c.order.Init()
	c.count = 0
}

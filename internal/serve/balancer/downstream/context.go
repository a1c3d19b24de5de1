package downstream

import (
	"context"
	"sync"
	"time"
)

// requestContext ends when the client leaves. Unlike those of package context it
// costs next to nothing while nobody asks for its channel.
type requestContext struct {
	mu    sync.Mutex
	err   error
	done  chan struct{}
	after map[int]func()
	one   func() // the first of after
	next  int
}

var _ context.Context = (*requestContext)(nil)

func (c *requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *requestContext) Value(any) any               { return nil }

func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// AfterFunc is that of [context.AfterFunc], which looks for it.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.one == nil && c.next == 0 {
		c.one = f
		c.next = 1
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			had := c.one != nil
			c.one = nil
			return had
		}
	}
	if c.after == nil {
		c.after = map[int]func(){}
	}
	c.next++
	key := c.next
	c.after[key] = f
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, had := c.after[key]
		delete(c.after, key)
		return had
	}
}

func (c *requestContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = context.Canceled
	if c.done != nil {
		close(c.done)
	}
	if c.one != nil {
		go c.one()
	}
	for _, f := range c.after {
		go f()
	}
	c.one, c.after = nil, nil
}

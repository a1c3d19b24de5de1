package awsfake

import "fmt"

// Trouble is what happens to one call.
type Trouble int

// The troubles. A lost answer is one of a call that had its effect.
const (
	Fine      Trouble = iota
	Busy              // RequestLimitExceeded
	Failing           // InternalError, and nothing happened
	Broken            // the connection breaks before the call is read
	Lost              // the connection breaks instead of the answer
	Exhausted         // 503 Unavailable instead of the answer
)

// Plague lets every call have the trouble that next draws for it; nil: none.
// next is never called twice at the same time.
func (c *Cloud) Plague(next func(service, action string) Trouble) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plague = next
}

func (c *Cloud) trouble(service, action string) Trouble {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plague == nil {
		return Fine
	}
	return c.plague(service, action)
}

// Settle is eventual consistency: what is new is unknown to so many calls that
// name it or list it, and a change is not in so many lists.
func (c *Cloud) Settle(calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsettled = calls
}

// Elapse lets so much time pass that everything is known everywhere.
func (c *Cloud) Elapse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled()
}

// settled makes everything known. The caller holds mu.
func (c *Cloud) settled() {
	clear(c.young)
	for _, g := range c.groups {
		g.unknown = 0
	}
	for _, p := range c.placements {
		p.unknown = 0
	}
	for _, i := range c.instances {
		i.hidden, i.behind, i.tagsBehind = 0, 0, 0
	}
}

// unknown reports that a call does not know a new thing yet. The caller holds mu.
func unknown(calls *int) bool {
	if *calls == 0 {
		return false
	}
	*calls--
	return true
}

func nth(prefix string, n int) string { return fmt.Sprintf("%s.%d", prefix, n) }

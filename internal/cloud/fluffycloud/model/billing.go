package model

import (
	"cmp"
	"slices"
	"time"
)

// Bill is one stretch of running time at one price.
type Bill struct {
	Instance string    `json:"instance"`
	Account  string    `json:"account"`
	Type     string    `json:"type"`
	Zone     string    `json:"zone"`
	Spot     bool      `json:"spot,omitempty"`
	Price    float64   `json:"price"` // $ an hour
	From     time.Time `json:"from"`
	To       time.Time `json:"to"` // zero: it goes on
}

// Took is the billed time, until now if it goes on.
func (b Bill) Took(now time.Time) time.Duration {
	if b.To.IsZero() {
		return now.Sub(b.From)
	}
	return b.To.Sub(b.From)
}

// Cost is what is owed, in $.
func (b Bill) Cost(now time.Time) float64 { return b.Price * b.Took(now).Hours() }

func (c *Cloud) openBill(i *instance) {
	t := c.typeOf(i)
	if t == nil {
		return
	}
	i.Open = &Bill{
		Instance: i.ID, Account: i.Account, Type: i.Type, Zone: i.Zone, Spot: i.Spot,
		Price: c.price(i.Zone, c.cfg.regionOf(i.Zone), t, i.Spot), From: c.s.Now,
	}
}

func (c *Cloud) closeBill(i *instance) {
	if i.Open == nil {
		return
	}
	b := *i.Open
	b.To = c.s.Now
	i.Open = nil
	c.s.Ledger = append(c.s.Ledger, b)
}

// Ledger lists everything that was billed, in the order it began. An instance
// is billed while it is running and at no other time.
func (c *Cloud) Ledger() []Bill {
	c.lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.s.Ledger)
	for _, i := range c.s.Instances {
		if i.Open != nil {
			all = append(all, *i.Open)
		}
	}
	slices.SortFunc(all, func(a, b Bill) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Instance, b.Instance))
	})
	return all
}

// Running is how long each instance has run so far, by the ledger.
func (c *Cloud) Running() map[string]time.Duration {
	sum := map[string]time.Duration{}
	now := c.cfg.Now()
	for _, b := range c.Ledger() {
		sum[b.Instance] += b.Took(now)
	}
	return sum
}

package model

import (
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Point is one moment of a trace: from then on a type has that price or that
// capacity in a zone.
type Point struct {
	After    time.Duration `json:"after"` // since [Cloud.Play]
	Zone     string        `json:"zone"`
	Type     string        `json:"type"`
	Spot     bool          `json:"spot,omitempty"`     // which of the two prices
	Price    *float64      `json:"price,omitempty"`    // $ an hour
	Capacity *int          `json:"capacity,omitempty"` // -1: unlimited
}

// Play lets a trace of prices and capacities begin.
func (c *Cloud) Play(trace []Point) error {
	c.lock()
	defer c.mu.Unlock()
	for _, p := range trace {
		if err := c.known(p.Zone, p.Type); err != nil {
			return err
		}
	}
	for _, p := range trace {
		c.plan(event{At: c.s.Now.Add(p.After), Kind: tracePoint, Point: &p})
	}
	c.advance(c.s.Now)
	return c.commit()
}

func (c *Cloud) known(zone, instanceType string) error {
	r := c.cfg.regionOf(zone)
	if r == nil {
		return fluffyapi.Errorf(fluffyapi.Invalid, "there is no zone %q", zone)
	}
	if c.cfg.typeIn(instanceType, r) == nil {
		return fluffyapi.Errorf(fluffyapi.Invalid, "region %s sells no %q", r.Name, instanceType)
	}
	return nil
}

func (c *Cloud) apply(p Point) {
	if p.Price != nil {
		c.setPrice(p.Zone, p.Type, p.Spot, *p.Price)
	}
	if p.Capacity != nil {
		c.setCapacity(p.Zone, p.Type, *p.Capacity)
	}
}

// SetCapacity says how many instances of a type a zone has in all, those in
// use included; -1 is unlimited. Spot instances that no longer fit are taken
// back, after their notice.
func (c *Cloud) SetCapacity(zone, instanceType string, n int) error {
	c.lock()
	defer c.mu.Unlock()
	if err := c.known(zone, instanceType); err != nil {
		return err
	}
	c.setCapacity(zone, instanceType, n)
	return c.commit()
}

// Leave sets the capacity so that exactly n more instances fit.
func (c *Cloud) Leave(zone, instanceType string, n int) error {
	c.lock()
	defer c.mu.Unlock()
	if err := c.known(zone, instanceType); err != nil {
		return err
	}
	c.setCapacity(zone, instanceType, c.used[zone+"/"+instanceType]+n)
	return c.commit()
}

func (c *Cloud) setCapacity(zone, instanceType string, n int) {
	key := zone + "/" + instanceType
	if n < 0 {
		delete(c.s.Capacity, key)
		if c.cfg.Capacity > 0 {
			c.s.Capacity[key] = 1 << 30
		}
		return
	}
	c.s.Capacity[key] = n
	var spot []*instance
	for _, i := range c.inOrder() { // of the dice
		if i.Zone == zone && i.Type == instanceType && i.Spot && i.State == fluffyapi.Running && i.TakenBack == nil {
			spot = append(spot, i)
		}
	}
	c.rng.Shuffle(len(spot), func(a, b int) { spot[a], spot[b] = spot[b], spot[a] })
	leaving := 0
	for _, i := range c.s.Instances {
		if i.Zone == zone && i.Type == instanceType && i.TakenBack != nil {
			leaving++
		}
	}
	for over := c.used[key] - leaving - n; over > 0 && len(spot) > 0; over-- {
		c.giveNotice(spot[0], c.cfg.Notice)
		spot = spot[1:]
	}
}

// giveNotice tells a running spot instance that it will be taken back.
func (c *Cloud) giveNotice(i *instance, after time.Duration) {
	at := c.s.Now.Add(after)
	i.TakenBack = &at
	c.planFor(i, takenBack, after)
}

// SetPrice changes what a type costs in a zone from now on.
func (c *Cloud) SetPrice(zone, instanceType string, spot bool, price float64) error {
	c.lock()
	defer c.mu.Unlock()
	if err := c.known(zone, instanceType); err != nil {
		return err
	}
	if price < 0 {
		return fluffyapi.Errorf(fluffyapi.Invalid, "%g is no price", price)
	}
	c.setPrice(zone, instanceType, spot, price)
	return c.commit()
}

func (c *Cloud) setPrice(zone, instanceType string, spot bool, price float64) {
	c.s.Prices[priceKey(zone, instanceType, spot)] = price
	for _, i := range c.inOrder() { // of the ledger
		if i.Open != nil && i.Zone == zone && i.Type == instanceType && i.Spot == spot {
			c.closeBill(i)
			c.openBill(i)
		}
	}
}

func (c *Cloud) price(zone string, r *Region, t *Type, spot bool) float64 {
	if p, ok := c.s.Prices[priceKey(zone, t.Name, spot)]; ok {
		return p
	}
	p := t.Price
	if spot {
		p = t.SpotPrice
	}
	if r.Factor != 0 {
		p *= r.Factor
	}
	return p
}

func priceKey(zone, instanceType string, spot bool) string {
	if spot {
		return zone + "/" + instanceType + "/spot"
	}
	return zone + "/" + instanceType + "/on-demand"
}

// SetQuota says how much of a family ("cpus" or an accelerator, after "spot-"
// for spot instances) an account may have in a region; -1 is no limit.
func (c *Cloud) SetQuota(account, region, family string, limit int) error {
	c.lock()
	defer c.mu.Unlock()
	if c.cfg.region(region) == nil {
		return fluffyapi.Errorf(fluffyapi.Invalid, "there is no region %q", region)
	}
	key := account + "/" + region + "/" + family
	if limit < 0 {
		delete(c.s.Limits, key)
	} else {
		c.s.Limits[key] = limit
	}
	return c.commit()
}

// LeaveQuota sets the quota so that exactly n more instances of the type fit.
func (c *Cloud) LeaveQuota(account, zone, instanceType string, spot bool, n int) error {
	c.lock()
	defer c.mu.Unlock()
	if err := c.known(zone, instanceType); err != nil {
		return err
	}
	r := c.cfg.regionOf(zone)
	family, units := c.cfg.typeIn(instanceType, r).family(spot)
	key := account + "/" + r.Name + "/" + family
	c.s.Limits[key] = c.quota[key] + n*units
	return c.commit()
}

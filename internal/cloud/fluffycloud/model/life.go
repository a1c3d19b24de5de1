package model

import (
	"fmt"
	"maps"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Reasons that instances give for what nobody asked for.
const (
	preempted = "preempted: the zone needed the machine for somebody who pays the full price"
	switched  = "the machine switched itself off"
)

// move changes an instance's state and everything that follows from it: the
// capacity and quota it holds, its bill, its name, its next event.
func (c *Cloud) move(i *instance, to fluffyapi.State, reason string) {
	from := i.State
	i.State, i.Reason = to, reason
	i.Epoch++
	if holdsCapacity(from) != holdsCapacity(to) {
		n := 1
		if holdsCapacity(from) {
			n = -1
		}
		c.hold(i, n)
	}
	if from == fluffyapi.Running {
		c.closeBill(i)
		i.TakenBack = nil
	}
	switch to {
	case fluffyapi.Pending:
		delay := c.draw(c.cfg.Boot)
		i.BootAt = c.s.Now.Add(delay)
		if c.cfg.Machines == nil {
			c.planFor(i, booted, delay)
		}
	case fluffyapi.Running:
		c.openBill(i)
		if i.Spot && c.cfg.SpotLife > 0 {
			life := time.Duration(c.rng.ExpFloat64() * float64(c.cfg.SpotLife))
			c.planFor(i, noticed, max(0, life-c.cfg.Notice))
		}
	case fluffyapi.Stopping, fluffyapi.Terminating:
		if c.cfg.Machines == nil {
			c.planFor(i, halted, c.draw(c.cfg.Halt))
		}
	case fluffyapi.Terminated:
		if key := i.Account + "/" + i.Name; c.names[key] == i.ID {
			delete(c.names, key)
		}
		i.Disk = nil
		c.planFor(i, forgotten, c.cfg.Linger)
	}
	if c.cfg.Record {
		c.s.History = append(c.s.History, Change{At: c.s.Now, Instance: i.ID, From: from, To: to, Reason: reason})
	}
}

// halt ends a machine: off if it was to be stopped, gone if it was to be
// terminated. One that nobody told to end has switched itself off.
func (c *Cloud) halt(i *instance, reason string) {
	switch i.State {
	case fluffyapi.Stopping:
		c.move(i, fluffyapi.Stopped, reason)
	case fluffyapi.Terminating:
		c.move(i, fluffyapi.Terminated, reason)
	case fluffyapi.Pending, fluffyapi.Running:
		if i.EndsWhenOff {
			c.move(i, fluffyapi.Terminated, switched)
		} else {
			c.move(i, fluffyapi.Stopped, switched)
		}
	}
}

// terminate begins an instance's end, whatever state it is in.
func (c *Cloud) terminate(i *instance, reason string) {
	switch i.State {
	case fluffyapi.Terminating, fluffyapi.Terminated:
	default:
		c.move(i, fluffyapi.Terminating, reason)
	}
}

func (c *Cloud) forget(i *instance) {
	c.dropFromIndex(i)
	delete(c.s.Tokens, i.Account+"/"+i.Token)
	delete(c.s.Instances, i.ID)
}

// holdsCapacity reports whether an instance in that state occupies a machine.
func holdsCapacity(s fluffyapi.State) bool {
	switch s {
	case fluffyapi.Pending, fluffyapi.Running, fluffyapi.Stopping, fluffyapi.Terminating:
		return true
	}
	return false
}

// hold takes (or with -1 gives back) the instance's capacity and quota.
func (c *Cloud) hold(i *instance, n int) {
	c.used[i.Zone+"/"+i.Type] += n
	if t := c.typeOf(i); t != nil {
		family, units := t.family(i.Spot)
		c.quota[i.Account+"/"+i.Region+"/"+family] += n * units
	}
}

func (c *Cloud) typeOf(i *instance) *Type {
	r := c.cfg.regionOf(i.Zone)
	if r == nil {
		return nil
	}
	return c.cfg.typeIn(i.Type, r)
}

// room reports whether one more instance may be had; nil if so.
func (c *Cloud) room(account, zone string, r *Region, t *Type, spot bool) error {
	family, units := t.family(spot)
	key := account + "/" + r.Name + "/" + family
	if limit, ok := c.s.Limits[key]; ok && c.quota[key]+units > limit {
		return fluffyapi.Errorf(fluffyapi.QuotaExceeded, "%d %s in region %s would be more than the quota of %d", c.quota[key]+units, family, r.Name, limit)
	}
	if free, limited := c.free(zone, t.Name); limited && free < 1 {
		return fluffyapi.Errorf(fluffyapi.NoCapacity, "zone %s has no %s left at the moment", zone, t.Name)
	}
	return nil
}

// free is how many more of a type the zone has, if that is limited.
func (c *Cloud) free(zone, instanceType string) (n int, limited bool) {
	key := zone + "/" + instanceType
	limit, ok := c.s.Capacity[key]
	if !ok {
		if c.cfg.Capacity == 0 {
			return 0, false
		}
		limit = c.cfg.Capacity
	}
	return max(0, limit-c.used[key]), true
}

// create makes an instance, or finds the one that the same token made.
func (c *Cloud) create(account string, in fluffyapi.Create) (*instance, error) {
	if in.ClientToken == "" || in.Name == "" || len(in.Name) > 255 {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "an instance needs a client token and a name of 1 to 255 bytes")
	}
	if len(in.Tags) > 64 {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "%d tags are more than 64", len(in.Tags))
	}
	request := fmt.Sprintf("%s/%s/%s/%t/%d%s", in.Name, in.Zone, in.Type, in.Spot, in.DiskGB, in.Image)
	if id, ok := c.s.Tokens[account+"/"+in.ClientToken]; ok {
		i := c.s.Instances[id]
		if i.Request != request {
			return nil, fluffyapi.Errorf(fluffyapi.TokenReused, "the client token made %s with another request", id)
		}
		return i, nil
	}
	r := c.cfg.regionOf(in.Zone)
	if r == nil {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no zone %q", in.Zone)
	}
	t := c.cfg.typeIn(in.Type, r)
	if t == nil {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "region %s sells no %q", r.Name, in.Type)
	}
	if in.Spot && t.SpotPrice == 0 {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "%s is not sold as spot", t.Name)
	}
	if in.Image != "" {
		im := c.s.Images[in.Image]
		switch {
		case im == nil || im.Account != account:
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no image %q", in.Image)
		case im.Region != r.Name:
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "image %q is in region %s", in.Image, im.Region)
		case im.state(c.s.Now) != fluffyapi.Running:
			return nil, fluffyapi.Errorf(fluffyapi.WrongState, "image %q is not whole yet", in.Image)
		case in.DiskGB < im.DiskGB:
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "a disk of %d GB is too small for image %q, which has %d", in.DiskGB, in.Image, im.DiskGB)
		}
	}
	if in.Firewall != "" {
		if _, ok := c.s.Firewalls[account+"/"+in.Firewall]; !ok {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no firewall %q", in.Firewall)
		}
	}
	if id, ok := c.names[account+"/"+in.Name]; ok {
		return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "%s is called %q already", id, in.Name)
	}
	if err := c.room(account, in.Zone, r, t, in.Spot); err != nil {
		return nil, err
	}
	return c.build(account, in, r, request)
}

func (c *Cloud) build(account string, in fluffyapi.Create, r *Region, request string) (*instance, error) {
	c.s.Seq++
	seq := c.s.Seq
	i := &instance{
		Instance: fluffyapi.Instance{
			ID: c.cfg.ID(seq), Name: in.Name, Region: r.Name, Zone: in.Zone, Type: in.Type, Spot: in.Spot,
			Tags: in.Tags, SSHPort: 22, SSHUser: "fluffy", Firewall: in.Firewall, DiskGB: in.DiskGB, Image: in.Image, Created: c.s.Now,
		},
		Seq: seq, Account: account, Token: in.ClientToken, Request: request, SSHKey: in.SSHKey, Hidden: c.hide(),
	}
	if in.Image != "" {
		i.Disk = maps.Clone(c.s.Images[in.Image].Disk)
	}
	if m := c.cfg.Machines; m != nil {
		if in.Image != "" {
			if err := m.LoadDisk(in.Image, i.ID); err != nil {
				return nil, fluffyapi.Errorf(fluffyapi.Internal, "copying the disk of %s: %v", in.Image, err)
			}
		}
		key, err := m.HostKey(i.ID)
		if err != nil {
			return nil, fluffyapi.Errorf(fluffyapi.Internal, "making a host key: %v", err)
		}
		i.HostKey = key
		i.PrivateIP, i.SSHPort = m.Address(i.ID, seq)
		i.PublicIP = i.PrivateIP
	} else {
		i.PrivateIP = fmt.Sprintf("10.%d.%d.%d", seq>>16&0xff, seq>>8&0xff, seq&0xff)
		c.newPublicIP(i)
	}
	c.s.Instances[i.ID] = i
	c.s.Tokens[account+"/"+in.ClientToken] = i.ID
	c.addToIndex(i)
	c.move(i, fluffyapi.Pending, "")
	return i, nil
}

// newPublicIP gives an instance of a cloud in memory another public address,
// as every start does on most clouds.
func (c *Cloud) newPublicIP(i *instance) {
	c.s.Seq++
	n := c.s.Seq
	i.PublicIP = fmt.Sprintf("198.%d.%d.%d", 18+n>>16&1, n>>8&0xff, n&0xff)
}

// start switches an instance on.
func (c *Cloud) start(i *instance, key string) error {
	switch i.State {
	case fluffyapi.Pending, fluffyapi.Running:
		return nil
	case fluffyapi.Stopped:
	default:
		return fluffyapi.Errorf(fluffyapi.WrongState, "%s is %s", i.ID, i.State)
	}
	r := c.cfg.regionOf(i.Zone)
	t := c.typeOf(i)
	if t == nil {
		return fluffyapi.Errorf(fluffyapi.Invalid, "region %s no longer sells %s", i.Region, i.Type)
	}
	if err := c.room(i.Account, i.Zone, r, t, i.Spot); err != nil {
		return err
	}
	if key != "" {
		i.SSHKey = key
	}
	if c.cfg.Machines == nil {
		c.newPublicIP(i)
	}
	c.move(i, fluffyapi.Pending, "")
	return nil
}

// stop switches an instance off.
func (c *Cloud) stop(i *instance) error {
	switch i.State {
	case fluffyapi.Pending, fluffyapi.Running:
		c.move(i, fluffyapi.Stopping, "")
	case fluffyapi.Stopping, fluffyapi.Stopped:
	default:
		return fluffyapi.Errorf(fluffyapi.WrongState, "%s is %s", i.ID, i.State)
	}
	return nil
}

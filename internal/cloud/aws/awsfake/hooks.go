package awsfake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// What tests make happen.

func (c *Cloud) set(m mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mode = m
}

// Throttle answers every call with "too many".
func (c *Cloud) Throttle() { c.set(throttling) }

// Refuse no longer knows the credentials.
func (c *Cloud) Refuse() { c.set(refusing) }

// Forbid lets the credentials look and not touch.
func (c *Cloud) Forbid() { c.set(forbidding) }

// Deny refuses single actions such as "ec2:RunInstances". Sealed refusals of
// EC2 tell the reason only to those who have it decoded.
func (c *Cloud) Deny(sealed bool, actions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = sealed
	for _, a := range actions {
		c.denied[a] = true
	}
}

// Odd refuses an action so often with a code, and reports how often it did.
func (c *Cloud) Odd(action, code string, times int) (refused func() int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := &oddity{code, times, 0}
	c.odd[action] = o
	return func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return o.refused
	}
}

type oddity struct {
	code          string
	left, refused int
}

// Cut breaks every connection.
func (c *Cloud) Cut() { c.set(cut) }

// Hang answers no call.
func (c *Cloud) Hang() { c.set(hanging) }

// Restore ends all troubles. What was filled up has room again.
func (c *Cloud) Restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mode, c.hide, c.skew, c.drift, c.unsettled, c.plague = fine, 0, 0, 0, 0, nil
	clear(c.closed)
	clear(c.unsupported)
	c.settled()
	clear(c.denied)
	clear(c.odd)
	c.sealed = false
	clear(c.lose)
	clear(c.lie)
	clear(c.left)
	clear(c.allowed)
	close(c.restored)
	c.restored = make(chan struct{})
}

// Fill leaves only so many machines.
func (c *Cloud) Fill(zone, machine string, spot bool, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left[offer{zone, machine, spot}] = left
}

// Allow lets the account have only so many more machines.
func (c *Cloud) Allow(zone, machine string, spot bool, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed[offer{zone, machine, spot}] = left
}

// SetQuota says what the quota service answers.
func (c *Cloud) SetQuota(region, code string, value float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quotas[region+" "+code] = value
}

// SetParameter sets a parameter of Systems Manager.
func (c *Cloud) SetParameter(region, name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parameters == nil {
		c.parameters = map[string]string{}
	}
	c.parameters[region+" "+name] = value
}

// Slow makes machines take so long to boot.
func (c *Cloud) Slow(boot time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Boot = boot
}

// Lose breaks the connection before the answer of so many calls of an action,
// which have their effect.
func (c *Cloud) Lose(action string, times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose[action] = times
}

// Hide leaves new machines out of their first lists.
func (c *Cloud) Hide(lists int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hide = lists
}

// Lie calls a machine's state by another word.
func (c *Cloud) Lie(id, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lie[id] = state
}

// Skew sets the cloud's clock wrong.
func (c *Cloud) Skew(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = by
}

// Kill ends a machine by a fault of its host.
func (c *Cloud) Kill(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.find(id); i != nil {
		c.end(i, "Server.InternalError", "Server.InternalError: Internal error on launch")
	}
}

// Break ends the machines that are made from now on before they run, for such a
// reason; "": none.
func (c *Cloud) Break(code, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = &reasonXML{code, reason}
	if code == "" {
		c.broken = nil
	}
}

// Halt is a machine's own shutdown.
func (c *Cloud) Halt(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(id)
	switch {
	case i == nil || !i.alive():
	case i.endsWhenOff:
		c.end(i, "Client.InstanceInitiatedShutdown", "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
	default:
		i.move("stopping", "stopped", c.End)
		i.reasonCode, i.reason = "Client.InstanceInitiatedShutdown", "Client.InstanceInitiatedShutdown: Instance initiated shutdown"
	}
}

// Preempt takes a spot machine back after a while.
func (c *Cloud) Preempt(id string, in time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.find(id); i != nil {
		i.takenBack = time.Now().Add(in)
	}
}

// Seed adds a running machine with these tags to a zone.
func (c *Cloud) Seed(region, zone, machine string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.make(region, offer{zone, machine, false}, tags)
	i.move("running", "running", 0)
	c.nics = append(c.nics, &nic{id: c.next("eni"), region: region, instance: i.id, ends: true})
}

// Billed reports whether a machine costs money.
func (c *Cloud) Billed(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	i := c.find(id)
	return i != nil && (i.state == "running" || i.state == "pending")
}

// Inventory lists what exists in the account but what every account has:
// machines that have not ended, volumes and network interfaces, security
// groups, placement groups, roles and instance profiles.
func (c *Cloud) Inventory() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	var out []string
	cluster := map[string]string{}
	for _, i := range c.instances {
		cluster[i.id] = i.tags["skypilot-cluster-name"]
		if i.alive() {
			out = append(out, fmt.Sprintf("%s %s %s", i.id, i.tags["skypilot-cluster-name"], i.state))
		}
	}
	for _, v := range c.volumes {
		out = append(out, v.id+" volume of "+cluster[v.instance])
	}
	for _, n := range c.nics {
		out = append(out, n.id+" network interface of "+cluster[n.instance])
	}
	for _, i := range c.images {
		out = append(out, i.id+" image "+i.name)
	}
	for _, s := range c.snapshots {
		out = append(out, s.id+" snapshot of "+s.tags["Name"])
	}
	for _, g := range c.groups {
		out = append(out, g.id+" "+g.name)
	}
	for _, p := range c.placements {
		out = append(out, "placement group "+p.name)
	}
	for _, r := range slices.Sorted(maps.Keys(c.roles)) {
		out = append(out, "role "+r)
	}
	for _, p := range slices.Sorted(maps.Keys(c.profiles)) {
		out = append(out, "instance profile "+p)
	}
	return out
}

// Open lists the ports but ssh that the world reaches on a machine.
func (c *Cloud) Open(id string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(id)
	if i == nil {
		return nil
	}
	var out []string
	for _, g := range c.groups {
		if !slices.Contains(c.groupsOf(id), g.id) {
			continue
		}
		for _, r := range g.rules {
			switch {
			case r.cidr == "" || r.low == 22:
			case r.low == r.high:
				out = append(out, strconv.Itoa(r.low))
			default:
				out = append(out, fmt.Sprintf("%d-%d", r.low, r.high))
			}
		}
	}
	slices.Sort(out)
	return out
}

// Reachable reports whether the world gets through to a port of a machine.
func (c *Cloud) Reachable(id string, port int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(id)
	return i != nil && slices.ContainsFunc(c.groups, func(g *group) bool {
		return slices.Contains(c.groupsOf(id), g.id) && slices.ContainsFunc(g.rules, func(r rule) bool { return r.cidr != "" && r.low <= port && port <= r.high })
	})
}

// Policies are what is attached to a role.
func (c *Cloud) Policies(role string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.policies[role])
}

package lambdafake

import (
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Inject makes calls go wrong. Operations are those of package model, and keys.list,
// keys.put, keys.delete, firewalls.get and offers, of instance types.
func (f *Fake) Inject(fault model.Fault) {
	fault.Account = "caller"
	must(f.cloud.Inject(fault))
}

// What calls and instances do from now on: every call is one too many, the key is no
// longer good, no call arrives, no call is answered, new instances are missing in
// their first lists, an instance is said to have a status, is destroyed, or, being
// active, is taken back.

func (f *Fake) Throttle()         { f.Inject(model.Fault{Kind: model.Throttle}) }
func (f *Fake) Refuse()           { f.Inject(model.Fault{Kind: model.Fail, Code: fluffyapi.Unauthorized}) }
func (f *Fake) Cut()              { f.Inject(model.Fault{Kind: model.Cut}) }
func (f *Fake) Hang()             { f.Inject(model.Fault{Kind: model.Hang}) }
func (f *Fake) HideNew(lists int) { f.Inject(model.Fault{Kind: model.Hide, Times: lists}) }
func (f *Fake) Lie(id, status string) {
	f.Inject(model.Fault{Kind: model.Lie, Instance: modelID(id), State: status})
}
func (f *Fake) Kill(id string)                      { must(f.cloud.Kill(modelID(id), "the machine broke")) }
func (f *Fake) Preempt(id string, in time.Duration) { must(f.cloud.Preempt(modelID(id), in)) }

// Forbid lets the key look and not touch.
func (f *Fake) Forbid() {
	for _, op := range []string{"*.create", "*.terminate", "*.put", "*.delete"} {
		f.Inject(model.Fault{Kind: model.Fail, Code: fluffyapi.Forbidden, Op: op})
	}
}

// Lose loses the answers of calls that have their effect. op is launch or terminate.
func (f *Fake) Lose(op string, times int) {
	f.Inject(model.Fault{Kind: model.Lose, Op: map[string]string{"launch": "instances.create", "terminate": "instances.terminate"}[op], Times: times})
}

// Slow says how long instances boot from now on.
func (f *Fake) Slow(boot time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boot = boot
	f.cloud.SetDelays(model.Delay{Min: boot, Max: boot}, model.Delay{Max: 10 * time.Millisecond})
}

// Limit keeps Lambda's limits: a call a second, a launch in 12 seconds.
func (f *Fake) Limit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = true
}

// Restore ends what the methods above began, and Fill and Quota. Calls that hang have
// no effect and get no answer.
func (f *Fake) Restore() {
	f.restored.Add(1)
	f.mu.Lock()
	f.limits = false
	f.mu.Unlock()
	f.cloud.Remove("")
	f.Slow(20 * time.Millisecond)
	for region := range regions {
		for name, k := range kinds {
			must(f.cloud.SetCapacity(zone(region), name, -1))
			must(f.cloud.SetQuota("team", region, "spot-"+k.gpu, -1))
		}
	}
}

// Fill leaves only so many more instances of a type in a region.
func (f *Fake) Fill(region, instanceType string, left int) {
	must(f.cloud.Leave(zone(region), instanceType, left))
}

// Quota allows only so many more instances of each type in a region.
func (f *Fake) Quota(region string, left int) {
	for name := range kinds {
		must(f.cloud.LeaveQuota("team", zone(region), name, true, left))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Billed tells whether the instance costs money now.
func (f *Fake) Billed(id string) bool {
	return slices.ContainsFunc(f.cloud.Machines(), func(m model.Machine) bool { return m.ID == modelID(id) && m.Billed })
}

// Inventory is a line for each instance that is not terminated, key and ruleset.
func (f *Fake) Inventory() (lines []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.cloud.Machines() {
		if m.State != fluffyapi.Terminated {
			lines = append(lines, fmt.Sprintf("instance %v %s", asked(m.Instance)["name"], lambdaID(m.ID)))
		}
	}
	for kind, all := range f.things {
		for _, o := range all {
			lines = append(lines, fmt.Sprintf("%s %v %v", kind, o["name"], o["id"]))
		}
	}
	slices.Sort(lines)
	return lines
}

// Rules are the ports that the rulesets of an instance open to the world, sorted.
func (f *Fake) Rules(id string) (open []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.cloud.Machines() {
		for _, ruleset := range rulesets(asked(m.Instance)) {
			if m.ID == modelID(id) {
				more, _ := ports(f.find("firewalls", ruleset))
				open = append(open, more...)
			}
		}
	}
	slices.Sort(open)
	return slices.Compact(open)
}

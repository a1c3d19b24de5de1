package fakehttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	must(err)
	return text
}

// Inject makes calls go wrong.
func (f *Fake) Inject(fault model.Fault) {
	if fault.Kind != model.Lie && fault.Kind != model.Hide && fault.Kind != model.Linger { // those that calls meet
		fault.Account = "caller"
	}
	must(f.Cloud.Inject(fault))
}

// What calls and machines do from now on: every call is one too many, the credentials
// are no longer good, no call arrives, no call is answered, new machines are missing in
// their first lists, a machine is said to be in a state, is destroyed, or, being active,
// is taken back or switches itself off.

func (f *Fake) Throttle()         { f.Inject(model.Fault{Kind: model.Throttle}) }
func (f *Fake) Refuse()           { f.Inject(model.Fault{Kind: model.Fail, Code: fluffyapi.Unauthorized}) }
func (f *Fake) Cut()              { f.Inject(model.Fault{Kind: model.Cut}) }
func (f *Fake) Hang()             { f.Inject(model.Fault{Kind: model.Hang}) }
func (f *Fake) HideNew(lists int) { f.Inject(model.Fault{Kind: model.Hide, Times: lists}) }
func (f *Fake) Lie(id, state string) {
	f.Inject(model.Fault{Kind: model.Lie, Instance: f.modelID(id), State: state})
}
func (f *Fake) Kill(id string)                      { must(f.Cloud.Kill(f.modelID(id), "the machine broke")) }
func (f *Fake) Preempt(id string, in time.Duration) { must(f.Cloud.Preempt(f.modelID(id), in)) }
func (f *Fake) Halt(id string)                      { must(f.Cloud.Halt(f.modelID(id))) }

// Forbid lets the credentials look and not touch.
func (f *Fake) Forbid() {
	for _, op := range []string{"*.create", "*.terminate", "*.start", "*.stop", "*.put", "*.delete"} {
		f.Inject(model.Fault{Kind: model.Fail, Code: fluffyapi.Forbidden, Op: op})
	}
}

// Slow says how long machines boot from now on.
func (f *Fake) Slow(boot time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boot = boot
	halt := model.Delay{Max: 10 * time.Millisecond}
	if f.api.AtOnce {
		halt = model.Delay{}
	}
	f.Cloud.SetDelays(model.Delay{Min: boot, Max: boot}, halt)
}

// Limit keeps the cloud's limits from now on. A cloud without any has nothing to keep.
func (f *Fake) Limit() {
	if len(f.api.Limits) == 0 {
		panic("fakehttp: the API has no limits")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limited = true
}

// Over is how many calls went over the limits.
func (f *Fake) Over() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// Restore ends what the methods above began, and Fill and Quota. Calls that hang have
// no effect and get no answer.
func (f *Fake) Restore() {
	f.restored.Add(1)
	f.Raise(1)
	f.process.Over()
	f.mu.Lock()
	f.limited, f.bare = false, false
	f.mu.Unlock()
	f.Cloud.Remove("")
	f.Slow(20 * time.Millisecond)
	for _, region := range f.api.Regions {
		for _, t := range f.api.Types {
			for _, z := range f.api.zones(region) {
				must(f.Cloud.SetCapacity(z, t.Name, -1))
			}
			family := "cpus"
			for gpu := range t.Accelerators {
				family = gpu
			}
			must(f.Cloud.SetQuota("team", region, family, -1))
			must(f.Cloud.SetQuota("team", region, "spot-"+family, -1))
		}
	}
}

// Fill leaves only so many more machines of a type in each zone of a place.
func (f *Fake) Fill(place, instanceType string, left int) {
	for _, z := range f.api.zones(place) {
		must(f.Cloud.Leave(z, instanceType, left))
	}
}

// Quota allows only so many more machines of each type in a region.
func (f *Fake) Quota(region string, left int) {
	for _, t := range f.api.Types {
		z := f.api.zones(region)[0]
		must(f.Cloud.LeaveQuota("team", z, t.Name, false, left))
		must(f.Cloud.LeaveQuota("team", z, t.Name, true, left))
	}
}

// Machine is the latest of that id as the model has it; false: there is none.
func (f *Fake) Machine(id string) (found model.Machine, ok bool) {
	for _, m := range f.Cloud.Machines() {
		if m.ID == id || f.api.Named != "" && m.Name == id || f.api.Is != nil && f.api.Is(m, id) {
			found, ok = m, true
		}
	}
	return found, ok
}

func (f *Fake) modelID(id string) string {
	m, _ := f.Machine(id)
	return m.ID
}

// Asked is the body that a machine was made with.
func (f *Fake) Asked(id string) Dict {
	m, _ := f.Machine(id)
	return Asked(m.Instance)
}

// Billed reports whether the machine costs money now.
func (f *Fake) Billed(id string) bool {
	m, ok := f.Machine(id)
	return m.Billed || f.api.OffCosts && ok && m.State != fluffyapi.Terminated
}

// Inventory is a line for each machine that is not ended, and for each thing.
func (f *Fake) Inventory() (lines []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.Cloud.Machines() {
		if m.State != fluffyapi.Terminated {
			lines = append(lines, fmt.Sprintf("instance %v %s", Asked(m.Instance)[cmp.Or(f.api.Named, "name")], m.ID))
		}
	}
	for _, i := range f.failed {
		lines = append(lines, fmt.Sprintf("instance %v %s", Asked(i)["name"], i.ID))
	}
	for kind, all := range f.things {
		for _, o := range all {
			if slices.Contains(f.api.Records, kind) {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %v %v", kind, o["name"], o["id"]))
		}
	}
	slices.Sort(lines)
	return lines
}

// operations are what faults call effects.
var operations = map[cloudtest.Effect]string{
	cloudtest.Creating: "instances.create", cloudtest.Starting: "instances.start", cloudtest.Stopping: "instances.stop", cloudtest.Terminating: "instances.terminate",
	cloudtest.Imaging: "images.put", cloudtest.Dropping: "images.delete",
}

// Raise multiplies all prices, from what they are in the fake's tables. A fake whose cloud
// tells prices gives each through Now.
func (f *Fake) Raise(by float64) { f.raised.Store(math.Float64bits(by)) }

// Now is what a price in the fake's tables is at the moment.
func (f *Fake) Now(price float64) float64 {
	if bits := f.raised.Load(); bits != 0 {
		price *= math.Float64frombits(bits)
	}
	return price
}

// Harness is all that the contract's suite needs of the fake. Types are those that
// offers of the provider name. shared are kinds of things that stay when clusters are
// removed.
func (f *Fake) Harness(make func() cloud.Provider, shared ...string) cloudtest.Harness {
	const most = 1 << 20
	h := cloudtest.Harness{
		Provider: make(),
		Another:  func(testing.TB) cloud.Provider { return make() },
		Restore:  func(testing.TB) { f.Restore() },
		Fill: func(_ testing.TB, o cloud.Offer, left int) {
			place, instanceType := o.Region, o.InstanceType
			if f.api.Place != nil {
				place, instanceType = f.api.Place(o)
			}
			f.Fill(place, instanceType, left)
		},
		Quota:    func(_ testing.TB, o cloud.Offer, left int) { f.Quota(o.Region, left) },
		Throttle: func(testing.TB) { f.Throttle() },
		Refuse:   func(testing.TB) { f.Refuse() },
		Forbid:   func(testing.TB) { f.Forbid() },
		Cut:      func(testing.TB) { f.Cut() },
		Hang:     func(testing.TB) { f.Hang() },
		Slow:     func(_ testing.TB, boot time.Duration) { f.Slow(boot) },
		LoseAnswers: func(_ testing.TB, to cloudtest.Effect, times int) {
			f.Inject(model.Fault{Kind: model.Lose, Op: operations[to], Times: times})
		},
		HideNew: func(_ testing.TB, lists int) { f.HideNew(lists) },
		HideFor: func(_ testing.TB, d time.Duration) { f.Inject(model.Fault{Kind: model.Hide, Delay: d}) },
		Die:     func(_ testing.TB, call int, dead func()) { f.process.At(call, dead) },
		Lie:     func(_ testing.TB, n cloud.Node, state string) { f.Lie(n.ID, state) },
		Kill:    func(_ testing.TB, n cloud.Node) { f.Kill(n.ID) },
		Preempt: func(_ testing.TB, n cloud.Node, in time.Duration) { f.Preempt(n.ID, in) },
		Odd: func(_ testing.TB, to cloudtest.Effect) {
			f.Inject(model.Fault{Kind: model.Fail, Op: operations[to], Code: cloudtest.OddCode})
		},
		Lacking: func(testing.TB) func() int {
			f.Inject(model.Fault{Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NotFound, Times: most})
			return func() int { return most - f.Cloud.Faults()[0].Times }
		},
		Linger: func(_ testing.TB, lists int) {
			f.Inject(model.Fault{Kind: model.Linger, Times: lists, Code: cloudtest.OddCode})
		},
		Stick: func(testing.TB) { f.Slow(1000 * time.Hour) },
		Bare: func(testing.TB) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.bare = true
		},
		Billed: func(_ testing.TB, n cloud.Node) bool { return f.Billed(n.ID) },
		Inventory: func(testing.TB) []string {
			return slices.DeleteFunc(f.Inventory(), func(line string) bool {
				return slices.ContainsFunc(shared, func(kind string) bool { return strings.HasPrefix(line, kind+" ") })
			})
		},
	}
	if f.api.Opened != nil {
		h.OpenPorts = func(_ testing.TB, n cloud.Node) []string {
			return slices.DeleteFunc(f.api.Opened(n.ID), func(ports string) bool { return ports == "22" })
		}
	}
	if f.api.OffCosts {
		h.OffCosts = "that is how the cloud bills"
	}
	if f.api.Protects == "" {
		h.Unprotected = "the cloud has nothing for that"
	} else {
		h.Conflict = func(_ testing.TB, times int) {
			f.Inject(model.Fault{Kind: model.Fail, Op: f.api.Protects + ".delete", Code: fluffyapi.InUse, Times: times})
		}
	}
	return h
}

// Tuning is how tests reach the cloud, with credentials in a home folder of their own. What a test
// did to the cloud ends with it.
func (f *Fake) Tuning(t testing.TB, path, credentials string) vm.Tuning {
	t.Cleanup(f.Restore)
	home := t.TempDir()
	cloudtest.HomeFile(t, home, path, credentials)
	return vm.Tuning{Home: home, Transport: f, Poll: 100 * time.Millisecond, Busy: -1}
}

// Ask makes a call as sign makes it one of somebody's, and returns the status and the answer.
func (f *Fake) Ask(t testing.TB, sign func(*http.Request), method, url string, body any) (int, Dict) {
	t.Helper()
	text, err := json.Marshal(body)
	if form, ok := body.(Text); ok {
		text = []byte(form)
	}
	r, err2 := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(text))
	if err := cmp.Or(err, err2); err != nil {
		t.Fatal(err)
	}
	sign(r)
	resp, err := f.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	answer := Dict{}
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer
}

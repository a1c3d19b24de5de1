package vspherefake

import (
	"context"
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// do is for what happens beside calls.
func (f *Fake) do(what func()) {
	f.begin()
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

// named is the VM of that name; nil: there is none.
func (f *Fake) named(name string) *guest {
	for _, g := range f.guests {
		if !g.gone && g.name == name {
			return g
		}
	}
	return nil
}

// Restore ends what the hooks below began.
func (f *Fake) Restore() {
	f.process.Over()
	f.do(func() {
		if f.trouble.hang != nil {
			close(f.trouble.hang)
		}
		f.trouble = trouble{lose: map[cloudtest.Effect]int{}}
		f.full, f.boot = map[string]int{}, bootTime
		for _, g := range f.guests {
			if !slices.Contains([]types.VirtualMachinePowerState{"poweredOn", "poweredOff"}, g.vm.Runtime.PowerState) { // it was lied about
				g.vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOn
			}
			if g.lingers = 0; !g.gone && poweredOn(g.vm) && !g.on {
				g.bootAt = time.Now()
			}
		}
	})
}

// Refuse lets calls of a method be refused with a fault.
func (f *Fake) Refuse(method, kind string) {
	f.do(func() { f.trouble.refusal = map[string]string{method: kind} })
}

// Fail lets tasks of a method fail.
func (f *Fake) Fail(method string, why types.BaseMethodFault) {
	f.do(func() { f.trouble.taskRefusal = map[string]types.BaseMethodFault{method: why} })
}

// NoTools lets guests be without VMware Tools.
func (f *Fake) NoTools() { f.do(func() { f.trouble.tools = true }) }

// EndSessions is what happens to those that nobody uses.
func (f *Fake) EndSessions() { f.do(func() { f.sessions = map[string]bool{} }) }

// Calls are the methods that were called since it was asked last.
func (f *Fake) Calls() (all []string) {
	f.do(func() { all, f.calls = f.calls, nil })
	return all
}

// Made is what a VM was made with.
func (f *Fake) Made(name string) (spec types.VirtualMachineCloneSpec) {
	f.do(func() {
		if g := f.named(name); g != nil {
			spec = g.spec
		}
	})
	return spec
}

// Suspend suspends a VM.
func (f *Fake) Suspend(name string) {
	f.do(func() {
		g := f.named(name)
		f.halted(g)
		g.vm.Runtime.PowerState = types.VirtualMachinePowerStateSuspended
	})
}

// Maintain takes the hosts of a cluster out of use.
func (f *Fake) Maintain(zone string) {
	f.do(func() {
		for _, h := range hosts() {
			h.Runtime.InMaintenanceMode = h.Runtime.InMaintenanceMode || clusterOf(h) == zone
		}
	})
}

// Inventory are the VMs that are no templates.
func (f *Fake) Inventory() (lines []string) {
	f.do(func() {
		for _, v := range machines() {
			if !v.Config.Template {
				lines = append(lines, "VM "+v.Name)
			}
		}
	})
	return lines
}

// Machines are the VMs and what their machines are to do.
func (f *Fake) Machines() (all []Machine) {
	f.do(func() {
		for _, g := range f.guests {
			m := Machine{Name: g.name, State: fluffyapi.Stopped}
			switch {
			case g.gone && g.on:
				m.State = fluffyapi.Terminating
			case g.gone:
				continue
			case g.halting:
				m.State = fluffyapi.Stopping
			case poweredOn(g.vm) && g.on:
				m.State = fluffyapi.Running
			case poweredOn(g.vm):
				m.State = fluffyapi.Pending
			}
			for _, o := range g.vm.Config.ExtraConfig {
				if o := o.GetOptionValue(); o.Key == "guestinfo.userdata" {
					text, _ := base64.StdEncoding.DecodeString(o.Value.(string))
					m.UserData = string(text)
				}
			}
			all = append(all, m)
		}
	})
	return all
}

// Arrived says that a machine has done what its VM said.
func (f *Fake) Arrived(name string, from fluffyapi.State) {
	f.do(func() {
		for _, g := range f.guests {
			switch {
			case g.name != name:
			case from == fluffyapi.Pending && !g.gone && poweredOn(g.vm) && !g.halting:
				f.booted(g)
			case from == fluffyapi.Stopping && g.halting:
				f.halted(g)
			case from == fluffyapi.Terminating && g.gone:
				g.on = false
			}
		}
	})
}

// Halt says that a machine has switched itself off.
func (f *Fake) Halt(name string) {
	f.do(func() {
		if g := f.named(name); g != nil {
			f.halted(g)
		}
	})
}

// remove destroys a VM.
func (f *Fake) remove(name string) {
	f.do(func() {
		if g := f.named(name); g != nil {
			f.destroy(g)
		}
	})
}

// destroy removes a VM as an operator does.
func (f *Fake) destroy(g *guest) {
	f.halted(g)
	g.vm.DestroyTask(&simulator.Context{Map: simulator.Map, Context: context.Background(), Session: &simulator.Session{UserSession: types.UserSession{UserName: "operator"}, Registry: simulator.NewRegistry()}}, &types.Destroy_Task{This: g.vm.Self})
	g.gone = true
	if g.ending != nil {
		g.ending.Info.State = types.TaskInfoStateSuccess
	}
}

// Harness is all that the contract's suite needs.
func (f *Fake) Harness(provider func() cloud.Provider) cloudtest.Harness {
	return cloudtest.Harness{
		Provider: provider(),
		Another:  func(testing.TB) cloud.Provider { return provider() },
		// A user whose password was refused is not tried again at once.
		Restore: func(testing.TB) {
			refused := false
			f.do(func() { refused = f.trouble.refuse })
			if f.Restore(); refused {
				time.Sleep(2 * time.Minute)
			}
		},
		Unprotected: "VMs have no firewall",
		Die:         func(_ testing.TB, call int, dead func()) { f.process.At(call, dead) },
		Fill: func(_ testing.TB, o cloud.Offer, left int) {
			f.do(func() { f.full[o.Zone] = left * int(o.MemoryGiB) << 10 })
		},
		Throttle: func(testing.TB) { f.do(func() { f.trouble.throttle = true }) },
		Refuse: func(testing.TB) {
			f.EndSessions()
			f.do(func() { f.trouble.refuse = true })
		},
		Forbid: func(testing.TB) { f.do(func() { f.trouble.forbid = true }) },
		Cut:    func(testing.TB) { f.do(func() { f.trouble.cut = true }) },
		Hang: func(testing.TB) {
			f.do(func() { f.trouble.hang = make(chan struct{}) })
		},
		Slow:        func(_ testing.TB, boot time.Duration) { f.do(func() { f.slow(boot) }) },
		LoseAnswers: func(_ testing.TB, to cloudtest.Effect, times int) { f.do(func() { f.trouble.lose[to] = times }) },
		HideNew:     func(_ testing.TB, lists int) { f.do(func() { f.trouble.hideNew = lists }) },
		Linger:      func(_ testing.TB, lists int) { f.do(func() { f.trouble.linger = lists }) },
		Lie: func(_ testing.TB, n cloud.Node, state string) {
			f.do(func() { f.named(n.ID).vm.Runtime.PowerState = types.VirtualMachinePowerState(state) })
		},
		Kill: func(_ testing.TB, n cloud.Node) { f.remove(n.ID) },
		Halt: func(_ testing.TB, n cloud.Node) { f.Halt(n.ID) },
		Odd:  func(_ testing.TB, to cloudtest.Effect) { f.do(func() { f.trouble.odd = to }) },
		Lacking: func(testing.TB) func() int {
			f.do(func() { f.trouble.lack = true })
			return func() (n int) {
				f.do(func() { n = f.trouble.lacking })
				return n
			}
		},
		Stick: func(testing.TB) { f.do(func() { f.slow(1000 * time.Hour) }) },
		Billed: func(_ testing.TB, n cloud.Node) (billed bool) {
			f.do(func() {
				g := f.named(n.ID)
				billed = g != nil && poweredOn(g.vm)
			})
			return billed
		},
		Inventory: func(testing.TB) []string { return f.Inventory() },
	}
}

// slow says how long guests boot from now on, those that boot now too.
func (f *Fake) slow(boot time.Duration) {
	f.boot = boot
	for _, g := range f.guests {
		if !g.gone && poweredOn(g.vm) && !g.on {
			g.bootAt = time.Now().Add(boot)
		}
	}
}

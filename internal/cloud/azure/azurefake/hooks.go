package azurefake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// background is for calls of the model's that the fake makes itself.
var background = context.Background()

// Deny takes actions away, such as "Microsoft.Compute/virtualMachines/write".
func (f *Fake) Deny(actions ...string) {
	f.Locked(func() {
		for _, a := range actions {
			f.denied[a] = true
		}
	})
}

// Asked are the actions that calls took so far, sorted.
func (f *Fake) Asked() (all []string) {
	f.Locked(func() { all = sorted(f.asked) })
	return all
}

// SpotPrice is what an hour of a spot machine of any size costs.
func (f *Fake) SpotPrice(dollars float64) { f.Locked(func() { f.spotPrice = dollars }) }

// Forbid lets the credentials look and not touch.
func (f *Fake) Forbid() { f.Locked(func() { f.readOnly = true }) }

// State is that of the subscription, as "Disabled" or "Warned".
func (f *Fake) State(state string) { f.Locked(func() { f.state = state }) }

// Unregister says that a resource provider is not registered.
func (f *Fake) Unregister(namespace string) {
	f.Locked(func() { f.providers[strings.ToLower(namespace)] = false })
}

// Lag is eventual consistency: what is made from now on is missing in so many calls
// that look at it or list it, and principals of new identities in as many.
func (f *Fake) Lag(calls int) { f.Locked(func() { f.lag, f.newPrincipal = calls, calls }) }

// Pages limits how much a page of a list has.
func (f *Fake) Pages(size int) { f.Locked(func() { f.pageSize = size }) }

// Take is how long operations take that are not about machines, and RetryAfter what the
// header of that name says.
func (f *Fake) Take(d time.Duration)       { f.Locked(func() { f.took = d }) }
func (f *Fake) RetryAfter(seconds int)     { f.Locked(func() { f.retryAfter = seconds }) }
func (f *Fake) AtOnce(room bool)           { f.Locked(func() { f.atOnce = room }) }     // a full region answers with SkuNotAvailable
func (f *Fake) Cores(region string, n int) { f.Locked(func() { f.cores[region] = n }) } // so many in all; see Total Regional Cores

// Restrict says that the subscription cannot have a size in a region, or only not in
// some of its zones.
func (f *Fake) Restrict(region, size string, zones ...string) {
	if len(zones) == 0 {
		zones = []string{""}
	}
	f.Locked(func() { f.restricted[region+" "+size] = zones })
}

// Fail lets the next operations ("virtualmachines.put", "networkinterfaces.delete",
// "start"; "": any) be accepted, and fail later.
func (f *Fake) Fail(operation, code, message string, times int) {
	f.Locked(func() { f.failing = append(f.failing, &failure{operation, refuse(409, code, "%s", message), times}) })
}

// LimitQuota is how many cores of a family a region may have; of spot machines, too, as
// one family of them.
func (f *Fake) LimitQuota(region, family string, limit int) error {
	all, err := f.Owner.Quotas(background, region)
	if err != nil {
		return err
	}
	for _, q := range all {
		if q.Name == family {
			return f.Cloud.SetQuota("team", region, q.Name, limit)
		}
	}
	return fmt.Errorf("there is no family %q in %s", family, region)
}

// Preempt evicts a spot machine after a while: it is deallocated then, or gone.
func (f *Fake) Preempt(id string, in time.Duration) {
	f.Locked(func() {
		m, _ := f.Machine(id)
		for _, v := range f.vms {
			if v.id == m.ID && v.id != "" && v.spot {
				v.takenBack = time.Now().Add(in)
			}
		}
	})
}

// Halt is a machine's own shutdown: it is stopped, and goes on costing money.
func (f *Fake) Halt(id string) {
	if m, ok := f.Machine(id); ok {
		_ = f.Cloud.Halt(m.ID)
	}
}

// Skew sets the cloud's clock wrong, as far as the times of creations tell.
func (f *Fake) Skew(by time.Duration) { _ = f.Cloud.Skew(by) }

// Restore ends what hooks began.
func (f *Fake) Restore() {
	f.Locked(func() {
		f.denied, f.readOnly, f.state, f.lag, f.newPrincipal, f.pageSize, f.took, f.retryAfter, f.atOnce, f.failing = map[string]bool{}, false, "Enabled", 0, 0, 0, 10*time.Millisecond, 1, false, nil
		f.young, f.restricted, f.cores, f.reserved = map[string]int{}, map[string][]string{}, map[string]int{}, map[string]reservation{}
		for ns := range f.providers {
			f.providers[ns] = true
		}
	})
	f.Skew(0)
	f.Fake.Restore()
}

// Body is a machine's resource as it is kept.
func (f *Fake) Body(id string) (body dict) {
	f.Locked(func() {
		m, _ := f.Machine(id)
		for key, v := range f.vms {
			if v.id == m.ID && v.id != "" {
				body = f.items[key]
			}
		}
	})
	return body
}

// MadeFrom is what a machine's disk is a copy of; "": it is no copy.
func (f *Fake) MadeFrom(id string) (from string) {
	body := f.Body(id)
	f.Locked(func() {
		storage, _ := body["properties"].(dict)["storageProfile"].(dict)
		disk, _ := storage["osDisk"].(dict)
		managed, _ := disk["managedDisk"].(dict)
		o := f.items[strings.ToLower(fmt.Sprint(managed["id"]))]
		p, _ := o["properties"].(dict)
		creation, _ := p["creationData"].(dict)
		from, _ = creation["sourceResourceId"].(string)
	})
	return from
}

// Billed reports whether a machine costs money now: one that is stopped and not
// deallocated does.
func (f *Fake) Billed(id string) (billed bool) {
	f.Locked(func() {
		m, ok := f.Machine(id)
		for _, v := range f.vms {
			if ok && v.id == m.ID && (m.State == fluffyapi.Pending || m.State == fluffyapi.Running || m.State == fluffyapi.Stopped && !v.deallocated) {
				billed = true
			}
		}
	})
	return billed
}

// Inventory is a line for each thing: its kind, its group, its name.
func (f *Fake) Inventory() (lines []string) {
	f.Locked(func() {
		f.sweep()
		for id, o := range f.items {
			s := strings.Split(o["id"].(string), "/")
			switch strings.Count(id, "/") {
			case 4:
				lines = append(lines, "resourceGroups "+s[4])
			case 8:
				lines = append(lines, s[7]+" "+s[4]+"/"+s[8])
			}
		}
		for _, a := range f.assignments {
			lines = append(lines, fmt.Sprintf("roleAssignments %v", a["name"]))
		}
	})
	slices.Sort(lines)
	return lines
}

// OpenPorts are the TCP ports but ssh that the world reaches on a machine, sorted. Rules
// of its network interface and of their subnet are one after the other in Azure; here
// those of either count.
func (f *Fake) OpenPorts(id string) (open []string) {
	f.Locked(func() {
		m, _ := f.Machine(id)
		for _, v := range f.vms {
			if v.id != m.ID || v.id == "" {
				continue
			}
			for _, nic := range v.nics {
				p, _ := f.items[nic]["properties"].(dict)
				groups := []any{p["networkSecurityGroup"]}
				for _, c := range fakehttp.Items(p["ipConfigurations"]) {
					subnet := c.(dict)["properties"].(dict)["subnet"].(dict)["id"].(string)
					q, _ := f.items[strings.ToLower(subnet)]["properties"].(dict)
					groups = append(groups, q["networkSecurityGroup"])
				}
				for _, g := range groups {
					if ref, ok := g.(dict); ok {
						open = append(open, f.opened(strings.ToLower(ref["id"].(string)))...)
					}
				}
			}
		}
	})
	slices.Sort(open)
	return slices.Compact(open)
}

func (f *Fake) opened(nsg string) (open []string) {
	for id, o := range f.items {
		p, _ := o["properties"].(dict)
		if !strings.HasPrefix(id, nsg+"/securityrules/") || p["access"] != "Allow" || p["direction"] != "Inbound" || p["protocol"] == "Udp" || !slices.Contains([]any{"*", "Internet", "0.0.0.0/0"}, p["sourceAddressPrefix"]) {
			continue
		}
		for _, port := range append(fakehttp.Items(p["destinationPortRanges"]), p["destinationPortRange"]) {
			if port != nil && port != "" && port != "22" {
				open = append(open, fmt.Sprint(port))
			}
		}
	}
	return open
}

// Harness is all that the contract's suite needs of the fake. shared are kinds of things,
// or things ("resourceGroups sky-shared"), that stay when clusters are removed, as
// Inventory has them.
func (f *Fake) Harness(make func() cloud.Provider, shared ...string) cloudtest.Harness {
	h := f.Fake.Harness(make)
	lose := h.LoseAnswers
	h.Restore = func(testing.TB) { f.Restore() }
	h.Forbid = func(testing.TB) { f.Forbid() }
	h.Halt = func(_ testing.TB, n cloud.Node) { f.Halt(n.ID) }
	h.Skew = func(_ testing.TB, by time.Duration) { f.Skew(by) }
	h.Preempt = func(_ testing.TB, n cloud.Node, in time.Duration) { f.Preempt(n.ID, in) }
	h.OpenPorts = func(_ testing.TB, n cloud.Node) []string { return f.OpenPorts(n.ID) }
	h.Billed = func(_ testing.TB, n cloud.Node) bool { return f.Billed(n.ID) }
	h.LoseAnswers = func(t testing.TB, to cloudtest.Effect, times int) {
		switch to {
		case cloudtest.Imaging:
			f.Inject(model.Fault{Kind: model.Lose, Op: "snapshots.put", Times: times})
		case cloudtest.Dropping:
			f.Inject(model.Fault{Kind: model.Lose, Op: "snapshots.delete", Times: times})
		default:
			lose(t, to, times)
		}
	}
	h.MadeFrom = func(_ testing.TB, n cloud.Node) string { return f.MadeFrom(n.ID) }
	h.Bare = nil // a network interface always has an address
	h.Inventory = func(testing.TB) []string {
		return slices.DeleteFunc(f.Inventory(), func(line string) bool {
			return slices.ContainsFunc(shared, func(s string) bool { return strings.HasPrefix(line, s) })
		})
	}
	return h
}

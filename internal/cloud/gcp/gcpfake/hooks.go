package gcpfake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// background is for calls of the model's that the fake makes itself.
var background = context.Background()

// Deny takes permissions away, such as "compute.instances.create".
func (f *Fake) Deny(permissions ...string) {
	f.Locked(func() {
		for _, p := range permissions {
			f.denied[p] = true
		}
	})
}

// Asked are the permissions that calls took so far, sorted.
func (f *Fake) Asked() (all []string) {
	f.Locked(func() { all = slices.Sorted(maps.Keys(f.asked)) })
	return all
}

// Forbid lets the credentials look and not touch.
func (f *Fake) Forbid() { f.Locked(func() { f.readOnly = true }) }

// Disable says that an API, such as "tpu.googleapis.com", is not enabled.
func (f *Fake) Disable(service string) { f.Locked(func() { f.services[service] = false }) }

// Suspend lets the project be about to be deleted.
func (f *Fake) Suspend() { f.Locked(func() { f.inactive = true }) }

// Lag is eventual consistency: what is made from now on does not exist for so many
// calls about it.
func (f *Fake) Lag(calls int) { f.Locked(func() { f.lag = calls }) }

// Pages limits how much a page of a list has.
func (f *Fake) Pages(size int) { f.Locked(func() { f.pageSize = size }) }

// Unreachable are zones that lists leave out, and name.
func (f *Fake) Unreachable(zones ...string) {
	f.Locked(func() {
		for _, z := range zones {
			f.dark[z] = true
		}
	})
}

// ListZoneByZone lets no list of queued resources be of all zones.
func (f *Fake) ListZoneByZone() { f.Locked(func() { f.eachZone = true }) }

// Take is how long operations take that are not about machines.
func (f *Fake) Take(d time.Duration) { f.Locked(func() { f.took = d }) }

// GPUs are how many the project may have in all regions; -1: any number.
func (f *Fake) GPUs(limit int) { f.Locked(func() { f.gpus = limit }) }

// AtOnce lets what is known early be refused in the answer itself, and not in the
// operation: quotas with 403 quotaExceeded, and a full zone with 503.
func (f *Fake) AtOnce(quota, room bool) {
	f.Locked(func() { f.quotaHTTP, f.roomHTTP = quota, room })
}

// Fail lets the next operations of a kind ("insert", "bulkInsert", "delete", "start",
// "stop"; "": any) end with an error and without an effect.
func (f *Fake) Fail(kind, code, message string, times int) {
	f.Locked(func() {
		f.failing = append(f.failing, &failure{kind, opError{code: code, message: message, status: 400, statusText: "BAD REQUEST"}, times})
	})
}

// FailTPU lets the next creations of TPUs end with a google.rpc code and without an effect.
func (f *Fake) FailTPU(code int, message string, times int) {
	f.Locked(func() {
		f.failing = append(f.failing, &failure{"create", opError{status: code, message: message}, times})
	})
}

// LimitQuota is how much a region's quota ("CPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS") allows.
func (f *Fake) LimitQuota(region, name string, limit int) error {
	all, err := f.Owner.Quotas(background, region)
	if err != nil {
		return err
	}
	for _, q := range all {
		if metric(q.Name) == name {
			return f.Cloud.SetQuota("team", region, q.Name, limit)
		}
	}
	return fmt.Errorf("there is no quota %q in %s", name, region)
}

// NoDefault removes the default network, as many organizations do.
func (f *Fake) NoDefault() {
	f.Locked(func() {
		for p, o := range f.items {
			if strings.HasSuffix(p, "networks/default") || strings.HasSuffix(fmt.Sprint(o["network"]), "/networks/default") {
				delete(f.items, p)
			}
		}
	})
}

// Preempt takes a spot machine back after a while: it is off then, or gone.
func (f *Fake) Preempt(id string, in time.Duration) {
	f.Locked(func() {
		m, ok := f.Machine(id)
		if v := f.vms[m.ID]; ok && v != nil && v.spot {
			v.takenBack = time.Now().Add(in)
		}
		for _, n := range f.nodes {
			if ok && n.id == m.ID && n.spot {
				n.takenBack = time.Now().Add(in)
			}
		}
	})
}

// Halt is a machine's own shutdown, of which an operation tells.
func (f *Fake) Halt(id string) {
	f.Locked(func() {
		m, ok := f.Machine(id)
		if !ok {
			return
		}
		_ = f.Cloud.Halt(m.ID)
		if v := f.vms[m.ID]; v != nil {
			f.happened(v, "compute.instances.guestTerminate", "Instance terminated by guest OS shutdown.")
		}
	})
}

// Skew sets the cloud's clock wrong, as far as the times of creations tell.
func (f *Fake) Skew(by time.Duration) { _ = f.Cloud.Skew(by) }

// Restore ends what hooks began.
func (f *Fake) Restore() {
	f.Locked(func() {
		f.denied, f.readOnly, f.inactive, f.lag, f.gpus, f.quotaHTTP, f.roomHTTP, f.failing, f.pageSize, f.took = map[string]bool{}, false, false, 0, -1, false, false, nil, 0, 10*time.Millisecond
		f.young, f.dark, f.eachZone = map[string]int{}, map[string]bool{}, false
		for s := range f.services {
			f.services[s] = true
		}
	})
	f.Skew(0)
	f.Fake.Restore()
}

// Body is an instance as it is kept.
func (f *Fake) Body(id string) (body dict) {
	f.Locked(func() {
		if m, ok := f.Machine(id); ok && f.vms[m.ID] != nil {
			body = f.vms[m.ID].body
		}
		for _, n := range f.nodes {
			if m, ok := f.Machine(id); ok && n.id == m.ID {
				body = n.body
			}
		}
	})
	return body
}

// MadeFrom is the image that an instance's boot disk was made of.
func (f *Fake) MadeFrom(id string) (image string) {
	f.Locked(func() {
		m, _ := f.Machine(id)
		if v := f.vms[m.ID]; v != nil && len(v.uses["disk"]) > 0 {
			image, _ = f.items[v.uses["disk"][0]]["sourceImage"].(string)
			image = path(Project, image)
		}
	})
	return image
}

// Inventory is a line for each thing but those that every project has.
func (f *Fake) Inventory() (lines []string) {
	f.Locked(func() {
		f.settle()
		f.sweep()
		for _, v := range f.alive() {
			lines = append(lines, "instances "+v.zone+"/"+v.name)
		}
		for p := range f.nodes {
			lines = append(lines, "nodes "+p[strings.LastIndex(p, "/")+1:])
		}
		for p := range f.queued {
			lines = append(lines, "queuedResources "+p[strings.LastIndex(p, "/")+1:])
		}
		for p := range f.items {
			s := strings.Split(p, "/")
			if f.standing[p] || len(s) < 4 {
				continue
			}
			kind, name := s[len(s)-2], s[len(s)-1]
			if kind == "subnetworks" && f.items["projects/"+Project+"/global/networks/"+name]["autoCreateSubnetworks"] == true {
				continue // they come and go with it
			}
			lines = append(lines, kind+" "+name)
		}
	})
	slices.Sort(lines)
	return lines
}

// OpenPorts are the TCP ports but ssh that the world reaches on a machine, sorted.
func (f *Fake) OpenPorts(id string) (open []string) {
	f.Locked(func() {
		m, _ := f.Machine(id)
		v := f.vms[m.ID]
		if v == nil {
			return
		}
		tags := fakehttp.Items(v.body["tags"].(dict)["items"])
		for _, p := range f.under("projects/" + Project + "/global/firewalls/") {
			o := f.items[p]
			targets := fakehttp.Items(o["targetTags"])
			applies := len(targets) == 0 || slices.ContainsFunc(targets, func(t any) bool { return slices.Contains(tags, t) })
			if !applies || !slices.Contains(v.uses["network"], path(Project, fmt.Sprint(o["network"]))) || !slices.Contains(fakehttp.Items(o["sourceRanges"]), any("0.0.0.0/0")) || o["disabled"] == true || o["direction"] != "INGRESS" {
				continue
			}
			for _, x := range fakehttp.Items(o["allowed"]) {
				if rule := x.(dict); strings.EqualFold(fmt.Sprint(rule["IPProtocol"]), "tcp") {
					for _, port := range fakehttp.Items(rule["ports"]) {
						if port != "22" {
							open = append(open, fmt.Sprint(port))
						}
					}
				}
			}
		}
	})
	slices.Sort(open)
	return slices.Compact(open)
}

// Harness is all that the contract's suite needs of the fake. shared are kinds of things
// ("networks", "serviceAccounts"), or such things ("firewalls NAME"), that stay when clusters are removed.
func (f *Fake) Harness(make func() cloud.Provider, shared ...string) cloudtest.Harness {
	h := f.Fake.Harness(make, shared...)
	h.Restore = func(testing.TB) { f.Restore() }
	h.Forbid = func(testing.TB) { f.Forbid() }
	h.Halt = func(_ testing.TB, n cloud.Node) { f.Halt(n.ID) }
	h.Skew = func(_ testing.TB, by time.Duration) { f.Skew(by) }
	h.Preempt = func(_ testing.TB, n cloud.Node, in time.Duration) { f.Preempt(n.ID, in) }
	h.MadeFrom = func(_ testing.TB, n cloud.Node) string { return f.MadeFrom(n.ID) }
	h.OpenPorts = func(_ testing.TB, n cloud.Node) []string { return f.OpenPorts(n.ID) }
	h.Billed = func(_ testing.TB, n cloud.Node) bool {
		m, ok := f.Machine(n.ID)
		return ok && (m.State == fluffyapi.Pending || m.State == fluffyapi.Running)
	}
	h.Inventory = func(testing.TB) []string {
		return slices.DeleteFunc(f.Inventory(), func(line string) bool {
			return slices.ContainsFunc(shared, func(kind string) bool { return line == kind || strings.HasPrefix(line, kind+" ") })
		})
	}
	return h
}

package gcp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Types of operations about instances. Those of a bulk insertion have one of their own
// each; that a machine is taken back is an operation of the system's.
//
// https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption
const (
	inserted  = "insert"
	preempted = "compute.instances.preempted"
)

// unlisted finds out what became of a cluster's machines that are in no list, by the
// operations about their names: those that were taken back are deleted, and only that
// tells; those that were asked for a moment ago may not be listed yet, and count if sure.
// The operations are asked for if something that was seen is missing, if nothing is known
// of the cluster, and if sure.
func (d driver) unlisted(ctx context.Context, a *account, id cloud.ClusterID, list []vm.Machine, sure bool) ([]vm.Machine, error) {
	here := map[string]bool{}
	for _, m := range list {
		here[m.ID] = true
	}
	if id.Name == "" || id.Hash == "" || id.Installation == "" {
		return nil, nil
	}
	if known, lost := d.known.cluster(id, here); !sure && !lost && (known || len(list) > 0) {
		return nil, nil
	}
	last := map[string]operation{} // about each name
	query := url.Values{"filter": {fmt.Sprintf("targetLink eq %q", ".*/instances/"+names.Cluster(id)+"-[0-9]+")}, "maxResults": {"500"}, "returnPartialSuccess": {"true"}}
	err := pages(ctx, a.compute, a.on("/aggregated/operations"), query, func(page struct {
		Items map[string]struct {
			Operations []operation `json:"operations"`
		} `json:"items"`
		Next string `json:"nextPageToken"`
	}) string {
		for _, scope := range page.Items {
			for _, o := range scope.Operations {
				name := path.Base(o.Target)
				if was, ok := last[name]; !ok || !o.Time.Before(was.Time) {
					last[name] = o
				}
			}
		}
		return page.Next
	})
	if err != nil {
		if r, ok := err.(*refusal); ok && (r.Status == http.StatusForbidden && !said(err, "rateLimitExceeded") || missing(err)) { // then lists have to do
			err = nil
		}
		return nil, err
	}
	var more []vm.Machine
	for name, o := range last {
		tags, ours := names.Tags(id, name)
		if !ours || here[name] {
			continue
		}
		zone := path.Base(o.Zone)
		m := vm.Machine{ID: name, Region: region(zone), Zone: zone, RawState: o.Type, Tags: tags, Detail: about{}}
		switch known, _ := d.known.of(name); {
		case o.Type == preempted && cmp.Or(known.id, o.TargetID) == o.TargetID:
			m.State, m.Reclaimed, m.Spot, m.Reason = vm.Ended, true, true, "Compute Engine preempted it"
		case o.Type == inserted && sure && o.failure() == nil && (o.Status != "DONE" || time.Since(o.Time) < cmp.Or(d.o.Settle, time.Minute)):
			m.State = vm.Pending
		default:
			continue
		}
		more = append(more, m)
	}
	return more, nil
}

// seen notes machines of a list.
func (k *memory) seen(list []vm.Machine) {
	for _, m := range list {
		detail := m.Detail.(about)
		of := cloud.ClusterID{Installation: m.Tags[cloud.TagInstallation], Name: m.Tags[cloud.TagCluster], Hash: m.Tags[cloud.TagHash]}
		k.note(m.ID, seen{cluster: of, project: detail.project, zone: m.Zone, tpu: detail.tpu, queue: detail.queue, id: detail.incarnation})
	}
}

// cluster reports whether machines of a cluster were asked for or seen, and whether some
// that were seen are not here any more.
func (k *memory) cluster(id cloud.ClusterID, here map[string]bool) (known, lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, s := range k.m {
		if s.cluster == id {
			known = true
			lost = lost || s.id != "" && !s.tpu && !here[name]
		}
	}
	return known, lost
}

// hidden is the first zone that cannot be reached in which machines of a cluster may be; "":
// none. Machines of a cluster are in the zone where some were asked for or seen.
func (k *memory) hidden(id cloud.ClusterID, where vm.ListScope, dark []string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := map[string]bool{}
	for _, s := range k.m {
		if s.cluster == id {
			known[s.zone] = true
		}
	}
	for _, scope := range dark {
		zone := path.Base(scope)
		inScope := where.Region == "" || zone == where.Region || region(zone) == where.Region
		if inScope && (where.Exhaustive || len(known) == 0 || known[zone]) {
			return scope
		}
	}
	return ""
}

// forget is for clusters that are gone.
func (k *memory) forget(id cloud.ClusterID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, s := range k.m {
		if s.cluster == id {
			delete(k.m, name)
		}
	}
}

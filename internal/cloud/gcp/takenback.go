package gcp

import (
	"context"
	"fmt"
	"net/url"
	"path"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// preempted is the type of the operation by which Compute Engine takes a machine back.
//
// https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption
const preempted = "compute.instances.preempted"

// takenBack finds out which of a cluster's machines that are in no list any more were
// taken back: a spot machine is deleted then, and only the operation tells. They are
// asked for if something that was seen is missing, or if nothing is there.
func (d driver) takenBack(ctx context.Context, a *account, id cloud.ClusterID, list []vm.Machine) ([]vm.Machine, error) {
	here := map[string]bool{}
	for _, m := range list {
		here[m.ID] = true
		detail := m.Detail.(about)
		of := cloud.ClusterID{Installation: m.Tags[cloud.TagInstallation], Name: m.Tags[cloud.TagCluster], Hash: m.Tags[cloud.TagHash]}
		d.known.note(m.ID, seen{cluster: of, zone: m.Zone, tpu: detail.tpu, spot: m.Spot, id: detail.incarnation})
	}
	if id.Name == "" || id.Hash == "" || id.Installation == "" {
		return nil, nil
	}
	zones := d.known.lost(id, here)
	var gone []vm.Machine
	for zone := range zones {
		query := url.Values{"filter": {fmt.Sprintf("operationType=%q", preempted)}, "maxResults": {"500"}}
		err := pages(ctx, a.compute, a.on("/zones/%s/operations", zone), query, func(page struct {
			Items []operation `json:"items"`
			Next  string      `json:"nextPageToken"`
		}) string {
			for _, o := range page.Items {
				name := path.Base(o.Target)
				tags, ours := names.Tags(id, name)
				if o.Type != preempted || !ours || here[name] || o.TargetID != zones[zone][name] {
					continue
				}
				here[name] = true
				gone = append(gone, vm.Machine{
					ID: name, Region: region(zone), Zone: zone, State: vm.Ended, Said: preempted, Unasked: true, Reason: "Compute Engine preempted it",
					Spot: true, Tags: tags, Detail: about{},
				})
			}
			return page.Next
		})
		if err != nil && !missing(err) {
			return nil, err
		}
	}
	return gone, nil
}

// lost are the spot machines of a cluster that were seen and are in no list any more, by
// their zones: which incarnation of each name it was.
func (k *memory) lost(id cloud.ClusterID, here map[string]bool) map[string]map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	zones := map[string]map[string]string{}
	for name, s := range k.m {
		if s.cluster == id && s.spot && !s.tpu && s.id != "" && !here[name] {
			if zones[s.zone] == nil {
				zones[s.zone] = map[string]string{}
			}
			zones[s.zone][name] = s.id
		}
	}
	return zones
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

package gcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Queued resources are requests for TPUs that wait at Google until there is room. There is
// one for each slice, with a name that follows from the slice's, so that what was asked
// for by a server which died is found again; it is listed like the slice that it is to become,
// and is deleted together with it.
//
// https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.queuedResources

// mostQueued is how long a request waits for room before it counts as refused.
const mostQueued = 6000 * time.Second

// queues reports whether the slices of a launch wait in the queue.
func queues(spec cloud.LaunchSpec) bool { return spec.TPUQueued && tpuName(spec.Offer) != "" }

// inQueue is how long a launch waits for room at Google, besides the usual time.
func (p *Provider) inQueue(spec cloud.LaunchSpec) time.Duration {
	if s := p.settings(spec); s.flex(spec.Offer) {
		return time.Duration(s.WaitSeconds) * time.Second
	}
	if queues(spec) {
		return mostQueued
	}
	return 0
}

func queueName(node string) string { return node + "-q" }

func (a *account) queuePath(zone, queue string) string {
	return a.on("/locations/%s/queuedResources/%s", zone, queue) + "?force=true" // with the slice
}

// queuedResource is a request as the API has it.
type queuedResource struct {
	Name string `json:"name"`
	TPU  struct {
		Specs []struct {
			NodeID string  `json:"nodeId"`
			Node   tpuNode `json:"node"`
		} `json:"nodeSpec"`
	} `json:"tpu"`
	Spot  *struct{} `json:"spot"`
	State struct {
		State  string `json:"state"`
		Failed struct {
			Error *tpuError `json:"error"`
		} `json:"failedData"`
	} `json:"state"`
}

// queueStates are the words for what a request is doing. An active one has its slice,
// which is listed by itself.
var queueStates = map[string]vm.State{
	"CREATING": vm.Pending, "ACCEPTED": vm.Pending, "WAITING_FOR_RESOURCES": vm.Pending, "PROVISIONING": vm.Pending, "ACTIVE": vm.Pending, "FAILED": vm.Pending,
	"SUSPENDING": vm.Ending, "DELETING": vm.Ending, "SUSPENDED": vm.Ended,
}

// queued reads what the API says of a request whose slice is in no list; false: it is none
// of this program's.
func (d driver) queued(ctx context.Context, q queuedResource) (vm.Machine, bool) {
	if len(q.TPU.Specs) != 1 {
		return vm.Machine{}, false
	}
	spec, part := q.TPU.Specs[0], strings.Split(q.Name, "/") // projects/P/locations/ZONE/queuedResources/NAME
	if len(part) < 6 {
		return vm.Machine{}, false
	}
	spec.Node.Name = strings.Join(append(part[:4:4], "nodes", spec.NodeID), "/")
	m := d.tpu(spec.Node)
	m.State, m.RawState, m.Spot = queueStates[q.State.State], q.State.State, q.Spot != nil
	m.Reclaimed, m.Reason = false, ""
	switch q.State.State {
	case "FAILED":
		m.Failure = d.Refusal(ctx, cloud.Place{Cloud: Name, Region: m.Region, Zone: m.Zone}, (&tpuOperation{Error: q.State.Failed.Error}).queueFailure())
	case "SUSPENDED":
		m.Reclaimed, m.Reason = true, "Google Cloud preempted it"
	}
	m.Detail = about{tpu: true, queue: path.Base(q.Name), identity: spec.Node.Account.Email != "", network: spec.Node.Network.Network}
	return m, true
}

// queueFailure is why a request failed, which always has an error.
func (o *tpuOperation) queueFailure() error {
	if err := o.failure(); err != nil {
		return err
	}
	return &refusal{answer{Code: "TIMEOUT", Message: "the queued resource failed, and Google Cloud does not say why"}, "tpu.googleapis.com"}
}

// queuedPage is one of a list of requests.
type queuedPage struct {
	Queued      []queuedResource `json:"queuedResources"`
	Unreachable []string         `json:"unreachable"`
	Next        string           `json:"nextPageToken"`
}

// eachQueued reads the requests of all zones: with one list, or, as the reference does not
// promise that there is one, with a list for each zone that has TPUs.
func (a *account) eachQueued(ctx context.Context, read func(queuedPage)) error {
	list := func(zone string) error {
		return pages(ctx, a.tpu, a.on("/locations/%s/queuedResources", zone), url.Values{"pageSize": {"500"}}, func(page queuedPage) string {
			read(page)
			return page.Next
		})
	}
	shut := func(err error) bool {
		r, ok := err.(*refusal)
		return ok && (r.Status == http.StatusBadRequest || r.Status == http.StatusForbidden || r.Status == http.StatusNotFound)
	}
	first := list("-")
	if !shut(first) {
		return first
	}
	var zones []string
	err := pages(ctx, a.tpu, a.on("/locations"), url.Values{"pageSize": {"500"}}, func(page struct {
		Locations []struct {
			ID string `json:"locationId"`
		} `json:"locations"`
		Next string `json:"nextPageToken"`
	}) string {
		for _, l := range page.Locations {
			zones = append(zones, l.ID)
		}
		return page.Next
	})
	if shut(err) {
		return first
	}
	if err != nil {
		return err
	}
	open := false
	for _, zone := range zones {
		err := list(zone)
		if err != nil && !shut(err) { // a zone that refuses has none
			return err
		}
		open = open || err == nil
	}
	if !open {
		return first
	}
	return nil
}

// listQueued adds the requests of a cluster, in all zones, whose slices are not in the list,
// and the zones that cannot be reached.
func (d driver) listQueued(ctx context.Context, a *account, id cloud.ClusterID, list []vm.Machine, dark []string) ([]vm.Machine, []string, error) {
	here := map[string]bool{}
	for _, m := range list {
		here[m.Zone+"/"+m.ID] = true
	}
	err := a.eachQueued(ctx, func(page queuedPage) {
		dark = append(dark, page.Unreachable...)
		for _, q := range page.Queued {
			if m, ok := d.queued(ctx, q); ok && id.Has(m.Tags) && !here[m.Zone+"/"+m.ID] {
				list = append(list, a.there(m))
			}
		}
	})
	return list, dark, a.queues.tpus(err, http.StatusBadRequest)
}

// enqueue asks for a slice. The request is accepted or refused at once; that there is room
// is told by lists.
func (d driver) enqueue(ctx context.Context, a *account, spec cloud.LaunchSpec, plan *plan, name string) error {
	if a.queues.noTPUs() { // what cannot be seen would be left behind
		if err := a.eachQueued(ctx, func(queuedPage) {}); err != nil {
			return err
		}
		_ = a.queues.tpus(nil)
	}
	node := plan.tpuBody(spec, name)
	delete(node, "schedulingConfig")
	node["metadata"].(map[string]string)["shutdown-script"] = queueEndScript
	body := map[string]any{
		"tpu":            map[string]any{"nodeSpec": []any{map[string]any{"parent": fmt.Sprintf("projects/%s/locations/%s", a.project, spec.Offer.Zone), "nodeId": name, "node": node}}},
		"queueingPolicy": map[string]any{"validUntilDuration": fmt.Sprintf("%ds", int(mostQueued.Seconds()))},
	}
	if spec.Offer.Spot {
		body["spot"] = map[string]any{}
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := a.finishTPU(limited, "POST", a.on("/locations/%s/queuedResources?queuedResourceId=%s", spec.Offer.Zone, queueName(name)), body)
	if err != nil && !refused(err) && limited.Err() != nil && ctx.Err() == nil {
		return nil // it is being looked at
	}
	return err
}

// tpuRuntime is the software that a slice of a launch starts with.
func tpuRuntime(spec cloud.LaunchSpec) string {
	if spec.TPURuntime != "" {
		return spec.TPURuntime
	}
	return runtimeVersion(tpuName(spec.Offer))
}

package gcp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// With flex-start, machines with GPUs are made by a managed instance group: a request to
// resize it waits at Google until there is room for all machines at once, and they live for
// as long as it says. The group and its template are named after the cluster, so that a server
// that is started again finds what waits there. Google names the machines; their rank is a label.
//
// https://cloud.google.com/compute/docs/instance-groups/create-resize-requests-mig

// flexLabel marks the machines of groups.
const flexLabel = "use-managed-instance-group"

// Bounds of how long such machines live.
const (
	leastRun = 600
	mostRun  = 7 * 24 * 3600
)

// flex reports whether the machines of a launch are made by a group.
func (s Settings) flex(o cloud.Offer) bool {
	return s.RunSeconds != 0 && len(o.Accelerators) > 0 && tpuName(o) == ""
}

// validFlex refuses what groups cannot do.
func (s Settings) validFlex(spec cloud.LaunchSpec) error {
	switch {
	case !s.flex(spec.Offer):
	case spec.Offer.Spot:
		return fmt.Errorf("gcp.managed_instance_group makes no spot machines; take one of the two away")
	case s.RunSeconds < leastRun || s.RunSeconds > mostRun:
		return fmt.Errorf("gcp.managed_instance_group.run_duration is %d, and machines live %d to %d seconds", s.RunSeconds, leastRun, mostRun)
	case s.WaitSeconds < 1:
		return fmt.Errorf("gcp.managed_instance_group.provision_timeout is %d, and it takes at least a second", s.WaitSeconds)
	}
	return nil
}

func groupName(id cloud.ClusterID) string    { return "sky-mig-" + names.Cluster(id) }
func templateName(id cloud.ClusterID) string { return "sky-it-" + names.Cluster(id) }

func (a *account) groupPath(zone string, id cloud.ClusterID, tail string) string {
	return a.on("/zones/%s/instanceGroupManagers/%s", zone, groupName(id)) + tail
}

// resizeRequest is a request for machines.
type resizeRequest struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Status struct {
		Error operationError `json:"error"`
		Last  struct {
			Error operationError `json:"error"`
		} `json:"lastAttempt"`
	} `json:"status"`
}

func (r resizeRequest) waits() bool { return r.State == "CREATING" || r.State == "ACCEPTED" }

func (r resizeRequest) failed() bool { return r.State == "FAILED" || r.State == "CANCELLED" }

// resizes are the requests of a cluster's group.
func (a *account) resizes(ctx context.Context, zone string, id cloud.ClusterID) (all []resizeRequest, err error) {
	err = pages(ctx, a.compute, a.groupPath(zone, id, "/resizeRequests"), url.Values{}, func(page struct {
		Items []resizeRequest `json:"items"`
		Next  string          `json:"nextPageToken"`
	}) string {
		all = append(all, page.Items...)
		return page.Next
	})
	return all, err
}

// members are the names of the machines of a cluster's group.
func (a *account) members(ctx context.Context, zone string, id cloud.ClusterID) ([]string, error) {
	found, err := rest.Do[struct {
		Managed []struct {
			Instance string `json:"instance"`
		} `json:"managedInstances"`
	}](ctx, a.compute, "POST", a.groupPath(zone, id, "/listManagedInstances?maxResults=500"), nil)
	var all []string
	for _, m := range found.Managed {
		all = append(all, path.Base(m.Instance))
	}
	return all, err
}

// ensureGroup makes the template and the group of a cluster, if they are not there.
func (a *account) ensureGroup(ctx context.Context, spec cloud.LaunchSpec, p *plan) error {
	zone, region := spec.Offer.Zone, spec.Offer.Region
	properties := p.properties(spec, share{})
	tags := maps.Clone(properties["labels"].(map[string]string))
	tags[flexLabel] = "1"
	properties["labels"] = tags
	properties["reservationAffinity"] = map[string]any{"consumeReservationType": "NO_RESERVATION"}
	err := a.finish(ctx, a.project, "POST", a.on("/regions/%s/instanceTemplates", region), map[string]any{"name": templateName(spec.ID), "properties": properties})
	if err != nil && !exists(err) {
		return err
	}
	err = a.finish(ctx, a.project, "POST", a.on("/zones/%s/instanceGroupManagers", zone), map[string]any{
		"name": groupName(spec.ID), "baseInstanceName": names.Cluster(spec.ID) + "-g", "targetSize": 0,
		"instanceTemplate":        fmt.Sprintf("projects/%s/regions/%s/instanceTemplates/%s", a.project, region, templateName(spec.ID)),
		"instanceLifecyclePolicy": map[string]any{"defaultActionOnFailure": "DO_NOTHING"}, // or requests for machines are refused
		"updatePolicy":            map[string]any{"type": "OPPORTUNISTIC"},
	})
	if err != nil && !exists(err) {
		return err
	}
	return nil
}

// createFlex asks for so many machines and waits for them. A request that waits already,
// of a server that died, is waited for in its place.
func (d driver) createFlex(ctx context.Context, a *account, l *vm.Launch, p *plan, count int) ([]string, error) {
	spec, zone := l.Spec, l.Spec.Offer.Zone
	asking := spec
	asking.Offer.Spot = true // such machines count against those quotas
	if err := d.enough(ctx, a, asking, count); err != nil {
		return nil, err
	}
	for kind, name := range map[string]string{"instanceGroupManagers": groupName(spec.ID), "instanceTemplates": templateName(spec.ID)} {
		if _, err := a.named(ctx, kind, name); err != nil { // what cannot be seen would be left behind
			return nil, err
		}
	}
	if err := a.ensureGroup(ctx, spec, p); err != nil {
		return nil, err
	}
	mine, tries := "", -1 // the name of the request, and how many of this launch failed before
	until := time.Now().Add(time.Duration(p.settings.WaitSeconds) * time.Second)
	for others := false; ; {
		all, err := a.resizes(ctx, zone, spec.ID)
		if err != nil {
			return nil, err
		}
		token := fmt.Sprintf("r-%x", sha256.Sum256([]byte(spec.Token)))[:22]
		if tries < 0 {
			tries = 0
			for _, r := range all {
				if strings.HasPrefix(r.Name, token) && r.failed() {
					tries++
				}
			}
			mine = fmt.Sprint(token, "-", tries)
		}
		var own *resizeRequest
		waiting := ""
		for i, r := range all {
			if r.Name == mine {
				own = &all[i]
			}
			if r.waits() {
				waiting, others = r.Name, others || r.Name != mine
			}
		}
		switch {
		case waiting != "":
		case own != nil && own.State == "SUCCEEDED":
			made, err := a.members(ctx, zone, spec.ID)
			d.known.expect(spec, made, false)
			return made, err
		case own != nil:
			return nil, own.failure()
		case others:
			return nil, nil // it is looked again which ranks are missing
		default:
			made, err := a.members(ctx, zone, spec.ID)
			if err != nil || len(made) > len(l.Machines) { // some are in no list yet
				return nil, err
			}
			err = a.finish(ctx, a.project, "POST", a.groupPath(zone, spec.ID, "/resizeRequests"), map[string]any{
				"name": mine, "resizeBy": count, "requestedRunDuration": map[string]any{"seconds": fmt.Sprint(p.settings.RunSeconds)},
			})
			if err != nil && !exists(err) {
				return nil, err
			}
			continue
		}
		if time.Now().After(until) {
			err := a.finish(ctx, a.project, "POST", a.groupPath(zone, spec.ID, "/resizeRequests/"+url.PathEscape(waiting)+"/cancel"), nil)
			if !refused(err) && err != nil {
				return nil, err
			}
			if err == nil {
				return nil, &refusal{answer{Code: "TIMEOUT", Message: fmt.Sprintf("there was no room within %d seconds (gcp.managed_instance_group.provision_timeout)", p.settings.WaitSeconds)}, "compute.googleapis.com"}
			}
			// It was fulfilled just now.
		}
		cloud.ReportWait(ctx, "Google Cloud to have room for the managed instance group")
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(d.o.Poll):
		}
	}
}

// failure is why a request came to nothing.
func (r resizeRequest) failure() error {
	o := operation{Error: r.Status.Error}
	if len(o.Error.Errors) == 0 {
		o.Error = r.Status.Last.Error
	}
	if err := o.failure(); err != nil {
		return err
	}
	return &refusal{answer{Code: "TIMEOUT", Message: "the request for machines is " + r.State}, "compute.googleapis.com"}
}

// WriteRank gives a machine that a group made its rank. A machine that is gone is no error.
func (d driver) WriteRank(ctx context.Context, _ cloud.LaunchSpec, m vm.Machine, rank int) error {
	a, err := d.api(ctx)
	if err != nil {
		return err
	}
	detail := m.Detail.(about)
	all := maps.Clone(detail.labels)
	all[cloud.TagRank] = fmt.Sprint(rank)
	err = a.finish(ctx, a.project, "POST", a.on("/zones/%s/instances/%s/setLabels", m.Zone, m.ID), map[string]any{"labels": all, "labelFingerprint": detail.labelsPrint})
	if missing(err) || said(err, "conditionNotMet") { // it is looked again
		return nil
	}
	return err
}

// endGroups begins to end the groups of a cluster with their machines, after the requests
// that wait, and then the templates. It returns what is left.
func (a *account) endGroups(ctx context.Context, id cloud.ClusterID) (left []string, err error) {
	groups, err := a.named(ctx, "instanceGroupManagers", groupName(id))
	if unlistable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if err := a.endGroup(ctx, path.Base(g.Zone), id); err != nil {
			return nil, err
		}
	}
	if len(groups) > 0 {
		return []string{"instanceGroupManagers/" + groupName(id)}, nil
	}
	templates, err := a.named(ctx, "instanceTemplates", templateName(id))
	if unlistable(err) {
		return nil, nil
	}
	for _, t := range templates {
		err := a.finish(ctx, a.project, "DELETE", a.on("/regions/%s/instanceTemplates/%s", path.Base(t.Region), templateName(id)), nil)
		if err != nil && !missing(err) {
			return nil, err
		}
	}
	return nil, err
}

// endGroup cancels what waits in a cluster's group and begins to end it with its machines.
func (a *account) endGroup(ctx context.Context, zone string, id cloud.ClusterID) error {
	all, err := a.resizes(ctx, zone, id)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.waits() { // one that was fulfilled meanwhile has machines, which the group ends
			if err := a.finish(ctx, a.project, "POST", a.groupPath(zone, id, "/resizeRequests/"+url.PathEscape(r.Name)+"/cancel"), nil); err != nil && !refused(err) {
				return err
			}
		}
	}
	if _, err := a.begin(ctx, "DELETE", a.groupPath(zone, id, ""), nil); err != nil && !missing(err) {
		return err
	}
	return nil
}

// thing is something in a list over all zones and regions.
type thing struct {
	Name   string `json:"name"`
	Zone   string `json:"zone"`
	Region string `json:"region"`
}

// named finds what has a name, in any place.
func (a *account) named(ctx context.Context, kind, name string) (found []thing, err error) {
	err = pages(ctx, a.compute, a.on("/aggregated/%s", kind), url.Values{"filter": {fmt.Sprintf("name=%q", name)}, "returnPartialSuccess": {"true"}}, func(page struct {
		Items map[string]map[string]any `json:"items"`
		Next  string                    `json:"nextPageToken"`
	}) string {
		for scope, held := range page.Items {
			list, _ := held[kind].([]any)
			for _, x := range list {
				o, _ := x.(map[string]any)
				if o["name"] == name {
					found = append(found, thing{Name: name, Zone: scope, Region: scope})
				}
			}
		}
		return page.Next
	})
	return found, err
}

// unlistable reports whether the credentials may not list such things, so that they have made
// none.
func unlistable(err error) bool {
	r, ok := err.(*refusal)
	return ok && (r.Status == http.StatusForbidden && !said(err, "rateLimitExceeded") || missing(err))
}

package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Google Cloud for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// states are Compute Engine's words for what an instance does. One that is being deleted
// is STOPPING until it is in no list any more.
//
// https://cloud.google.com/compute/docs/instances/instance-lifecycle
var states = map[string]vm.State{
	"PENDING": vm.Pending, "PROVISIONING": vm.Pending, "STAGING": vm.Pending, "REPAIRING": vm.Pending, "RUNNING": vm.Running,
	"PENDING_STOP": vm.Stopping, "STOPPING": vm.Stopping, "SUSPENDING": vm.Stopping, "STOPPED": vm.Stopped, "SUSPENDED": vm.Stopped, "TERMINATED": vm.Stopped,
	"DEPROVISIONING": vm.Ending,
}

type item struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// instance is a machine as Compute Engine has it.
type instance struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Why        string            `json:"statusMessage"`
	Zone       string            `json:"zone"`
	Type       string            `json:"machineType"`
	Created    time.Time         `json:"creationTimestamp"`
	Labels     map[string]string `json:"labels"`
	Print      string            `json:"labelFingerprint"`
	Scheduling struct {
		Preemptible bool   `json:"preemptible"`
		Model       string `json:"provisioningModel"`
	} `json:"scheduling"`
	Metadata struct {
		Items []item `json:"items"`
	} `json:"metadata"`
	Accounts []struct {
		Email string `json:"email"`
	} `json:"serviceAccounts"`
	Interfaces []struct {
		Network string `json:"network"`
		IP      string `json:"networkIP"`
		Access  []struct {
			IP string `json:"natIP"`
		} `json:"accessConfigs"`
	} `json:"networkInterfaces"`
}

// about is what only this provider needs to know of a machine.
type about struct {
	tpu         bool
	project     string            // "": the one in use
	queue       string            // the queued resource that a TPU belongs to; "": none
	network     string            // URL of the VPC
	labels      map[string]string // and their fingerprint
	labelsPrint string
	identity    bool   // it has a service account
	incarnation string // which of those that had the name one after the other it is
}

// region is that of a zone.
func region(zone string) string { return zone[:max(0, strings.LastIndexByte(zone, '-'))] }

// filter finds what has the labels of a cluster.
func filter(id cloud.ClusterID) string {
	tags := id.Tags()
	var parts []string
	for _, key := range []string{cloud.TagInstallation, cloud.TagCluster, cloud.TagHash} {
		if v, ok := tags[key]; ok {
			parts = append(parts, fmt.Sprintf("labels.%s=%q", key, v))
		}
	}
	if len(parts) == 0 {
		return "labels." + cloud.TagInstallation + ":*"
	}
	return strings.Join(parts, " AND ")
}

// scoped is one zone of a list over all.
type scoped struct {
	Instances []instance `json:"instances"`
	Warning   struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"warning"`
}

// List reads the instances and TPUs with the cluster's labels, of the project and of those
// where some were listed, and finds out which of those that are missing were taken back.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	a, err := d.api(ctx)
	if err != nil {
		return nil, err
	}
	list, err := d.listProject(ctx, a, id, where)
	if err != nil {
		return nil, err
	}
	for _, project := range d.spread.Of(id) {
		more, err := d.listProject(ctx, d.of(a, project), id, where)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	more, err := d.unlisted(ctx, a, id, list, where.Exhaustive)
	return append(list, more...), err
}

// listProject lists the machines of one project.
func (d driver) listProject(ctx context.Context, a *account, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	var list []vm.Machine
	var dark []string // zones that cannot be seen
	query := url.Values{"filter": {filter(id)}, "maxResults": {"500"}, "returnPartialSuccess": {"true"}}
	err := pages(ctx, a.compute, a.on("/aggregated/instances"), query, func(page struct {
		Items       map[string]scoped `json:"items"`
		Unreachable []string          `json:"unreachables"`
		Next        string            `json:"nextPageToken"`
	}) string {
		for scope, s := range page.Items {
			for _, i := range s.Instances {
				if m := a.there(d.machine(i)); id.Has(m.Tags) {
					list = append(list, m)
				}
			}
			if s.Warning.Code == "UNREACHABLE" {
				page.Unreachable = append(page.Unreachable, scope)
			}
		}
		dark = append(dark, page.Unreachable...)
		return page.Next
	})
	if err != nil {
		return nil, err
	}
	d.known.seen(list)
	if at := d.known.hidden(id, where, dark); at != "" {
		return nil, &rest.NoAnswerError{Cloud: "Google Cloud", Err: fmt.Errorf("%s cannot be reached", at)}
	}
	slices, err := d.listTPUs(ctx, a, id, where)
	if err != nil {
		return nil, err
	}
	return append(list, slices...), nil
}

// machine reads what Compute Engine says of an instance.
func (d driver) machine(i instance) vm.Machine {
	zone := path.Base(i.Zone)
	m := vm.Machine{
		ID: i.Name, Region: region(zone), Zone: zone, State: states[i.Status], RawState: i.Status, Type: path.Base(i.Type),
		Spot: i.Scheduling.Preemptible || i.Scheduling.Model == "SPOT", Created: i.Created, Tags: map[string]string{},
	}
	switch m.State {
	case vm.Running:
	case vm.Stopped:
		m.Reason = cmp.Or(i.Why, "Compute Engine says that it is "+i.Status)
	default:
		m.Reason = i.Why
	}
	for _, it := range i.Metadata.Items {
		if strings.HasPrefix(it.Key, "sky-") { // what does not fit into labels
			m.Tags[it.Key] = it.Value
		}
	}
	maps.Copy(m.Tags, i.Labels)
	if i.Labels[flexLabel] != "1" { // whose rank is a label
		delete(m.Tags, cloud.TagRank)
	}
	if tags, ok := names.Tags(cloud.ClusterID{}, i.Name); ok && m.Tags[cloud.TagInstallation] != "" {
		m.Tags[cloud.TagRank] = tags[cloud.TagRank]
	}
	detail := about{identity: len(i.Accounts) > 0, incarnation: i.ID, labels: i.Labels, labelsPrint: i.Print}
	for n, nic := range i.Interfaces {
		if n > 0 {
			break
		}
		m.PrivateIP, detail.network = nic.IP, nic.Network
		for _, c := range nic.Access {
			m.PublicIP = c.IP
		}
	}
	m.Detail, m.Reach = detail, d.reach(m)
	return m
}

// reach is the way to a machine by the settings of this moment.
func (d driver) reach(m vm.Machine) cloud.Reach {
	s := d.o.Settings()
	r := cloud.Reach{Method: "ssh", Host: m.PublicIP, Port: 22, User: user, ProxyCommand: s.ProxyCommand.In(m.Region), Machine: cloud.MachineMarksEnd}
	if s.InternalIPs || m.PublicIP == "" {
		r.Host = m.PrivateIP
	}
	return r
}

// Create asks for all machines of the ranks in one call, or a call for each reservation
// that they are to be in. It waits until the service has them, or says why not.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	a, err := d.api(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := d.plan(ctx, a, l)
	if err != nil {
		return nil, err
	}
	if plan.tpu {
		return d.createTPUs(ctx, a, l, plan, ranks)
	}
	if plan.settings.flex(l.Spec.Offer) {
		return d.createFlex(ctx, a, l, plan, len(ranks))
	}
	shares, err := d.shares(ctx, a, l, ranks)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range shares {
		var made []string
		if plan.oneByOne() {
			made, err = d.insert(ctx, a, l.Spec, plan, s)
		} else {
			made, err = d.bulkInsert(ctx, a, l.Spec, plan, s)
		}
		ids = append(ids, made...)
		if err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// mostCreating is how long the service may look for room before the zone counts as full.
const mostCreating = 5 * time.Minute

// created waits until an operation that makes machines is done, and returns why they do
// not come to be. They may, all the same, if it takes too long.
func (a *account) created(ctx context.Context, o operation, err error) error {
	return bounded(ctx, mostCreating, func(ctx context.Context) error { return a.done(ctx, a.project, o, err) })
}

// bounded makes calls that make machines, and says that there is no room if they take too
// long.
func bounded(ctx context.Context, most time.Duration, calls func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := calls(limited)
	if limited.Err() != nil && ctx.Err() == nil {
		return &slow{refusal{answer{Code: "TIMEOUT", Message: fmt.Sprintf("the machines were not made within %v", most)}, "compute.googleapis.com"}}
	}
	return err
}

// slow is the refusal of a call that may have its effect yet.
type slow struct{ refusal }

// bulkInsert makes the machines of a share, all or none.
func (d driver) bulkInsert(ctx context.Context, a *account, spec cloud.LaunchSpec, plan *plan, s share) ([]string, error) {
	per := map[string]any{}
	var ids []string
	for _, rank := range s.ranks {
		ids = append(ids, names.Of(spec.ID, rank))
		per[names.Of(spec.ID, rank)] = map[string]any{}
	}
	count := fmt.Sprint(len(ids))
	body := map[string]any{"count": count, "minCount": count, "perInstanceProperties": per, "instanceProperties": plan.properties(spec, s)}
	zone := spec.Offer.Zone
	d.known.expect(spec, ids, false)
	var o operation
	err := cloud.Settled(ctx, func(ctx context.Context) (err error) {
		o, err = a.begin(ctx, "POST", a.on("/zones/%s/instances/bulkInsert", zone), body)
		return err
	})
	if err = a.created(ctx, o, err); err == nil || !refused(err) {
		return ids, err // without an answer, too: they may exist
	}
	return nil, err
}

// refused reports whether an error is a refusal: the call had no effect, or none any more.
func refused(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// insert makes a machine with each call, which is the only way from a machine image, and
// with disks of its own.
func (d driver) insert(ctx context.Context, a *account, spec cloud.LaunchSpec, plan *plan, s share) ([]string, error) {
	zone := spec.Offer.Zone
	return vm.OneByOne(ctx, d, s.ranks, func(ctx context.Context, rank int) (string, error) {
		name := names.Of(spec.ID, rank)
		d.known.expect(spec, []string{name}, false)
		o, err := a.begin(ctx, "POST", a.on("/zones/%s/instances", zone), plan.instance(spec, s, name))
		return name, a.created(ctx, o, err)
	})
}

// Delete begins to end machines.
func (d driver) Delete(ctx context.Context, id cloud.ClusterID, machines []vm.Machine) error {
	groups := map[string]bool{} // zones of projects whose group is ended already
	machines = slices.DeleteFunc(slices.Clone(machines), func(m vm.Machine) bool {
		detail, _ := m.Detail.(about)
		at := detail.project + "/" + m.Zone
		again := detail.labels[flexLabel] == "1" && groups[at]
		groups[at] = groups[at] || detail.labels[flexLabel] == "1"
		return again
	})
	return d.each(ctx, machines, func(ctx context.Context, a *account, m vm.Machine) error {
		switch detail := m.Detail.(about); {
		case detail.tpu:
			return a.deleteTPU(ctx, m)
		case detail.labels[flexLabel] == "1": // or the group would make another one
			return a.endGroup(ctx, m.Zone, id)
		}
		_, err := a.begin(ctx, "DELETE", a.on("/zones/%s/instances/%s", m.Zone, m.ID), nil)
		return err
	})
}

// Start switches machines on and waits until the service has found room for them, or
// says why not.
func (d driver) Start(ctx context.Context, spec cloud.LaunchSpec, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, a *account, m vm.Machine) error {
		if m.Detail.(about).tpu {
			return a.startTPU(ctx, m)
		}
		verb := "start"
		if m.RawState == "SUSPENDED" {
			verb = "resume"
		}
		return a.finish(ctx, a.project, "POST", a.on("/zones/%s/instances/%s/"+verb, m.Zone, m.ID), nil)
	})
}

// Stop begins to switch machines off.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.each(ctx, machines, func(ctx context.Context, a *account, m vm.Machine) error {
		if m.Detail.(about).tpu {
			return a.stopTPU(ctx, m)
		}
		if m.Detail.(about).labels[flexLabel] == "1" {
			return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("%s is of a managed instance group, whose machines live for a time and cannot be stopped; sky down gives them back", m.ID)}
		}
		_, err := a.begin(ctx, "POST", a.on("/zones/%s/instances/%s/stop?discardLocalSsd=false", m.Zone, m.ID), nil)
		return err
	})
}

// each makes a call about each machine. Where one is that no list has yet is remembered.
func (d driver) each(ctx context.Context, machines []vm.Machine, call func(context.Context, *account, vm.Machine) error) error {
	a, err := d.api(ctx)
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		if m.Zone == "" {
			at, ok := d.known.of(m.ID)
			if !ok {
				return &refusal{answer{Status: 404, Code: "notFound", Message: m.ID + " is in no list"}, "compute.googleapis.com"}
			}
			m.Zone, m.Region, m.Detail = at.zone, region(at.zone), about{tpu: at.tpu, queue: at.queue, project: at.project}
		}
		return call(ctx, d.of(a, m.Detail.(about).project), m)
	})
}

// memory is what was asked for and seen of machines: the zone, and which incarnation of
// the name it was.
type memory struct {
	mu sync.Mutex
	m  map[string]seen
}

type seen struct {
	cluster cloud.ClusterID
	project string // "": the one in use
	zone    string
	tpu     bool
	queue   string
	id      string // "": it was asked for and not seen so far
}

// mostKnown bounds the memory; what is forgotten is found by other means.
const mostKnown = 20_000

func (k *memory) note(name string, s seen) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil || len(k.m) > mostKnown {
		k.m = map[string]seen{}
	}
	k.m[name] = s
}

// expect notes machines that are asked for.
func (k *memory) expect(spec cloud.LaunchSpec, names []string, tpu bool) {
	for _, name := range names {
		s := seen{cluster: spec.ID, zone: spec.Offer.Zone, tpu: tpu}
		if queues(spec) {
			s.queue = queueName(name)
		}
		k.note(name, s)
	}
}

func (k *memory) of(name string) (seen, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.m[name]
	return s, ok
}

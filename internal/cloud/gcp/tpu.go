package gcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// tpuMachine is the type of the machine that comes with a TPU.
const tpuMachine = "TPU-VM"

// tpuName is the accelerator of an offer if it is a TPU, such as "tpu-v5litepod-8"; "":
// it is none.
func tpuName(o cloud.Offer) string {
	for name := range o.Accelerators {
		if strings.HasPrefix(name, "tpu-") {
			return name
		}
	}
	return ""
}

// runtimeVersion is the software that a TPU's machine starts with.
//
// https://cloud.google.com/tpu/docs/runtimes
func runtimeVersion(name string) string {
	switch kind := strings.TrimPrefix(name, "tpu-"); {
	case strings.HasPrefix(kind, "v5"):
		return "v2-alpha-tpuv5"
	case strings.HasPrefix(kind, "v6e"):
		return "v2-alpha-tpuv6e"
	}
	return "tpu-vm-base"
}

// validTPU refuses TPUs that this provider cannot rent.
func validTPU(spec cloud.LaunchSpec) error {
	name := tpuName(spec.Offer)
	if name == "" {
		return nil
	}
	switch hosts := facts.TPUHosts(name); {
	case spec.Offer.InstanceType != tpuMachine:
		return errors.New("TPUs behind a machine of one's own (tpu_vm: false) are no longer offered by Google Cloud; leave tpu_vm out")
	case hosts == 0:
		return fmt.Errorf("it is not known how many machines come with %s", name)
	case hosts != max(spec.Offer.Hosts, 1):
		return fmt.Errorf("%s is a slice of %d machines, and its offer says %d; refresh the price list with: sky catalog refresh gcp", name, hosts, max(spec.Offer.Hosts, 1))
	case spec.ImageID != "":
		return fmt.Errorf("the machine of a TPU starts with a runtime version of Google's and not with the image %s; container images work (image_id: docker:…)", spec.ImageID)
	}
	return nil
}

// tpuStates are the words for what a TPU does. One that was preempted keeps its name until
// it is deleted.
var tpuStates = map[string]vm.State{
	"CREATING": vm.Pending, "STARTING": vm.Pending, "RESTARTING": vm.Pending, "REPAIRING": vm.Pending, "REIMAGING": vm.Pending, "READY": vm.Running,
	"STOPPING": vm.Stopping, "STOPPED": vm.Stopped, "DELETING": vm.Ending, "PREEMPTED": vm.Ended, "TERMINATED": vm.Ended,
}

// tpuNode is a TPU as its API has it.
type tpuNode struct {
	Name       string            `json:"name"`
	Queue      string            `json:"queuedResource"`
	ID         string            `json:"id"`
	Type       string            `json:"acceleratorType"`
	State      string            `json:"state"`
	Health     string            `json:"healthDescription"`
	Labels     map[string]string `json:"labels"`
	Metadata   map[string]string `json:"metadata"`
	Created    time.Time         `json:"createTime"`
	Scheduling struct {
		Preemptible bool `json:"preemptible"`
		Spot        bool `json:"spot"`
	} `json:"schedulingConfig"`
	Network struct {
		Network string `json:"network"`
	} `json:"networkConfig"`
	Account struct {
		Email string `json:"email"`
	} `json:"serviceAccount"`
	Endpoints []struct {
		IP     string `json:"ipAddress"`
		Access struct {
			IP string `json:"externalIp"`
		} `json:"accessConfig"`
	} `json:"networkEndpoints"`
}

// machine reads what the API says of a TPU.
func (d driver) tpu(n tpuNode) vm.Machine {
	part := strings.Split(n.Name, "/") // projects/P/locations/ZONE/nodes/NAME
	m := vm.Machine{
		ID: path.Base(n.Name), State: tpuStates[n.State], RawState: n.State, Type: tpuMachine, Spot: n.Scheduling.Preemptible || n.Scheduling.Spot,
		Created: n.Created, Tags: map[string]string{}, Reclaimed: n.State == "PREEMPTED" || n.State == "TERMINATED",
	}
	if len(part) > 3 {
		m.Zone, m.Region = part[3], region(part[3])
	}
	if m.Reclaimed {
		m.Reason = "Google Cloud preempted it"
	} else if m.State != vm.Running {
		m.Reason = n.Health
	}
	for key, value := range n.Metadata {
		if strings.HasPrefix(key, "sky-") { // what does not fit into labels
			m.Tags[key] = value
		}
	}
	maps.Copy(m.Tags, n.Labels)
	delete(m.Tags, cloud.TagRank)
	if tags, ok := names.Tags(cloud.ClusterID{}, m.ID); ok && m.Tags[cloud.TagInstallation] != "" {
		m.Tags[cloud.TagRank] = tags[cloud.TagRank]
	}
	if len(n.Endpoints) > 0 {
		m.PrivateIP, m.PublicIP = n.Endpoints[0].IP, n.Endpoints[0].Access.IP
	}
	m.Reach = d.reach(m)
	if hosts := facts.TPUHosts("tpu-" + n.Type); hosts > 1 {
		m.Hosts = make([]vm.Host, hosts) // those that are not ready have no address
		for i := range m.Hosts {
			at := m
			at.PrivateIP, at.PublicIP = "", ""
			if i < len(n.Endpoints) { // they are in the order of the workers
				at.PrivateIP, at.PublicIP = n.Endpoints[i].IP, n.Endpoints[i].Access.IP
			}
			m.Hosts[i] = vm.Host{PrivateIP: at.PrivateIP, PublicIP: at.PublicIP, Reach: d.reach(at)}
		}
	}
	m.Detail = about{tpu: true, queue: base(n.Queue), network: n.Network.Network, identity: n.Account.Email != "", incarnation: n.ID}
	return m
}

// listTPUs lists the TPUs of all zones with a cluster's labels. A project whose TPU API is
// not enabled has none, and in zones that cannot be reached may be some.
func (d driver) listTPUs(ctx context.Context, a *account, id cloud.ClusterID, where vm.ListScope) (list []vm.Machine, err error) {
	if a.ready.noTPUs() {
		return nil, nil
	}
	var dark []string
	err = pages(ctx, a.tpu, a.on("/locations/-/nodes"), url.Values{"pageSize": {"500"}}, func(page struct {
		Nodes       []tpuNode `json:"nodes"`
		Unreachable []string  `json:"unreachable"`
		Next        string    `json:"nextPageToken"`
	}) string {
		dark = append(dark, page.Unreachable...)
		for _, n := range page.Nodes {
			if m := a.there(d.tpu(n)); id.Has(m.Tags) {
				list = append(list, m)
			}
		}
		return page.Next
	})
	if err = a.ready.tpus(err); err == nil && !a.ready.noTPUs() && !a.queues.noTPUs() {
		list, dark, err = d.listQueued(ctx, a, id, list, dark)
	}
	d.known.seen(list)
	if at := d.known.hidden(id, where, dark); err == nil && at != "" {
		err = &rest.NoAnswerError{Cloud: "Google Cloud", Err: fmt.Errorf("TPUs of %s cannot be reached", at)}
	}
	return list, err
}

// tpusForgotten is how long it is believed that a project has no TPU API.
const tpusForgotten = 10 * time.Minute

// noTPUs reports whether the API was found to be shut a moment ago.
func (r *readiness) noTPUs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.entered && time.Since(r.shut) < tpusForgotten
}

// tpus takes in what the API said to a list. Where it never let us in, with the usual
// statuses or one of those given, nothing of ours can be behind it.
func (r *readiness) tpus(err error, also ...int) error {
	refusal, ok := errors.AsType[*refusal](err)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.entered = true
	case !r.entered && ok && (refusal.Status == http.StatusForbidden || refusal.Status == http.StatusNotFound || slices.Contains(also, refusal.Status)):
		r.shut = time.Now()
		return nil
	}
	return err
}

// tpuOperation is what the API is doing for a call.
type tpuOperation struct {
	Name  string    `json:"name"`
	Done  bool      `json:"done"`
	Error *tpuError `json:"error"`
}

type tpuError struct {
	Code    int      `json:"code"`
	Message string   `json:"message"`
	Details []detail `json:"details"`
}

// rpcCodes are the names of the codes.
//
// https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
var rpcCodes = []string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// finishTPU makes a call that begins an operation and waits until that is done.
func (a *account) finishTPU(ctx context.Context, method, path string, body any) error {
	o, err := rest.Do[tpuOperation](ctx, a.tpu, method, path, body)
	if err == nil && !o.Done {
		o, err = rest.Await(ctx, waitPause, func(ctx context.Context) (tpuOperation, bool, error) {
			now, err := rest.Do[tpuOperation](ctx, a.tpu, "GET", "/"+o.Name, nil)
			return now, now.Done, err
		})
	}
	if err != nil {
		return err
	}
	return o.failure()
}

// failure is why the operation came to nothing; nil: it did not.
func (o tpuOperation) failure() error {
	if o.Error == nil {
		return nil
	}
	r := &refusal{answer{Message: o.Error.Message, Code: fmt.Sprint(o.Error.Code)}, "tpu.googleapis.com"}
	if c := o.Error.Code; c >= 0 && c < len(rpcCodes) {
		r.Code = rpcCodes[c]
	}
	if r.Code == "NOT_FOUND" {
		r.Status = http.StatusNotFound
	}
	r.sharpen("tpu", o.Error.Details)
	return r
}

func (a *account) tpuPath(zone, name, verb string) string {
	return a.on("/locations/%s/nodes/%s", zone, name) + verb
}

func (a *account) deleteTPU(ctx context.Context, m vm.Machine) error {
	_, err := rest.Do[any](ctx, a.tpu, "DELETE", a.slicePath(m), nil)
	return err
}

// slicePath is what is deleted to end a slice: itself, or the queued resource that it
// belongs to.
func (a *account) slicePath(m vm.Machine) string {
	if queue := m.Detail.(about).queue; queue != "" {
		return a.queuePath(m.Zone, queue)
	}
	return a.tpuPath(m.Zone, m.ID, "")
}

func (a *account) stopTPU(ctx context.Context, m vm.Machine) error {
	_, err := rest.Do[any](ctx, a.tpu, "POST", a.tpuPath(m.Zone, m.ID, ":stop"), map[string]any{})
	return err
}

func (a *account) startTPU(ctx context.Context, m vm.Machine) error {
	return a.finishTPU(ctx, "POST", a.tpuPath(m.Zone, m.ID, ":start"), map[string]any{})
}

// createTPUs makes a TPU of each rank. One of its name that was preempted goes first.
func (d driver) createTPUs(ctx context.Context, a *account, l *vm.Launch, plan *plan, ranks []int) ([]string, error) {
	spec := l.Spec
	zone := spec.Offer.Zone
	if err := a.clearTPUs(ctx, d, spec.ID); err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		name := names.Of(spec.ID, rank)
		d.known.expect(spec, []string{name}, true)
		if queues(spec) {
			return name, d.enqueue(ctx, a, spec, plan, name)
		}
		return name, bounded(ctx, 2*mostCreating, func(ctx context.Context) error {
			return a.finishTPU(ctx, "POST", a.on("/locations/%s/nodes?nodeId=%s", zone, name), plan.tpuBody(spec, name))
		})
	})
}

// clearTPUs deletes the TPUs of a cluster that were taken back.
func (a *account) clearTPUs(ctx context.Context, d driver, id cloud.ClusterID) error {
	list, err := d.listTPUs(ctx, a, id, vm.ListScope{})
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(list, func(m vm.Machine) bool { return m.State != vm.Ended })
	return vm.Each(ctx, d, gone, func(ctx context.Context, m vm.Machine) error {
		if err := a.finishTPU(ctx, "DELETE", a.slicePath(m), nil); !missing(err) {
			return err
		}
		return nil
	})
}

// tpuBody is what a TPU is made of.
func (p *plan) tpuBody(spec cloud.LaunchSpec, nodeName string) map[string]any {
	kept := map[string]string{}
	for _, it := range metadata(spec) {
		kept[it.Key] = it.Value
	}
	delete(kept, "install-nvidia-driver")
	kept["shutdown-script"], kept["sky-name"] = tpuEndScript, nodeName // the machine has another name
	name := tpuName(spec.Offer)
	out := map[string]any{
		"acceleratorType": strings.TrimPrefix(name, "tpu-"), "runtimeVersion": tpuRuntime(spec), "labels": labels(spec, p.settings), "metadata": kept,
		"tags":          []string{names.Cluster(spec.ID)},
		"networkConfig": map[string]any{"network": partial(p.subnet.Network), "subnetwork": partial(p.subnet.URL), "enableExternalIps": p.settings.external()},
	}
	if p.identity != "" {
		out["serviceAccount"] = map[string]any{"email": p.identity, "scope": []string{"https://www.googleapis.com/auth/cloud-platform"}}
	}
	if spec.Offer.Spot {
		out["schedulingConfig"] = map[string]any{"preemptible": true}
	}
	return out
}

// base is the last part of a path; "" has none.
func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// partial is a URL without the server.
func partial(link string) string {
	if _, rest, ok := strings.Cut(link, "/projects/"); ok {
		return "projects/" + rest
	}
	return link
}

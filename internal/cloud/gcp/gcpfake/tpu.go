package gcpfake

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// tpuTypes are the accelerator types, and on how many hosts each is:
// https://cloud.google.com/tpu/docs/system-architecture-tpu-vm.
var tpuTypes = func() map[string]int {
	all := map[string]int{"v2-8": 1, "v3-8": 1, "v5litepod-1": 1, "v5litepod-4": 1, "v5litepod-8": 1, "v6e-1": 1, "v6e-4": 1, "v6e-8": 1}
	for _, n := range []int{32, 128} {
		all[fmt.Sprint("v2-", n)], all[fmt.Sprint("v3-", n)] = n/8, n/8
	}
	for _, n := range []int{8, 16, 32, 64, 128} { // two cores a chip, four chips a host
		all[fmt.Sprint("v4-", n)], all[fmt.Sprint("v5p-", n)] = n/8, n/8
	}
	for _, n := range []int{16, 32, 64, 128, 256} { // one core a chip
		all[fmt.Sprint("v5litepod-", n)], all[fmt.Sprint("v6e-", n)] = n/4, n/4
	}
	return all
}()

// tpuZones are where each generation is: https://cloud.google.com/tpu/docs/regions-zones.
var tpuZones = map[string][]string{
	"v2": {"us-central1-b", "us-central1-c", "europe-west4-a"}, "v3": {"us-central1-a", "europe-west4-a"}, "v4": {"us-central2-b"}, "v5litepod": {"us-central1-a", "us-west4-a", "europe-west4-b"},
	"v5p": {"us-east5-a", "us-central1-a", "europe-west4-b"}, "v6e": {"us-east5-a", "us-east5-b", "us-east1-d", "us-central1-b", "europe-west4-a"},
}

var runtimes = []string{"tpu-vm-base", "tpu-ubuntu2204-base", "v2-alpha-tpuv5", "v2-alpha-tpuv5-lite", "v2-alpha-tpuv6e", "tpu-vm-tf-2.17.0-pjrt", "tpu-vm-v4-base"}

// typesAt are the accelerator types of a zone, sorted.
func typesAt(zone string) (types []string) {
	for name := range tpuTypes {
		generation, _, _ := strings.Cut(name, "-")
		if slices.Contains(tpuZones[generation], zone) {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	return types
}

// node is a TPU besides what the model has of it.
type node struct {
	id, zone, name, kind string
	path                 string
	body                 dict
	spot, preempted, off bool // off: it was stopped before
	takenBack            time.Time
	queued               string
}

const (
	nodeFields    = "name description acceleratorType acceleratorConfig runtimeVersion networkConfig networkConfigs cidrBlock serviceAccount schedulingConfig labels metadata tags id dataDisks shieldedInstanceConfig bootDiskConfig state health"
	networkFields = "network subnetwork enableExternalIps canIpForward queueCount"
	queuedFields  = "name tpu spot guaranteed queueingPolicy reservationName runFor provisioningModel"
)

var resourceID = regexp.MustCompile(`^[A-Za-z0-9_.~+%-]+$`)

// sweepNodes notices what has become of TPUs: those that are taken back are told about until
// they are deleted.
func (f *Fake) sweepNodes(states map[string]fluffyapi.State) {
	for p, n := range f.nodes {
		if !n.takenBack.IsZero() && !time.Now().Before(n.takenBack) && states[n.id] == fluffyapi.Running {
			n.takenBack, n.preempted = time.Time{}, true
			_ = f.Cloud.Halt(n.id)
		}
		if s, ok := states[n.id]; !ok || s == fluffyapi.Terminated {
			delete(f.nodes, p)
		}
	}
}

func (f *Fake) makeNode(zone, name string, body dict, spot bool) (*node, error) {
	schedule, _ := body["schedulingConfig"].(dict)
	n := &node{zone: zone, name: name, body: maps.Clone(body), spot: spot || schedule["preemptible"] == true || schedule["spot"] == true, path: "projects/" + Project + "/locations/" + zone + "/nodes/" + name}
	n.kind, _ = body["acceleratorType"].(string)
	i, err := f.Owner.Create(background, fluffyapi.Create{ClientToken: f.NewID(), Name: zone + "/tpu/" + name, Zone: zone, Type: n.kind, Spot: n.spot})
	if err != nil {
		return nil, err
	}
	n.id = i.ID
	f.nodes[n.path] = n
	if f.lag > 0 {
		f.young[n.path] = f.lag
	}
	return n, nil
}

// toldNode is a TPU as it is answered.
func (f *Fake) toldNode(i fluffyapi.Instance, n *node) dict {
	o := maps.Clone(n.body)
	o["name"], o["id"], o["apiVersion"], o["createTime"], o["health"] = n.path, n.id, "V2", i.Created.UTC().Format(time.RFC3339Nano), "HEALTHY"
	public, private := f.Addresses(i)
	state := map[fluffyapi.State]string{fluffyapi.Pending: "CREATING", fluffyapi.Running: "READY", fluffyapi.Stopping: "STOPPING", fluffyapi.Stopped: "STOPPED", fluffyapi.Terminating: "DELETING", fluffyapi.Terminated: "DELETING"}[i.State]
	switch {
	case state == "":
		state = string(i.State)
	case state == "CREATING" && n.off:
		state = "STARTING"
	case n.preempted && state == "STOPPED":
		state = "PREEMPTED"
	}
	o["state"] = state
	if n.queued != "" {
		o["queuedResource"] = n.queued
	}
	network, _ := n.body["networkConfig"].(dict)
	var ends []any
	for k := range tpuTypes[n.kind] {
		if private == "" || state != "READY" {
			break
		}
		end := dict{"ipAddress": host(private, k), "port": 8470}
		if network["enableExternalIps"] == true {
			end["accessConfig"] = dict{"externalIp": host(public, k)}
		}
		ends = append(ends, end)
	}
	if ends != nil {
		o["networkEndpoints"] = ends
	}
	return o
}

// host is the address of one of several, which no other TPU's machine has.
func host(first string, k int) string {
	var a, b, c, d int
	_, _ = fmt.Sscanf(first, "%d.%d.%d.%d", &a, &b, &c, &d)
	return fmt.Sprintf("%d.%d.%d.%d", a, b+100+k/200, (c+k%200)%250, d)
}

// rpcOperation is an operation in the words of newer services.
func (op *operation) rpc() dict {
	out := dict{
		"name": strings.TrimPrefix(op.target, "/"), "done": op.done(),
		"metadata": dict{"@type": "type.googleapis.com/google.cloud.common.OperationMetadata", "createTime": op.began.UTC().Format(time.RFC3339Nano), "verb": op.kind, "apiVersion": "v2", "target": op.scope},
	}
	switch {
	case !op.done():
	case op.no != nil:
		e := dict{"code": op.no.status, "message": op.no.message}
		if op.no.details != nil {
			e["details"] = op.no.details
		}
		out["error"] = e
	default:
		out["response"] = dict{"@type": "type.googleapis.com/google.protobuf.Empty"}
		if op.also != nil {
			out["response"] = op.also
		}
	}
	return out
}

// beginTPU starts an operation about a node or a queued resource.
func (f *Fake) beginTPU(r *http.Request, verb, zone, target string, after func() bool) *operation {
	op := &operation{id: f.newID(), kind: verb, scope: target, began: time.Now(), ends: time.Now().Add(f.took), after: after}
	op.target = "projects/" + Project + "/locations/" + zone + "/operations/operation-" + op.id
	f.operations = append(f.operations, op)
	if q := r.URL.Query().Get("requestId"); q != "" {
		f.requests[r.Method+" "+r.URL.Path+" "+q] = op
	}
	return op
}

// noRoom is what an operation ends with, or an answer is: google.rpc codes 8 and 3.
func (f *Fake) noTPU(zone, kind string, spot bool, err error) (*opError, error) {
	var e *fluffyapi.Error
	if !errors.As(err, &e) {
		return nil, err
	}
	switch e.Code {
	case fluffyapi.NoCapacity:
		return &opError{status: 8, message: fmt.Sprintf("There is no more capacity in the zone \"%s\"; you can try in another zone where Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)", zone)}, nil
	case fluffyapi.QuotaExceeded:
		tier := ""
		if spot {
			tier = "Preemptible"
		}
		generation, _, _ := strings.Cut(kind, "-")
		text := fmt.Sprintf("Quota limit 'TPU%s%sPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0 in zone %s.", strings.ToUpper(generation), tier, zone)
		return nil, rpc(429, []any{dict{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []any{dict{"subject": "project_number:" + Number, "description": text}}}}, "%s", text)
	}
	return nil, err
}

// checkNode reads the body of a creation.
func (f *Fake) checkNode(zone string, in dict) error {
	bad := func(format string, args ...any) error {
		return rpc(400, nil, "Cloud TPU received an invalid argument. "+format, args...)
	}
	for name := range in {
		if !slices.Contains(strings.Fields(nodeFields), name) {
			return rpc(400, nil, "Invalid JSON payload received. Unknown name \"%s\" at 'node': Cannot find field.", name)
		}
	}
	kind, _ := in["acceleratorType"].(string)
	runtime, _ := in["runtimeVersion"].(string)
	config, _ := in["acceleratorConfig"].(dict)
	switch {
	case kind == "" && config == nil:
		return bad("The accelerator type must be specified.")
	case kind == "":
		return bad("the fake knows accelerator types only, and no accelerator configs")
	case !slices.Contains(typesAt(zone), kind):
		return rpc(404, nil, "Accelerator type \"%s\" in zone \"%s\" was not found. Please use `gcloud compute tpus accelerator-types list` to list the available types.", kind, zone)
	case runtime == "":
		return bad("The field \"runtimeVersion\" is required.")
	case !slices.Contains(runtimes, runtime):
		return rpc(404, nil, "Runtime version \"%s\" was not found.", runtime)
	}
	for k, v := range mapOf(in["labels"]) {
		if s, ok := v.(string); !labelKey.MatchString(k) || !ok || !labelText.MatchString(s) {
			return bad("The label %s=%v is invalid.", k, v)
		}
	}
	for k, v := range mapOf(in["metadata"]) {
		if _, ok := v.(string); !ok || !metadataKey.MatchString(k) {
			return bad("The metadata %s is invalid.", k)
		}
	}
	for _, t := range fakehttp.Items(in["tags"]) {
		if !rfc1035.MatchString(fmt.Sprint(t)) {
			return bad("The tag %v is invalid.", t)
		}
	}
	network := mapOf(in["networkConfig"])
	for k := range network {
		if !slices.Contains(strings.Fields(networkFields), k) {
			return rpc(400, nil, "Invalid JSON payload received. Unknown name \"%s\" at 'node.network_config': Cannot find field.", k)
		}
	}
	name, _ := network["network"].(string)
	if name == "" {
		name = "default"
	}
	if !strings.Contains(name, "/") {
		name = "global/networks/" + name
	}
	if !f.exists(path(Project, name)) {
		return bad("The network \"%s\" was not found.", name)
	}
	if account, _ := mapOf(in["serviceAccount"])["email"].(string); account != "" && !f.exists("projects/"+Project+"/serviceAccounts/"+account) {
		return bad("The service account \"%s\" was not found.", account)
	}
	schedule := mapOf(in["schedulingConfig"])
	if schedule["preemptible"] == true && schedule["spot"] == true {
		return bad("Only one of preemptible and spot may be set.")
	}
	return nil
}

func mapOf(v any) dict {
	d, _ := v.(dict)
	return d
}

// tpuRoutes are those of https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes,
// …/v2/projects.locations.operations and …/v2/projects.locations.queuedResources.
func (f *Fake) tpuRoutes() {
	base := "/v2/projects/{project}/locations/{zone}"
	on := func(method, path, op, permission string, do fakehttp.Handler) {
		f.Route(method, base+path, op, nil, func(r *http.Request, _ dict) (any, error) {
			zone := r.PathValue("zone")
			known := zone == "-" && method == "GET" || slices.ContainsFunc(slices.Collect(maps.Values(tpuZones)), func(all []string) bool { return slices.Contains(all, zone) })
			switch {
			case !f.services["tpu.googleapis.com"]:
				return nil, disabled("tpu.googleapis.com", "Cloud TPU API")
			case r.PathValue("project") != Project || !f.may("tpu."+permission):
				return nil, rpc(403, []any{dict{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "IAM_PERMISSION_DENIED", "domain": "tpu.googleapis.com", "metadata": dict{"permission": "tpu." + permission}}},
					"Permission 'tpu.%s' denied on 'projects/%s/locations/%s'", permission, r.PathValue("project"), zone)
			case !known:
				return nil, rpc(403, nil, "Location %s is not found or access is unauthorized.", zone)
			}
			f.sweep()
			f.settle()
			if id := r.URL.Query().Get("requestId"); id != "" && method != "GET" {
				if !uuid.MatchString(id) {
					return nil, rpc(400, nil, "The request id %s is no UUID.", id)
				}
				if before := f.requests[r.Method+" "+r.URL.Path+" "+id]; before != nil {
					return before.rpc(), nil
				}
			}
			in, no := body(r, nil)
			if no != nil {
				return nil, rpc(400, nil, "Invalid JSON payload received.")
			}
			return do(r, in)
		})
	}
	list := func(r *http.Request, field string, all []dict) (any, error) {
		size, from := f.pageSize, 0
		if n, err := strconv.Atoi(r.URL.Query().Get("pageSize")); err == nil && n > 0 && (size == 0 || n < size) {
			size = n
		}
		if token := r.URL.Query().Get("pageToken"); token != "" {
			n, err := strconv.Atoi(token)
			if err != nil || n < 0 || n > len(all) {
				return nil, rpc(400, nil, "The page token is invalid.")
			}
			from = n
		}
		to := len(all)
		if size > 0 {
			to = min(from+size, to)
		}
		out := dict{}
		if to > from {
			out[field] = all[from:to]
		}
		if r.PathValue("zone") == "-" {
			for _, zone := range slices.Sorted(maps.Keys(f.dark)) {
				out["unreachable"] = append(fakehttp.Items(out["unreachable"]), "projects/"+Project+"/locations/"+zone)
			}
		}
		if to < len(all) {
			out["nextPageToken"] = strconv.Itoa(to)
		}
		return out, nil
	}
	in := func(r *http.Request, zone string) bool {
		return r.PathValue("zone") == "-" || zone == r.PathValue("zone")
	}
	find := func(r *http.Request, name string) (*node, error) {
		p := "projects/" + Project + "/locations/" + r.PathValue("zone") + "/nodes/" + name
		n := f.nodes[p]
		if n == nil || !f.settledNode(p) {
			return nil, rpc(404, nil, "Resource '%s' was not found", p)
		}
		return n, nil
	}
	tell := func(r *http.Request, n *node) dict {
		i, err := f.Owner.Instance(r.Context(), n.id)
		if err != nil {
			return nil
		}
		return f.toldNode(i, n)
	}
	on("GET", "/acceleratorTypes", "acceleratorTypes.list", "acceleratortypes.list", func(r *http.Request, _ dict) (any, error) {
		var all []dict
		for _, name := range typesAt(r.PathValue("zone")) {
			all = append(all, dict{"name": "projects/" + Project + "/locations/" + r.PathValue("zone") + "/acceleratorTypes/" + name, "type": name})
		}
		return list(r, "acceleratorTypes", all)
	})
	on("GET", "/runtimeVersions", "runtimeVersions.list", "runtimeversions.list", func(r *http.Request, _ dict) (any, error) {
		var all []dict
		for _, name := range runtimes {
			all = append(all, dict{"name": "projects/" + Project + "/locations/" + r.PathValue("zone") + "/runtimeVersions/" + name, "version": name})
		}
		return list(r, "runtimeVersions", all)
	})
	on("GET", "/nodes", "instances.list", "nodes.list", func(r *http.Request, _ dict) (any, error) {
		instances, err := f.Instances(r)
		if err != nil {
			return nil, err
		}
		var all []dict
		for _, i := range instances {
			for _, n := range f.nodes {
				if n.id == i.ID && in(r, n.zone) && !f.dark[n.zone] && f.settledNode(n.path) {
					all = append(all, f.toldNode(i, n))
				}
			}
		}
		return list(r, "nodes", all)
	})
	on("GET", "/nodes/{name}", "instances.get", "nodes.get", func(r *http.Request, _ dict) (any, error) {
		n, no := find(r, r.PathValue("name"))
		if no != nil {
			return nil, no
		}
		return tell(r, n), nil
	})
	on("POST", "/nodes", "instances.create", "nodes.create", func(r *http.Request, in dict) (any, error) {
		zone, name := r.PathValue("zone"), r.URL.Query().Get("nodeId")
		p := "projects/" + Project + "/locations/" + zone + "/nodes/" + name
		if !rfc1035.MatchString(name) {
			return nil, rpc(400, nil, "Cloud TPU received a bad request. The node id \"%s\" must start with a lowercase letter, followed by up to 62 lowercase letters, numbers, or hyphens, and cannot end with a hyphen.", name)
		}
		if no := f.checkNode(zone, in); no != nil {
			return nil, no
		}
		if f.nodes[p] != nil {
			return nil, rpc(409, nil, "Resource '%s' already exists", p)
		}
		if bad := f.fails("create"); bad != nil {
			op := f.beginTPU(r, "create", zone, p, nil)
			op.no = bad
			return op.rpc(), nil
		}
		n, err := f.makeNode(zone, name, in, false)
		if err != nil {
			bad, no := f.noTPU(zone, fmt.Sprint(in["acceleratorType"]), mapOf(in["schedulingConfig"])["preemptible"] == true, err)
			if no != nil {
				return nil, no
			}
			op := f.beginTPU(r, "create", zone, p, nil)
			op.no = bad
			return op.rpc(), nil
		}
		op := f.beginTPU(r, "create", zone, p, func() bool { m, _ := f.Machine(n.id); return m.State != fluffyapi.Pending })
		op.also = dict{"@type": "type.googleapis.com/google.cloud.tpu.v2.Node", "name": p}
		return op.rpc(), nil
	})
	on("DELETE", "/nodes/{name}", "instances.terminate", "nodes.delete", func(r *http.Request, _ dict) (any, error) {
		n, no := find(r, r.PathValue("name"))
		if no != nil {
			return nil, no
		}
		if _, err := f.Terminate(r, n.id); err != nil {
			return nil, err
		}
		return f.beginTPU(r, "delete", n.zone, n.path, func() bool { f.sweep(); return f.nodes[n.path] != n }).rpc(), nil
	})
	on("PATCH", "/nodes/{name}", "instances.put", "nodes.update", func(r *http.Request, in dict) (any, error) {
		n, no := find(r, r.PathValue("name"))
		if no != nil {
			return nil, no
		}
		mask := r.URL.Query().Get("updateMask")
		for _, field := range strings.Split(mask, ",") {
			if !slices.Contains([]string{"description", "tags", "labels", "metadata"}, field) {
				return nil, rpc(400, nil, "The field \"%s\" of the update mask is not supported.", field)
			}
			n.body[field] = in[field]
		}
		return f.beginTPU(r, "update", n.zone, n.path, nil).rpc(), nil
	})
	on("POST", "/nodes/{call}", "instances.switch", "nodes.update", func(r *http.Request, _ dict) (any, error) {
		name, verb, _ := strings.Cut(r.PathValue("call"), ":")
		n, no := find(r, name)
		if no != nil {
			return nil, no
		}
		m, _ := f.Machine(n.id)
		switch {
		case verb != "start" && verb != "stop":
			return nil, rpc(404, nil, "there is no method %s", verb)
		case !f.may("tpu.nodes." + verb):
			return nil, rpc(403, nil, "Permission 'tpu.nodes.%s' denied on '%s'", verb, n.path)
		case tpuTypes[n.kind] > 1:
			return nil, rpc(400, nil, "Cloud TPU received a bad request. Stop and start are only available with single TPU nodes.")
		case n.preempted:
			return nil, rpc(400, nil, "Cloud TPU received a bad request. The node is preempted and can only be deleted.")
		case verb == "stop":
			if _, err := f.Owner.Stop(r.Context(), n.id); err != nil {
				return nil, err
			}
			return f.beginTPU(r, "stop", n.zone, n.path, func() bool { m, _ := f.Machine(n.id); return m.State != fluffyapi.Stopping }).rpc(), nil
		case m.State == fluffyapi.Stopping:
			return nil, rpc(400, nil, "Cloud TPU received a bad request. The node is stopping.")
		}
		n.off = true
		var bad *opError
		if _, err := f.Owner.Start(r.Context(), n.id, fluffyapi.Start{}); err != nil {
			if bad, no = f.noTPU(n.zone, n.kind, n.spot, err); no != nil {
				return nil, no
			}
		}
		op := f.beginTPU(r, "start", n.zone, n.path, func() bool { m, _ := f.Machine(n.id); return m.State != fluffyapi.Pending })
		op.no = bad
		return op.rpc(), nil
	})
	on("GET", "/operations/{name}", "operations.get", "operations.get", func(r *http.Request, _ dict) (any, error) {
		p := "projects/" + Project + "/locations/" + r.PathValue("zone") + "/operations/" + r.PathValue("name")
		for _, op := range f.operations {
			if op.target == p {
				return op.rpc(), nil
			}
		}
		return nil, rpc(404, nil, "Operation '%s' was not found", p)
	})
	// https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations/list
	f.Route("GET", "/v2/projects/{project}/locations", "locations.list", nil, func(r *http.Request, _ dict) (any, error) {
		switch {
		case !f.services["tpu.googleapis.com"]:
			return nil, disabled("tpu.googleapis.com", "Cloud TPU API")
		case r.PathValue("project") != Project || !f.may("tpu.locations.list"):
			return nil, rpc(403, nil, "Permission 'tpu.locations.list' denied on 'projects/%s'", r.PathValue("project"))
		}
		var zones []string
		for _, some := range tpuZones {
			zones = append(zones, some...)
		}
		slices.Sort(zones)
		var all []dict
		for _, zone := range slices.Compact(zones) {
			all = append(all, dict{"name": "projects/" + Project + "/locations/" + zone, "locationId": zone})
		}
		return list(r, "locations", all)
	})
	f.queuedRoutes(on, list, in)
}

// settledNode reports that a node is known to this call.
func (f *Fake) settledNode(p string) bool {
	if f.young[p] > 0 {
		f.young[p]--
		return false
	}
	return true
}

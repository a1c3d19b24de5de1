// Package nebiusfake is Nebius AI Cloud's API, https://compute.api.nebius.cloud and others,
// as a server of gRPC for tests. Its facts are from github.com/nebius/api: the definitions
// (messages.go) and README.md (endpoints, tokens, operations, idempotency, errors). That
// machines for which there is no room are accepted, and stop with an operation that failed,
// and that new ones begin as STOPPED and reconciling, is what SkyPilot's provider found
// (skypilot-org/skypilot, pull request 6856 and sky/provision/nebius/utils.py).
package nebiusfake

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Tenant is the only one, which has a project for each region.
const Tenant = "tenant-e00fake"

type dict = fakehttp.Dict

// Fake is the whole of Nebius.
type Fake struct {
	*fakehttp.Fake
	tokens fakehttp.Tokens
	calls  map[string]string // the operations of creations, by idempotency key
}

// Projects are those of the regions.
var Projects = map[string]string{"eu-north1": "project-e00north", "eu-west1": "project-e01west", "us-central1": "project-u00central"}

// Subnet is that of a region's project, and Network what it is in.
func Subnet(region string) string  { return "vpcsubnet-" + Projects[region] }
func Network(region string) string { return "vpcnetwork-" + Projects[region] }

var presets = map[string]struct {
	platform, name    string
	cpus, memory, gpu int
	price, spot       float64
}{
	"cpu-e2_4vcpu-16gb": {"cpu-e2", "4vcpu-16gb", 4, 16, 0, 0.1, 0.05}, "gpu-l40s-a_1gpu-8vcpu-32gb": {"gpu-l40s-a", "1gpu-8vcpu-32gb", 8, 32, 1, 1.55, 0.8},
	"gpu-h100-sxm_1gpu-16vcpu-200gb": {"gpu-h100-sxm", "1gpu-16vcpu-200gb", 16, 200, 1, 2.95, 1.25}, "gpu-h100-sxm_8gpu-128vcpu-1600gb": {"gpu-h100-sxm", "8gpu-128vcpu-1600gb", 128, 1600, 8, 23.6, 10},
}

var families = []string{"ubuntu24.04-driverless", "ubuntu24.04-cuda13.0"}

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	f := &Fake{calls: map[string]string{}}
	api := fakehttp.API{
		Regions: slices.Sorted(maps.Keys(Projects)), Linger: time.Minute, Protects: "securitygroup", FailsLater: true, Records: []string{"operation"},
		Login: f.login, GRPC: fakehttp.NewGRPC(definitions()), Before: misdirected, Opened: f.Rules,
		ID: func(n uint64) string { return fmt.Sprintf("computeinstance-e00%017x", n) },
		Refusal: func(r *http.Request, op string, e *fluffyapi.Error) *fakehttp.Reply {
			return &fakehttp.Reply{Status: http.StatusBadRequest, Body: status(strings.Split(r.URL.Path, ".")[1], e)}
		},
	}
	for name, p := range presets {
		api.Types = append(api.Types, fakehttp.Type(name, p.cpus, p.platform, p.gpu, p.price))
	}
	f.Fake = fakehttp.New(api)
	for region, project := range Projects {
		meta := func(id, name string) dict {
			return dict{"id": id, "name": name, "parent": project, "metadata": dict{"id": id, "name": name, "parent_id": project}}
		}
		network, subnet := meta(Network(region), "default-network"), meta(Subnet(region), "default-subnet")
		network["status"], subnet["spec"], subnet["status"] = dict{"state": "READY"}, dict{"network_id": Network(region)}, dict{"state": "READY", "ipv4_private_cidrs": []string{"10.0.0.0/16"}}
		f.Put("network", network)
		f.Put("subnet", subnet)
	}
	f.account()
	f.keep("nebius.vpc.v1.NetworkService", kind{name: "network"})
	f.keep("nebius.vpc.v1.SubnetService", kind{name: "subnet"})
	f.keep("nebius.vpc.v1.SecurityGroupService", kind{name: "securitygroup", prefix: "vpcsecuritygroup", check: f.checkGroup, removable: f.groupUnused, status: ready})
	f.keep("nebius.vpc.v1.SecurityRuleService", kind{name: "securityrule", prefix: "vpcsecurityrule", parents: "securitygroup", check: f.checkRule, status: ready})
	f.keep("nebius.compute.v1.GpuClusterService", kind{name: "gpucluster", prefix: "computegpucluster", check: f.checkCluster, removable: f.Unused})
	f.keep("nebius.compute.v1.DiskService", kind{name: "disk", prefix: "computedisk", check: checkDisk, removable: f.diskUnused, status: f.diskStatus})
	// nebius/compute/v1/instance_service.proto
	f.call("nebius.compute.v1.InstanceService/Get", "instances.get", fakehttp.Schema{"!id": word}, func(r *http.Request, in dict) (any, error) {
		i, err := f.Find(r, str(in["id"]))
		if err != nil {
			return nil, err
		}
		return f.view(i), nil
	})
	f.call("nebius.compute.v1.InstanceService/GetByName", "instances.get", byName, f.instanceByName)
	f.call("nebius.compute.v1.InstanceService/List", "instances.list", fakehttp.Schema{"!parent_id": word}, func(r *http.Request, in dict) (any, error) {
		all, err := f.instances(r, in["parent_id"])
		if err != nil {
			return nil, err
		}
		return page(in, "items", all, 100)
	})
	f.call("nebius.compute.v1.InstanceService/Create", "instances.create", fakehttp.Schema{"!metadata": object, "!spec": object}, f.create)
	for name, op := range map[string]string{"Delete": "instances.terminate", "Start": "instances.start", "Stop": "instances.stop"} {
		f.call("nebius.compute.v1.InstanceService/"+name, op, fakehttp.Schema{"!id": word}, f.change(op))
	}
	f.call("nebius.compute.v1.InstanceService/ListOperationsByParent", "operations.list", fakehttp.Schema{"!parent_id": word}, f.listOperations)
	// nebius/common/v1/operation_service.proto
	f.call("nebius.common.v1.OperationService/Get", "operations.get", fakehttp.Schema{"!id": word}, func(r *http.Request, in dict) (any, error) { return f.operation(r, in["id"]) })
	f.call("nebius.common.v1.OperationService/List", "operations.list", fakehttp.Schema{"!resource_id": word}, f.listOperations)
	return f
}

var (
	word, object = fakehttp.Filled, fakehttp.Object
	byName       = fakehttp.Schema{"!parent_id": word, "!name": word}
	resourceName = regexp.MustCompile(`^[a-zA-Z0-9][-_./a-zA-Z0-9]{1,254}$`)
	cardName     = regexp.MustCompile(`^[0-9a-z][0-9a-z-]{0,59}$`)
	hostname     = regexp.MustCompile(`^([a-z0-9][a-z0-9-]{0,61}[a-z0-9])?$`)
)

func (f *Fake) call(path, op string, s fakehttp.Schema, do fakehttp.Handler) {
	f.Route("POST", "/"+path, op, s, do)
}

func (f *Fake) create(r *http.Request, in dict) (any, error) {
	meta, spec := in["metadata"].(dict), in["spec"].(dict)
	if id, ok := f.calls[r.Header.Get("X-Idempotency-Key")]; ok {
		return f.operation(r, id)
	}
	project, name := str(meta["parent_id"]), str(meta["name"])
	region := regionOf(project)
	res, _ := spec["resources"].(dict)
	preset := str(res["platform"]) + "_" + str(res["preset"])
	pre, spot := spec["preemptible"].(dict)
	priority, _ := pre["priority"].(float64)
	switch {
	case region == "":
		return nil, fakehttp.Missing(project)
	case !resourceName.MatchString(name):
		return nil, invalid("metadata.name", "%q", name)
	case presets[preset].cpus == 0:
		return nil, invalid("spec.resources", "there is no preset %s", preset)
	case len(str(spec["cloud_init_user_data"])) > 32768:
		return nil, invalid("spec.cloud_init_user_data", "more than 32768 characters")
	case !hostname.MatchString(str(spec["hostname"])):
		return nil, invalid("spec.hostname", "value must be a valid hostname")
	case spot && (pre["on_preemption"] != "STOP" || priority < 1 || priority > 5):
		return nil, invalid("spec.preemptible", "%v", pre)
	}
	if err := f.checkParts(project, preset, spec); err != nil {
		return nil, err
	}
	if _, err := f.instanceByName(r, dict{"parent_id": project, "name": name}); err == nil {
		return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "instance %s exists", name)
	}
	in["name"] = name
	i, err := f.Create(r, region, preset, in)
	if err != nil {
		return nil, err
	}
	failure := any(nil)
	if i.State == fakehttp.Failed {
		failure = status("compute", fluffyapi.Errorf(fluffyapi.NoCapacity, "there is no room for %s", preset))
	}
	return f.once(r, f.begin(project, i.ID, "Create instance", failure)), nil
}

// regionOf is the region of a project; "": it is none.
func regionOf(project string) string {
	for region, p := range Projects {
		if p == project {
			return region
		}
	}
	return ""
}

// change starts, stops or ends an instance; the operation about that finds out itself that
// there is no room.
func (f *Fake) change(op string) fakehttp.Handler {
	return func(r *http.Request, in dict) (any, error) {
		i, err := f.Find(r, str(in["id"]))
		failed := i.State == fakehttp.Failed
		if err == nil && failed && op != "instances.terminate" {
			err = fakehttp.Missing(in["id"])
		}
		if err != nil {
			return nil, err
		}
		_, err = f.Do(r, op, i.ID)
		outcome := any(nil)
		e, ok := err.(*fluffyapi.Error)
		switch {
		case ok && e.Code == fluffyapi.NoCapacity:
			outcome = status("compute", e)
		case err != nil:
			return nil, err
		case failed:
			outcome = dict{}
		}
		return f.describe(f.begin(Projects[i.Region], i.ID, "Change instance", outcome)), nil
	}
}

// states are those of instances; one that is being switched on has another one.
var states = fakehttp.States{
	fluffyapi.Pending: "STOPPED", fluffyapi.Running: "RUNNING", fluffyapi.Stopping: "STOPPING", fluffyapi.Stopped: "STOPPED", fluffyapi.Terminating: "DELETING",
	fakehttp.Failed: "STOPPED",
}

// view is an instance in Nebius' words.
func (f *Fake) view(i fluffyapi.Instance) dict {
	asked, public, private := fakehttp.Asked(i), "", ""
	if i.State == fluffyapi.Pending || i.State == fluffyapi.Running {
		public, private = f.Addresses(i)
	}
	meta, spec := asked["metadata"].(dict), asked["spec"].(dict)
	meta["id"], meta["created_at"], meta["resource_version"] = i.ID, i.Created.UTC().Format(time.RFC3339Nano), "1"
	var state any = states[i.State]
	switch {
	case states[i.State] == "":
		state = 99 // a state that no definition has
	case i.State == fluffyapi.Pending && (public != "" || f.Restarting(i)):
		state = "STARTING"
	}
	spec["stopped"] = (i.State == fluffyapi.Stopping || i.State == fluffyapi.Stopped) && i.Reason == ""
	cards := []dict{}
	for n, c := range fakehttp.Items(spec["network_interfaces"]) {
		card := dict{"index": n, "name": c.(dict)["name"]}
		if private != "" {
			card["ip_address"] = dict{"address": private + "/32"}
		}
		if c.(dict)["public_ip_address"] != nil && public != "" {
			card["public_ip_address"] = dict{"address": public + "/32"}
		}
		cards = append(cards, card)
	}
	return dict{"metadata": meta, "spec": spec, "status": dict{"state": state, "reconciling": i.State != fakehttp.Failed && !f.Settled(i.ID), "network_interfaces": cards}}
}

// instances are those of a project.
func (f *Fake) instances(r *http.Request, project any) ([]dict, error) {
	all, err := f.Existing(r, f.view)
	return slices.DeleteFunc(all, func(o dict) bool { return o["metadata"].(dict)["parent_id"] != project }), err
}

func (f *Fake) instanceByName(r *http.Request, in dict) (any, error) {
	all, err := f.instances(r, in["parent_id"])
	n := slices.IndexFunc(all, func(o dict) bool { return o["metadata"].(dict)["name"] == in["name"] })
	if err != nil || n < 0 {
		return nil, cmp.Or(err, error(fakehttp.Missing(in["name"])))
	}
	return all[n], nil
}

// Preempt takes an instance back after a while: it is off then, and nobody stopped it.
func (f *Fake) Preempt(id string, in time.Duration) {
	time.AfterFunc(in, func() { _ = f.Cloud.Halt(id) })
}

// Harness is fakehttp's, of a cloud whose instances are off when they are taken back.
func (f *Fake) Harness(make func() cloud.Provider, shared ...string) cloudtest.Harness {
	h := f.Fake.Harness(make, shared...)
	h.Preempt = func(_ testing.TB, n cloud.Node, in time.Duration) { f.Preempt(n.ID, in) }
	h.Halt = func(_ testing.TB, n cloud.Node) { f.Halt(n.ID) }
	return h
}

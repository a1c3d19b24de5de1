// Package hyperbolicfake is Hyperbolic's API, https://api.hyperbolic.xyz, as a server for
// tests. Its facts are from Hyperbolic's page "Marketplace API"
// (docs.hyperbolic.xyz/docs/marketplace-api) and its clients
// (github.com/HyperbolicLabs/hyperbolic-cli and hyperbolic-mcp), and where those are silent
// from SkyPilot (create-cheapest, userMetadata, the statuses). Of refusals all say no more
// than that there are a status and a text.
package hyperbolicfake

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Key is the API key of the only account.
const Key = "eyJhbGciOiJIUzI1NiJ9.fake"

// Region is the only one: customers do not choose where an instance is.
const Region = "default"

// Poor is a code for faults: the account has no funds.
const Poor fluffyapi.Code = "poor"

type dict = fakehttp.Dict

// Fake is the whole of Hyperbolic.
type Fake struct{ *fakehttp.Fake }

// nodes are machines that instances are parts of.
var nodes = map[string]struct {
	cluster, gpu, region             string
	gpus, vram, cpus, memory, amount int // amount: cents an hour for each GPU
}{
	"hyperstack-gpu-4090-01.us": {"extrasmall-chamomile-duck", "NVIDIA-GeForce-RTX-4090", "region-1", 8, 24564, 128, 515, 35},
	"prd-acl-h100-02.fen.intra": {"angry-sage-beaver", "NVIDIA-H100-80GB-HBM3", "region-2", 8, 81559, 192, 1800, 149},
}

var counts = []int{1, 2, 4, 8}

// Type is the model's name of so many GPUs.
func Type(gpu string, count int) string { return fmt.Sprintf("%dx %s", count, gpu) }

// New returns a cloud that has nothing but capacity.
func New() *Fake {
	api := fakehttp.API{
		Regions: []string{Region}, AtOnce: true,
		ID:    func(n uint64) string { return fmt.Sprintf("respectful-rose-pelican-%d", n) },
		Login: fakehttp.Bearer(Key),
		Error: func(_ int, code, message string) any {
			return dict{"message": fakehttp.Coded(code, message)}
		},
		Words: map[fluffyapi.Code]fakehttp.Word{
			fluffyapi.Unauthorized: {Status: 401}, fluffyapi.Forbidden: {Status: 403}, fluffyapi.NotFound: {Status: 404}, fluffyapi.Invalid: {Status: 400},
			fluffyapi.NoCapacity: {Status: 400, Code: "no available instances"}, fluffyapi.QuotaExceeded: {Status: 400, Code: "insufficient funds"}, fluffyapi.Throttled: {Status: 429},
			fluffyapi.Internal: {Status: 500}, Poor: {Status: 400, Code: "insufficient funds"},
		},
	}
	for _, n := range nodes {
		for _, count := range counts {
			api.Types = append(api.Types, fakehttp.Type(Type(n.gpu, count), n.cpus, n.gpu, count, float64(n.amount*count)/100))
		}
	}
	f := &Fake{fakehttp.New(api)}
	f.Route("POST", "/v1/marketplace", "offers", fakehttp.Schema{"filters": `\{.*\}`}, f.market)
	f.Route("GET", "/v1/marketplace/instances", "instances.list", nil, f.list)
	f.Route("POST", "/v1/marketplace/instances/create", "instances.create", fakehttp.Schema{"!cluster_name": fakehttp.Filled, "!node_name": fakehttp.Filled, "!gpu_count": `[1-9]\d*`, "image": `\{.*\}`}, f.create)
	f.Route("POST", "/v2/marketplace/instances/create-cheapest", "instances.create", fakehttp.Schema{"!gpuModel": fakehttp.Filled, "!gpuCount": `"[1-9]\d*"|[1-9]\d*`, "userMetadata": `\{.*\}`, "publicKey": `"ssh-[^"]+"`}, f.cheapest)
	f.Route("POST", "/v1/marketplace/instances/terminate", "instances.terminate", fakehttp.Schema{"!id": fakehttp.Filled}, f.terminate)
	return f
}

// free is how many GPUs of a node nobody has.
func (f *Fake) free(r *http.Request, node string) int {
	n := nodes[node]
	free := 0
	for _, count := range counts {
		if f.Free(r, Region, Type(n.gpu, count)) > 0 {
			free = count
		}
	}
	return free
}

// market tells of all nodes, of whose GPUs some are reserved.
func (f *Fake) market(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for id, n := range nodes {
		free := f.free(r, id)
		gpus := []dict{}
		for range n.gpus {
			gpus = append(gpus, dict{"hardware_type": "gpu", "model": n.gpu, "clock_speed": 1000, "compute_power": 1000, "ram": n.vram, "interface": "PCIeX16"})
		}
		all = append(all, dict{
			"id": id, "status": "node_ready", "cluster_name": n.cluster, "location": dict{"region": n.region}, "gpus_total": n.gpus, "gpus_reserved": n.gpus - free, "reserved": free == 0,
			"has_persistent_storage": true, "supplier_id": "hyperbolic", "pricing": f.price(n.amount), "instances": []any{}, "network": dict{}, "hardware": dict{
				"cpus": []dict{{"hardware_type": "cpu", "model": "482-2", "cores": n.cpus, "virtual_cores": n.cpus}}, "gpus": gpus,
				"storage": []dict{{"hardware_type": "storage", "capacity": 500}}, "ram": []dict{{"hardware_type": "ram", "capacity": n.memory}},
			},
		})
	}
	return dict{"instances": all}, nil
}

func (f *Fake) price(amount int) dict {
	return dict{"price": dict{"amount": int(f.Now(float64(amount))), "period": "hourly", "agent": "platform"}}
}

// create rents GPUs of a node.
func (f *Fake) create(r *http.Request, in dict) (any, error) {
	node, count := in["node_name"].(string), int(in["gpu_count"].(float64))
	n, ok := nodes[node]
	if !ok || n.cluster != in["cluster_name"] {
		return nil, fakehttp.Missing(node)
	}
	i, err := f.Create(r, Region, Type(n.gpu, count), in)
	return dict{"status": "success", "instance_name": i.ID}, err
}

// cheapest rents GPUs wherever they cost least.
func (f *Fake) cheapest(r *http.Request, in dict) (any, error) {
	count, _ := strconv.Atoi(fmt.Sprint(in["gpuCount"]))
	in["name"] = fmt.Sprint(in["userMetadata"]) // what tells whose it is
	i, err := f.Create(r, Region, Type(in["gpuModel"].(string), count), in)
	return dict{"status": "success", "instanceName": i.ID}, err
}

func (f *Fake) terminate(r *http.Request, in dict) (any, error) {
	m, ok := f.Machine(in["id"].(string))
	if !ok {
		return nil, fakehttp.Missing(in["id"])
	}
	_, err := f.Terminate(r, m.ID)
	if err == nil && m.State == fluffyapi.Terminated {
		err = fakehttp.Missing(in["id"])
	}
	return dict{"status": "success"}, err
}

var statuses = fakehttp.States{fluffyapi.Pending: "creating", fluffyapi.Running: "online"}

// told is a rented instance. "failed", "error" and the rest are for tests to say, with Lie.
func (f *Fake) told(i fluffyapi.Instance) dict {
	asked := fakehttp.Asked(i)
	number, gpu, _ := strings.Cut(i.Type, "x ")
	count, _ := strconv.Atoi(number)
	status := statuses.Of(i.State)
	out := dict{"id": i.ID, "start": i.Created.UTC().Format(time.RFC3339Nano), "end": nil, "created": i.Created.UTC().Format(time.RFC3339Nano), "sshCommand": nil, "portMappings": []dict{}, "userMetadata": asked["userMetadata"]}
	if public, _ := f.Addresses(i); public != "" {
		if status == "creating" {
			status = "starting"
		} else {
			out["sshCommand"] = "ssh ubuntu@" + public + " -p 31424"
		}
	}
	for id, n := range nodes {
		if n.gpu == gpu {
			out["instance"] = dict{
				"id": id, "status": status, "gpu_count": count, "gpus_total": n.gpus, "owner": "me", "pricing": f.price(n.amount), "hardware": dict{
					"cpus": []dict{{"virtual_cores": n.cpus * count / n.gpus}}, "gpus": []dict{{"model": n.gpu, "ram": n.vram}}, "ram": []dict{{"capacity": n.memory * count / n.gpus}},
					"storage": []dict{{"capacity": 100}},
				},
			}
		}
	}
	return out
}

func (f *Fake) list(r *http.Request, _ dict) (any, error) {
	all, err := f.Existing(r, f.told)
	return dict{"instances": all}, err
}

package gcp

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

// tpus answers the few calls of the Cloud TPU API that are made, in the shapes of its
// discovery document; everything else is the fake's.
//
// https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes
type tpus struct {
	*gcpfake.Fake
	mu    sync.Mutex
	nodes map[string]map[string]any // by the path of their names
	ready map[string]time.Time
	fail  string // an error of the next operation that makes one
	off   bool   // the API is not enabled
	calls []string
}

func (f *tpus) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "tpu.googleapis.com" {
		return f.Fake.RoundTrip(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, r.Method+" "+r.URL.Path)
	status, out := f.answer(r)
	text, err := json.Marshal(out)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text)))}, err
}

func (f *tpus) answer(r *http.Request) (int, any) {
	no := func(status int, code, message string) (int, any) {
		return status, map[string]any{"error": map[string]any{"code": status, "status": code, "message": message}}
	}
	name, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), ":")
	operation := "projects/p/locations/z/operations/" + path.Base(name)
	switch {
	case f.off:
		return 403, map[string]any{"error": map[string]any{"code": 403, "status": "PERMISSION_DENIED", "message": "Cloud TPU API has not been used", "details": []any{map[string]any{
			"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED", "metadata": map[string]any{"service": "tpu.googleapis.com"}}}}}
	case r.Method == "GET" && strings.HasSuffix(name, "/locations/-/nodes"):
		var all []any
		for _, n := range slices.Sorted(maps.Keys(f.nodes)) {
			node := f.nodes[n]
			if node["state"] == "CREATING" && time.Now().After(f.ready[n]) {
				node["state"] = "READY"
				node["networkEndpoints"] = []any{map[string]any{"ipAddress": "10.128.0.9", "port": 8470, "accessConfig": map[string]any{"externalIp": "203.0.113.9"}}}
			}
			all = append(all, node)
		}
		return 200, map[string]any{"nodes": all}
	case r.Method == "GET" && strings.Contains(name, "/operations/"):
		return 200, map[string]any{"name": name, "done": true}
	case r.Method == "POST" && strings.HasSuffix(name, "/nodes"):
		if f.fail != "" {
			return 200, json.RawMessage(f.fail)
		}
		full := name + "/" + r.URL.Query().Get("nodeId")
		if f.nodes[full] != nil {
			return no(409, "ALREADY_EXISTS", "Resource already exists")
		}
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in["runtimeVersion"] == nil {
			return no(400, "INVALID_ARGUMENT", "runtime_version is required")
		}
		in["name"], in["state"], in["id"], in["createTime"] = full, "CREATING", fmt.Sprint(len(f.calls)), time.Now().UTC().Format(time.RFC3339)
		f.nodes[full], f.ready[full] = in, time.Now().Add(time.Minute)
		return 200, map[string]any{"name": operation}
	case f.nodes[name] == nil:
		return no(404, "NOT_FOUND", "Resource not found")
	case r.Method == "DELETE":
		delete(f.nodes, name)
	case verb == "stop":
		f.nodes[name]["state"] = "STOPPED"
	case verb == "start":
		f.nodes[name]["state"] = "READY"
	}
	return 200, map[string]any{"name": operation, "done": true}
}

func tpuSpec(name, accelerator string, nodes int) cloud.LaunchSpec {
	return cloud.LaunchSpec{
		ID: cloud.ClusterID{Installation: "inst", Name: name, Hash: "h1"}, Nodes: nodes, Token: "t", AuthorizedKey: key, DisplayName: name,
		Offer: cloud.Offer{Place: here.Place, InstanceType: tpuMachine, CPUs: 96, MemoryGiB: 334, Accelerators: map[string]float64{accelerator: 1}, Spot: true},
	}
}

func TestTPUs(t *testing.T) {
	home(t, t.Setenv)
	synctest.Test(t, func(t *testing.T) {
		fake := &tpus{Fake: gcpfake.New(), nodes: map[string]map[string]any{}, ready: map[string]time.Time{}}
		o := quick
		o.Transport = fake
		p := New(o)
		spec := tpuSpec("web", "tpu-v5litepod-8", 2)
		launch := func() []cloud.Node {
			t.Helper()
			if err := p.Prepare(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			nodes, err := p.Launch(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			return nodes
		}
		nodes := launch()
		if len(nodes) != 2 || nodes[1].Rank != 1 || nodes[0].Reach.Host != "203.0.113.9" || nodes[0].Reach.User != user || nodes[0].Place != here.Place {
			t.Errorf("nodes %+v", nodes)
		}
		first := "projects/" + gcpfake.Project + "/locations/us-central1-a/nodes/" + names.Of(spec.ID, 0)
		made, _ := json.Marshal(fake.nodes[first])
		has(t, string(made), `"acceleratorType":"v5litepod-8"`, `"runtimeVersion":"v2-alpha-tpuv5"`, `"preemptible":true`, `"enableExternalIps":true`, "subnetworks/default", "gcpuser:ssh-ed25519", `"skypilot-cluster-name":"web"`, `"scope":["https://www.googleapis.com/auth/cloud-platform"]`)

		// One that was preempted is a proof of that, and goes before another one is made.
		fake.nodes[first]["state"] = "PREEMPTED"
		got, err := p.Nodes(t.Context(), spec.ID)
		if err != nil || got[0].State != cloud.NodeGone || !strings.Contains(got[0].Reason, "preempted") {
			t.Errorf("preempted: %+v, %v", got, err)
		}
		if nodes := launch(); len(nodes) != 2 || !slices.Contains(fake.calls, "DELETE /v2/"+first) {
			t.Errorf("made again: %+v", nodes)
		}
		fake.nodes[first]["state"] = "PREEMPTED"
		if err := p.Terminate(t.Context(), spec.ID); err != nil || len(fake.nodes) > 0 {
			t.Errorf("left: %v, %v", fake.nodes, err)
		}

		spec.Offer.Spot = false
		launch()
		if err := p.Stop(t.Context(), spec.ID); err != nil || fake.nodes[first]["state"] != "STOPPED" {
			t.Errorf("stopped: %v, %v", fake.nodes[first]["state"], err)
		}
		launch()
		if err := p.Terminate(t.Context(), spec.ID); err != nil || len(fake.nodes) > 0 {
			t.Errorf("left: %v, %v", fake.nodes, err)
		}

		fake.fail = `{"name": "o", "done": true, "error": {"code": 8, "message": "There is no more capacity in the zone"}}`
		if _, err := p.Launch(t.Context(), spec); meaning(err) != "full "+inZone {
			t.Errorf("full: %v", err)
		}
		fake.off = true
		p = New(o)
		if list, err := p.Nodes(t.Context(), spec.ID); err != nil || len(list) > 0 {
			t.Errorf("without the API: %v, %v", list, err)
		}
		if _, err := p.Launch(t.Context(), spec); meaning(err) != "credentials: gcloud services enable tpu.googleapis.com --project "+gcpfake.Project {
			t.Errorf("a launch without the API: %v", err)
		}
	})
}

func TestHostsOfTPUs(t *testing.T) {
	for name, hosts := range map[string]int{
		"tpu-v2-8": 1, "tpu-v3-32": 4, "tpu-v4-8": 1, "tpu-v4-32": 4, "tpu-v5litepod-1": 1, "tpu-v5litepod-8": 1, "tpu-v5litepod-16": 4, "tpu-v5p-8": 1, "tpu-v5p-128": 16,
		"tpu-v6e-8": 1, "tpu-v6e-256": 64, "tpu-v9-8": 0, "tpu-v4": 0, "tpu-v4-x": 0,
	} {
		if got := tpuHosts(name); got != hosts {
			t.Errorf("%s has %d hosts, want %d", name, got, hosts)
		}
		if err := validTPU(tpuSpec("a", name, 1)); (err == nil) != (hosts == 1) {
			t.Errorf("%s: %v", name, err)
		}
	}
	behind := tpuSpec("a", "tpu-v3-8", 1)
	behind.Offer.InstanceType = "n1-highmem-8"
	if err := validTPU(behind); err == nil || !strings.Contains(err.Error(), "tpu_vm") {
		t.Errorf("a TPU behind a host: %v", err)
	}
}

func TestDisks(t *testing.T) {
	for machine, want := range map[string][4]string{ // low, medium, high, ultra
		"n1-standard-8": {"pd-standard", "pd-balanced", "pd-ssd", "pd-ssd"}, "n2-standard-8": {"pd-standard", "pd-balanced", "pd-ssd", "pd-ssd"},
		"n2-standard-64": {"pd-standard", "pd-balanced", "pd-ssd", "pd-extreme"}, "g2-standard-8": {"pd-balanced", "pd-balanced", "pd-ssd", "pd-ssd"},
		"a2-highgpu-1g": {"pd-standard", "pd-balanced", "pd-ssd", "pd-ssd"}, "a3-highgpu-8g": {"pd-balanced", "pd-balanced", "pd-ssd", "hyperdisk-balanced"},
		"a3-ultragpu-8g": {"hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced"},
		"n4-standard-8":  {"hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced"},
		"a4-highgpu-8g":  {"hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced"},
	} {
		for i, tier := range []string{"low", "", "high", "ultra"} {
			kind, iops := diskType(cloud.Offer{InstanceType: machine}, tier)
			if kind != want[i] || (iops == extremeIOPS) != (kind == "pd-extreme") {
				t.Errorf("%s with disks of tier %q: %s, %d", machine, tier, kind, iops)
			}
		}
	}
	for name, kind := range map[string]string{"T4": "nvidia-tesla-t4", "A100": "nvidia-tesla-a100", "A100-80GB": "nvidia-a100-80gb", "H100": "nvidia-h100-80gb", "H100-MEGA": "nvidia-h100-mega-80gb", "H200": "nvidia-h200-141gb", "B200": "nvidia-b200"} {
		if got := acceleratorType(name); got != kind {
			t.Errorf("%s is %s, want %s", name, got, kind)
		}
	}
}

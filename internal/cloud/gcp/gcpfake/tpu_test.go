package gcpfake_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

const tpus = "https://tpu.googleapis.com/v2/projects/" + gcpfake.Project + "/locations/"

func tpu(kind string, more dict) dict {
	n := dict{"acceleratorType": kind, "runtimeVersion": "tpu-ubuntu2204-base", "labels": dict{"cluster": "one"}, "metadata": dict{"ssh-keys": "u:k"}, "networkConfig": dict{"enableExternalIps": true}}
	for k, v := range more {
		n[k] = v
	}
	return n
}

// finish waits for an operation and returns the code of its error, 0 for none.
func (c client) finish(op dict) int {
	c.Helper()
	for range 1000 {
		if op["done"] == true {
			e, _ := op["error"].(dict)
			if e == nil {
				return 0
			}
			return int(e["code"].(float64))
		}
		time.Sleep(time.Second)
		op = c.ok("GET", "https://tpu.googleapis.com/v2/"+op["name"].(string), nil)
	}
	c.Fatal("it never ends")
	return 0
}

func TestTPU(t *testing.T) {
	virtual(t, func(c client) {
		zone := tpus + "us-central2-b"
		c.no("POST", zone+"/nodes?nodeId=Bad", tpu("v4-16", nil), 400, "INVALID_ARGUMENT", "node id")
		c.no("POST", zone+"/nodes?nodeId=one", tpu("v6e-8", nil), 404, "NOT_FOUND", `Accelerator type "v6e-8" in zone "us-central2-b"`)
		c.no("POST", zone+"/nodes?nodeId=one", tpu("v4-16", dict{"runtimeVersion": "none"}), 404, "NOT_FOUND", "Runtime version")
		c.no("POST", zone+"/nodes?nodeId=one", tpu("v4-16", dict{"shape": 1}), 400, "INVALID_ARGUMENT", `Unknown name "shape"`)
		c.no("POST", zone+"/nodes?nodeId=one", tpu("v4-16", dict{"networkConfig": dict{"network": "none"}}), 400, "INVALID_ARGUMENT", "network")
		c.no("GET", tpus+"us-east9-z/nodes", nil, 403, "PERMISSION_DENIED", "is not found or access is unauthorized")
		c.Slow(time.Minute)
		op := c.ok("POST", zone+"/nodes?nodeId=one", tpu("v4-16", nil))
		if n := c.ok("GET", zone+"/nodes/one", nil); n["state"] != "CREATING" || n["networkEndpoints"] != nil {
			t.Errorf("a new node is %v", n)
		}
		c.no("POST", zone+"/nodes?nodeId=one", tpu("v4-16", nil), 409, "ALREADY_EXISTS", "already exists")
		if code := c.finish(op); code != 0 {
			t.Errorf("it ended with %d", code)
		}
		n := c.ok("GET", zone+"/nodes/one", nil)
		ends, _ := n["networkEndpoints"].([]any)
		if n["state"] != "READY" || len(ends) != 2 || ends[0].(dict)["ipAddress"] == ends[1].(dict)["ipAddress"] || ends[1].(dict)["accessConfig"].(dict)["externalIp"] == nil || n["name"] != "projects/fake-project-1/locations/us-central2-b/nodes/one" {
			t.Errorf("it is %v", n)
		}
		if all := c.ok("GET", tpus+"-/nodes", nil)["nodes"].([]any); len(all) != 1 {
			t.Errorf("everywhere there are %v", all)
		}
		c.no("POST", zone+"/nodes/one:stop", dict{}, 400, "INVALID_ARGUMENT", "single TPU nodes")
		if got := c.Inventory(); !slices.Equal(got, []string{"nodes one"}) {
			t.Errorf("there are %v", got)
		}
		c.ok("PATCH", zone+"/nodes/one?updateMask=labels", dict{"labels": dict{"a": "b"}})
		if n := c.ok("GET", zone+"/nodes/one", nil); fmt.Sprint(n["labels"]) != "map[a:b]" {
			t.Errorf("its labels are %v", n["labels"])
		}
		c.finish(c.ok("DELETE", zone+"/nodes/one", nil))
		c.no("GET", zone+"/nodes/one", nil, 404, "NOT_FOUND", "nodes/one' was not found")

		c.finish(c.ok("POST", zone+"/nodes?nodeId=small", tpu("v4-8", nil)))
		c.finish(c.ok("POST", zone+"/nodes/small:stop", dict{}))
		if n := c.ok("GET", zone+"/nodes/small", nil); n["state"] != "STOPPED" {
			t.Errorf("off it is %v", n["state"])
		}
		op = c.ok("POST", zone+"/nodes/small:start", dict{})
		if n := c.ok("GET", zone+"/nodes/small", nil); n["state"] != "STARTING" {
			t.Errorf("it starts as %v", n["state"])
		}
		c.finish(op)

		c.Fill("us-central2-b", "v4-8", 0)
		if code := c.finish(c.ok("POST", zone+"/nodes?nodeId=more", tpu("v4-8", nil))); code != 8 {
			t.Errorf("a full zone ends with %d", code)
		}
		c.Restore()
		c.FailTPU(9, "The request failed.", 1)
		if code := c.finish(c.ok("POST", zone+"/nodes?nodeId=more", tpu("v4-8", nil))); code != 9 {
			t.Errorf("a failure ends with %d", code)
		}
		c.Quota("us-central2", 0)
		c.no("POST", zone+"/nodes?nodeId=more", tpu("v4-8", nil), 429, "RESOURCE_EXHAUSTED", "in zone us-central2-b")
		c.Restore()
		c.Disable("tpu.googleapis.com")
		c.no("GET", zone+"/nodes", nil, 403, "accessNotConfigured", "Cloud TPU API has not been used")
		c.Restore()

		c.finish(c.ok("POST", zone+"/nodes?nodeId=spot", tpu("v4-8", dict{"schedulingConfig": dict{"preemptible": true}})))
		c.Preempt("spot", 0)
		if n := c.ok("GET", zone+"/nodes/spot", nil); n["state"] != "PREEMPTED" {
			t.Errorf("taken back it is %v", n["state"])
		}
		c.no("POST", zone+"/nodes/spot:start", dict{}, 400, "INVALID_ARGUMENT", "only be deleted")
		c.finish(c.ok("DELETE", zone+"/nodes/spot", nil))
	})
}

func TestQueuedResources(t *testing.T) {
	virtual(t, func(c client) {
		zone := tpus + "us-east5-a"
		ask := func(id string, more dict) dict {
			spec := dict{"parent": "projects/fake-project-1/locations/us-east5-a", "nodeId": id, "node": tpu("v6e-16", nil)}
			q := dict{"tpu": dict{"nodeSpec": []any{spec}}, "spot": dict{}}
			for k, v := range more {
				q[k] = v
			}
			return q
		}
		state := func(id string) any {
			return c.ok("GET", zone+"/queuedResources/"+id, nil)["state"].(dict)["state"]
		}
		c.no("POST", zone+"/queuedResources?queuedResourceId=q", ask("one", dict{"guaranteed": dict{}}), 400, "INVALID_ARGUMENT", "tier")
		c.no("POST", zone+"/queuedResources?queuedResourceId=q", dict{"tpu": dict{"nodeSpec": []any{dict{"parent": "projects/x/locations/y", "nodeId": "n", "node": tpu("v6e-16", nil)}}}}, 400, "INVALID_ARGUMENT", "parent")
		c.Fill("us-east5-a", "v6e-16", 0)
		if code := c.finish(c.ok("POST", zone+"/queuedResources?queuedResourceId=one-q", ask("one", dict{"queueingPolicy": dict{"validUntilDuration": "600s"}}))); code != 0 {
			t.Errorf("it ended with %d", code)
		}
		if s := state("one-q"); s != "WAITING_FOR_RESOURCES" {
			t.Errorf("in a full zone it is %v", s)
		}
		c.Restore()
		c.Slow(time.Minute)
		if s := state("one-q"); s != "PROVISIONING" {
			t.Errorf("with room it is %v", s)
		}
		time.Sleep(61 * time.Second)
		n := c.ok("GET", zone+"/nodes/one", nil)
		if s := state("one-q"); s != "ACTIVE" || n["state"] != "READY" || len(n["networkEndpoints"].([]any)) != 4 || n["queuedResource"] != "projects/fake-project-1/locations/us-east5-a/queuedResources/one-q" {
			t.Errorf("then it is %v, and the node %v", s, n)
		}
		c.no("DELETE", zone+"/queuedResources/one-q", nil, 400, "FAILED_PRECONDITION", "force")
		c.Preempt("one", 0)
		if s := state("one-q"); s != "SUSPENDED" {
			t.Errorf("taken back it is %v", s)
		}
		c.finish(c.ok("DELETE", zone+"/queuedResources/one-q?force=true", nil))
		c.Fill("us-east5-a", "v6e-16", 0)
		c.ok("POST", zone+"/queuedResources?queuedResourceId=late", ask("late", dict{"queueingPolicy": dict{"validUntilDuration": "600s"}}))
		time.Sleep(601 * time.Second)
		if s := state("late"); s != "FAILED" {
			t.Errorf("too late it is %v", s)
		}
		c.finish(c.ok("DELETE", zone+"/queuedResources/late", nil))
		c.Restore()
		slices := ask("", nil)
		spec := slices["tpu"].(dict)["nodeSpec"].([]any)[0].(dict)
		delete(spec, "nodeId")
		spec["multisliceParams"] = dict{"nodeCount": 2, "nodeIdPrefix": "s"}
		c.finish(c.ok("POST", zone+"/queuedResources?queuedResourceId=many", slices))
		c.ok("GET", zone+"/nodes/s-0", nil)
		c.ok("GET", zone+"/nodes/s-1", nil)
		c.finish(c.ok("DELETE", zone+"/queuedResources/many?force=true", nil))
		if left := c.Inventory(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

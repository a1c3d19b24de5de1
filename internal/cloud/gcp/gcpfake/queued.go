package gcpfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Queued resources are requests for TPUs that wait for room:
// https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.queuedResources.

// queued is a request that waits for room.
type queued struct {
	path, zone string
	body       dict
	nodes      []string // paths, once they are made
	until      time.Time
	failed     string
	made       bool
	deleting   bool
}

// fulfil makes what was asked for where there is room, in the order of names.
func (f *Fake) fulfil() {
	for _, p := range slices.Sorted(maps.Keys(f.queued)) {
		q := f.queued[p]
		if q.made || q.deleting || q.failed != "" {
			continue
		}
		if !q.until.IsZero() && time.Now().After(q.until) {
			q.failed = "The request could not be fulfilled before its valid until time."
			continue
		}
		specs := fakehttp.Items(q.body["tpu"].(dict)["nodeSpec"])
		var made []*node
		for _, x := range specs {
			spec := x.(dict)
			for _, name := range nodeNames(spec, p[strings.LastIndex(p, "/")+1:]) {
				n, err := f.makeNode(q.zone, name, spec["node"].(dict), q.body["spot"] != nil)
				if err != nil {
					for _, m := range made { // all or nothing
						_ = f.Cloud.Kill(m.id, "not enough")
						delete(f.nodes, m.path)
					}
					made = nil
					break
				}
				n.queued = p
				made = append(made, n)
			}
			if made == nil {
				break
			}
		}
		for _, n := range made {
			q.nodes, q.made = append(q.nodes, n.path), true
		}
	}
}

// nodeNames are those of a spec: its own, or of several slices.
func nodeNames(spec dict, queuedID string) (names []string) {
	many, _ := spec["multisliceParams"].(dict)
	if many == nil {
		return []string{fmt.Sprint(spec["nodeId"])}
	}
	prefix, _ := many["nodeIdPrefix"].(string)
	if prefix == "" {
		prefix = queuedID
	}
	count, _ := strconv.Atoi(fmt.Sprint(many["nodeCount"]))
	for k := range count {
		names = append(names, fmt.Sprintf("%s-%d", prefix, k))
	}
	return names
}

func (q *queued) told(f *Fake) dict {
	o := maps.Clone(q.body)
	state := "WAITING_FOR_RESOURCES"
	down, ready := 0, 0
	for _, p := range q.nodes {
		switch n := f.nodes[p]; {
		case n == nil || n.preempted:
			down++
		default:
			if m, ok := f.Machine(n.id); ok && m.State == fluffyapi.Running {
				ready++
			}
		}
	}
	data := dict{}
	switch {
	case q.deleting:
		state = "DELETING"
	case q.failed != "":
		state, data = "FAILED", dict{"failedData": dict{"error": dict{"code": 9, "message": q.failed}}}
	case q.made && down > 0:
		state = "SUSPENDED"
	case q.made && ready == len(q.nodes):
		state = "ACTIVE"
	case q.made:
		state = "PROVISIONING"
	}
	data["state"] = state
	o["name"], o["state"] = q.path, data
	return o
}

func (f *Fake) queuedRoutes(on func(method, path, op, permission string, do fakehttp.Handler), list func(*http.Request, string, []dict) (any, error), in func(*http.Request, string) bool) {
	at := func(r *http.Request, name string) string {
		return "projects/" + Project + "/locations/" + r.PathValue("zone") + "/queuedResources/" + name
	}
	on("GET", "/queuedResources", "queuedResources.list", "queuedresources.list", func(r *http.Request, _ dict) (any, error) {
		if f.eachZone && r.PathValue("zone") == "-" {
			return nil, rpc(400, nil, "The location \"-\" is invalid.")
		}
		var all []dict
		for _, p := range slices.Sorted(maps.Keys(f.queued)) {
			if q := f.queued[p]; in(r, q.zone) && !f.dark[q.zone] {
				all = append(all, q.told(f))
			}
		}
		return list(r, "queuedResources", all)
	})
	on("GET", "/queuedResources/{name}", "queuedResources.get", "queuedresources.get", func(r *http.Request, _ dict) (any, error) {
		q := f.queued[at(r, r.PathValue("name"))]
		if q == nil {
			return nil, rpc(404, nil, "Resource '%s' was not found", at(r, r.PathValue("name")))
		}
		return q.told(f), nil
	})
	on("POST", "/queuedResources", "instances.create", "queuedresources.create", func(r *http.Request, body dict) (any, error) {
		name, zone := r.URL.Query().Get("queuedResourceId"), r.PathValue("zone")
		specs := fakehttp.Items(mapOf(body["tpu"])["nodeSpec"])
		for field := range body {
			if !slices.Contains(strings.Fields(queuedFields), field) {
				return nil, rpc(400, nil, "Invalid JSON payload received. Unknown name \"%s\" at 'queued_resource': Cannot find field.", field)
			}
		}
		switch {
		case !resourceID.MatchString(name):
			return nil, rpc(400, nil, "The queued resource id \"%s\" is invalid.", name)
		case len(specs) == 0:
			return nil, rpc(400, nil, "At least one node spec is required.")
		case body["spot"] != nil && body["guaranteed"] != nil:
			return nil, rpc(400, nil, "Only one tier may be given.")
		case f.queued[at(r, name)] != nil:
			return nil, rpc(409, nil, "Resource '%s' already exists", at(r, name))
		}
		for _, x := range specs {
			spec := mapOf(x)
			many := mapOf(spec["multisliceParams"])
			n, _ := strconv.Atoi(fmt.Sprint(many["nodeCount"]))
			switch {
			case spec["parent"] != "projects/"+Project+"/locations/"+zone && spec["parent"] != "projects/"+Number+"/locations/"+zone:
				return nil, rpc(400, nil, "The parent of the node spec must be the parent of the queued resource.")
			case (spec["nodeId"] == nil) == (many == nil), many != nil && n < 2:
				return nil, rpc(400, nil, "Exactly one of node_id, and multislice_params with at least two nodes, must be specified.")
			case spec["node"] == nil:
				return nil, rpc(400, nil, "The node is required.")
			case mapOf(mapOf(spec["node"])["schedulingConfig"])["preemptible"] == true:
				return nil, rpc(400, nil, "The node's scheduling config cannot be set for queued resources; use the tier.")
			}
			if no := f.checkNode(zone, mapOf(spec["node"])); no != nil {
				return nil, no
			}
			for _, node := range nodeNames(spec, name) {
				if p := "projects/" + Project + "/locations/" + zone + "/nodes/" + node; f.nodes[p] != nil {
					return nil, rpc(409, nil, "Resource '%s' already exists", p)
				}
			}
		}
		q := &queued{path: at(r, name), zone: zone, body: body}
		policy := mapOf(body["queueingPolicy"])
		if s, ok := policy["validUntilDuration"].(string); ok {
			d, err := time.ParseDuration(s)
			if err != nil {
				return nil, rpc(400, nil, "The duration %s is invalid.", s)
			}
			q.until = time.Now().Add(d)
		}
		if s, ok := policy["validUntilTime"].(string); ok {
			until, err := time.Parse(time.RFC3339, s)
			if err != nil {
				return nil, rpc(400, nil, "The time %s is invalid.", s)
			}
			q.until = until
		}
		f.queued[q.path] = q
		op := f.beginTPU(r, "create", zone, q.path, nil)
		op.also = dict{"@type": "type.googleapis.com/google.cloud.tpu.v2.QueuedResource", "name": q.path}
		return op.rpc(), nil
	})
	on("DELETE", "/queuedResources/{name}", "instances.terminate", "queuedresources.delete", func(r *http.Request, _ dict) (any, error) {
		p := at(r, r.PathValue("name"))
		q := f.queued[p]
		if q == nil {
			return nil, rpc(404, nil, "Resource '%s' was not found", p)
		}
		state := mapOf(q.told(f)["state"])["state"]
		var nodes []*node
		for _, name := range q.nodes {
			if n := f.nodes[name]; n != nil && n.queued == p {
				nodes = append(nodes, n)
			}
		}
		if r.URL.Query().Get("force") != "true" && len(nodes) > 0 && state != "FAILED" && state != "SUSPENDED" {
			no := rpc(400, nil, "The queued resource '%s' is in the state %v and its nodes still exist; it can only be deleted with force.", p, state)
			no.Body.(dict)["error"].(dict)["status"] = "FAILED_PRECONDITION"
			return nil, no
		}
		for _, n := range nodes {
			if _, err := f.Terminate(r, n.id); err != nil {
				return nil, err
			}
		}
		q.deleting = true
		return f.beginTPU(r, "delete", q.zone, p, func() bool {
			for _, n := range nodes {
				if f.nodes[n.path] == n {
					return false
				}
			}
			delete(f.queued, p)
			return true
		}).rpc(), nil
	})
}

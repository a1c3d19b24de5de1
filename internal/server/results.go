package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/skypilot-go/sky/api"
)

// Results are stored as the newest client reads them. A rule says what clients
// below a version must get in its place; it changes one result in memory.
type rule struct {
	below int // applies to clients with a smaller API version
	apply func(result any) (any, error)
}

// rules by request name without "sky.".
var rules = sync.OnceValue(func() map[string][]rule {
	return map[string][]rule{
		"status": {
			{29, eachRecord(noAutostopping)},
			{handleAsObject, eachRecord(handleToPickle("handle", keepNull))},
		},
		"launch":      {{handleAsObject, one(handleToPickle("handle", noneForNull))}},
		"exec":        {{handleAsObject, one(handleToPickle("handle", noneForNull))}},
		"jobs.launch": {{handleAsObject, one(handleToPickle("handle", noneForNull))}},
		"start":       {{handleAsObject, func(handle any) (any, error) { return pickledHandle(handle) }}},
		"cost_report": {
			{29, eachRecord(noAutostopping)},
			{handleAsObject, eachRecord(resourcesToPickle)},
		},
		"serve.status":                    {{handleAsObject, eachRecord(replicaHandles)}},
		"jobs.pool_status":                {{handleAsObject, eachRecord(replicaHandles)}},
		"kubernetes_node_info":            {{25, nodeFields("is_ready")}, {26, nodeFields("cpu_count", "memory_gb", "cpu_free", "memory_free_gb")}, {28, nodeFields("is_cordoned", "taints")}},
		"realtime_slurm_gpu_availability": {{36, dropThird}},
	}
})

// empties are what clients must get in place of null: they iterate over it.
var empties = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"status": "[]", "cost_report": "[]", "queue": "[]", "jobs.queue": "[]", "serve.status": "[]", "jobs.pool_status": "[]",
		"storage_ls": "[]", "volume_list": "[]", "enabled_clouds": "[]", "cluster_events": "[]", "api_cancel": "[]", "availability": "[]",
		"list_accelerators": "{}", "list_accelerator_counts": "{}", "job_status": "{}", "endpoints": "{}", "check": "{}", "workspaces.get": "{}",
	}
})

// resultFor is a stored result in the form a client of that version reads. A
// version of 0 is a caller that did not tell: it gets the newest form.
func resultFor(name string, clientAPI int, result []byte) (string, error) {
	if len(result) == 0 || string(result) == "null" {
		result = []byte(cmp.Or(empties()[name], "null"))
	}
	if clientAPI == 0 {
		return string(result), nil
	}
	var value any
	for _, r := range rules()[name] {
		if clientAPI >= r.below {
			continue
		}
		if value == nil {
			if err := decodeNumbers(result, &value); err != nil {
				return "", fmt.Errorf("reading the result of %s: %w", name, err)
			}
		}
		var err error
		if value, err = r.apply(value); err != nil {
			return "", fmt.Errorf("writing the result of %s for API version %d: %w", name, clientAPI, err)
		}
	}
	if value == nil {
		return string(result), nil
	}
	b, err := json.Marshal(value)
	return string(b), err
}

type record = map[string]any

// one applies f to a result that is an object.
func one(f func(record) error) func(any) (any, error) {
	return func(v any) (any, error) {
		if r, ok := v.(record); ok {
			return r, f(r)
		}
		return v, nil
	}
}

// eachRecord applies f to every object of a list.
func eachRecord(f func(record) error) func(any) (any, error) {
	return func(v any) (any, error) {
		list, _ := v.([]any)
		for _, e := range list {
			if r, ok := e.(record); ok {
				if err := f(r); err != nil {
					return nil, err
				}
			}
		}
		return v, nil
	}
}

func noAutostopping(r record) error {
	if r["status"] == string(api.ClusterAutostopping) {
		r["status"] = string(api.ClusterInit)
	}
	return nil
}

// What a missing handle becomes.
const (
	keepNull    = false
	noneForNull = true
)

func handleToPickle(key string, none bool) func(record) error {
	return func(r record) error {
		if r[key] == nil && !none {
			return nil
		}
		s, err := pickledHandle(r[key])
		r[key] = s
		return err
	}
}

func resourcesToPickle(r record) error {
	s, err := pickledResources(r["resources"])
	r["resources"] = s
	return err
}

func replicaHandles(service record) error {
	replicas, _ := service["replica_info"].([]any)
	for _, e := range replicas {
		if r, ok := e.(record); ok {
			if err := handleToPickle("handle", noneForNull)(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// nodeFields drops fields of every node that older clients stumble over.
func nodeFields(names ...string) func(any) (any, error) {
	return one(func(r record) error {
		nodes, _ := r["node_info_dict"].(record)
		for _, n := range nodes {
			if node, ok := n.(record); ok {
				for _, name := range names {
					delete(node, name)
				}
			}
		}
		return nil
	})
}

// dropThird shortens the items of a list to two elements.
func dropThird(v any) (any, error) {
	list, _ := v.([]any)
	for i, e := range list {
		if item, ok := e.([]any); ok && len(item) > 2 {
			list[i] = item[:2]
		}
	}
	return v, nil
}

// decodeNumbers is json.Unmarshal that keeps 8 and 8.0 apart.
func decodeNumbers(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

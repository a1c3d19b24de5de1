package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/server/pickle"
)

const handleJSON = `{"cluster_name":"c","cluster_name_on_cloud":"c-1","launched_nodes":1,` +
	`"launched_resources":{"infra":"aws/us-east-1","disk_size":256},"stable_internal_external_ips":[["10.0.0.1","1.2.3.4"]],"stable_ssh_ports":[22],"is_grpc_enabled":false}`

func TestResultsByVersion(t *testing.T) {
	for _, c := range []struct {
		name, request string
		api           int
		result, want  string // want "P" is any pickle
	}{
		{"newest clients get what is stored", "status", 53, `[{"status":"AUTOSTOPPING","handle":{}}]`, `[{"status":"AUTOSTOPPING","handle":{}}]`},
		{"and so do callers without a version", "status", 0, `[{"status":"AUTOSTOPPING"}]`, `[{"status":"AUTOSTOPPING"}]`},
		{"AUTOSTOPPING is known from 29 on", "status", 29, `[{"status":"AUTOSTOPPING"}]`, `[{"status":"AUTOSTOPPING"}]`},
		{"before it is INIT", "status", 28, `[{"status":"AUTOSTOPPING"},{"status":"UP"}]`, `[{"status":"INIT"},{"status":"UP"}]`},
		{"also in the cost report", "cost_report", 28, `[{"status":"AUTOSTOPPING","resources":null}]`, `[{"resources":"` + pickle.None + `","status":"INIT"}]`},
		{"a missing handle stays null in status", "status", 48, `[{"handle":null}]`, `[{"handle":null}]`},
		{"and is a pickled None in launch", "launch", 48, `{"job_id":null,"handle":null}`, `{"handle":"` + pickle.None + `","job_id":null}`},
		{"not for new clients", "launch", 49, `{"job_id":null,"handle":null}`, `{"job_id":null,"handle":null}`},
		{"start is a handle by itself", "start", 48, `null`, `"` + pickle.None + `"`},
		{"replicas", "serve.status", 48, `[{"replica_info":[{"handle":null}]}]`, `[{"replica_info":[{"handle":"` + pickle.None + `"}]}]`},
		{"node fields before 25", "kubernetes_node_info", 24, `{"node_info_dict":{"n":{"name":"n","is_ready":true,"cpu_count":1,"taints":[]}}}`, `{"node_info_dict":{"n":{"name":"n"}}}`},
		{"node fields before 26", "kubernetes_node_info", 25, `{"node_info_dict":{"n":{"is_ready":true,"memory_gb":1}}}`, `{"node_info_dict":{"n":{"is_ready":true}}}`},
		{"slurm's third item before 36", "realtime_slurm_gpu_availability", 35, `[["c",[],"err"]]`, `[["c",[]]]`},
		{"an empty list is never null", "queue", 53, `null`, `[]`},
		{"nor an empty object", "endpoints", 53, ``, `{}`},
		{"no result", "down", 24, ``, `null`},
		{"numbers keep their form", "status", 28, `[{"status":"UP","a":8,"b":8.0,"c":12345678901234567890}]`, `[{"a":8,"b":8.0,"c":12345678901234567890,"status":"UP"}]`},
	} {
		got, err := resultFor(c.request, c.api, []byte(c.result))
		if err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

func TestOldClientsReadHandles(t *testing.T) {
	var questions []map[string]string
	for _, r := range []struct{ request, result, key string }{
		{"launch", `{"job_id":1,"handle":` + handleJSON + `}`, "handle"},
		{"status", `[{"handle":` + handleJSON + `}]`, "handle"},
		{"start", handleJSON, ""},
		{"cost_report", `[{"resources":{"infra":"aws","cpus":"4"}}]`, "resources"},
	} {
		got, err := resultFor(r.request, 42, []byte(r.result))
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal([]byte(got), &v); err != nil {
			t.Fatal(err)
		}
		if list, ok := v.([]any); ok {
			v = list[0]
		}
		if r.key != "" {
			v = v.(map[string]any)[r.key]
		}
		questions = append(questions, map[string]string{"pickle": v.(string)})
	}
	want := `{"Handle":{"_cluster_yaml":null,"_version":11,"cached_cluster_info":null,"cluster_name":"c","cluster_name_on_cloud":"c-1",` +
		`"docker_user":null,"is_grpc_enabled":false,"launched_nodes":1,"launched_resources":{"Resources":{"disk_size":256,"infra":"aws/us-east-1"}},` +
		`"skylet_ssh_tunnel":null,"stable_internal_external_ips":[{"tuple":["10.0.0.1","1.2.3.4"]}],"stable_ssh_ports":[22]}}`
	answers := python(t, questions...)
	for i := range 3 {
		if got, _ := json.Marshal(answers[i]); string(got) != want {
			t.Errorf("%d: got  %s\nwant %s", i, got, want)
		}
	}
	if got, _ := json.Marshal(answers[3]); string(got) != `{"Resources":{"cpus":"4","infra":"aws"}}` {
		t.Errorf("resources: %s", got)
	}
}

// The version that counts is that of the call that fetches the result.
func TestTheCallerOfGetDecides(t *testing.T) {
	env := newTestEnv(t)
	id := env.ask("/launch", `{"task":"run: x","cluster_name":"c"}`)
	_, p := env.payload(id)
	if !strings.Contains(p.ReturnValue, `"handle":{"cluster_name":"c"`) {
		t.Errorf("new client: %s", p.ReturnValue)
	}
	env.api = "42"
	_, p = env.payload(id)
	if !strings.Contains(p.ReturnValue, `"handle":"gARY`) {
		t.Errorf("old client: %s", p.ReturnValue)
	}
}

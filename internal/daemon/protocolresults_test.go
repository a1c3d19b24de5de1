//go:build unix

package daemon

import (
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// clientVersions are the API versions of SkyPilot's clients for which results differ,
// and ours.
var clientVersions = []int{24, 33, 42, 49, api.Version}

// caller asks a server as a SkyPilot client does and holds the answers against
// the table.
type caller struct {
	t    *testing.T
	p    *protocol
	h    http.Handler
	as   string // who logs in through a proxy; "": nobody has to
	wait func(id string)
}

// bare is a body without the envelope of others.
type bare map[string]any

// call is one exchange.
func (c *caller) call(version int, method, path string, body any) (int, http.Header, []byte) {
	c.t.Helper()
	var text io.Reader
	if body != nil {
		fields := map[string]any{}
		b, err := json.Marshal(body)
		if err == nil {
			err = json.Unmarshal(b, &fields)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if _, ok := body.(bare); !ok {
			fields["env_vars"] = map[string]string{"SKYPILOT_USER_ID": testbed.Ann.ID, "SKYPILOT_USER": testbed.Ann.Name}
			fields["entrypoint"], fields["entrypoint_command"], fields["using_remote_api_server"] = "sky.client.cli.command.status", "sky status", true
		}
		b, _ = json.Marshal(fields)
		text = strings.NewReader(string(b))
	}
	r := httptest.NewRequestWithContext(c.t.Context(), method, path, text)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "127.0.0.1"
	r.Header.Set(api.HeaderAPIVersion, fmt.Sprint(version))
	r.Header.Set(api.HeaderVersion, "0.11.0")
	if c.as != "" {
		r.Header.Set("X-Test", c.as)
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
	}
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, r)
	return w.Code, w.Header(), w.Body.Bytes()
}

// request sends a request and holds its result against the table, for each
// version of the clients. Its name in the table may be one of several results.
func (c *caller) request(name, method, path string, body any) json.RawMessage {
	c.t.Helper()
	code, header, answer := c.call(api.Version, method, path, body)
	id := header.Get(api.HeaderRequestID)
	if code != http.StatusOK || id == "" {
		c.t.Errorf("%s: %d %s", name, code, answer)
		return nil
	}
	if c.wait != nil {
		c.wait(id)
	}
	var value json.RawMessage
	for _, v := range clientVersions {
		code, _, got := c.call(v, http.MethodGet, "/api/get?request_id="+url.QueryEscape(id), nil)
		var p api.RequestPayload
		if code != http.StatusOK {
			c.failed(name, v, code, got)
			continue
		}
		if err := json.Unmarshal(got, &p); err != nil {
			c.t.Fatal(err)
		}
		c.p.hold(c.t, "GET /api/get", v, got)
		if want, _, _ := strings.Cut("sky."+name[strings.LastIndex(name, " ")+1:], "("); p.Name != want {
			c.t.Errorf("%s is called %s", name, p.Name)
		}
		c.p.hold(c.t, name, v, []byte(p.ReturnValue))
		value = json.RawMessage(p.ReturnValue)
	}
	return value
}

// refused sends a request that fails with an error of that class.
func (c *caller) refused(class, path string, body any) {
	c.t.Helper()
	_, header, _ := c.call(api.Version, http.MethodPost, path, body)
	c.wait(header.Get(api.HeaderRequestID))
	for _, v := range clientVersions {
		_, _, got := c.call(v, http.MethodGet, "/api/get?request_id="+header.Get(api.HeaderRequestID), nil)
		if e := c.error(path, v, got); e.Type != class {
			c.t.Errorf("%s fails with %s: %s", path, e.Type, e.Message)
		}
	}
}

// error is how a request failed.
func (c *caller) error(name string, version int, got []byte) (e api.ErrorRecord) {
	c.t.Helper()
	var p struct{ Detail api.RequestPayload }
	if err := json.Unmarshal(got, &p); err != nil {
		c.t.Fatalf("%s: %s", name, got)
	}
	if err := json.Unmarshal([]byte(p.Detail.Error), &e); err != nil {
		c.t.Fatalf("%s: %s", name, got)
	}
	c.p.hold(c.t, "error", version, []byte(p.Detail.Error))
	return e
}

// failed looks at how a request failed.
func (c *caller) failed(name string, version, code int, got []byte) {
	c.t.Helper()
	e := c.error(name, version, got)
	if code != http.StatusInternalServerError || c.p.none[name] != (e.Type == api.ErrNotSupported) {
		c.t.Errorf("%s fails with %s: %s", name, e.Type, e.Message)
	}
	c.p.held[name] = true
}

// log sends a request that is answered with a log.
func (c *caller) log(name, path string, body any) {
	c.t.Helper()
	c.request(name, http.MethodPost, path, body)
}

// direct asks a route that answers itself.
func (c *caller) direct(method, path string, body any) json.RawMessage {
	c.t.Helper()
	return c.answered(method+" "+strings.SplitN(path, "?", 2)[0], http.StatusOK, method, path, body)
}

func (c *caller) answered(name string, want int, method, path string, body any) json.RawMessage {
	c.t.Helper()
	var answer []byte
	for _, v := range clientVersions {
		code, _, got := c.call(v, method, path, body)
		if code != want {
			c.t.Errorf("%s %s: %d %s", method, path, code, got)
			return nil
		}
		if want != http.StatusOK {
			var d struct{ Detail json.RawMessage }
			if err := json.Unmarshal(got, &d); err != nil {
				c.t.Fatal(err)
			}
			// The dictionary is the one that is pickled elsewhere.
			got = d.Detail
		}
		c.p.hold(c.t, name, v, got)
		answer = got
		if method != http.MethodGet && c.as != "" {
			return answer // it is done, and cannot be done again
		}
	}
	return answer
}

// TestResultsAreOfTheTypesThatClientsRead holds the results of every request against
// the protocol's table.
func TestResultsAreOfTheTypesThatClientsRead(t *testing.T) {
	p := readProtocol(t)
	synctest.Test(t, func(t *testing.T) { resultsOfClusters(t, p) })
	resultsOfTeams(t, p)
	if !t.Failed() {
		p.whole(t)
	}
}

// rows are clusters of other infrastructure, in every state.
func rows(at time.Time) []*state.Cluster {
	offer := func(name, region, zone, instance string, accelerators map[string]float64, spot bool) cloud.Offer {
		return cloud.Offer{Place: cloud.Place{Cloud: name, Region: region, Zone: zone}, InstanceType: instance, CPUs: 7.5, MemoryGiB: 16,
			Accelerators: accelerators, Spot: spot, HourlyPrice: 1.5}
	}
	ssh := cloud.Node{ID: "i-1", InternalIP: "10.0.0.1", ExternalIP: "192.0.2.1", Reach: cloud.Reach{Method: "ssh", User: "ubuntu"}}
	worker := cloud.Node{ID: "i-2", InternalIP: "10.0.0.2", Reach: cloud.Reach{Method: "ssh", User: "ubuntu", Port: 2222}}
	own := ssh
	own.Reach.OwnKeys = true
	var list []*state.Cluster
	for i, c := range []state.Cluster{
		{Name: "gpus", Status: api.ClusterUp, Offer: offer("aws", "us-east-1", "us-east-1a", "p4d.24xlarge", map[string]float64{"A100": 8}, true), NumNodes: 2,
			Nodes: []cloud.Node{ssh, worker}, Owner: []string{"1234", "me"}, Labels: map[string]string{"team": "x"}, Machine: cloud.MachineSpec{DiskGB: 256}, Ports: []string{"8080"}, CreationYAML: "run: x"},
		{Name: "starting", Status: api.ClusterInit, Offer: offer("lambda", "us-east-1", "", "gpu_1x_a10", map[string]float64{"A10": 1}, false), NumNodes: 1},
		{Name: "stopping", Status: api.ClusterAutostopping, Offer: offer("aws", "us-east-1", "us-east-1a", "m6i.large", nil, false), NumNodes: 1, Nodes: []cloud.Node{ssh}},
		{Name: "pods", Status: api.ClusterUp, Offer: offer("kubernetes", "kind-dev", "", "", map[string]float64{"T4": 0.5}, false), NumNodes: 1,
			Nodes: []cloud.Node{{ID: "p", InternalIP: "10.1.0.1", Reach: cloud.Reach{Method: "kubernetes"}}}},
		{Name: "own", Status: api.ClusterUp, Offer: offer("ssh", "ssh-box", "", "", nil, false), NumNodes: 1, Nodes: []cloud.Node{own}},
		{Name: "here", Status: api.ClusterStopped, Offer: offer("local", "", "", "", nil, false), NumNodes: 1},
		{Name: "boxes", Status: api.ClusterUp, Offer: offer("docker", "", "", "", nil, false), NumNodes: 1, Nodes: []cloud.Node{{ID: "d", Reach: cloud.Reach{Method: "docker"}}}},
	} {
		c.Hash, c.NameOnCloud, c.UserHash, c.UserName = c.Name+"-hash", c.Name+"-a1b2", testbed.Ann.ID, testbed.Ann.Name
		c.LaunchedAt, c.StatusUpdatedAt, c.AutostopMinutes, c.LastUse = at.Add(time.Duration(-i)*time.Minute), at, 10*i-10, "sky launch"
		list = append(list, &c)
	}
	return list
}

func resultsOfClusters(t *testing.T, p *protocol) {
	b := newBed(t, "", func(c *model.Config) {
		c.Types = append(c.Types, model.Type{Name: "gpu", CPUs: 8, MemoryGiB: 64, Accelerators: map[string]float64{"V100": 1}, Price: 9})
	})
	b.run()
	gate, err := auth.New(t.Context(), b.Store, auth.Options{Owner: auth.Owner{Exposed: true, OpenLoopback: true}})
	if err != nil {
		t.Fatal(err)
	}
	b.d.log = slog.New(slog.DiscardHandler)
	c := &caller{t: t, p: p, h: b.d.handler(access{gate: gate}), wait: func(id string) {
		if _, err := b.d.engine.Wait(b.ctx, id); err != nil {
			t.Error(err)
		}
	}}
	const (
		get, post = http.MethodGet, http.MethodPost
		puff      = "\nresources: {infra: fluffycloud, cpus: 2+, ports: 8080}\n"
	)
	c.direct(get, "/api/health", nil)
	c.direct(post, "/validate", api.DagBody{Dag: "run: echo"})
	c.answered("detail POST /validate", http.StatusBadRequest, post, "/validate", api.DagBody{Dag: "rnu: echo"})
	c.request("check", post, "/check", api.CheckBody{})
	c.request("optimize", post, "/optimize", api.DagBody{Dag: "run: echo" + puff})
	launch := api.LaunchBody{ClusterName: "c", Task: "name: t\nrun: echo hello" + puff}
	dry := launch
	dry.Dryrun = true
	c.request("dryrun launch", post, "/launch", dry)
	c.request("launch", post, "/launch", launch)
	c.request("dryrun launch", post, "/launch", dry)
	c.request("exec", post, "/exec", api.ExecBody{ClusterName: "c", Task: "run: sleep 1000"})
	for _, row := range rows(time.Now()) {
		if err := b.Store.Clusters().Create(b.ctx, row); err != nil {
			t.Fatal(err)
		}
		if err := b.Store.Clusters().OpenUsage(b.ctx, row.Hash, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	var records []api.StatusRecord
	if err := json.Unmarshal(c.request("status", post, "/status", api.StatusBody{}), &records); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Name == "own" && (r.Credentials != nil || r.Handle.LaunchedResources.Infra != "ssh/box" || r.Infra != "ssh (box)") {
			t.Errorf("own machines: %v %+v %s", r.Credentials, r.Handle.LaunchedResources, r.Infra)
		}
	}
	c.refused(api.ErrClusterNotUp, "/queue", api.QueueBody{ClusterName: "here"})
	c.refused(api.ErrClusterDoesNotExist, "/queue", api.QueueBody{ClusterName: "nope"})
	c.refused(api.ErrResourcesUnavailable, "/launch", api.LaunchBody{ClusterName: "big", Task: "resources: {infra: fluffycloud, cpus: 4000}"})
	c.request("queue", post, "/queue", api.QueueBody{ClusterName: "c", AllUsers: true})
	c.request("job_status", post, "/job_status", api.JobStatusBody{ClusterName: "c", JobIDs: []int{1, 2, 77}})
	c.log("logs", "/logs", api.LogsBody{ClusterName: "c", JobID: new(1)})
	c.log("hook_logs", "/hook_logs", api.HookLogsBody{ClusterName: "c"})
	c.log("autostop_logs", "/autostop_logs", api.HookLogsBody{ClusterName: "c"})
	c.request("download_logs", post, "/download_logs", api.DownloadLogsBody{ClusterName: "c", JobIDs: []string{"1"}})
	c.request("endpoints", post, "/endpoints", api.EndpointsBody{Cluster: "c"})
	c.request("cancel", post, "/cancel", api.CancelBody{ClusterName: "c", JobIDs: []int{2}})
	c.request("queue", post, "/queue", api.QueueBody{ClusterName: "c", AllUsers: true})
	c.request("cost_report", post, "/cost_report", api.CostReportBody{})
	c.request("cluster_events", post, "/cluster_events", api.ClusterEventsBody{ClusterName: new("c")})
	c.request("timestamps cluster_events", post, "/cluster_events", api.ClusterEventsBody{ClusterName: new("c"), IncludeTimestamps: true})
	c.request("autostop", post, "/autostop", api.AutostopBody{ClusterName: "c", IdleMinutes: 5})
	c.request("stop", post, "/stop", api.StopBody{ClusterName: "c"})
	c.request("start", post, "/start", api.StartBody{ClusterName: "c"})
	c.request("down", post, "/down", api.StopBody{ClusterName: "c"})
	c.request("cost_report", post, "/cost_report", api.CostReportBody{})
	c.request("api_cancel", post, "/api/cancel", api.APICancelBody{RequestIDs: []string{"00"}})

	c.request("jobs.launch", post, "/jobs/launch", api.JobsLaunchBody{Task: "name: train\nrun: sleep 60\nresources: {accelerators: V100, priority_class: high}\n"})
	time.Sleep(30 * time.Second)
	c.request("jobs.queue_v2", post, "/jobs/queue/v2", api.JobsQueueBody{})
	c.log("jobs.logs", "/jobs/logs", api.JobsLogsBody{JobID: new(1)})
	c.request("jobs.wait", post, "/jobs/wait", api.JobsWaitBody{JobID: new(1)})
	c.request("jobs.launch", post, "/jobs/launch", api.JobsLaunchBody{NumJobs: new(2), Task: "name: many\nrun: exit 3\nresources: {infra: fluffycloud, cpus: 2+}\n"})
	time.Sleep(10 * time.Minute)
	c.request("jobs.queue_v2", post, "/jobs/queue/v2", api.JobsQueueBody{})
	c.request("jobs.queue", post, "/jobs/queue", api.JobsQueueBody{})
	c.request("jobs.download_logs", post, "/jobs/download_logs", api.JobsDownloadLogsBody{JobID: new(1)})
	c.request("jobs.events", post, "/jobs/events", api.JobsEventsBody{JobID: 1, IncludeClusterEvents: true})
	c.request("jobs.cancel", post, "/jobs/cancel", api.JobsCancelBody{All: true})
	c.request("jobs.pool_status", post, "/jobs/pool_status", api.PoolStatusBody{})
	c.request("jobs.pool_apply", post, "/jobs/pool_apply", api.PoolApplyBody{PoolName: "p", Mode: "rolling"})
	c.request("jobs.pool_down", post, "/jobs/pool_down", api.PoolDownBody{})
	c.log("jobs.pool_logs", "/jobs/pool_logs", api.PoolLogsBody{PoolName: "p"})
	c.request("jobs.pool_sync_down_logs", post, "/jobs/pool_sync-down-logs", api.PoolSyncLogsBody{PoolName: "p"})
	const serves = "name: s\nrun: sleep 100h\nservice: {readiness_probe: /, replicas: 1, ports: 8080}\nresources: {infra: fluffycloud, cpus: 2+}\n"
	c.request("serve.up", post, "/serve/up", api.ServeUpBody{Task: serves, ServiceName: "s"})
	c.request("serve.status", post, "/serve/status", api.ServeStatusBody{})
	time.Sleep(time.Minute)
	c.request("serve.status", post, "/serve/status", api.ServeStatusBody{})
	c.request("serve.update", post, "/serve/update", api.ServeUpdateBody{Task: serves, ServiceName: "s", Mode: "canary"})
	c.log("serve.logs", "/serve/logs", api.ServeLogsBody{ServiceName: "s", Target: "controller", Follow: new(false)})
	c.request("serve.sync_down_logs", post, "/serve/sync-down-logs", api.ServeSyncLogsBody{ServiceName: "s"})
	c.request("serve.terminate_replica", post, "/serve/terminate-replica", api.ServeTerminateReplicaBody{ServiceName: "s", ReplicaID: 1})
	c.request("serve.promote", post, "/serve/promote", api.ServeTurnBody{ServiceName: "s"})
	c.refused(api.ErrValue, "/serve/rollback", api.ServeTurnBody{ServiceName: "s"})
	c.request("serve.down", post, "/serve/down", api.ServeDownBody{ServiceNames: []string{"s"}})

	c.direct(get, "/api/status?all_status=True", nil)
	c.direct(get, "/api/completion/cluster_name?incomplete=", nil)
	c.direct(get, "/api/completion/storage_name?incomplete=", nil)
	c.direct(get, "/api/completion/volume_name?incomplete=", nil)
	c.direct(get, "/api/completion/api_request?incomplete=", nil)
	c.direct(get, "/api/plugins", nil)
	c.direct(get, "/dashboard_config", nil)
	c.direct(get, "/upload_v2/blob?user_hash=a1b2c3d4&blob_id="+strings.Repeat("0", 64), nil)
	c.request("status_kubernetes", get, "/status_kubernetes", nil)
	for _, name := range []string{"a", "b"} {
		if err := b.Store.Buckets().Create(b.ctx, &state.Bucket{Name: name, Hash: name, Stage: state.BucketThere, Status: api.StorageReady, Store: "S3", Workspace: "default", LaunchedAt: time.Now(), LastUse: "sky launch"}); err != nil {
			t.Fatal(err)
		}
	}
	c.request("storage_ls", get, "/storage/ls", nil)
	c.request("storage_delete", post, "/storage/delete", api.StorageDeleteBody{Name: "b"})
	c.refused(api.ErrValue, "/storage/delete", api.StorageDeleteBody{Name: "b"})
	c.request("realtime_slurm_gpu_availability", post, "/slurm_gpu_availability", api.SlurmBody{})
	c.request("slurm_node_info", post, "/slurm_node_info", api.SlurmBody{})
	c.request("kubernetes_label_gpus", post, "/kubernetes_label_gpus", api.LabelGPUsBody{})
	c.request("all_contexts", get, "/all_contexts", nil)
	c.request("recipes.list", get, "/recipes", nil)
	c.request("recipes.list", post, "/recipes/list", api.RecipeListBody{})
	c.request("recipes.get", post, "/recipes/get", api.RecipeBody{RecipeName: "r"})
	c.request("recipes.create", post, "/recipes/create", api.RecipeCreateBody{Name: "r", Content: "x", RecipeType: "job"})
	c.request("recipes.update", post, "/recipes/update", api.RecipeBody{RecipeName: "r"})
	c.request("recipes.delete", post, "/recipes/delete", api.RecipeBody{RecipeName: "r"})
	c.request("recipes.pin", post, "/recipes/pin", map[string]any{"recipe_name": "r", "pinned": true})
	c.request("create_debug_dump", post, "/debug/dump_create", api.DebugDumpBody{RecentMinutes: new(5.0)})
}

// nodesOfPods answers what the server asks an API server of Kubernetes about its nodes.
func nodesOfPods(t *testing.T) *httptest.Server {
	const node = `{"metadata":{"name":"node-1","labels":{"nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3"}},"spec":{"taints":[{"key":"gpu","value":"yes","effect":"NoSchedule"}]},
		"status":{"capacity":{"cpu":"64","memory":"256Gi","nvidia.com/gpu":"8"},"allocatable":{"cpu":"63500m","memory":"250Gi","nvidia.com/gpu":"8"},
		"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"InternalIP","address":"10.1.0.1"}]}}`
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1/nodes":
			fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`+node+`]}`)
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			fmt.Fprint(w, `{"status":{"allowed":true}}`)
		case strings.HasSuffix(r.URL.Path, "/version"):
			fmt.Fprint(w, `{"major":"1","minor":"36","gitVersion":"v1.36.0"}`)
		default:
			fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
		}
	}))
	t.Cleanup(hs.Close)
	return hs
}

// resultsOfTeams are those of a server that people log in to, which has price lists,
// own machines and Kubernetes.
func resultsOfTeams(t *testing.T, p *protocol) {
	w := listed(t)
	w.write("../.kube/config", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"kind-skypilot",
		"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":"x"}}],
		"contexts":[{"name":"kind-skypilot","context":{"cluster":"c","user":"u"}}]}`, nodesOfPods(t).URL))
	to, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{t: t, p: p, h: httputil.NewSingleHostReverseProxy(to), as: "ada"}
	const get, post = http.MethodGet, http.MethodPost
	c.direct(get, "/api/health", nil)
	c.request("enabled_clouds", get, "/enabled_clouds?expand=True", nil)
	c.request("enabled_clouds_batch", get, "/enabled_clouds/batch?workspaces=default,research", nil)
	c.request("list_accelerators", post, "/list_accelerators", api.ListAcceleratorsBody{Clouds: api.Strings{"lambda"}})
	c.request("list_accelerator_counts", post, "/list_accelerator_counts", api.ListAcceleratorsBody{Clouds: api.Strings{"lambda"}})
	c.request("realtime_kubernetes_gpu_availability", post, "/realtime_kubernetes_gpu_availability", api.GPUAvailabilityBody{Context: new("kind-skypilot")})
	c.request("kubernetes_node_info", post, "/kubernetes_node_info", api.NodeInfoBody{Context: new("kind-skypilot")})
	c.request("local_up", post, "/local_up", api.LocalUpBody{})
	c.request("local_down", post, "/local_down", api.LocalDownBody{})

	c.direct(get, "/users", nil)
	c.direct(get, "/users/role", nil)
	c.direct(post, "/users/me/workspace", api.UserWorkspaceBody{Preferred: new("research")})
	c.direct(get, "/users/me/workspace?requested=", nil)
	c.direct(post, "/users/create", api.UserCreateBody{Username: "new", Password: "secret-enough"})
	c.direct(post, "/users/update", map[string]any{"user_id": auth.UserID("new"), "role": "viewer"})
	c.direct(post, "/users/batch_update", map[string]any{"user_ids": []string{auth.UserID("new"), "nobody"}, "role": "user"})
	c.direct(post, "/users/delete", map[string]any{"user_id": auth.UserID("new")})
	c.direct(post, "/users/import", map[string]any{"csv_content": "username,password,role\nann,secret-enough,user\n,x,user\n"})
	c.direct(get, "/users/export", nil)
	var token api.NewToken
	if err := json.Unmarshal(c.direct(post, "/users/service-account-tokens", map[string]any{"token_name": "ci", "expires_in_days": 30}), &token); err != nil {
		t.Fatal(err)
	}
	of := map[string]any{"token_id": token.TokenID}
	c.direct(get, "/users/service-account-tokens", nil)
	c.direct(post, "/users/service-account-tokens/get-role", of)
	c.direct(post, "/users/service-account-tokens/update-role", map[string]any{"token_id": token.TokenID, "role": "viewer"})
	c.direct(post, "/users/service-account-tokens/rotate", of)
	c.direct(post, "/users/service-account-tokens/delete", of)

	c.request("workspaces.create", post, "/workspaces/create", map[string]any{"workspace_name": "lab", "config": map[string]any{"private": true}})
	c.request("workspaces.update", post, "/workspaces/update", map[string]any{"workspace_name": "lab", "config": map[string]any{"private": true}})
	c.request("workspaces.get", get, "/workspaces", nil)
	users := map[string]any{"workspace_names": []string{"lab", "nowhere"}, "user_ids": []string{auth.UserID("ada")}}
	c.request("workspaces.batch_add_users", post, "/workspaces/batch_add_users", users)
	c.request("workspaces.batch_remove_users", post, "/workspaces/batch_remove_users", users)
	c.request("workspaces.delete", post, "/workspaces/delete", map[string]any{"workspace_name": "lab"})
	c.request("workspaces.get_config", get, "/workspaces/config", nil)
	c.request("workspaces.update_config", post, "/workspaces/config", map[string]any{"config": map[string]any{"rbac": map[string]any{"default_role": "user"}}})

	private, sshd := machineOfOnesOwn(t)
	path, err := w.as("ada").UploadSSHKey(t.Context(), "lab-key", private)
	if err != nil {
		t.Fatal(err)
	}
	c.direct(post, "/ssh_node_pools", bare{"lab": map[string]any{"user": "tester", "identity_file": path,
		"hosts": []any{map[string]any{"ip": "127.0.0.1", "port": sshd.Port()}}}})
	c.direct(get, "/ssh_node_pools", nil)
	c.direct(get, "/ssh_node_pools/keys", nil)
	c.direct(get, "/ssh_node_pools/lab/status", nil)
	c.request("ssh_node_pools.up", post, "/ssh_node_pools/deploy", api.SSHPoolBody{})
	c.request("ssh_node_pools.down", post, "/ssh_node_pools/lab/down", nil)
	c.direct(http.MethodDelete, "/ssh_node_pools/lab", nil)

	at := time.Now()
	for _, v := range []*state.Volume{
		{Name: "new", Stage: state.VolumeMaking},
		{Name: "used", Stage: state.VolumeThere, LastUse: "sky launch", LastAttachedAt: at, CreationYAML: "name: used",
			Seen: state.VolumeSeen{At: at, Exists: true, Ready: true, Pods: []string{"p"}}},
	} {
		v.Hash, v.UserHash, v.UserName, v.Workspace, v.LaunchedAt = v.Name+"-hash", auth.UserID("ada"), "ada", "default", at
		v.Asked = cloud.Volume{NameOnCloud: v.Name + "-a1b2", Type: "k8s-pvc", Place: cloud.Place{Cloud: "kubernetes", Region: "kind-skypilot"}, SizeGB: 10}
		v.Is = v.Asked
		if err := w.d.store.Volumes().Create(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	c.request("volume_list", get, "/volumes?refresh=False", nil)
	c.direct(post, "/volumes/validate", map[string]any{"name": "v", "volume_type": "k8s-pvc", "infra": "kubernetes", "size": "10"})
	c.answered("detail POST /volumes/validate", http.StatusBadRequest, post, "/volumes/validate", map[string]any{"name": "v", "volume_type": "floppy"})
}

// machineOfOnesOwn is a machine with an sshd, and the key that opens it.
func machineOfOnesOwn(t *testing.T) (private []byte, sshd *sshtest.Server) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block), sshtest.Start(t, public)
}

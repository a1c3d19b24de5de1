package cli

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// fakeAPI is an API server with clusters in memory, written from the protocol.
// Names decide how things go: what begins with "broken" fails, a task whose run
// has "exit 1" fails.
type fakeAPI struct {
	mu       sync.Mutex
	clusters map[string]*api.StatusRecord
	jobs     map[string][]api.JobRecord
	requests map[string]*fakeRequest
	order    []string
	calls    []string // "METHOD /path body", for scripts to look at
}

type fakeRequest struct {
	payload api.RequestPayload
	log     string
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{clusters: map[string]*api.StatusRecord{}, jobs: map[string][]api.JobRecord{}, requests: map[string]*fakeRequest{}}
}

// finish stores a request with its outcome and answers with its id.
func (f *fakeAPI) finish(w http.ResponseWriter, name string, result any, err *api.Error, log string) {
	id := fmt.Sprintf("%08x-0000-4000-8000-000000000000", len(f.order)+1)
	value, _ := json.Marshal(result)
	p := api.RequestPayload{
		RequestID: id, Name: name, Status: api.RequestSucceeded, ReturnValue: string(value), Error: "null",
		UserID: "abcd1234", CreatedAt: float64(time.Now().Unix() - 90), ScheduleType: api.ScheduleShort,
	}
	if err != nil {
		text, _ := json.Marshal(api.ErrorRecord{Object: "gAROLg==", Type: err.Type, Message: err.Message, Hint: err.Hint, Details: err.Details})
		p.Status, p.ReturnValue, p.Error = api.RequestFailed, "null", string(text)
	}
	f.requests[id] = &fakeRequest{p, log}
	f.order = append(f.order, id)
	w.Header().Set(api.HeaderRequestID, id)
	fmt.Fprint(w, "null")
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	if r.URL.Path == "/calls" { // for scripts
		fmt.Fprintln(w, strings.Join(f.calls, "\n"))
		return
	}
	shown := map[string]any{}
	for k, v := range body {
		if v != nil && v != false && k != "env_vars" && k != "entrypoint" && k != "using_remote_api_server" {
			shown[k] = v
		}
	}
	text, _ := json.Marshal(shown)
	f.calls = append(f.calls, r.Method+" "+r.URL.Path+" "+string(text))
	w.Header().Set(api.HeaderAPIVersion, "53")
	name, _ := body["cluster_name"].(string)
	switch r.Method + " " + r.URL.Path {
	case "GET /api/health":
		if token, err := os.ReadFile(sky.OwnerFile(os.Getenv("HOME"))); err == nil {
			at := netip.MustParseAddrPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
			w.Header().Set(api.HeaderProof, api.OwnerProof(string(token), at, r.Header.Get(api.HeaderChallenge), 0))
		}
		fmt.Fprintf(w, `{"status":"healthy","api_version":"53","version":%q,"commit":"abc","user":{"id":"abcd1234","name":"me"}}`, api.ProductVersion)
	case "GET /api/get":
		f.get(w, r.URL.Query().Get("request_id"))
	case "GET /api/stream":
		if q := f.request(r.URL.Query().Get("request_id")); q != nil {
			for line := range strings.Lines(q.log) {
				if !strings.Contains(line, "sky_progress") || r.URL.Query().Get("progress") == "true" {
					fmt.Fprint(w, line)
				}
			}
			return
		}
		w.WriteHeader(404)
		fmt.Fprint(w, `{"detail":"no such request"}`)
	case "GET /api/status":
		f.list(w, r)
	case "GET /users/service-account-tokens":
		fmt.Fprint(w, `[]`)
	case "POST /api/cancel":
		f.finish(w, "sky.api_cancel", []string{"00000001-0000"}, nil, "")
	case "GET /api/completion/cluster_name":
		f.complete(w, r.URL.Query().Get("incomplete"))
	case "GET /upload_v2/blob":
		fmt.Fprint(w, `{"exists":false}`)
	case "POST /upload_v2":
		fmt.Fprint(w, `{"status":"completed","missing_chunks":null}`)
	case "GET /users/me/workspace":
		fmt.Fprint(w, `{"workspace":"default","source":"default","preferred":null,"accessible":["default"]}`)
	case "GET /workspaces":
		f.finish(w, "sky.workspaces.get", map[string]any{"default": map[string]any{}}, nil, "")
	case "GET /enabled_clouds":
		f.finish(w, "sky.enabled_clouds", []string{"AWS", "Local"}, nil, "")
	case "POST /jobs/queue/v2":
		f.finish(w, "sky.jobs.queue_v2", map[string]any{"jobs": []any{}, "total": 0, "total_no_filter": 0, "status_counts": map[string]int{}}, nil, "")
	case "POST /serve/status", "POST /jobs/pool_status":
		f.finish(w, "sky.serve.status", []any{}, nil, "")
	case "POST /volumes/validate":
		fmt.Fprint(w, "null")
	case "POST /validate":
		f.validate(w, body)
	case "POST /optimize":
		var plan *api.Plan
		if body["want_plan"] == true {
			plan = &api.Plan{Tasks: []api.TaskPlan{{NumNodes: 1, Chosen: api.PlanOffer{Cloud: "Local", HourlyPrice: 0.5}}}}
		}
		f.finish(w, "sky.optimize", plan, nil, "Considered resources (1 node):\n INFRA  COST ($)  CHOSEN\n Local  0.00      ✔\n")
	case "POST /launch":
		f.launch(w, name, body)
	case "POST /exec":
		f.exec(w, name, body)
	case "POST /status":
		f.status(w, body)
	case "POST /stop", "POST /down", "POST /start", "POST /autostop":
		f.change(w, r.URL.Path[1:], name, body)
	case "POST /queue":
		if f.clusters[name] == nil {
			f.finish(w, "sky.queue", nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "Cluster '" + name + "' does not exist."}, "")
			return
		}
		f.finish(w, "sky.queue", f.jobs[name], nil, "")
	case "POST /job_status":
		f.jobStatus(w, name, body)
	case "POST /cancel":
		f.finish(w, "sky.cancel", nil, nil, "Job 1 was cancelled.\n")
	case "POST /logs":
		f.logs(w, name, body)
	case "POST /download_logs":
		f.finish(w, "sky.download_logs", map[string]string{"1": "~/.sky/api_server/clients/abcd1234/sky_logs/run/1-job"}, nil, "")
	case "POST /download":
		w.Header().Set("X-Home-Path", "/srv")
		z := zip.NewWriter(w)
		e, _ := z.Create("srv/.sky/api_server/clients/abcd1234/sky_logs/run/1-job/run.log")
		fmt.Fprintln(e, "downloaded")
		z.Close()
	case "POST /check":
		f.finish(w, "sky.check", map[string]any{"default": map[string]any{"Local": []string{"compute"}}}, nil, "  Local: enabled [compute]\n")
	case "POST /cost_report":
		f.finish(w, "sky.cost_report", []api.CostRecord{{Name: "old", LaunchedAt: time.Now().Unix() - 7200, Duration: 3723, TotalCost: 3.456, HourlyPrice: 1.2, ResourcesStr: "1x(cpus=8)"}}, nil, "")
	case "POST /list_accelerator_counts":
		f.finish(w, "sky.list_accelerator_counts", map[string]any{"A100": []float64{1, 8}, "tpu-v2-8": []float64{1}, "Odd": []float64{1}}, nil, "")
	case "POST /list_accelerators":
		f.finish(w, "sky.list_accelerators", f.offers(body), nil, "")
	case "POST /endpoints":
		f.finish(w, "sky.endpoints", map[string]string{"8080": "http://203.0.113.7:8080", "10000": "http://203.0.113.7:10000"}, nil, "")
	default:
		f.more(w, r, body)
	}
}

// more are the calls about everything but clusters.
func (f *fakeAPI) more(w http.ResponseWriter, r *http.Request, body map[string]any) {
	switch r.Method + " " + r.URL.Path {
	case "POST /jobs/launch":
		var ids any = 1
		if n, ok := body["num_jobs"].(float64); ok {
			ids = []int{1, 2, 3}[:int(n)]
		}
		res := map[string]any{"job_id": ids, "handle": nil}
		if text, _ := body["task"].(string); strings.Contains(text, "\nschedule:") {
			res = map[string]any{"job_id": []int{}, "schedule_id": 7, "handle": nil}
		}
		f.finish(w, "sky.jobs.launch", res, nil, "Managed job submitted\n")
	case "POST /jobs/schedules":
		next := float64(time.Date(2026, 3, 1, 18, 0, 0, 0, time.UTC).Unix())
		f.finish(w, "sky.jobs.schedules", []api.JobsSchedule{{ID: 7, Name: "nightly", Cron: "0 3 * * *", Timezone: "Asia/Tokyo", Missed: "once", Overlap: "skip", NextAt: &next, LeftOut: 2}}, nil, "")
	case "POST /jobs/end_schedules":
		f.finish(w, "sky.jobs.end_schedules", nil, nil, "Ended: 7\n")
	case "POST /jobs/logs", "POST /serve/logs", "POST /jobs/pool_logs":
		rec := discard{header: w.Header()}
		var code any // services have none
		if r.URL.Path == "/jobs/logs" {
			code = 103
		}
		f.finish(rec, "sky.logs", code, nil, "")
		fmt.Fprintf(w, "log of %v\n", r.URL.Path)
	case "POST /jobs/cancel":
		f.finish(w, "sky.jobs.cancel", nil, nil, "Job with ID 1 is scheduled to be cancelled.\n")
	case "POST /jobs/download_logs":
		f.finish(w, "sky.jobs.download_logs", map[string]string{"1": "~/.sky/api_server/clients/abcd1234/sky_logs/run/1-job"}, nil, "")
	case "POST /serve/sync-down-logs":
		f.finish(w, "sky.serve.sync_down_logs", "~/.sky/api_server/clients/abcd1234/sky_logs/run", nil, "")
	case "POST /serve/up":
		f.finish(w, "sky.serve.up", []any{body["service_name"], "http://203.0.113.9:30001"}, nil, "")
	case "POST /serve/update", "POST /serve/down", "POST /serve/terminate-replica", "POST /jobs/pool_apply", "POST /jobs/pool_down":
		f.finish(w, "sky.x", nil, nil, "Done as asked.\n")
	case "POST /bench/create", "POST /bench/delete":
		f.finish(w, "sky.bench.create", nil, nil, "")
	case "POST /bench/list":
		f.finish(w, "sky.bench.list", []api.Benchmark{fakeBenchmark()}, nil, "")
	case "POST /bench/show":
		f.finish(w, "sky.bench.show", fakeBenchmark(), nil, "")
	case "GET /storage/ls":
		f.finish(w, "sky.storage_ls", []map[string]any{{"name": "bucket", "launched_at": time.Now().Unix() - 90, "store": []string{"S3"}, "last_use": "sky launch -c train with-a-long-name.yaml", "status": "READY"},
			{"name": "held", "launched_at": time.Now().Unix() - 90, "store": []string{"S3"}, "last_use": "sky launch", "status": "READY", "mounted_by": []string{"train", "dev"}}}, nil, "")
	case "POST /storage/delete":
		if name, _ := body["name"].(string); name == "held" {
			f.finish(w, "sky.x", nil, &api.Error{Type: api.ErrValue, Message: "It is in use."}, "")
			return
		}
		f.finish(w, "sky.x", nil, nil, `<sky-payload>"<sky_progress>{\"operation\":\"delete\",\"what\":\"s3://bucket\",\"files\":3,\"files_per_second\":1.5,\"seconds_left\":2}</sky_progress>"</sky-payload>`+"\nDeleted\n")
	case "POST /volumes/delete", "POST /volumes/apply":
		f.finish(w, "sky.x", nil, nil, "")
	case "GET /volumes":
		f.finish(w, "sky.volume_list", []map[string]any{{"name": "vol", "type": "k8s-pvc", "cloud": "kubernetes", "launched_at": time.Now().Unix() - 90, "status": "READY", "config": map[string]any{}},
			{"name": "train-own", "type": "k8s-pvc", "cloud": "kubernetes", "launched_at": time.Now().Unix() - 90, "status": "IN_USE", "is_ephemeral": true, "config": map[string]any{}}}, nil, "")
	case "POST /users/me/workspace":
		fmt.Fprint(w, `{"preferred":null}`)
	case "POST /debug/dump_create":
		f.finish(w, "sky.create_debug_dump", "/srv/dumps/dump-1.zip", nil, "")
	case "POST /debug/dump":
		z := gzip.NewWriter(w)
		files := tar.NewWriter(z)
		_ = files.WriteHeader(&tar.Header{Name: "about.json", Mode: 0o600, Size: 3})
		_, _ = files.Write([]byte("{}\n"))
		_ = files.Close()
		_ = z.Close()
	case "GET /debug/dump_download/dump-1.zip":
		fmt.Fprint(w, "zip content")
	default:
		w.WriteHeader(400)
		fmt.Fprintf(w, `{"detail":"this server does not know %s"}`, r.URL.Path)
	}
}

func (f *fakeAPI) request(prefix string) *fakeRequest {
	for id, q := range f.requests {
		if strings.HasPrefix(id, prefix) {
			return q
		}
	}
	return nil
}

func (f *fakeAPI) get(w http.ResponseWriter, id string) {
	q := f.request(id)
	switch {
	case q == nil:
		w.WriteHeader(404)
		fmt.Fprint(w, `{"detail":"no such request"}`)
	case q.payload.Error != "null":
		w.WriteHeader(500)
		_ = json.NewEncoder(w).Encode(map[string]any{"detail": q.payload})
	default:
		_ = json.NewEncoder(w).Encode(q.payload)
	}
}

func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request) {
	list := []api.RequestPayload{}
	for _, id := range f.order {
		if r.URL.Query().Get("all_status") == "True" {
			list = append(list, f.requests[id].payload)
		}
	}
	if strings.HasPrefix(r.URL.Query().Get("cluster_name"), "ending") { // somebody stops it
		list = append(list, api.RequestPayload{RequestID: "00000009-0000", Name: "sky.stop", Status: api.RequestRunning})
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (f *fakeAPI) complete(w http.ResponseWriter, prefix string) {
	names := []string{}
	for n := range f.clusters {
		if strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	_ = json.NewEncoder(w).Encode(names)
}

func (f *fakeAPI) validate(w http.ResponseWriter, body map[string]any) {
	if dag, _ := body["dag"].(string); strings.Contains(dag, "Nonsense") {
		w.WriteHeader(400)
		fmt.Fprint(w, `{"detail":{"type":"ValueError","message":"no cloud has a GPU called Nonsense","args":[],"attributes":{},"stacktrace":null}}`)
		return
	}
	fmt.Fprint(w, "null")
}

func (f *fakeAPI) launch(w http.ResponseWriter, name string, body map[string]any) {
	if strings.HasPrefix(name, "broken") {
		f.finish(w, "sky.launch", nil, &api.Error{Type: api.ErrResourcesUnavailable, Message: "There is no capacity.", Hint: "sky gpus list --all"}, "Trying AWS\n")
		return
	}
	if agreed, asks := body["agreed_price"].(float64); asks && strings.HasPrefix(name, "dear") && agreed < 1 {
		price := agreed + 0.25 // it rises while somebody thinks
		f.finish(w, "sky.launch", nil, &api.Error{
			Type: api.ErrResourcesUnavailable, Message: fmt.Sprintf("T4 in local costs $%v an hour now; the plan said $0.5. Nothing was rented.", price), Hint: "sky launch -y",
			Details: map[string]any{"kind": api.KindPriceRose, "hourly_price": price, "planned_price": 0.5},
		}, "Trying Local\n")
		return
	}
	if body["dryrun"] == true {
		res := api.LaunchResult{}
		if body["want_plan"] == true && f.clusters[name] == nil {
			res.Plan = &api.Plan{Tasks: []api.TaskPlan{{NumNodes: 1, Chosen: api.PlanOffer{Cloud: "AWS", InstanceType: "m6i.xlarge", CPUs: 4, MemoryGiB: 16, Accelerators: map[string]float64{"T4": 1}, TotalHourlyPrice: 0.5}}}}
		}
		f.finish(w, "sky.launch", res, nil, "Dryrun finished.\n")
		return
	}
	if yaml, _ := body["task"].(string); f.clusters[name] != nil && strings.Contains(yaml, "P100") {
		f.finish(w, "sky.launch", nil, &api.Error{Type: api.ErrResourcesMismatch, Message: "it has K80."}, "")
		return
	}
	if f.clusters[name] == nil {
		f.clusters[name] = &api.StatusRecord{
			Name: name, LaunchedAt: time.Now().Unix() - 30, Autostop: -1, UserHash: "abcd1234", UserName: "me", Workspace: "default",
			Nodes: 1, Cloud: "AWS", Region: "us-east-1", ResourcesStr: "1x(cpus=4, mem=16, m6i.xlarge, ...)",
			ResourcesStrFull: "1x(cpus=4, mem=16, m6i.xlarge, disk=256)", Handle: &api.Handle{ClusterName: name, StableIPs: [][2]string{{"10.0.0.1", "203.0.113.7"}}},
		}
	}
	f.clusters[name].Status = api.ClusterUp
	f.submit(w, "sky.launch", name, body, "Launching\n")
}

func (f *fakeAPI) submit(w http.ResponseWriter, verb, name string, body map[string]any, log string) {
	yaml, _ := body["task"].(string)
	if !strings.Contains(yaml, "run:") {
		f.finish(w, verb, api.LaunchResult{Handle: &api.Handle{ClusterName: name}}, nil, log)
		return
	}
	status := api.JobSucceeded
	if strings.Contains(yaml, "exit 1") {
		status = api.JobFailed
	}
	id := len(f.jobs[name]) + 1
	at := float64(time.Now().Unix() - 20)
	f.jobs[name] = append(f.jobs[name], api.JobRecord{JobID: id, JobName: "job", Username: "me", SubmittedAt: at, StartAt: &at, EndAt: &at, Resources: "1x[CPU:1+]", Status: status, LogPath: "~/sky_logs/1-job"})
	f.finish(w, verb, api.LaunchResult{JobID: &id, Handle: &api.Handle{ClusterName: name}}, nil, log+fmt.Sprintf("Job submitted, ID: %d\n", id))
}

func (f *fakeAPI) exec(w http.ResponseWriter, name string, body map[string]any) {
	if f.clusters[name] == nil {
		f.finish(w, "sky.exec", nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "Cluster '" + name + "' does not exist."}, "")
		return
	}
	f.submit(w, "sky.exec", name, body, "")
}

func (f *fakeAPI) status(w http.ResponseWriter, body map[string]any) {
	out := []api.StatusRecord{}
	names, _ := body["cluster_names"].([]any)
	for _, c := range f.clusters {
		match := len(names) == 0
		for _, n := range names {
			ok, _ := path.Match(n.(string), c.Name)
			match = match || ok
		}
		if match {
			out = append(out, *c)
		}
	}
	if limit, ok := body["limit"].(float64); ok {
		out = out[:min(len(out), int(limit))]
	}
	f.finish(w, "sky.status", out, nil, "")
}

func (f *fakeAPI) change(w http.ResponseWriter, verb, name string, body map[string]any) {
	c := f.clusters[name]
	if c == nil {
		f.finish(w, "sky."+verb, nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "Cluster '" + name + "' does not exist."}, "")
		return
	}
	if strings.HasPrefix(name, "spot") && verb == "stop" {
		f.finish(w, "sky.stop", nil, &api.Error{Type: api.ErrNotSupported, Message: "Spot clusters cannot be stopped."}, "")
		return
	}
	switch verb {
	case "stop":
		c.Status = api.ClusterStopped
	case "start":
		c.Status = api.ClusterUp
	case "down":
		delete(f.clusters, name)
	case "autostop":
		c.Autostop, c.ToDown = int(body["idle_minutes"].(float64)), body["down"] == true
	}
	f.finish(w, "sky."+verb, nil, nil, "")
}

func (f *fakeAPI) jobStatus(w http.ResponseWriter, name string, body map[string]any) {
	out := map[string]any{}
	ids, _ := body["job_ids"].([]any)
	for _, j := range f.jobs[name] {
		if len(ids) == 0 {
			out = map[string]any{}
		}
		for _, id := range ids {
			if int(id.(float64)) == j.JobID {
				out[fmt.Sprint(j.JobID)] = j.Status
			}
		}
		if len(ids) == 0 {
			out[fmt.Sprint(j.JobID)] = j.Status
		}
	}
	for _, id := range ids {
		if _, ok := out[fmt.Sprint(id)]; !ok {
			out[fmt.Sprint(id)] = nil
		}
	}
	f.finish(w, "sky.job_status", out, nil, "")
}

func (f *fakeAPI) logs(w http.ResponseWriter, name string, body map[string]any) {
	jobs := f.jobs[name]
	if f.clusters[name] == nil {
		f.finish(w, "sky.logs", nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "Cluster '" + name + "' does not exist."}, "")
		return
	}
	code, text := api.ExitJobNotFound, "No such job.\n"
	for _, j := range jobs {
		if id, ok := body["job_id"].(float64); !ok || int(id) == j.JobID {
			code, text = j.Status.ExitCode(), fmt.Sprintf("(job %d) output\n", j.JobID)
		}
	}
	rec := discard{header: w.Header()}
	f.finish(rec, "sky.logs", code, nil, text)
	fmt.Fprint(w, text)
}

// discard keeps the header and drops the body.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func (f *fakeAPI) offers(body map[string]any) map[string][]any {
	all := map[string][]any{
		"A100": {
			[]any{"AWS", "p4d.24xlarge", "A100", 8.0, 96.0, 40.0, 1152.0, 32.773, 3.321, "us-east-2"},
			[]any{"Lambda", "gpu_8x_a100", "A100", 8.0, 124.0, 40.0, 1800.0, 10.32, nil, "us-east-1"},
			[]any{"Lambda", "gpu_1x_a100", "A100", 1.0, 30.0, 40.0, 200.0, 1.29, nil, "us-east-1"},
			[]any{"GCP", nil, "A100", 1.0, nil, nil, nil, nil, nil, "us-central1"},
		},
		"Odd": {[]any{"AWS", "x", "Odd", 1.0, 1.0, 1.0, 1.0, 1.0, nil, "r"}},
	}
	want, _ := body["name_filter"].(string)
	out := map[string][]any{}
	for name, list := range all {
		if want == "" || strings.EqualFold(want, name) {
			out[name] = list
		}
	}
	return out
}

// fakeBenchmark has a candidate that runs, and one whose cluster is gone.
func fakeBenchmark() api.Benchmark {
	return api.Benchmark{Name: "bert", Task: "train", LaunchedAt: float64(time.Now().Unix() - 90), Candidates: []api.BenchmarkCandidate{
		{ClusterName: "sky-bench-bert-0", ClusterExists: true, Resources: "1x(gpus=T4:1, ...)", Status: api.BenchmarkRunning, Problem: "no answer",
			Report: &api.BenchmarkReport{Duration: new(90.0), Spent: new(0.5), Steps: new(7), SecondsPerStep: new(2.5), CostPerStep: new(0.0001), EstimatedHours: new(1.5), EstimatedCost: new(3.0)}},
		{ClusterName: "sky-bench-bert-1", Requested: "1x[V100:1]", Status: api.BenchmarkTerminated},
	}}
}

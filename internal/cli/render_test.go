package cli

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
)

var testNow = time.Unix(1_700_000_000, 0)

func secondsAgo(n float64) *float64 { return new(float64(testNow.Unix()) - n) }

func plainTerm() *term.Term {
	return term.New(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}, func(string) string { return "" })
}

func same(t *testing.T, got, want string) {
	t.Helper()
	trim := func(s string) []string {
		lines := strings.Split(strings.Trim(s, "\n"), "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		return lines
	}
	if d := cmp.Diff(trim(want), trim(got)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestStatusText(t *testing.T) {
	v := &overview{
		infra: []string{"GCP", "aws", "Kubernetes/ctx"}, workspaces: 2, workspace: "team",
		machines: []api.SSHPoolStatus{{PoolName: "far", Status: "Unknown"}, {PoolName: "rack", Status: "Ready", Free: "1 of 2 machines, 20 of 32 CPUs, 90 of 128 GB, 3 of 8 H100"}},
		clusters: []api.StatusRecord{
			{Name: "sky-jobs-controller-1", Status: api.ClusterUp, Autostop: 10, LaunchedAt: testNow.Unix() - 3600, Workspace: "team", Infra: "AWS (us-east-1)", ResourcesStr: "1x(cpus=4)"},
			{Name: "train", Status: api.ClusterStopped, Autostop: -1, LaunchedAt: testNow.Unix() - 86400, Workspace: "team", Infra: "Kubernetes (a-very-long-context-name)", ResourcesStr: "2x(gpus=A100:8, p4d.24xlarge, ...)"},
		},
		jobs: section[api.JobsQueueResult]{shown: true, value: api.JobsQueueResult{Total: 9, Jobs: []api.ManagedJob{
			{JobID: new(7), TaskID: new(0), JobName: "sweep", Status: "RUNNING", Resources: "1x[A100:1]", SubmittedAt: secondsAgo(600), JobDuration: new(90.0), Workspace: "team"},
		}}},
		pools:    section[[]sky.Service]{shown: true},
		services: section[[]sky.Service]{shown: true, value: []sky.Service{{Name: "chat", Status: "READY", Version: new(2), Uptime: secondsAgo(120), Endpoint: new("1.2.3.4:8080"), Replicas: []sky.Replica{{Status: "READY"}, {Status: "STARTING"}}}}},
	}
	same(t, v.render(plainTerm(), nil, statusOptions{}, testNow), `
Enabled Infra (workspace: 'team'): aws, gcp, kubernetes/ctx

SSH node pools
POOL  STATUS   FREE
far   Unknown  -
rack  Ready    1 of 2 machines, 20 of 32 CPUs, 90 of 128 GB, 3 of 8 H100

Clusters
NAME                   WORKSPACE  INFRA                      RESOURCES                           STATUS   AUTOSTOP  LAUNCHED
train                  team       Kubernetes ...ntext-name)  2x(gpus=A100:8, p4d.24xlarge, ...)  STOPPED  -         1 day ago
sky-jobs-controller-1  team       AWS (us-east-1)            1x(cpus=4)                          UP       10m       1 hr ago

Managed jobs
ID  TASK  WORKSPACE  NAME   REQUESTED   SUBMITTED    TOT. DURATION  JOB DURATION  #RECOVERIES  STATUS   PROGRESS  POOL
7   0     team       sweep  1x[A100:1]  10 mins ago  10m            1m 30s        0            RUNNING  -         -

Services
NAME  VERSION  UPTIME  STATUS  REPLICAS  TARGET  REQUESTS/S  P50  P95  ENDPOINT
chat  2        2m      READY   1/2       -       -           -    -    1.2.3.4:8080

* 9 managed jobs are in progress (1 latest ones shown). To see all managed jobs: sky jobs queue
* To see detailed service status: sky serve status -v
* 1 cluster has auto{stop,down} scheduled. Refresh statuses with: sky status --refresh
`)
}

func TestStatusSectionsThatFail(t *testing.T) {
	v := &overview{
		jobs:     section[api.JobsQueueResult]{shown: true, err: &api.Error{Type: api.ErrClusterNotUp, Message: "no controller"}},
		services: section[[]sky.Service]{shown: true, err: errors.New("the disk is full")},
	}
	got := v.render(plainTerm(), nil, statusOptions{}, testNow)
	for _, want := range []string{"none. Run: sky check", "No existing clusters.", "No in-progress managed jobs. (See: sky jobs -h)", "Not available: the disk is full"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestManagedJobsTable(t *testing.T) {
	task := func(job, n int, status api.ManagedStatus) api.ManagedJob {
		return api.ManagedJob{JobID: new(job), TaskID: new(n), JobName: "pipe", TaskName: map[int]string{0: "prep", 1: "train"}[n],
			Status: status, Resources: "1x[L4:1]", SubmittedAt: secondsAgo(100), JobDuration: new(30.0), RecoveryCount: n}
	}
	jobs := []api.ManagedJob{
		task(3, 0, "SUCCEEDED"), task(3, 1, "RECOVERING"),
		{JobID: new(2), TaskID: new(0), JobName: "batch", Status: "RUNNING", SubmittedAt: secondsAgo(5), Pool: new("p"), CurrentCluster: new("p-4"), BatchTotal: new(10), BatchDone: new(4)},
	}
	same(t, managedJobsTable(plainTerm(), jobs, jobsView{}, testNow).String(), `
ID  TASK  NAME   REQUESTED  SUBMITTED       TOT. DURATION  JOB DURATION  #RECOVERIES  STATUS                PROGRESS  POOL
3         pipe   -          1 min ago       1m 40s         1m            1            RECOVERING (task: 1)  -         -
 ↳  0     prep   1x[L4:1]   1 min ago       1m 40s         30s           0            SUCCEEDED             -         -
 ↳  1     train  1x[L4:1]   1 min ago       1m 40s         30s           1            RECOVERING            -         -

2   0     batch  -          a few secs ago  5s             -             0            RUNNING               40% 4/10  p (worker=4)
`)
	verbose := managedJobsTable(plainTerm(), jobs, jobsView{verbose: true, allUsers: true}, testNow)
	want := "ID TASK WORKSPACE NAME USER USER_ID REQUESTED SUBMITTED TOT. DURATION JOB DURATION #RECOVERIES STATUS PROGRESS POOL " +
		"WORKER_CLUSTER WORKER_JOB_ID STARTED INFRA RESOURCES SCHED. STATE DETAILS GIT_COMMIT"
	if got := strings.Join(verbose.Header, " "); got != want {
		t.Errorf("columns %s", got)
	}
}

func TestServicesText(t *testing.T) {
	var replicas []sky.Replica
	for i := range 12 {
		replicas = append(replicas, sky.Replica{ID: i + 1, Status: "READY", Version: 1, Infra: "AWS (us-east-1)", ResourcesStr: "1x(cpus=2)", LaunchedAt: secondsAgo(60)})
	}
	list := []sky.Service{{Name: "p", Status: "READY", Version: new(1), Replicas: replicas}}
	list[0].Replicas[0].UsedBy = sky.IntList{1, 2, 3, 4}
	got := servicesText(plainTerm(), []string{"p", "q"}, list, true, false, false, testNow)
	for _, want := range []string{"Pools\n", "p     1        -       READY   12/12", "Pool 'q' not found.", "Pool Workers", "1, 2, +2 more", "... (use --all to show all replicas)"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	rate, p50, p95 := 12.34, 0.0123, 2.5
	list = []sky.Service{{Name: "chat", Status: "READY", Version: new(1), TargetReplicas: new(3), RequestsPerSecond: &rate, P50Seconds: &p50, P95Seconds: &p95,
		Endpoint: new("http://h:30001"), Why: []string{"1 of 3 replicas is ready"}, Replicas: replicas[:1]}, {Name: "new", Status: "CONTROLLER_INIT", Version: new(1)}}
	got = servicesText(plainTerm(), nil, list, false, false, false, testNow)
	for _, want := range []string{
		"NAME  VERSION  UPTIME  STATUS           REPLICAS  TARGET  REQUESTS/S  P50   P95   ENDPOINT",
		"chat  1        -       READY            1/1       3       12.3        12ms  2.5s  http://h:30001",
		"new   1        -       CONTROLLER_INIT  0/0       -       -           -     -     -",
		"chat: 1 of 3 replicas is ready\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	list[0].Replicas = append(slices.Clone(replicas),
		sky.Replica{ID: 13, Status: "FAILED", Reason: "its program ended: exit code 3; see its log"},
		sky.Replica{ID: 14, Status: "SHUTTING_DOWN", Reason: "version 2 replaces it"},
		sky.Replica{ID: 15, Status: "NOT_READY", Reason: "GET /health answered 503"})
	got = servicesText(plainTerm(), nil, list, false, false, false, testNow)
	if want := "... (use --verbose to show all replicas)\nchat, replica 15 is NOT_READY: GET /health answered 503\nchat, replica 13 is FAILED: its program ended: exit code 3; see its log\n"; !strings.HasSuffix(got, want) {
		t.Errorf("troubles are not shown:\n%s", got)
	}
	if got := servicesText(plainTerm(), nil, nil, false, false, false, testNow); got != "Services\nNo existing services.\n" {
		t.Errorf("nothing: %q", got)
	}
}

func TestVolumesText(t *testing.T) {
	list := []sky.Volume{
		{Name: "data", Type: "k8s-pvc", Cloud: "kubernetes", Region: new("ctx"), Size: new("100"), UserName: "me", Workspace: "default", LaunchedAt: testNow.Unix() - 90,
			Status: new("READY"), Config: map[string]any{"access_mode": "ReadWriteOnce"}},
		{Name: "net", Type: "runpod-network-volume", Cloud: "runpod", LaunchedAt: testNow.Unix() - 3*86400, Status: new("NOT_READY"), ErrorMessage: new("being made: no answer\nat all")},
	}
	same(t, volumesText(plainTerm(), list, false, testNow), `
Kubernetes PVCs:
NAME  TYPE     INFRA           SIZE   USER  WORKSPACE  AGE  STATUS  LAST_USE  USED_BY  IS_EPHEMERAL
data  k8s-pvc  kubernetes/ctx  100Gi  me    default    90s  READY   -         -        False

RunPod Network Volumes:
NAME  TYPE                   INFRA   SIZE  USER  WORKSPACE  AGE  STATUS     LAST_USE  USED_BY  MESSAGE
net   runpod-network-volume  runpod  -     -     -          3d   NOT_READY  -         -        being made: no answer …
`)
	wide := volumeTable("k8s-pvc", list[:1], true, testNow)
	if got := strings.Join(wide.Header[10:], " "); got != "IS_EPHEMERAL NAME_ON_CLOUD STORAGE_CLASS ACCESS_MODE MESSAGE" {
		t.Errorf("columns %s", got)
	}
}

func TestHints(t *testing.T) {
	want := "\n📋 Useful Commands\nCluster name: c\n├── To log into the head VM:\tssh c\n├── To submit a job:\t\tsky exec c yaml_file\n" +
		"├── To stop the cluster:\tsky stop c\n└── To teardown the cluster:\tsky down c\n"
	if d := cmp.Diff(want, launchHints(plainTerm(), "c", nil, "ssh c", true)); d != "" {
		t.Error(d)
	}
	if got := launchHints(plainTerm(), "c", nil, "ssh c", false); strings.Contains(got, "stop") || !strings.Contains(got, "sky down c") {
		t.Errorf("a cluster that cannot be stopped:\n%s", got)
	}
	if got := jobHints([]int{1, 2, 3}, "sweep", "p"); !strings.Contains(got, "Jobs submitted with IDs: 1,2,3") || !strings.Contains(got, "sky jobs cancel --pool p") {
		t.Errorf("several: %s", got)
	}
	if got := jobHints([]int{1}, "x", ""); !strings.Contains(got, "Managed Job ID: 1") || !strings.Contains(got, "sky jobs logs --controller 1") {
		t.Errorf("one: %s", got)
	}
}

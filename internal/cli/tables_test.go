package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/serve/simulate"
	"github.com/skypilot-go/sky/internal/table"
	"github.com/skypilot-go/sky/task"
)

// longValues are what fields hold in the tables of this file, by their names; they are as
// long as real ones may be.
var longValues = map[string]string{
	"Name": "train-resnet50-imagenet-2026-11-28", "JobName": "sweep-learning-rate-and-batch-size", "TaskName": "", "ClusterName": "bench-llama3-70b-finetune-12",
	"Cluster": "sweep-learning-rate-and-batch-3f2a", "RequestID": "0b8f6a44-6c1e-4f0e-9d7c-2a5b1f7e9c31", "ID": "0b8f6a44-6c1e-4f0e-9d7c-2a5b1f7e9c31",
	"Status": "FAILED_PRECHECKS", "ScheduleState": "ALIVE_BACKOFF", "UserName": "ada.lovelace@example.com", "Username": "ada.lovelace@example.com",
	"UserHash": "1a2b3c4d", "UserID": "1a2b3c4d", "Workspace": "machine-learning-research", "Infra": "GCP (northamerica-northeast1-a)",
	"ResourcesStr": "4x(gpus=A100-80GB:8, a2-ultragpu-8g, ...)", "ResourcesStrFull": "4x(gpus=A100-80GB:8, cpus=96, mem=1360, a2-ultragpu-8g, disk=512)",
	"Resources": "4x[A100-80GB:8][Spot]", "ClusterResources": "4x(gpus=A100-80GB:8, a2-ultragpu-8g, ...)", "Requested": "4x[A100-80GB:8][Spot]",
	"RequestedResources": "4x[A100-80GB:8][Spot]", "LastUse": "sky launch -c train-resnet50-imagenet-2026-11-28 examples/resnet.yaml --env EPOCHS=90",
	"LastEvent": "Cluster launched after 3 attempts.", "Details": "waits for resources: no room for A100-80GB:8 in 14 places, next attempt in 5 minutes",
	"FailureReason": "the user's program failed with exit code 1: see its log", "Reason": "the machines were preempted", "Endpoint": "https://203.0.113.200:30001",
	"Region": "northamerica-northeast1", "Zone": "northamerica-northeast1-a", "Cloud": "PrimeIntellect", "InstanceType": "Standard_NC96ads_A100_v4",
	"AcceleratorName": "RTX6000-Ada-Generation", "GPU": "RTX6000-Ada-Generation", "AcceleratorType": "NVIDIA-A100-SXM4-80GB", "LogPath": "~/sky_logs/sky-2026-11-28-09-41-07-123456",
	"Policy": "Autoscaling from 2 to 40 replicas (target QPS per replica: 2.5)", "LoadBalancingPolicy": "instance_aware_least_load",
	"CurrentCluster": "sweep-learning-rate-and-batch-3f2a", "Pool": "gpu-workers", "NameOnCloud": "train-data-1a2b3c4d", "Type": "", "ErrorMessage": "not bound: no node has room in the storage class's topology",
	"Context": "gke_research-project_northamerica-northeast1_training", "TokenName": "nightly-benchmarks-of-the-ci", "TokenID": "3f2a9c1e7b5d4e6f",
	"CreatorName": "ada.lovelace@example.com", "Role": "admin", "UserType": "service account", "Login": "service account", "Address": "203.0.113.200", "Action": "sky.jobs.launch",
	"Result": "SUCCEEDED", "LastOutcome": "no capacity", "Now": "unknown", "Stock": "medium", "Cron": "*/15 8-18 * * 1-5", "Timezone": "America/Argentina/Buenos_Aires",
	"Outcome": "PREEMPTED", "Path": "kubernetes.context_configs.research.provision_timeout", "Text": `{"key": "a value that somebody wrote into a configuration by hand"}`,
	"PoolName": "machines-of-the-lab", "Free": "1 of 12 machines, 20 of 320 CPUs, 90 of 1280 GB, 3 of 8 H100, 1 of 4 A100", "Problem": "row 17 has no price, and the file cannot be read after it",
	"Error": "the cloud refused to end it: it is protected against deletion", "Adopted": "", "State": "running", "Account": "research-project", "Trace": "poisson-with-bursts",
	"Task": "finetune", "User": "ada.lovelace@example.com",
}

// filled returns a value of which every field is set, those of package reflect's basic
// kinds to what longValues has.
func filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem(), "", 0)
	return v
}

func fill(v reflect.Value, name string, depth int) {
	if !v.CanSet() || depth > 6 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		text, ok := longValues[name]
		if !ok {
			text = "a-value-of-" + strings.ToLower(name)
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		switch {
		case strings.HasSuffix(name, "At"), strings.HasSuffix(name, "Try"), strings.HasSuffix(name, "Until"), name == "Since":
			v.SetInt(testNow.Unix() - 3*86400)
		default:
			v.SetInt(123456)
		}
	case reflect.Float64:
		switch {
		case strings.HasSuffix(name, "At"), name == "Uptime":
			v.SetFloat(float64(testNow.Unix()) - 3*86400)
		default:
			v.SetFloat(1234.5)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, depth+1)
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), 3, 3)
		for i := range 3 {
			fill(list.Index(i), name, depth+1)
		}
		v.Set(list)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), name, depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(v.Field(i), f.Name, depth+1)
			}
		}
	}
}

// listOf is n such values, of which the last is empty.
func listOf[T any](n int) []T {
	list := make([]T, n+1)
	for i := range n {
		list[i] = filled[T]()
	}
	return list
}

// Every table takes 80 columns of a terminal that has 80, whatever it holds, and what
// people copy from it is whole.
func TestTablesFit80Columns(t *testing.T) {
	term80 := plainTerm()
	term80.OutTTY = true
	if term80.Columns() != 80 {
		t.Fatalf("the terminal of this test has %d columns", term80.Columns())
	}
	cluster := func(o statusOptions) func() *table.Table {
		return func() *table.Table {
			list := listOf[api.StatusRecord](2)
			list[0].Handle = &api.Handle{StableIPs: [][2]string{{"10.128.0.200", "203.0.113.200"}}}
			list[0].Autostop, list[1].Autostop = 60, 61
			return clusterTable(term80, list, o, true, testNow)
		}
	}
	jobs := func(v jobsView) func() *table.Table {
		return func() *table.Table {
			list := listOf[api.ManagedJob](4)
			list[1].JobID = new(7)
			for i := range list[:4] {
				list[i].Metadata = map[string]any{"git_commit": "a3d94e6a3d94e6a3d94e6a3d94e6a3d94e6a3d94"}
			}
			return managedJobsTable(term80, list, v, testNow)
		}
	}
	services := func(pool, verbose bool) func() *table.Table {
		return func() *table.Table { return serviceTable(term80, listOf[sky.Service](2), pool, verbose, testNow) }
	}
	replicas := func(pool, verbose bool) func() *table.Table {
		return func() *table.Table {
			tab, _ := replicaTable(term80, listOf[sky.Service](2), pool, verbose, true, testNow)
			return tab
		}
	}
	volumes := func(kind string, verbose bool) func() *table.Table {
		return func() *table.Table {
			list := listOf[sky.Volume](2)
			list[0].Config = map[string]any{"storage_class_name": "premium-rwo-regional", "access_mode": "ReadWriteOncePod", "host_path": "/mnt/disks/ssd0/training/data"}
			return volumeTable(kind, list, verbose, testNow)
		}
	}
	quantitiesOf := map[string][]float64{"A100": {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 96, 128}}
	tables := []struct {
		name, from string // from: the function that makes it
		make       func() *table.Table
		whole      []string // what it shows uncut
	}{
		{"status", "clusterTable", cluster(statusOptions{}), []string{longValues["Name"], "FAILED_PRECHECKS"}},
		{"status -u", "clusterTable", cluster(statusOptions{allUsers: true}), []string{longValues["Name"], "FAILED_PRECHECKS"}},
		{"status -v", "clusterTable", cluster(statusOptions{verbose: true}), []string{longValues["Name"], "FAILED_PRECHECKS", "203.0.113.200"}},
		{"status -u -v", "clusterTable", cluster(statusOptions{verbose: true, allUsers: true}), []string{longValues["Name"], "203.0.113.200"}},
		{"jobs queue", "managedJobsTable", jobs(jobsView{}), []string{longValues["JobName"], "FAILED_PRECHECKS"}},
		{"jobs queue -u", "managedJobsTable", jobs(jobsView{allUsers: true, workspaces: true}), []string{longValues["JobName"], "FAILED_PRECHECKS"}},
		{"jobs queue -v", "managedJobsTable", jobs(jobsView{verbose: true}), []string{longValues["JobName"], "FAILED_PRECHECKS"}},
		{"jobs queue -u -v", "managedJobsTable", jobs(jobsView{verbose: true, allUsers: true, workspaces: true}), []string{longValues["JobName"]}},
		{"jobs queue --attempts", "attemptsTable", func() *table.Table { return attemptsTable(listOf[api.ManagedJob](2), testNow) }, []string{longValues["Cluster"], "PREEMPTED"}},
		{"jobs schedules", "schedulesTable", func() *table.Table { return schedulesTable(listOf[api.JobsSchedule](2), false, testNow) }, []string{longValues["Name"], longValues["Cron"]}},
		{"jobs schedules -u", "schedulesTable", func() *table.Table { return schedulesTable(listOf[api.JobsSchedule](2), true, testNow) }, []string{longValues["Name"], longValues["Cron"]}},
		{"serve status", "serviceTable", services(false, false), []string{longValues["Name"], longValues["Endpoint"]}},
		{"serve status -v", "serviceTable", services(false, true), []string{longValues["Name"], longValues["Endpoint"]}},
		{"pool status", "serviceTable", services(true, false), []string{longValues["Name"]}},
		{"pool status -v", "serviceTable", services(true, true), []string{longValues["Name"]}},
		{"replicas", "replicaTable", replicas(false, false), []string{longValues["Name"], longValues["Endpoint"], "FAILED_PRECHECKS"}},
		{"replicas -v", "replicaTable", replicas(false, true), []string{longValues["Name"], longValues["Endpoint"], "FAILED_PRECHECKS"}},
		{"workers", "replicaTable", replicas(true, false), []string{longValues["Name"], "FAILED_PRECHECKS"}},
		{"workers -v", "replicaTable", replicas(true, true), []string{longValues["Name"], "FAILED_PRECHECKS"}},
		{"serve simulate", "simulationTable", func() *table.Table { return simulationTable(listOf[simulate.Row](2)) }, []string{longValues["Trace"]}},
		{"gpus list", "countsTable", func() *table.Table { return countsTable("COMMON_GPU", commonGPUs, quantitiesOf) }, []string{"A100"}},
		{"gpus list GPU", "offerTable", func() *table.Table { return offerTable(listOf[api.AcceleratorOffer](3), true) }, []string{longValues["AcceleratorName"], longValues["InstanceType"], longValues["Region"], "$ 1234.500"}},
		{"gpus list -a", "offerTable", func() *table.Table { return offerTable(listOf[api.AcceleratorOffer](3), false) }, []string{longValues["AcceleratorName"], longValues["InstanceType"], "$ 1234.500"}},
		{"gpus list of a cluster", "freeTable", func() *table.Table {
			list := listOf[api.GPUAvailability](2)
			list[0].Counts = quantitiesOf["A100"]
			return freeTable(list, "REQUESTABLE_QTY_PER_NODE")
		}, nil},
		{"gpus list -v", "nodeTable", func() *table.Table {
			return nodeTable(map[string]api.KubernetesNodes{longValues["Context"]: {Nodes: map[string]api.KubernetesNode{
				"gke-training-a2-ultragpu-8g-pool-3f2a9c1e-x7q2": filled[api.KubernetesNode](),
			}}})
		}, []string{longValues["Context"], "gke-training-a2-ultragpu-8g-pool-3f2a9c1e-x7q2"}},
		{"gpus availability", "availabilityTable", func() *table.Table {
			list := listOf[api.Availability](2)
			list[0].Accelerators = map[string]float64{"A100-80GB": 8}
			return availabilityTable(list, testNow)
		}, []string{longValues["InstanceType"] + "[Spot]", "PrimeIntellect/northamerica-northeast1/northamerica-northeast1-a"}},
		{"storage ls", "storageTable", func() *table.Table { return storageTable(listOf[sky.Storage](2), false, testNow) }, []string{longValues["Name"]}},
		{"storage ls -v", "storageTable", func() *table.Table { return storageTable(listOf[sky.Storage](2), true, testNow) }, []string{longValues["Name"]}},
		{"volumes ls", "volumeTable", volumes("k8s-pvc", false), []string{longValues["Name"], "FAILED_PRECHECKS"}},
		{"volumes ls -v", "volumeTable", volumes("k8s-pvc", true), []string{longValues["Name"], "FAILED_PRECHECKS"}},
		{"volumes ls, host paths", "volumeTable", volumes("k8s-hostpath", true), []string{longValues["Name"], "/mnt/disks/ssd0/training/data"}},
		{"volumes ls, network volumes", "volumeTable", volumes("runpod-network-volume", true), []string{longValues["Name"]}},
		{"cost-report", "costTable", func() *table.Table { return costTable(term80, listOf[api.CostRecord](2), testNow) }, []string{longValues["Name"], "$ 1234.50"}},
		{"queue", "jobTable", func() *table.Table {
			list := listOf[api.JobRecord](2)
			list[0].Metadata = map[string]any{"git_commit": "a3d94e6a3d94e6a3d94e6a3d94e6a3d94e6a3d94"}
			return jobTable(term80, list, testNow)
		}, []string{longValues["JobName"], "FAILED_PRECHECKS"}},
		{"api status", "requestTable", func() *table.Table { return requestTable(term80, listOf[api.RequestPayload](2), false, testNow) }, []string{longValues["ID"]}},
		{"api status -v", "requestTable", func() *table.Table { return requestTable(term80, listOf[api.RequestPayload](2), true, testNow) }, []string{longValues["ID"]}},
		{"users list", "usersTable", func() *table.Table { return usersTable(listOf[api.UserRecord](2), testNow) }, []string{longValues["Name"], longValues["ID"]}},
		{"tokens list", "tokensTable", func() *table.Table { return tokensTable(term80, listOf[api.ServiceToken](2), testNow) }, []string{longValues["TokenName"], longValues["TokenID"]}},
		{"workspaces list", "workspacesTable", func() *table.Table {
			return workspacesTable(map[string]map[string]any{longValues["Workspace"]: {
				"private": true, "allowed_users": []any{"ada.lovelace@example.com", "grace.hopper@example.com", "edsger.dijkstra@example.com"},
				"aws": 1, "azure": 1, "gcp": 1, "kubernetes": 1, "lambda": 1, "nebius": 1, "runpod": 1, "jobs": 1, "serve": 1,
			}})
		}, []string{longValues["Workspace"]}},
		{"audit", "auditTable", func() *table.Table { return auditTable(term80, listOf[api.AuditRecord](2), testNow) }, []string{longValues["ID"], "SUCCEEDED"}},
		{"bench launch", "benchPlan", func() *table.Table {
			b := benchCandidate{cluster: longValues["ClusterName"], dag: &task.Dag{Tasks: []*task.Task{{}}}, offer: new(filled[api.PlanOffer]())}
			b.offer.Accelerators = map[string]float64{"A100-80GB": 8}
			return benchPlan([]benchCandidate{b})
		}, []string{longValues["ClusterName"], longValues["InstanceType"]}},
		{"bench ls", "benchTable", func() *table.Table {
			list := listOf[api.Benchmark](2)
			for range 10 {
				list[0].Candidates = append(list[0].Candidates, filled[api.BenchmarkCandidate]())
			}
			return benchTable(list, testNow)
		}, []string{longValues["Name"]}},
		{"bench show", "benchReport", func() *table.Table { return benchReport(filled[api.Benchmark]()) }, []string{longValues["ClusterName"], "FAILED_PRECHECKS"}},
		{"catalog status", "catalogTable", func() *table.Table { return catalogTable(listOf[api.CatalogStatus](2)) }, []string{longValues["Cloud"]}},
		{"config show", "settingsTable", func() *table.Table { return settingsTable(listOf[config.Setting](2)) }, []string{longValues["Path"]}},
		{"sweep", "sweepTable", func() *table.Table { return sweepTable(api.SweepReport{Strays: listOf[api.Stray](2)}, testNow) }, []string{longValues["Cluster"]}},
		{"own machines", "machinesTable", func() *table.Table { return machinesTable(listOf[api.SSHPoolStatus](2)) }, []string{longValues["PoolName"]}},
		{"status --kubernetes", "kubernetesTable", func() *table.Table { return kubernetesTable(term80, listOf[kubernetesCluster](2), testNow) }, []string{longValues["Name"]}},
	}
	var covered []string
	for _, c := range tables {
		covered = append(covered, c.from)
		t.Run(c.name, func(t *testing.T) {
			tab := c.make()
			text := term80.Table(tab)
			for line := range strings.Lines(text) {
				if w := table.Width(strings.TrimSuffix(line, "\n")); w > 80 {
					t.Errorf("a line takes %d columns:\n%s", w, text)
					break
				}
			}
			cells := map[string]bool{}
			for _, row := range tab.Fit(80).Rows {
				for _, cell := range row {
					cells[strings.ReplaceAll(cell, "\n", "")] = true
				}
			}
			for _, whole := range c.whole {
				if !cells[whole] {
					t.Errorf("%q is not whole:\n%s", whole, text)
				}
			}
			if len(tab.Fit(80).Header) < 2 {
				t.Errorf("hardly a column is left:\n%s", text)
			}
			if plain := plainTerm().Table(tab); plain != tab.String() {
				t.Errorf("what goes to no terminal is changed:\n%s", plain)
			}
		})
	}
	slices.Sort(covered)
	if missing := difference(makersOfTables(t), slices.Compact(covered)); len(missing) > 0 {
		t.Errorf("tables of these functions are not tried: %v", missing)
	}
}

func difference(all, without []string) (out []string) {
	for _, s := range all {
		if !slices.Contains(without, s) {
			out = append(out, s)
		}
	}
	return out
}

// makersOfTables are the functions of this package that call table.New.
func makersOfTables(t *testing.T) []string {
	var out []string
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "New" {
						if p, ok := s.X.(*ast.Ident); ok && p.Name == "table" {
							out = append(out, fn.Name.Name)
						}
					}
				}
				return true
			})
		}
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) < 20 {
		t.Fatalf("only %d functions make tables: %v", len(out), out)
	}
	return out
}

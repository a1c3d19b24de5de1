package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// overWire is what arrives of a client's configuration.
func overWire(t *testing.T, c *Config) map[string]any {
	t.Helper()
	text, err := json.Marshal(c.ForRequest())
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWhatAClientSends(t *testing.T) {
	f := newFolder(t)
	f.write(".sky/config.yaml", "api_server: {endpoint: http://a}\nadmin_policy: http://p\ndb: x\naws: {vpc_name: a}\n")
	f.write(".sky.yaml", "aws: {ssh_user: b}")
	f.env[EnvToken] = "sky_secret"
	c := f.load(Client, "provision.ssh_timeout=20")
	want := map[string]any{"aws": map[string]any{"vpc_name": "a", "ssh_user": "b"}, "provision": map[string]any{"ssh_timeout": 20}}
	if got := c.ForRequest(); !reflect.DeepEqual(got, want) {
		t.Errorf("sends %v", got)
	}
	if got := client(t, "api_server: {endpoint: http://a}").ForRequest(); got != nil {
		t.Errorf("sends %v", got)
	}
}

func TestRequestLaysTheClientOver(t *testing.T) {
	s := server(t, `
aws: {vpc_name: server, labels: {a: server, b: server}, vpc_names: [s]}
kubernetes: {pod_config: {spec: {tolerations: [s]}}}
workspaces: {team: {}}
`)
	c, err := s.Request(overWire(t, client(t, `
active_workspace: team
aws: {labels: {b: client}, vpc_names: [c]}
kubernetes: {pod_config: {spec: {tolerations: [c]}}, pricing: {cpu: 1.0}, provision_timeout: 30}
`)), Admin)
	if err != nil {
		t.Fatal(err)
	}
	want := values(t, `
aws: {vpc_name: server, labels: {a: server, b: client}, vpc_names: [c]}
kubernetes: {pod_config: {spec: {tolerations: [s, c]}}, pricing: {cpu: 1}, provision_timeout: 30}
workspaces: {team: {}}
active_workspace: team
`)
	if got := c.Map(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if len(c.Warnings()) > 0 {
		t.Error(c.Warnings())
	}
	if got := c.Origin("aws", "labels", "b"); got.Layer != LayerRequest {
		t.Error("origin", got)
	}
	if got := s.Text("aws", "labels", "b"); got != "server" {
		t.Error("the server's own configuration changed to", got)
	}
	if same, err := s.Request(nil, Admin); err != nil || !reflect.DeepEqual(same.Map(), s.Map()) {
		t.Error("nothing sent:", err)
	}
}

func TestServerOnlyKeys(t *testing.T) {
	const own = `
api_server: {requests_retention_hours: 1}
allowed_clouds: [aws]
daemons: {server-heartbeat-daemon: {interval_seconds: 5}}
jobs: {controller: {consolidation_mode: true, controller_logs_gc_retention_hours: 1, task_logs_gc_retention_hours: 1}}
serve: {controller: {consolidation_mode: true}}
slurm: {cluster_configs: {c: {workdir: /s}}}
workspaces: {team: {}}
rbac: {default_role: user}
admin_policy: http://p
`
	s := server(t, own)
	sent := values(t, `
api_server: {requests_retention_hours: 9}
allowed_clouds: [gcp]
db: x
daemons: {server-heartbeat-daemon: {interval_seconds: 9}}
jobs: {controller: {consolidation_mode: false, controller_logs_gc_retention_hours: 9, task_logs_gc_retention_hours: 9, high_availability: true}}
serve: {controller: {consolidation_mode: false, controller_logs_gc_retention_hours: 9}}
slurm: {cluster_configs: {c: {workdir: /x}}, cpu_partition: p}
workspaces: {mine: {}}
rbac: {default_role: admin}
admin_policy: http://mine
`)
	c, err := s.Request(sent, Admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"api_server", "allowed_clouds", "daemons", "slurm.cluster_configs", "workspaces", "rbac", "admin_policy",
		"jobs.controller.consolidation_mode", "jobs.controller.controller_logs_gc_retention_hours", "jobs.controller.task_logs_gc_retention_hours",
		"serve.controller.consolidation_mode"} {
		keys := strings.Split(path, ".")
		got, _ := c.Get(keys...)
		want, _ := s.Get(keys...)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("a client set %s to %v", path, got)
		}
		if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0].String(), path) {
			t.Errorf("no word of %s: %v", path, w)
		}
	}
	if strings.Contains(c.Warnings()[0].String(), "db") {
		t.Error("db is dropped silently")
	}
	if _, ok := c.Get("db"); ok {
		t.Error("a client set the database")
	}
	if !c.Bool("jobs", "controller", "high_availability") || c.Int("serve", "controller", "controller_logs_gc_retention_hours") != 9 || c.Text("slurm", "cpu_partition") != "p" {
		t.Error("what a client may set is lost:", c.Map())
	}

	if c, err := s.Request(values(t, own), Admin); err != nil || len(c.Warnings()) > 0 {
		t.Error("equal values are no news:", err, c.Warnings())
	}
}

func TestRequestsThatDoNotFit(t *testing.T) {
	s := server(t, "workspaces: {team: {}}")
	for _, test := range []struct{ sent, want string }{
		{"kubernetes: {brand_new: 1}", "the API server cannot use your configuration:\nyour configuration: unknown field \"brand_new\" in kubernetes"},
		{"aws: {vpc_nmae: a}", "your configuration: unknown field \"vpc_nmae\" in aws; did you mean \"vpc_name\"?"},
		{"aws: ~", "your configuration: aws should be a map, not empty"},
		{"active_workspace: taem", `your configuration: active_workspace: the workspace "taem" does not exist on the API server; did you mean "team"?`},
	} {
		_, err := s.Request(values(t, test.sent), Admin)
		wantErr(t, err, test.want)
	}
	if c, err := s.Request(values(t, "active_workspace: default"), Admin); err != nil || c.ActiveWorkspace() != "default" {
		t.Error("default always exists:", err)
	}
}

func TestTaskOverrides(t *testing.T) {
	c := client(t, "docker: {run_options: a}\nkubernetes: {provision_timeout: 1, pod_config: {spec: {tolerations: [a]}}}\n")
	task, err := c.ForTask(values(t, `
active_workspace: w
docker: {run_options: [b]}
nvidia_gpus: {disable_ecc: true}
ssh: {custom_metadata: {a: b}, pod_config: {}, provision_timeout: 5}
kubernetes: {custom_metadata: {a: b}, pod_config: {spec: {tolerations: [b]}}, provision_timeout: 5, dws: {enabled: true}, kueue: {local_queue_name: q},
  quota: {queue: q, x: 1}, remote_identity: sa, enable_docker: true, set_pod_resource_limits: 2}
azure: {remote_identity: r, vpc_name: v}
gcp: {vpc_name: v, subnet_names: [s], managed_instance_group: {run_duration: 5}, enable_gvnic: true, enable_gpu_direct: true, placement_policy: p}
vast: {datacenter_only: true, create_instance_kwargs: {a: 1}}
slurm: {sbatch_options: {mem: 1G}, cpu_partition: p}
hooks: [{run: echo}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := task.Get("kubernetes", "pod_config", "spec", "tolerations"); !reflect.DeepEqual(got, []any{"a", "b"}) {
		t.Error("the pod is not patched:", got)
	}
	if task.Int("kubernetes", "provision_timeout") != 5 || c.Int("kubernetes", "provision_timeout") != 1 {
		t.Error("provision_timeout")
	}
	if got := task.Origin("gcp", "vpc_name"); got.Layer != LayerTask {
		t.Error("origin", got)
	}
	if _, ok := task.Get("hooks"); ok {
		t.Error("hooks are no configuration")
	}
	if !reflect.DeepEqual(task.ForRequest(), c.ForRequest()) {
		t.Error("a task's values travel with the task, not with the client's:", task.ForRequest())
	}
	if same, err := c.ForTask(nil); err != nil || same != c {
		t.Error("no section:", err)
	}
}

func TestTaskOverridesThatAreRefused(t *testing.T) {
	c := server(t, "workspaces: {team: {}}")
	for _, test := range []struct{ section, want string }{
		{"aws: {vpc_name: a}", "config section of the task: \"aws\" is not a field of config: a task cannot set it; set it in ~/.sky/config.yaml or with --config. Tasks can set here: active_workspace, docker, nvidia_gpus,"},
		{"gcp: {labels: {a: b}}", "\"labels\" is not a field of config.gcp: a task cannot set it"},
		{"kubernetes: {namespace: a}", "\"namespace\" is not a field of config.kubernetes: a task cannot set it"},
		{"kubernetes: {brand_new: a}", "unknown field \"brand_new\" in config.kubernetes"},
		{"kubernetes: {provision_timeuot: 5}", "unknown field \"provision_timeuot\" in config.kubernetes; did you mean \"provision_timeout\"?"},
		{"hook: []", "unknown field \"hook\" in config; did you mean \"hooks\"?"},
		{"kubernetes: 5", "config.kubernetes should be a map, not the number 5"},
		{"nvidia_gpus: {disable_ecc: 1}", "config.nvidia_gpus.disable_ecc should be true or false, not the number 1"},
		{"kubernetes: {set_pod_resource_limits: 0}", "should be at least 1, not 0"},
		{"jobs: {bucket: s3://a}", "\"jobs\" is not a field of config: a task cannot set it"},
		{"active_workspace: taem", "did you mean \"team\"?"},
	} {
		_, err := c.ForTask(values(t, test.section))
		wantErr(t, err, test.want)
	}
	newer, err := client(t, "").ForTask(values(t, "kubernetes: {brand_new: a}"))
	if err != nil || len(newer.Warnings()) != 1 {
		t.Error("clients pass newer keys on:", err)
	}
}

func TestTaskPart(t *testing.T) {
	got := TaskPart(values(t, "aws: {labels: {a: b}}\nkubernetes: {namespace: n, pod_config: {spec: {}}, dws: {enabled: true}}\ndocker: {run_options: x}\nactive_workspace: w\nunknown: 1\ngcp: {labels: {}}"))
	want := values(t, "kubernetes: {pod_config: {spec: {}}, dws: {enabled: true}}\ndocker: {run_options: x}\nactive_workspace: w")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if TaskPart(values(t, "aws: {labels: {a: b}}")) != nil {
		t.Error("nothing is for the task")
	}
}

func TestCheck(t *testing.T) {
	if w, err := Check(Client, []byte("workspace: a"), "f"); err != nil || len(w) != 1 {
		t.Error(w, err)
	}
	_, err := Check(Server, []byte("a: ["), "f")
	wantErr(t, err, "f:1:4: not valid YAML")
	_, err = Check(Server, []byte("awz: 1"), "f")
	wantErr(t, err, "f:1:1: unknown field \"awz\" in the configuration; did you mean \"aws\"?")
}

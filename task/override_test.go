package task

import (
	"strings"
	"testing"
)

func ptr[T any](v T) *T { return &v }

// shown is the task as people see it, on one line per field of resources.
func shown(t *testing.T, d *Dag) string {
	t.Helper()
	text, err := d.DisplayYAML()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\n\n", "\n"))
}

func TestOverrides(t *testing.T) {
	const base = "name: t\nresources:\n  infra: aws/us-east-1/us-east-1a\n  cpus: 8\n  ports: 80\n  priority: 5\n  accelerators: A100:8\nrun: x\n"
	for _, c := range []struct {
		name, file string
		o          Overrides
		want       string // lines that the result has; with "!" in front: has not
	}{
		{"infra replaces the whole place", base, Overrides{Infra: ptr("gcp")}, "infra: gcp"},
		{"infra * is anywhere", base, Overrides{Infra: ptr("*")}, "!infra"},
		{"infra none is anywhere", base, Overrides{Infra: ptr("none")}, "!infra"},
		{"infra by slashes and case", base, Overrides{Infra: ptr(" /AWS/us-west-2/ ")}, "infra: aws/us-west-2"},
		{"infra with a context", base, Overrides{Infra: ptr("k8s/my/ctx")}, "infra: kubernetes/my/ctx"},
		{"infra with a pool", base, Overrides{Infra: ptr("ssh/rack")}, "infra: ssh/rack"},
		{"region alone", base, Overrides{Region: ptr("us-east-2"), Zone: ptr("none")}, "infra: aws/us-east-2"},
		{"cloud by alias", base, Overrides{Cloud: ptr("K8s"), Region: ptr("*"), Zone: ptr("*")}, "infra: kubernetes"},
		{"region instead of a list", "resources: {region: [a, b]}", Overrides{Region: ptr("c")}, "infra: '*/c'"},
		{"gpus", base, Overrides{GPUs: ptr("H100:4")}, "H100: 4|!A100"},
		{"no gpus", base, Overrides{GPUs: ptr("None")}, "!accelerators"},
		{"cpus", base, Overrides{CPUs: ptr("16+")}, "cpus: 16+"},
		{"no cpus", base, Overrides{CPUs: ptr("NONE")}, "!cpus"},
		{"memory", base, Overrides{Memory: ptr("64GB+")}, "memory: 64+"},
		{"instance type", base, Overrides{InstanceType: ptr("m6i.large")}, "instance_type: m6i.large"},
		{"container", base, Overrides{ImageID: ptr("docker:ubuntu")}, "image_id: docker:ubuntu"},
		{"no image", "resources: {image_id: docker:x}", Overrides{ImageID: ptr("none")}, "!image_id"},
		{"disk tier", base, Overrides{DiskTier: ptr("BEST")}, "disk_tier: best"},
		{"network tier", base, Overrides{NetworkTier: ptr("best")}, "network_tier: best"},
		{"local disk", base, Overrides{LocalDisk: ptr("375+")}, "local_disk: nvme:375+"},
		{"disk size", base, Overrides{DiskSize: ptr(512)}, "disk_size: 512"},
		{"spot", base, Overrides{UseSpot: ptr(true)}, "use_spot: true"},
		{"no spot", "resources: {use_spot: true}", Overrides{UseSpot: ptr(false)}, "use_spot: false"},
		{"ports replace", base, Overrides{Ports: []string{"8080,8081", "9000"}}, "- 8080-8081|- '9000'|!- '80'"},
		{"no ports", base, Overrides{Ports: []string{"none"}}, "!ports"},
		{"priority by number", base, Overrides{Priority: ptr("7")}, "priority: 7"},
		{"priority by class", base, Overrides{Priority: ptr("high")}, "priority_class: high|!priority: "},
		{"no priority", base, Overrides{Priority: ptr("none")}, "!priority"},
		{"recovery", base, Overrides{JobRecovery: ptr("failover")}, "job_recovery: FAILOVER"},
		{"recovery keeps the rest", "resources: {job_recovery: {max_restarts_on_errors: 3}}", Overrides{JobRecovery: ptr("failover")}, "strategy: FAILOVER|max_restarts_on_errors: 3"},
		{"no recovery", "resources: {job_recovery: failover}", Overrides{JobRecovery: ptr("none")}, "!job_recovery"},
		{"every candidate", "resources: {any_of: [{cpus: 1}, {cpus: 2}]}", Overrides{Infra: ptr("gcp")}, "cpus: '1'|cpus: '2'|infra: gcp"},
		{"candidates that become alike are one", "resources: {any_of: [{cpus: 1}, {cpus: 2}]}", Overrides{CPUs: ptr("4")}, "cpus: '4'|!any_of"},
		{"nodes and name", base, Overrides{NumNodes: ptr(3), Name: ptr("other")}, "num_nodes: 3|name: other|!name: t"},
		{"autostop", base, Overrides{Autostop: &Autostop{Enabled: true, IdleMinutes: 5, Down: true}}, "idle_minutes: 5|down: true"},
		{"workdir", base, Overrides{Workdir: ptr("src")}, "workdir: src"},
		{"repository instead of a folder", "workdir: .", Overrides{GitURL: ptr("git@github.com:a/b.git")}, "url: git@github.com:a/b|!workdir: ."},
		{"ref of the repository", "workdir: {url: 'https://h/a/b.git/'}", Overrides{GitRef: ptr("v1")}, "url: https://h/a/b|ref: v1"},
		{"env", "envs: {A: 1}", Overrides{Envs: map[string]string{"A": "2", "B": "3"}}, "A: '2'|B: '3'"},
		{"env fills a gap", "envs: {A: null}", Overrides{Envs: map[string]string{"A": ""}}, "A: ''"},
		{"flags win over files", "run: x", Overrides{EnvFile: map[string]string{"A": "file", "B": "file"}, Envs: map[string]string{"A": "flag"}}, "A: flag|B: file"},
		{"secrets are hidden", "run: x", Overrides{Secrets: map[string]string{"T": "hush"}}, "T: <redacted>|!hush"},
		{"a file of variables fills secrets", "secrets: {T: null}", Overrides{EnvFile: map[string]string{"T": "hush"}}, "T: <redacted>|!envs"},
		{"secrets beside references", "secrets: ['secrets:HF']", Overrides{Secrets: map[string]string{"T": "x"}}, "T: <redacted>|secrets:HF: null"},
		{"variables are replaced anew", "envs: {B: null}\nfile_mounts: {'/d-${B}': 's3://${B}'}\nworkdir: /home/$B", Overrides{Envs: map[string]string{"B": `q"u\o` + "\n"}}, `s3://q"u\o|"/d-q\"u\\o\n"`},
		{"a list of ports by variable stays text", "envs: {P: null}\nservice: {readiness_probe: '${P}'}\nresources: {ports: 80}", Overrides{Envs: map[string]string{"P": "/h"}}, "path: /h"},
		{"config", "config: {kubernetes: {provision_timeout: 5, kueue: {a: b}}}", Overrides{Config: map[string]any{"kubernetes": map[string]any{"provision_timeout": 9}, "jobs": map[string]any{"x": 1}}}, "provision_timeout: 9|a: b|!jobs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse("task.yaml", []byte(c.file))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Override(c.o); err != nil {
				t.Fatal(err)
			}
			text := shown(t, d)
			for part := range strings.SplitSeq(c.want, "|") {
				if not, ok := strings.CutPrefix(part, "!"); ok == strings.Contains(text, strings.TrimPrefix(part, "!")) {
					t.Errorf("%q (wanted absent: %v, %q) in\n%s", part, ok, not, text)
				}
			}
			wire, err := d.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := Parse("wire", wire); err != nil || same(d, back) != "" {
				t.Errorf("not the same on the wire: %v %s", err, same(d, back))
			}
		})
	}
}

func TestOverridesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		file string
		o    Overrides
		want string
	}{
		{"run: x", Overrides{Infra: ptr("awz")}, `--infra: names no cloud: "awz"`},
		{"run: x", Overrides{Infra: ptr("aws//a")}, "--infra: has an empty part"},
		{"run: x", Overrides{Infra: ptr("aws"), Region: ptr("x")}, "--infra: --infra already says the place"},
		{"run: x", Overrides{Cloud: ptr("clowd")}, `--cloud: "clowd" is not a cloud`},
		{"run: x", Overrides{GPUs: ptr("A100:x")}, "--gpus: should be NAME"},
		{"run: x", Overrides{GPUs: ptr("{A100: 1}")}, "--gpus: should be NAME"},
		{"run: x", Overrides{CPUs: ptr("8x")}, "--cpus: should be a number of vCPUs"},
		{"run: x", Overrides{Memory: ptr("-1")}, "--memory: should be more than 0"},
		{"run: x", Overrides{DiskTier: ptr("fast")}, "--disk-tier: should be one of low"},
		{"run: x", Overrides{LocalDisk: ptr("x")}, "--local-disk: should be a kind"},
		{"run: x", Overrides{DiskSize: ptr(0)}, "--disk-size: should be more than 0"},
		{"run: x", Overrides{Ports: []string{"none", "80"}}, `--ports: takes "none" or ports`},
		{"run: x", Overrides{Ports: []string{"99999"}}, "--ports: should be between 1 and 65535"},
		{"run: x", Overrides{Priority: ptr("1001")}, "--priority: should be from -1000"},
		{"run: x", Overrides{NumNodes: ptr(0)}, "--num-nodes: should be at least 1"},
		{"run: x", Overrides{Name: ptr("a b")}, `--name: "a b" cannot name a task`},
		{"run: x", Overrides{Workdir: ptr("."), GitURL: ptr("https://h/a")}, "--workdir: a folder and a repository"},
		{"run: x", Overrides{GitRef: ptr("main")}, "--git-ref: names a branch"},
		{"run: x", Overrides{GitURL: ptr("./x")}, "--git-url: should be a repository"},
		{"run: x", Overrides{Envs: map[string]string{"a-b": "1"}}, `--env: "a-b" cannot name`},
		{"envs: {A: null, B: null}", Overrides{Envs: map[string]string{"A": "1"}}, "task.yaml:1:17: environment variable B has no value"},
		{"secrets: {A: null}", Overrides{}, "task.yaml:1:11: secret A has no value"},
		{"envs: {P: null}\nservice: {readiness_probe: $P}", Overrides{Envs: map[string]string{"P": "x"}}, "task.yaml:2:28: the path of service.readiness_probe should begin with a slash"},
		{"run: x", Overrides{Config: map[string]any{"nvidia_gpus": map[string]any{"disable_ecc": "x"}}}, "--config: config.nvidia_gpus.disable_ecc should be true or false"},
		{"run: x", Overrides{Envs: map[string]string{"SKYPILOT_DOCKER_USERNAME": "u"}}, "the docker login is incomplete"},
	} {
		d, err := Parse("task.yaml", []byte(c.file))
		if err != nil {
			t.Fatalf("%s: %v", c.file, err)
		}
		if _, err = d.Override(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %+v: %v, want %s", c.file, c.o, err, c.want)
		}
	}
}

func TestOverridesOfSeveralTasks(t *testing.T) {
	d, err := Parse("p.yaml", []byte("name: p\n---\nname: a\nenvs: {X: null}\nrun: x\n---\nname: b\nrun: y\n"))
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := d.Override(Overrides{CPUs: ptr("8"), NumNodes: ptr(2), Name: ptr("q"), Workdir: ptr("w"), Envs: map[string]string{"X": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "--cpus, --num-nodes had no effect") {
		t.Errorf("warnings %q", warnings)
	}
	a, b := d.Tasks[0], d.Tasks[1]
	if d.Name != "q" || a.Resources[0].CPUs != "" || a.NumNodes != 1 || a.Workdir != "w" || b.Workdir != "w" || a.Envs["X"] != "1" || b.Envs["X"] != "1" {
		t.Errorf("%+v %+v %+v", d, a, b)
	}
	g, err := Parse("g.yaml", []byte("name: g\nexecution: parallel\n---\nname: a\nrun: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	if warnings, err = g.Override(Overrides{CPUs: ptr("8")}); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "job group") {
		t.Errorf("%v %q", err, warnings)
	}
}

func TestWorkdirFlagWithARepository(t *testing.T) {
	d, _ := Parse("t", []byte("workdir: {url: 'https://h/a/b'}"))
	warnings, err := d.Override(Overrides{Workdir: ptr("x")})
	if err != nil || len(warnings) != 1 || d.Tasks[0].Git == nil || d.Tasks[0].Workdir != "" {
		t.Errorf("%v %q %+v", err, warnings, d.Tasks[0])
	}
}

func TestForExecNamesWhatItDrops(t *testing.T) {
	o, ignored := Overrides{CPUs: ptr("1"), Memory: ptr("1"), GPUs: ptr("A100"), DiskSize: ptr(5), DiskTier: ptr("low"), LocalDisk: ptr("nvme"), Ports: []string{"80"}}.ForExec()
	if strings.Join(ignored, " ") != "--cpus --memory --disk-tier --local-disk --disk-size --ports" || o.GPUs == nil || o.CPUs != nil || o.Ports != nil {
		t.Errorf("%q %+v", ignored, o)
	}
}

func TestCommand(t *testing.T) {
	d := Command("echo hi")
	if _, err := d.Override(Overrides{GPUs: ptr("A100:8")}); err != nil {
		t.Fatal(err)
	}
	text, err := d.YAML()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse("wire", text)
	if err != nil || same(d, back) != "" || back.Tasks[0].Run != "echo hi" || back.Name != "sky-cmd" {
		t.Errorf("%v %s\n%s", err, same(d, back), text)
	}
}

package task

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"src/main.py", "data/x", "other/x", "key.pem", "cert.pem"} {
		path := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("src", filepath.Join(dir, "link")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	for _, c := range []struct{ name, file, want string }{
		{"folder", "workdir: src", ""},
		{"link to a folder", "workdir: link", ""},
		{"folder in home", "workdir: ~/src", ""},
		{"home", "workdir: '~'", ""},
		{"no folder", "run: x\nworkdir: nowhere", "task.yaml:2:1: workdir nowhere cannot be used: it does not exist"},
		{"a file", "workdir: key.pem", "1:1: workdir key.pem is a file"},
		{"mounts", "file_mounts: {/a: src, b: ./data/x, /c: 's3://b/x', /d: 's3://h/x', /e: 'skypilot:local'}", ""},
		{"mount of nothing", "file_mounts:\n  /a: src\n  /b: gone", "3:3: the source gone cannot be used: it does not exist"},
		{"mount of an empty text", "file_mounts: {/b: ''}", "/b has no source"},
		{"destination with slash", "file_mounts: {/a/: src}", "the destination /a/ should not end in a slash"},
		{"source with slash", "file_mounts: {/a: src/}", "the source src/ should not end in a slash"},
		{"destination is a URL", "file_mounts: {'s3://b': src}", "the destination is a path on the nodes"},
		{"destination is the workdir", "workdir: src\nfile_mounts: {~/sky_workdir: data}", "2:15: ~/sky_workdir is taken by workdir"},
		{"destination is free without a workdir", "file_mounts: {~/sky_workdir: data}", ""},
		{"bucket", "file_mounts: {/a: {name: bu, source: src}}", ""},
		{"bucket of nothing", "file_mounts: {/a: {name: bu, source: gone}}", "the source gone cannot be used"},
		{"bucket of a file", "file_mounts: {/a: {name: bu, source: data/x}}", "the source data/x is a file"},
		{"bucket of a list of files", "file_mounts: {/a: {name: bu, source: [data/x, src]}}", ""},
		{"bucket of equal names", "file_mounts: {/a: {name: bu, source: [data/x, other/x]}}", "data/x and other/x would have the same name"},
		{"keys", "service: {tls: {keyfile: key.pem, certfile: cert.pem}}\nresources: {ports: 80}", ""},
		{"no keys", "service: {tls: {keyfile: key.pem, certfile: gone}}\nresources: {ports: 80}", "the file gone of service.tls cannot be used"},
		{"place in a candidate", "resources:\n  any_of:\n    - cpus: 1\n    - cpus: 2\n      priority: 5", "5:7: every candidate"},
		{"place in a list", "resources:\n  - cpus: 1\n  - cpus: 2\n    autostop: 5", "4:5: every candidate"},
		{"priorities differ", "resources: {any_of: [{priority: 1}, {priority: 2}]}", "should have the same priority"},
		{"classes differ", "resources: {any_of: [{priority_class: a}, {priority_class: b}]}", "should have the same priority_class"},
		{"autostops differ", "resources: {any_of: [{autostop: 1}, {cpus: 2}]}", "should have the same autostop"},
		{"recoveries differ", "resources: {any_of: [{job_recovery: failover}, {cpus: 2}]}", "should have the same job_recovery"},
		{"unknown recovery", "resources: {job_recovery: failovr}", "did you mean FAILOVER?"},
		{"priority of tasks", "name: a\nresources: {priority: 1}\n---\nname: b\nresources: {priority: 2}", "5:13: this task has priority 2, an earlier one 1"},
		{"same name twice", "name: a\nrun: x\n---\nname: a\nrun: y", "4:1: there are two tasks with the name"},
		{"service port", "service: /\nresources: {ports: 80}", "should be a map"},
		{"service without a port", "service: {replicas: 1}", "exactly one port"},
		{"service with two ports", "service: {replicas: 1}\nresources: {ports: [80, 90]}", "exactly one port"},
		{"service with a range", "service: {replicas: 1}\nresources: {ports: 80-90}", "exactly one port"},
		{"service with a range and its port", "service: {ports: 85}\nresources: {ports: 80-90}", ""},
		{"service with another port", "service: {ports: 95}\nresources: {ports: 80-90}", "should contain 95"},
		{"service with recovery", "service: {replicas: 1}\nresources: {ports: 80, job_recovery: failover}", "remove job_recovery"},
		{"spot placer without spot", "service: {replica_policy: {min_replicas: 1, spot_placer: hedged}}\nresources: {ports: 80}", "spot_placer is for services on spot machines"},
		{"fallback without spot", "service: {replica_policy: {min_replicas: 1, dynamic_ondemand_fallback: true}}\nresources: {ports: 80}", "dynamic_ondemand_fallback is for services on spot machines"},
		{"base without spot", "service: {replica_policy: {min_replicas: 1, base_ondemand_fallback_replicas: 1}}\nresources: {ports: 80}", "base_ondemand_fallback_replicas is for services on spot machines"},
		{"spot placer", "service: {replica_policy: {min_replicas: 1, spot_placer: hedged}}\nresources: {ports: 80, use_spot: true}", ""},
		{"service half on spot", "service: {replicas: 1}\nresources: {ports: 80, any_of: [{use_spot: true}, {use_spot: false}]}", "all be spot machines"},
		{"pool with ports", "pool: {workers: 1}\nresources: {ports: 80}", "a pool opens no ports"},
		{"pool in order", "pool: {workers: 1}\nresources: {ordered: [{cpus: 1}, {cpus: 2}]}", "use any_of"},
		{"scratch on a cloud", "resources: {infra: aws, ephemeral_storage: 5}", "for Kubernetes, not for AWS"},
		{"scratch on pods", "resources: {infra: k8s, ephemeral_storage: 5}", ""},
		{"image without a cloud", "resources: {image_id: ami-1}", "the cloud must be given"},
		{"container without a cloud", "resources: {image_id: 'docker:x'}", ""},
		{"image of another region", "resources: {infra: aws/us-east-1, image_id: {us-west-2: ami-1}}", "no image for the region us-east-1"},
		{"disks elsewhere", "resources: {infra: aws, volumes: [{path: /a, name: d}]}", "not for AWS"},
		{"disks anywhere", "resources: {volumes: [{path: /a, name: d}]}", "add infra: gcp"},
		{"disk without a place", "resources: {infra: gcp, volumes: [{path: /a, name: d}]}", "say which"},
		{"disk in a place", "resources: {infra: gcp/us-central1, volumes: [{path: /a, name: d}]}", ""},
		{"label of aws", "resources: {infra: aws, labels: {'aws:x': y}}", "belong to the cloud"},
		{"label of gcp", "resources: {infra: gcp, labels: {Team: y}}", "GCP takes no label"},
		{"label of gcp, value", "resources: {infra: gcp, labels: {team: Y}}", "a value has up to 63"},
		{"label of pods", "resources: {infra: k8s, labels: {example.com/team: A.b}}", ""},
		{"label of pods, prefix", "resources: {infra: k8s, labels: {'Ex_ample/team': a}}", "domain name"},
		{"label of any cloud", "resources: {labels: {Any: Thing}}", ""},
		{"no value", "envs: {A: null}", "has no value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse("task.yaml", []byte(c.file))
			if err == nil {
				err = d.Check(CheckOptions{Dir: dir, Home: dir})
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	d, err := Parse("x", []byte("workdir: nowhere\nfile_mounts: {/a: gone}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Check(CheckOptions{NoFiles: true}); err != nil {
		t.Errorf("a server needs no files: %v", err)
	}
}

func TestAbsolutePaths(t *testing.T) {
	root := t.TempDir()
	home, dir := filepath.Join(root, "home"), filepath.Join(root, "dir")
	d, err := Parse("x", []byte(`
workdir: ~/w
file_mounts:
  /a: x/../y
  /b: s3://b
  /c: {name: bu, source: [~/s, t]}
service: {tls: {keyfile: k, certfile: ~/c}}
`))
	if err != nil {
		t.Fatal(err)
	}
	k := d.Tasks[0]
	before := k.Service
	d.AbsolutePaths(CheckOptions{Home: home, Dir: dir})
	want := []string{
		filepath.Join(home, "w"), filepath.Join(dir, "y"), filepath.Join(home, "s"), filepath.Join(dir, "t"), filepath.Join(dir, "k"), filepath.Join(home, "c"),
	}
	got := append([]string{k.Workdir, k.FileMounts["/a"]}, k.StorageMounts["/c"].Sources...)
	got = append(got, k.Service.TLSKeyfile, k.Service.TLSCertfile)
	if strings.Join(got, " ") != strings.Join(want, " ") || k.FileMounts["/b"] != "s3://b" {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if before.TLSKeyfile != "k" {
		t.Error("the old service was changed")
	}
	if paths := k.LocalPaths(); len(paths) != 6 {
		t.Errorf("local paths %q", paths)
	}
}

package task

import (
	"reflect"
	"testing"
)

// sentForms are the forms in which programs write fields, and the form in which a
// person says the same.
var sentForms = []struct{ what, sent, said string }{
	{"an image of every region", "resources: {infra: aws, image_id: {null: ami-1}}", "resources: {infra: aws, image_id: ami-1}"},
	{"a container of every region", "resources: {image_id: {null: 'docker:ubuntu:24.04'}}", "resources: {image_id: 'docker:ubuntu:24.04'}"},
	{"an image of every region, and a container", "resources: {infra: aws, image_id: {null: ami-1, docker: x}}", "resources: {infra: aws, image_id: {docker: x, \"\": ami-1}}"},
	{"images by region", "resources: {infra: aws, image_id: {us-east-1: ami-1, null: ami-2}}", "resources: {infra: aws, image_id: {us-east-1: ami-1, \"\": ami-2}}"},
	{"no image", "resources: {image_id: {}}", ""},
	{"no image of every region", "resources: {image_id: {null: null}}", ""},
	{"no image of every region, as text", "resources: {image_id: {null: ''}}", ""},
	{"no image of a region", "resources: {infra: aws, image_id: {us-east-1: null, us-west-2: ami-2}}", "resources: {infra: aws, image_id: {us-west-2: ami-2}}"},
	{"no image of a candidate", "resources: {any_of: [{image_id: {null: null}, cpus: 2}, {cpus: 4, image_id: {null: 'docker:x'}}]}", "resources: {any_of: [{cpus: 2}, {cpus: 4, image_id: 'docker:x'}]}"},
	{"null image", "resources: {image_id: null}", ""},
	{"a count as a float", "resources: {accelerators: {A100: 1.0}}", "resources: {accelerators: A100}"},
	{"a count as text", "resources: {accelerators: {A100: '8'}}", "resources: {accelerators: 'A100:8'}"},
	{"no count", "resources: {accelerators: {A100: null}}", "resources: {accelerators: A100}"},
	{"a set of accelerators", "resources: {accelerators: !!set {A100: null, H100: null}}", "resources: {accelerators: {A100: 1, H100: 1}}"},
	{"null accelerators", "resources: {accelerators: null, gpus: null}", ""},
	{"empty accelerators", "resources: {accelerators: {}}", ""},
	{"empty text as accelerators", "resources: {accelerators: ''}", ""},
	{"accelerators of a candidate", "resources: {any_of: [{accelerators: {A100: 1.0}, image_id: {null: 'docker:x'}}, {accelerators: null, cpus: '4'}]}",
		"resources: {any_of: [{accelerators: A100, image_id: 'docker:x'}, {cpus: 4}]}"},
	{"candidates in order", "resources: {ordered: [{cpus: 4.0, use_spot: null}]}", "resources: {ordered: [{cpus: 4}]}"},
	{"no candidates", "resources: {any_of: [], ordered: null, cpus: 2}", "resources: {cpus: 2}"},
	{"null resources", "resources: null", ""},
	{"empty resources", "resources: {}", ""},
	{"null fields of resources", "resources: {infra: null, cloud: null, region: null, zone: null, instance_type: null, cpus: null, memory: null, accelerator_args: null, use_spot: null, job_recovery: null, disk_size: null, ephemeral_storage: null, disk_tier: null, network_tier: null, local_disk: null, max_hourly_cost: null, ports: null, labels: null, volumes: null, autostop: null, priority: null, priority_class: null}", ""},
	{"null internal fields", "resources: {_docker_login_config: null, _docker_username_for_runpod: null, _is_image_managed: null, _requires_fuse: null, _cluster_config_overrides: null, _no_missing_accel_warnings: null}", ""},
	{"empty texts of resources", "resources: {infra: '', instance_type: '', cpus: '', memory: '', disk_tier: '', network_tier: '', local_disk: '', priority_class: '', image_id: ''}", ""},
	{"empty collections of resources", "resources: {accelerator_args: {}, ports: [], labels: {}, volumes: []}", ""},
	{"numbers of resources as floats", "resources: {cpus: 4.0, memory: 16.0, disk_size: 100.0, max_hourly_cost: 2.0, priority: 5.0, autostop: {idle_minutes: 10.0}}",
		"resources: {cpus: 4, memory: 16, disk_size: 100, max_hourly_cost: 2, priority: 5, autostop: {idle_minutes: 10}}"},
	{"numbers of resources as text", "resources: {cpus: '4', memory: '16', disk_size: '100', max_hourly_cost: '2', priority: '5', ports: ['8080']}",
		"resources: {cpus: 4, memory: 16, disk_size: 100, max_hourly_cost: 2, priority: 5, ports: 8080}"},
	{"a set of ports", "resources: {ports: !!set {8080: null, 9090: null}}", "resources: {ports: [8080, 9090]}"},
	{"booleans as text", "resources: {use_spot: 'true'}", "resources: {use_spot: true}"},
	{"an autostop with nothing in it", "resources: {autostop: {idle_minutes: 5, down: null, wait_for: null, hook: null, hook_timeout: null}}", "resources: {autostop: {idle_minutes: 5}}"},
	{"recovery with nothing in it", "resources: {job_recovery: {strategy: null, max_restarts_on_errors: null, recover_on_exit_codes: []}}", "resources: {job_recovery: {strategy: null}}"},
	{"restarts as floats", "resources: {job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 3.0, recover_on_exit_codes: [33.0]}}", "resources: {job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 3, recover_on_exit_codes: [33]}}"},
	{"TPUs with nothing in it", "resources: {accelerators: {tpu-v4-8: 1.0}, accelerator_args: {runtime_version: null, tpu_name: null, tpu_vm: null}}", "resources: {accelerators: tpu-v4-8}"},
	{"a pool of own machines", "resources: {infra: ssh/ssh-box}", "resources: {infra: ssh/box}"},
	{"null fields of the task", "name: null\nnum_nodes: null\nworkdir: null\nsetup: null\nrun: null\nenvs: null\nsecrets: null\nmanaged_secrets: null\nfile_mounts: null\nfile_mounts_mapping: null\nvolumes: null\nvolume_mounts: null\nservice: null\npool: null\ninputs: null\noutputs: null\nconfig: null\nevent_callback: null\napi_server_access: null\n_metadata: null\n_user_specified_yaml: null", ""},
	{"empty fields of the task", "name: ''\nworkdir: ''\nsetup: ''\nrun: ''\nenvs: {}\nsecrets: {}\nmanaged_secrets: []\nfile_mounts: {}\nfile_mounts_mapping: {}\nvolumes: {}\nvolume_mounts: []\nservice: {}\ninputs: {}\noutputs: {}\nconfig: {}\nevent_callback: ''\n_metadata: {}\n_user_specified_yaml: ''", ""},
	{"nodes as a float", "num_nodes: 2.0", "num_nodes: 2"},
	{"nodes as text", "num_nodes: '2'", "num_nodes: 2"},
	{"environment variables", "envs: {A: 1, B: 1.0, C: true, D: ''}", "envs: {A: '1', B: '1.0', C: 'True', D: ''}"},
	{"the size of data as text", "inputs: {'s3://b': '10'}", "inputs: {'s3://b': 10}"},
	{"a repository without a ref", "workdir: {url: 'https://x.org/a', ref: null}", "workdir: {url: 'https://x.org/a'}"},
	{"a bucket", "file_mounts: {/d: {name: b, source: null, store: null, persistent: true, mode: MOUNT, type: null, config: {}, _is_sky_managed: null, _bucket_sub_path: null, _force_delete: null}}", "file_mounts: {/d: {name: b}}"},
	{"settings of a mount", "file_mounts: {/d: {name: b, mode: MOUNT_CACHED, config: {mount: null, mount_cached: {transfers: 8.0, buffer_size: null, read_only: null}}}}",
		"file_mounts: {/d: {name: b, mode: MOUNT_CACHED, config: {mount_cached: {transfers: 8}}}}"},
	{"a volume", "volumes: {/d: {name: v, sub_path: null, size: null, type: null, labels: null, config: {}}}", "volumes: {/d: {name: v}}"},
	{"a secret's place", "managed_secrets: [{A: {mount_path: /x}}]", "managed_secrets: [{A: {mount_path: /x}}]"},
	{"hooks", "config: {hooks: [{run: x, events: null, timeout: 60.0}]}", "config: {hooks: [{run: x, timeout: 60}]}"},
	{"no hooks", "config: {hooks: [], docker: null}", ""},
	{"a service", "service: {readiness_probe: {path: /, initial_delay_seconds: 1200, timeout_seconds: 15, post_data: null, headers: null}, replica_policy: {min_replicas: 1.0, max_replicas: null, target_qps_per_replica: null, upscale_delay_seconds: null, num_overprovision: null, spot_placer: null}, ports: '8080', load_balancing_policy: null, load_balancer: null, tls: null, pool: null, replicas: null, workers: null}",
		"service: {readiness_probe: {path: /, initial_delay_seconds: 1200, timeout_seconds: 15}, replica_policy: {min_replicas: 1}, ports: 8080}"},
	{"no pool", "service: {readiness_probe: /, pool: false, replicas: 2}", "service: {readiness_probe: /, replicas: 2}"},
	{"a pool by a flag", "service: {pool: true, workers: 3, readiness_probe: {path: /}}", "pool: {workers: 3}"},
	{"a pool by a flag, with replicas", "service: {pool: true, replicas: 3.0}", "pool: {workers: 3}"},
	{"a pool by a flag, with a policy", "service: {pool: true, replica_policy: {min_replicas: 2, max_replicas: 2}}", "pool: {workers: 2}"},
	{"a pool that grows", "service: {pool: true, replica_policy: {min_replicas: 1, max_replicas: 4}}", "pool: {min_workers: 1, max_workers: 4}"},
	{"a pool", "service: {pool: {workers: 2.0, min_workers: null, queue_length_threshold: null}}", "pool: {workers: 2}"},
}

func TestTasksReadAsTheirSenderMeansThem(t *testing.T) {
	read := func(parse func(string, []byte) (*Dag, error), text string) *Dag {
		if text == "" {
			text = "{}"
		}
		d, err := parse("t", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return nil
		}
		for _, task := range d.Tasks {
			task.origin = nil
		}
		d.warnings = nil
		return d
	}
	for _, c := range sentForms {
		got, want := read(ParseSent, c.sent), read(Parse, c.said)
		if got == nil || want == nil {
			t.Errorf("%s is refused", c.what)
			continue
		}
		a, aerr := got.YAML()
		b, berr := want.YAML()
		if aerr != nil || berr != nil || string(a) != string(b) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s\nreads as %s (%v), want %s (%v)", c.what, c.sent, a, aerr, b, berr)
		}
	}
}

// What has no meaning is refused all the same.
func TestSentTasksAreChecked(t *testing.T) {
	for _, text := range []string{
		"rnu: x", "num_nodes: two", "num_nodes: 1.5", "resources: {cpus: many}", "resources: {accelerators: {A100: 0}}", "resources: {use_spot: maybe}",
		"resources: {image_id: {null: 'docker:x', docker: y}}", "resources: {ports: !!set {a: null}}", "service: {pool: true}", "run: [a]", "resources: {labels: {a: 1}}", "file_mounts: {/d: 5.5}",
	} {
		if d, err := ParseSent("t", []byte(text)); err == nil {
			t.Errorf("%s reads as %+v", text, d.Tasks[0])
		}
	}
}

// The texts that people write are held to what is written: an empty field is a
// mistake, and its message says where.
func TestFilesAreReadStrictly(t *testing.T) {
	for _, text := range []string{"resources: {cpus: null}", "num_nodes: '2'", "resources: {image_id: {}}", "resources: {image_id: {null: null}}", "service: {pool: true}"} {
		if _, err := Parse("t", []byte(text)); err == nil {
			t.Errorf("%s passes", text)
		}
	}
}

// A file made from a template may leave the accelerators empty.
func TestAFileMayNameNoAccelerators(t *testing.T) {
	for _, field := range []string{"accelerators", "gpus"} {
		dag, err := Parse("task.yaml", []byte("resources: {"+field+": null}\nrun: x\n"))
		if err != nil || len(dag.Tasks[0].Resources) != 1 || len(dag.Tasks[0].Resources[0].Accelerators) != 0 {
			t.Errorf("%s: %+v, %v", field, dag, err)
		}
	}
}

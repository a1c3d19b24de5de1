package config

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/similar"
)

// badConfigs are mistakes and the one problem that a server finds in each, as
// "line:column: path: text".
var badConfigs = []struct{ text, want string }{
	// Names.
	{"awz: {}", `1:1: unknown field "awz" in the configuration; did you mean "aws"?`},
	{"alowed_clouds: [aws]", `1:1: unknown field "alowed_clouds" in the configuration; did you mean "allowed_clouds"?`},
	{"Allowed-Clouds: [aws]", `1:1: unknown field "Allowed-Clouds" in the configuration; did you mean "allowed_clouds"?`},
	{"apiserver:\n  endpoint: http://x\n", `1:1: unknown field "apiserver" in the configuration; did you mean "api_server"?`},
	{"endpoint: http://x", `1:1: unknown field "endpoint" in the configuration; did you mean api_server.endpoint or tracing.endpoint?`},
	{"aws:\n  vpc_nmae: x\n", `2:3: unknown field "vpc_nmae" in aws; did you mean "vpc_name"?`},
	{"aws: {use_internal_ip: true}", `1:7: unknown field "use_internal_ip" in aws; did you mean "use_internal_ips"?`},
	{"gcp:\n  # note\n  enable_gpudirect: true", `3:3: unknown field "enable_gpudirect" in gcp; did you mean "enable_gpu_direct"?`},
	{"kubernetes: {allow_contexts: [a]}", `1:14: unknown field "allow_contexts" in kubernetes; did you mean "allowed_contexts"?`},
	{"kubernetes: {context_configs: {my.ctx: {port: ingress}}}", `1:41: unknown field "port" in kubernetes.context_configs."my.ctx"; did you mean "ports"?`},
	{"jobs: {controller: {mode: laptop}}", `1:27: jobs.controller.mode should be server or cluster, not "laptop"`},
	{"jobs: {controler: {}}", `1:8: unknown field "controler" in jobs; did you mean "controller"?`},
	{"jobs: {controller: {resources: {cpu: 4}}}", `1:33: unknown field "cpu" in jobs.controller.resources; did you mean "cpus"?`},
	{"slurm: {cluster_configs: {c: {partition_configs: {p: {price: 1}}}}}", `1:55: unknown field "price" in slurm.cluster_configs.c.partition_configs.p. Fields of slurm.cluster_configs.c.partition_configs.p: pricing, sbatch_options.`},
	{"oci: {region_configs: {eu: {vcn: x}}}", `1:29: unknown field "vcn" in oci.region_configs.eu; did you mean "vcn_ocid"?`},
	{"vast: {datacenter: true}", `1:8: unknown field "datacenter" in vast; did you mean "datacenter_only"?`},
	{"workspaces: {a: {awz: {}}}", `1:18: unknown field "awz" in workspaces.a; did you mean "aws"?`},
	{"workspaces: {a: {lambda: {region: x}}}", `1:27: unknown field "region" in workspaces.a.lambda. Fields of workspaces.a.lambda: disabled.`},
	{"daemons: {status-refresh: {interval_seconds: 1}}", `1:11: unknown field "status-refresh" in daemons; did you mean "pool-status-refresh-daemon"?`},
	{"rbac: {roles: {admin: {permissions: {allowlist: []}}}}", `1:38: unknown field "allowlist" in rbac.roles.admin.permissions. Fields of rbac.roles.admin.permissions: blocklist.`},
	{"'': 1", `1:1: unknown field "" in the configuration. Fields of the configuration: active_workspace, admin_policy, allowed_clouds, api_server, aws, azure, catalogs, cudo, daemons, dashboard, data, db, do, docker, fluidstack, gcp, hyperbolic, jobs, kubernetes, lambda, logs, metrics, mithril, nebius, nvidia_gpus, oci, paperspace, plugins, primeintellect, provision, rbac, runpod, serve, shadeform, slurm, ssh, storage, tracing, vast, verda, workspace, workspace_config, workspaces.`},
	// Clouds without a section.
	{"seeweb: {}", `1:1: unknown field "seeweb" in the configuration; seeweb is set up by its own credential files, and only allowed_clouds and workspaces.<name>.seeweb.disabled mention it`},
	{"runpod: {api_key: x}", `1:10: unknown field "api_key" in runpod. Fields of runpod: remote_identity.`},
	{"scp: {}", `1:1: unknown field "scp" in the configuration; scp is set up by its own credential files, and only allowed_clouds and workspaces.<name>.scp.disabled mention it`},
	// Keys of earlier versions.
	{"aws: {instance_tags: {a: b}}", `1:7: "instance_tags" is not a field of aws: write "labels"`},
	{"gcp: {instance_tags: {a: b}}", `1:7: "instance_tags" is not a field of gcp: write "labels"`},
	{"azure: {instance_tags: {a: b}}", `1:9: "instance_tags" is not a field of azure: write "labels"`},
	{"spot: {controller: {}}", `1:1: "spot" is not a field of the configuration: write "jobs"`},
	{"experimental: {config_overrides: {}}", `1:1: "experimental" is not a field of the configuration: write the config section of a task`},
	{"oci: {region_configs: {default: {oci_config_profile: X}}}", `1:34: "oci_config_profile" is not a field of oci.region_configs.default: OCI_CLI_PROFILE names the profile of ~/.oci/config`},
	// Nulls.
	{"aws:\n", `1:1: aws should be a map, not empty. Give it a value or remove the key.`},
	{"aws: {labels: }", `1:7: aws.labels should be a map, not empty. Give it a value or remove the key.`},
	{"allowed_clouds: ~", `1:17: allowed_clouds should be a list, not empty. Give it a value or remove the key.`},
	{"active_workspace: null", `1:19: active_workspace should be text, not empty. Give it a value or remove the key.`},
	{"api_server: {endpoint: null}", `1:24: api_server.endpoint should be text, not empty. Give it a value or remove the key.`},
	{"kubernetes: {context_configs: {a: }}", `1:32: kubernetes.context_configs.a should be a map, not empty. Give it a value or remove the key.`},
	// Kinds.
	{"just a text", `1:1: the configuration should be a map, not the text "just a text"`},
	{"- a\n- b\n", `1:1: the configuration should be a map, not a list`},
	{"aws: x", `1:6: aws should be a map, not the text "x"`},
	{"aws: []", `1:6: aws should be a map, not a list`},
	{"aws: {use_ssm: 'yes'}", `1:16: aws.use_ssm should be true or false, not the text "yes". Write it without quotes.`},
	{"aws: {use_ssm: 1}", `1:16: aws.use_ssm should be true or false, not the number 1`},
	{"aws: {vpc_name: 5}", `1:17: aws.vpc_name should be text, not the number 5. Quote it to make it text: "5".`},
	{"aws: {labels: {a: 1}}", `1:19: aws.labels.a should be text, not the number 1. Quote it to make it text: "1".`},
	{"aws: {labels: {on: yes}}", `1:20: aws.labels.on should be text, not yes (a boolean). Quote it to make it text: "yes".`},
	{"aws: {labels: [a]}", `1:15: aws.labels should be a map, not a list`},
	{"provision: {ssh_timeout: ten}", `1:26: provision.ssh_timeout should be a whole number, not the text "ten"`},
	{"provision: {ssh_timeout: 1.5}", `1:26: provision.ssh_timeout should be a whole number, not the number 1.5`},
	{"provision: {ssh_timeout: 1e3}", `1:26: provision.ssh_timeout should be a whole number, not the text "1e3"`},
	{"docker: {run_options: {a: b}}", `1:23: docker.run_options should be text or a list, not a map`},
	{"docker: {run_options: [a, 5]}", `1:27: docker.run_options[1] should be text, not the number 5. Quote it to make it text: "5".`},
	{"kubernetes: {pod_config: [a]}", `1:26: kubernetes.pod_config should be a map, not a list`},
	{"kubernetes: {set_pod_resource_limits: 'x'}", `1:39: kubernetes.set_pod_resource_limits should be true or false or a number, not the text "x"`},
	{"kubernetes: {pricing: {cpu: free}}", `1:29: kubernetes.pricing.cpu should be a number, not the text "free"`},
	{"kubernetes: {remote_identity: [a]}", `1:31: kubernetes.remote_identity should be text or a map, not a list`},
	{"aws: {remote_identity: [a]}", `1:25: aws.remote_identity[0] should be a map, not the text "a"`},
	{"aws: {ssh_proxy_command: {us-east-1: 5}}", `1:38: aws.ssh_proxy_command.us-east-1 should be text, not the number 5. Quote it to make it text: "5".`},
	{"aws: {post_provision_runcmd: [[a, 1]]}", `1:35: aws.post_provision_runcmd[0][1] should be text, not the number 1. Quote it to make it text: "1".`},
	{"api_server: {service_account_token: [hunter2]}", `1:37: api_server.service_account_token should be text, not a list`},
	{"slurm: {sbatch_options: {a: [1]}}", `1:29: slurm.sbatch_options.a should be text, not a list`},
	// Words.
	{"allowed_clouds: [aws, gpc]", `1:23: allowed_clouds[1] cannot be "gpc"; did you mean "gcp"? It can be aws, azure, gcp, ibm, lambda, scp, oci, kubernetes, runpod, vast, vsphere, cudo, fluidstack, paperspace, primeintellect, do, nebius, ssh, slurm, hyperbolic, seeweb, shadeform, yotta, mithril, verda, local, fluffycloud, docker, cloudflare, coreweave, vastdata or huggingface.`},
	{"kubernetes: {ports: lodbalancer}", `1:21: kubernetes.ports should be loadbalancer, ingress or podip, not "lodbalancer"; did you mean "loadbalancer"?`},
	{"kubernetes: {ports: LoadBalancer}", `1:21: kubernetes.ports should be loadbalancer, ingress or podip, not "LoadBalancer"; did you mean "loadbalancer"?`},
	{"kubernetes: {autoscaler: eks}", `1:26: kubernetes.autoscaler should be gke, karpenter, coreweave, nebius or generic, not "eks"`},
	{"kubernetes: {allowed_contexts: every}", `1:32: kubernetes.allowed_contexts should be all, not "every"`},
	{"kubernetes: {enable_docker: SOME}", `1:29: kubernetes.enable_docker should be ALL or BUILD, not "SOME"`},
	{"logs: {store: azure}", `1:15: logs.store should be gcp or aws, not "azure"`},
	{"rbac: {default_role: root}", `1:22: rbac.default_role should be admin, user or viewer, not "root"`},
	{"gcp: {remote_identity: ROOT}", `1:24: gcp.remote_identity should be LOCAL_CREDENTIALS, SERVICE_ACCOUNT or NO_UPLOAD, not "ROOT"`},
	{"aws: {capabilities: [compute, network]}", `1:31: aws.capabilities[1] should be compute or storage, not "network"`},
	{"daemons: {server-heartbeat-daemon: {log_level: debug}}", `1:48: daemons.server-heartbeat-daemon.log_level should be DEBUG, INFO or WARNING, not "debug"; did you mean "DEBUG"?`},
	{"nebius: {region_configs: {r: {filesystems: [{attach_mode: RW}]}}}", `1:59: nebius.region_configs.r.filesystems[0].attach_mode should be READ_WRITE or READ_ONLY, not "RW"`},
	{"serve: {controller: {autostop: {wait_for: all}}}", `1:43: serve.controller.autostop.wait_for should be jobs_and_ssh, jobs or none, not "all"`},
	// Patterns and bounds.
	{"api_server: {endpoint: ftp://x}", `1:24: api_server.endpoint should be a URL that begins with http:// or https://, not "ftp://x"`},
	{"api_server: {service_account_token: hunter2}", `1:37: api_server.service_account_token should be a token that begins with sky_, not what was given`},
	{"jobs: {bucket: my-bucket}", `1:16: jobs.bucket should be a bucket URL that begins with s3://, gs://, r2://, cos:// or https://, not "my-bucket"`},
	{"jobs: {controller: {autostop: 10s}}", `1:31: jobs.controller.autostop should be a duration such as "10m" or "2h", not "10s"`},
	{"admin_policy: policy", `1:15: admin_policy should be an http(s) URL, not "policy"`},
	{"gcp: {vpc_name: My_VPC}", `1:17: gcp.vpc_name should be a VPC name or "project/name", not "My_VPC"`},
	{"kubernetes: {apt_mirrors: ['http://x']}", `1:28: kubernetes.apt_mirrors[0] should be a host name, not "http://x"`},
	{"kubernetes: {auto_mounts: [{volume_name: a, mount_paths: [data]}]}", `1:59: kubernetes.auto_mounts[0].mount_paths[0] should be a path that begins with / or ~, not "data"`},
	{"slurm: {sbatch_options: {a: \"x\\ny\"}}", `1:29: slurm.sbatch_options.a should be one line, not "x\ny"`},
	{"workspaces: {Team: {}}", `1:14: "Team" is not a valid key in workspaces: it should be at most 63 lower-case letters, digits, - and _, beginning with a letter and ending with a letter or digit`},
	{"dashboard: {external_links: [{label: a, regex: '('}]}", "1:48: dashboard.external_links[0].regex is not a regular expression that Go understands: error parsing regexp: missing closing ): `(`"},
	{"provision: {ssh_timeout: 0}", `1:26: provision.ssh_timeout should be at least 1, not 0`},
	{"api_server: {daemon_log_max_bytes: -1}", `1:36: api_server.daemon_log_max_bytes should be at least 0, not -1`},
	{"kubernetes: {set_pod_resource_limits: 0.5}", `1:39: kubernetes.set_pod_resource_limits should be at least 1, not 0.5`},
	{"kubernetes: {pricing: {memory: .nan}}", `1:32: kubernetes.pricing.memory should be at least 0, not .nan`},
	{"daemons: {server-heartbeat-daemon: {interval_seconds: 0}}", `1:55: daemons.server-heartbeat-daemon.interval_seconds should be at least 1, not 0`},
	// What is missing or forbidden.
	{"logs: {gcp: {}}", `1:7: logs needs "store"`},
	{"gcp: {managed_instance_group: {provision_timeout: 5}}", `1:31: gcp.managed_instance_group needs "run_duration"`},
	{"dashboard: {external_links: [{regex: a}]}", `1:30: dashboard.external_links[0] needs "label"`},
	{"dashboard: {external_links: [{label: a, url: 'https://x', scope: [pages]}]}", `1:67: dashboard.external_links[0].scope[0] should be cluster or jobs, not "pages"`},
	{"admin_policy: {cel: [{expr: 'true'}]}", `1:22: admin_policy.cel[0] needs "message"`},
	{"admin_policy: {}", `1:15: admin_policy needs "cel"`},
	{"kubernetes: {custom_metadata: {name: x}}", `1:32: "name" is not a field of kubernetes.custom_metadata: sky names what it creates itself; remove it`},
	{"jobs: {controller: {resources: {ports: 80}}}", `1:33: "ports" is not a field of jobs.controller.resources: controllers open no ports of their own; remove it`},
	{"aws: {security_group_name: [{a: x, b: y}]}", `1:29: aws.security_group_name[0] should have exactly 1 entry, not 2`},
	{"aws: {remote_identity: [{}]}", `1:25: aws.remote_identity[0] should have exactly 1 entry, not 0`},
	// YAML.
	{"aws: {vpc_name: a}\naws: {}\n", `2:1: aws: already given on line 1; remove one of the two`},
	{"aws:\n  labels:\n    a: b\n    a: c\n", `4:5: a: already given on line 3; remove one of the two`},
	{"a: [", `1:4: not valid YAML: the text ends where a value is expected. Close what is open: a [ or a {`},
	{"a: b: c", `1:5: not valid YAML: a colon with a space (or the line's end) behind it cannot stand inside a value. Quote the value, or look at the line before: its indentation, a space missing behind its colon`},
	{"aws: *x", `1:6: not valid YAML: * refers to an anchor that this file does not have. Quote the value if it should begin with a *, as in '*/us-east-1'`},
	{"aws: !python/object x", `1:6: not valid YAML: the tag !python/object is not supported`},
	{"aws: {}\n---\ngcp: {}\n", `3:1: not valid YAML: a second document begins here; there must be one`},
	{"? [a]\n: b\n", `1:3: not valid YAML: a key must be a single value, not a list or a map`},
	{"aws: {<<: 5}", `1:11: not valid YAML: << merges maps; this is the number 5`},
	{"a: \xff", `not valid YAML: not a UTF-8 text file`},
}

// problemsOf reads text as the file "f" and returns what is wrong with it.
func problemsOf(text string, side Side) []string {
	n, err := parse([]byte(text), newSource(LayerUser, "f"))
	var problems []Problem
	if err != nil {
		problems = asError(err).Problems
	} else {
		problems, _ = validate(n, side)
	}
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = strings.TrimPrefix(strings.TrimPrefix(p.String(), "f:"), " ")
	}
	return out
}

func TestBadConfigs(t *testing.T) {
	if len(badConfigs) < 60 {
		t.Fatal("the list has been cut")
	}
	for _, test := range badConfigs {
		got := problemsOf(test.text, Server)
		if len(got) != 1 || got[0] != test.want {
			t.Errorf("%q\n got %s\nwant %s", test.text, strings.Join(got, "\n     "), test.want)
		}
	}
}

// goodConfigs are texts that every side accepts.
var goodConfigs = []string{
	"", "{}", "allowed_clouds: [AWS, Kubernetes, cloudflare, local]", "plugins: [anything, {a: ~}]", "plugins: 5",
	"docker: {run_options: -v /a:/b}", "docker: {run_options: ['-v /a:/b', --gpus all]}",
	"aws: {vpc_name: ~, vpc_names: [a, b], subnet_names: a, labels: {}, capabilities: [storage]}",
	"aws: {security_group_name: [{'sky-*': a}, {'*': ~}], remote_identity: my-role}",
	"aws: {ssh_proxy_command: ssh -W %h:%p x}", "aws: {ssh_proxy_command: {us-east-1: x, us-west-2: ~}}",
	"aws: {post_provision_runcmd: [a b, [a, b]]}",
	"gcp: {vpc_name: proj/net, managed_instance_group: {run_duration: 5}, remote_identity: service_account}",
	"azure: {remote_identity: [{a: b}], resource_group_vm: x}",
	"kubernetes: {allowed_contexts: all}", "kubernetes: {allowed_contexts: [a], context_configs: {a: {pod_config: {spec: [1, ~]}}}}",
	"kubernetes: {quota: {queue: a, anything: 1}, enable_docker: {mode: BUILD, cache_volume: x}, set_pod_resource_limits: 1.5}",
	"kubernetes: {enable_docker: ALL, set_pod_resource_limits: yes, apt_mirrors: [], provision_timeout: -1}",
	"kubernetes: {remote_identity: {ctx: name}, networking: nodeport, dws: {enabled: true, max_run_duration: 10m}}",
	"kubernetes: {auto_mounts: [{volume_name: a, mount_paths: [/data, '~', ~/x]}]}",
	"ssh: {allowed_node_pools: [a], context_configs: {a: {provision_timeout: 5}}, remote_identity: LOCAL_CREDENTIALS}",
	"slurm: {sbatch_options: {mem: 4G, exclusive: ~, nodes: 2, x: true}, gpu_partition_map: {H100: a, A100: [b, c]}}",
	"slurm: {allowed_clusters: all, cluster_configs: {c: {workdir: /w, partition_configs: {p: {pricing: {cpu: 0.1}}}}}}",
	"oci: {anything: 1, region_configs: {default: {vcn_subnet: x}}}", "nebius: {region_configs: {r: {filesystems: [{filesystem_id: a, attach_mode: READ_ONLY, mount_path: /x}]}}, other: [1]}",
	"vast: {create_instance_kwargs: {image: x, nested: {a: 1}}}",
	"logs: {store: aws, aws: {region: x, auto_create_group: no, more: 1}}",
	"rbac: {default_role: Viewer, roles: {user: {permissions: {blocklist: [{path: /x, method: POST}]}}}}",
	"jobs: {controller: {autostop: false, resources: {cpus: 4+, any_of: [{infra: aws}]}}, bucket: s3://x}",
	"jobs: {controller: {autostop: {idle_minutes: 5, down: true, wait_for: JOBS}, consolidation_mode: true}}", "serve: {controller: {autostop: 10m}}",
	"workspaces: {default: {}, team-a: {private: true, allowed_users: [a], aws: {profile: x}, lambda: {disabled: true}}}",
	"workspaces: {a: {kubernetes: {namespace: x, context_configs: {c: {kueue: {local_queue_name: q}}}}}}",
	"admin_policy: my.module.Policy", "admin_policy: http://localhost:1", "admin_policy: {cel: [{expr: 'true', message: not today}]}",
	"api_server: {service_account_token: ~, requests_retention_hours: -1, cluster_event_retention_hours: 0.5}",
	"daemons: {server-heartbeat-daemon: {log_level: INFO, interval_seconds: 1}}",
	"dashboard: {external_links: [{label: wandb, regex: 'https://wandb.ai/.*'}]}",
	// Settings that SkyPilot has had since version 0.13.
	"dashboard: {external_links: [{label: runs, url: 'https://x/${cluster_name}', scope: [cluster, jobs]}]}",
	"jobs: {status_check: {min_elapsed_seconds: 60, min_retries: 5}}", "api_server: {logs_retention_hours: -1, launch_attempt_retention_hours: 720}",
	"rbac: {restrict_config_to_admins: false}", "workspace_config: {read_access: all}", "workspaces: {a: {private: true, read_access: allowed_users, slurm: {allowed_clusters: [c], quota: {queue: q}}}}",
	"kubernetes: {kueue: {local_queue_name: q, admission_timeout: -1}, max_inline_command_length: 1024, rdma: {mode: sriov, resource: a/b, networks: [n]}, auto_mounts: [{volume_name: v, mount_paths: [/v], scope: personal}]}",
	"slurm: {submit_as_user: true, username_map: {a: b}, container_mounts: [/x], quota: {queue: q}, cluster_configs: {c: {submit_as_user: true}}}",
	"metrics: {prometheus: {namespace: n, service: s, port: 81}}", "aws: {enforce_tags: [instance, volume]}", "nebius: {use_personal_pricing: true}",
	"db: postgres://x", "active_workspace: x", "workspace: x", "data: {mount_cached: {sequential_upload: true}}",
}

func TestGoodConfigs(t *testing.T) {
	for _, text := range goodConfigs {
		for _, side := range []Side{Client, Server} {
			if got := problemsOf(text, side); len(got) > 0 {
				t.Errorf("%q: %v", text, got)
			}
		}
	}
}

func TestClientsPassNewerKeysOn(t *testing.T) {
	for _, text := range []string{
		"kubernetes: {brand_new: 1}", "kubernetes: {context_configs: {a: {brand_new: 1}}}",
		"jobs: {brand_new: 1}", "jobs: {controller: {brand_new: 1}}", "serve: {brand_new: 1}",
	} {
		n := read(t, text)
		if problems, warnings := validate(n, Client); len(problems) > 0 || len(warnings) != 1 || !strings.Contains(warnings[0].Text, `unknown field "brand_new"`) {
			t.Errorf("%q: %v %v", text, problems, warnings)
		}
		if got := problemsOf(text, Server); len(got) != 1 {
			t.Errorf("the server accepts %q", text)
		}
	}
}

func TestDeprecatedKeysWarn(t *testing.T) {
	for text, want := range map[string]string{
		"kubernetes: {apt_mirrors: []}":                   "~/.sky/config.yaml:1:27: kubernetes.apt_mirrors changes nothing: sky installs no packages",
		"kubernetes: {networking: nodeport}":              "~/.sky/config.yaml:1:26: kubernetes.networking is deprecated: remove it",
		"workspace: a":                                    "~/.sky/config.yaml:1:12: workspace is deprecated: write active_workspace",
		"data: {mount_cached: {sequential_upload: true}}": "~/.sky/config.yaml:1:42: data.mount_cached.sequential_upload is deprecated: set",
	} {
		w := client(t, text).Warnings()
		if len(w) != 1 || !strings.HasPrefix(w[0].String(), want) {
			t.Errorf("%q warns %v", text, w)
		}
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	got := problemsOf("aws: {a: 1, use_ssm: x}\ngcp:\nkubernetes: {ports: x}\n", Server)
	if len(got) != 4 {
		t.Errorf("want 4 problems: %q", got)
	}
}

func TestClosest(t *testing.T) {
	for _, test := range []struct{ word, want string }{
		{"allowedClouds", "allowed_clouds"}, {"azur", "azure"}, {"kubernets", "kubernetes"}, {"wrokspaces", "workspaces workspace"}, {"xyzzy", ""}, {"", ""},
		{strings.Repeat("a", 1000), ""},
	} {
		if got := strings.Join(similar.Names(test.word, Keys().Names()), " "); got != test.want {
			t.Errorf("similar.Names(%.20q) = %q, want %q", test.word, got, test.want)
		}
	}
}

package config

import (
	"regexp"
	"slices"
	"sync"
)

// clouds are the names that can be enabled, disabled and listed. Those without
// a section of their own are set up by their own credential files.
var clouds = []string{
	"aws", "gcp", "azure", "ibm", "lambda", "scp", "oci", "kubernetes", "runpod", "vast", "vsphere", "cudo",
	"fluidstack", "paperspace", "primeintellect", "do", "nebius", "ssh", "slurm", "hyperbolic", "seeweb",
	"shadeform", "yotta", "mithril", "verda", "local", "fluffycloud", "docker",
	"cloudflare", "coreweave", "vastdata", "huggingface",
}

// Clouds returns the names allowed_clouds and workspaces know, in the order of
// their introduction.
func Clouds() []string { return slices.Clone(clouds) }

// Keys returns the description of the whole configuration. It is shared:
// callers must not change it.
func Keys() *Spec { return keys() }

var keys = sync.OnceValue(func() *Spec {
	s := section("Settings of sky, layered over server, user, project, task and command line.",
		Key{"active_workspace", text("The workspace that new clusters, jobs and services belong to.").def("default").task()},
		Key{"allowed_clouds", list("The clouds that sky check looks at; all of them when absent.", choice("A cloud.", clouds...).anyCase()).serverOnly()},
		Key{"admin_policy", adminPolicyKeys()},
		Key{"db", text("Connection string of the server's database; files under ~/.sky when absent.").secret().quietly()},
		Key{"workspace", text("Has no effect.").deprecated("write active_workspace")},
		Key{"docker", section("Containers that run docker: images.",
			Key{"run_options", text("More flags for docker run.").or(List).items(text("A flag.")).task()})},
		Key{"nvidia_gpus", section("NVIDIA GPUs.",
			Key{"disable_ecc", yesNo("Turn error correction off, with one reboot after provisioning.", false).task()})},
		Key{"catalogs", catalogKeys()},
		Key{"provision", provisionKeys()},
		Key{"data", section("File transfer.",
			Key{"mount_cached", section("Buckets in MOUNT_CACHED mode.",
				Key{"sequential_upload", yesNo("Upload one file at a time.", false).deprecated("set config.mount_cached.transfers to 1 on the bucket")})})},
		Key{"dashboard", section("The dashboard.",
			Key{"external_links", list("Links that are found in logs.",
				section("A kind of link.",
					Key{"label", text("What the link is called.")},
					Key{"regex", text("What a link looks like.").check(compiles)}).need("label", "regex"))}).admins(confines)},
		Key{"plugins", anything("Settings of plugins, passed through.").admins(executes)},
		Key{"api_server", apiServerKeys()},
		Key{"rbac", rbacKeys()},
		Key{"tracing", tracingKeys()},
		Key{"daemons", daemonKeys()},
		Key{"logs", logKeys()},
		Key{"jobs", controllerKeys("jobs", map[string]any{"cpus": "4+", "memory": "4x", "disk_size": 50})},
		Key{"serve", controllerKeys("serve", map[string]any{"cpus": "4+", "memory": "8+", "disk_size": 200})},
		Key{"aws", awsKeys()},
		Key{"gcp", gcpKeys()},
		Key{"azure", azureKeys()},
		Key{"kubernetes", kubernetesKeys()},
		Key{"ssh", sshKeys()},
		Key{"slurm", slurmKeys()},
		Key{"oci", ociKeys()},
		Key{"vast", vastKeys()},
		Key{"nebius", nebiusKeys()},
		Key{"workspaces", workspaceKeys()},
	)
	return s.renamed(
		"spot", "jobs",
		"experimental", "the config section of a task",
	)
})

func (s *Spec) quietly() *Spec         { s.ServerOnly, s.Quiet = true, true; return s }
func (s *Spec) items(item *Spec) *Spec { s.Items = item; return s }

func compiles(n *node) string {
	if _, err := regexp.Compile(n.value.(string)); err != nil {
		return "is not a regular expression that Go understands: " + err.Error()
	}
	return ""
}

func adminPolicyKeys() *Spec {
	s := text("What every request must pass: the URL of a policy service, or rules in CEL.").or(Map).serverOnly().match(pattern(
		`^([a-zA-Z_]\w*(\.[a-zA-Z_]\w*)+|https?://.+)$`, "an http(s) URL"))
	s.Keys = []Key{
		{"cel", list("Rules; each must hold for every task.",
			section("A rule.",
				Key{"expr", text("A CEL expression over task, candidates, config, request and user that must be true.")},
				Key{"message", text("What the user reads when it is not.")}).need("expr", "message"))},
	}
	return s.need("cel")
}

func apiServerKeys() *Spec {
	hours := func(what string) *Spec {
		return number("Hours that " + what + " are kept; negative: for ever.").def(720)
	}
	return section("The API server.",
		Key{"endpoint", text("Where the server is; absent: http://127.0.0.1:46580, started when needed.").
			match(pattern(`^https?://.*$`, "a URL that begins with http:// or https://"))},
		Key{"service_account_token", text("Token to log in with.").or(Null).secret().
			match(pattern(`^sky_.+$`, "a token that begins with sky_"))},
		Key{"requests_retention_hours", whole("Hours that finished requests are kept; negative: for ever.").def(24)},
		Key{"cluster_event_retention_hours", hours("status events of clusters")},
		Key{"cluster_debug_event_retention_hours", hours("debug events of clusters")},
		Key{"cluster_terminal_event_retention_hours", hours("the last events of clusters")},
		Key{"daemon_log_max_bytes", whole("Size in bytes at which the server's own log begins anew; what it held becomes server.log.1. 0: never.").min(0).def(128 << 20)},
	).serverOnly()
}

func tracingKeys() *Spec {
	return section("OpenTelemetry traces of what the server does; none when neither this nor the standard OTEL_… variables name a receiver.",
		Key{"endpoint", text("URL of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318; absent: from OTEL_EXPORTER_OTLP_ENDPOINT.").
			match(pattern(`^https?://.+$`, "a URL that begins with http:// or https://"))},
		Key{"headers", anything("Headers of each call to the receiver, such as its key.").secret()},
		Key{"sample", number("Which part of the traces that begin at this server is kept, 0 to 1; absent: from OTEL_TRACES_SAMPLER, else all.").min(0)},
	).serverOnly()
}

func rbacKeys() *Spec {
	rules := list("Routes.", section("A route.",
		Key{"path", text("Path of the route.")},
		Key{"method", text("HTTP method.")}).need("path", "method"))
	rules.Items.Doc = "A route and a method."
	role := func(doc, kind string) *Spec {
		return section(doc, Key{"permissions", section("What the role may call.", Key{kind, rules})})
	}
	return section("Roles and what they may do.",
		Key{"default_role", choice("Role of users seen for the first time.", "admin", "user", "viewer").anyCase().def("admin")},
		Key{"roles", section("Permissions of each role; absent: the built-in ones.",
			Key{"admin", role("Administrators.", "blocklist")},
			Key{"user", role("Users.", "blocklist")},
			Key{"viewer", role("People who only look.", "allowlist")})},
	).serverOnly()
}

func daemonKeys() *Spec {
	s := section("Background work of the server.").serverOnly()
	for _, id := range []string{
		"skypilot-status-refresh-daemon", "skypilot-volume-status-refresh-daemon", "managed-job-status-refresh-daemon",
		"sky-serve-status-refresh-daemon", "pool-status-refresh-daemon", "server-heartbeat-daemon", "expired-token-cleanup-daemon",
	} {
		kind := section("One kind of background work.",
			Key{"log_level", choice("How much it logs.", "DEBUG", "INFO", "WARNING")},
			Key{"interval_seconds", whole("Seconds between two runs.").min(1)})
		if id != "skypilot-volume-status-refresh-daemon" {
			kind = kind.inert("what it would look for is told to the server when it happens")
		}
		s.Keys = append(s.Keys, Key{id, kind})
	}
	return s
}

func logKeys() *Spec {
	return section("Where logs of clusters are collected.",
		Key{"store", choice("The service that keeps them.", "gcp", "aws")},
		Key{"gcp", section("Google Cloud Logging.",
			Key{"project_id", text("Project that receives the logs.")},
			Key{"credentials_file", text("Credentials to write with.")},
			Key{"additional_labels", dict("More labels on each entry.", text("A label's value."))}).open()},
		Key{"aws", section("CloudWatch.",
			Key{"region", text("Region that receives the logs.")},
			Key{"credentials_file", text("Credentials to write with.")},
			Key{"log_group_name", text("Log group.").def("skypilot-logs")},
			Key{"log_stream_prefix", text("What log streams begin with.").def("skypilot-")},
			Key{"auto_create_group", yesNo("Create the log group when it is missing.", true)},
			Key{"additional_tags", dict("More tags on each entry.", text("A tag's value."))}).open()},
	).need("store").admins(opens).inert("sky keeps logs itself and collects them nowhere yet")
}

func controllerKeys(kind string, resources map[string]any) *Spec {
	retention := func(what string) *Spec {
		return whole("Hours that " + what + " are kept; negative: for ever.").def(168)
	}
	controller := section("What runs on the controller's behalf.",
		Key{"resources", resourceKeys().def(resources)},
		Key{"autostop", autostopKeys().def(map[string]any{"idle_minutes": 10, "down": false})},
		Key{"high_availability", yesNo("Restart the controller elsewhere when its node fails (Kubernetes).", false).inert("managed jobs outlive the server and its machine anyway")},
		Key{"consolidation_mode", &Spec{Doc: "Run the controller inside the API server; absent: yes on servers started with --deploy that have no controller cluster.",
			Kinds: Bool, ServerOnly: true}},
		Key{"controller_logs_gc_retention_hours", retention("logs of the controller")},
		Key{"task_logs_gc_retention_hours", retention("logs of tasks")},
	).openToNewer().admins(rights)
	if kind == "jobs" {
		controller.Keys = append(controller.Keys, Key{"mode", choice("Where managed jobs are looked after: by the API server itself (server), or by one like it on a rented cluster of its own "+
			"(cluster), for a machine that sleeps. Absent: server, or cluster where consolidation_mode is false.", JobsOnServer, JobsOnCluster)})
		patience := whole("Minutes after which a job whose node does not answer, although its provider says that it runs, is run elsewhere; " +
			"its machines are ended first. Absent: never.").min(1)
		patience.ServerOnly = true
		controller.Keys = append(controller.Keys, Key{"unreachable_minutes", patience})
		controller.key("controller_logs_gc_retention_hours").ServerOnly = true
		controller.key("task_logs_gc_retention_hours").ServerOnly = true
	}
	doc := map[string]string{"jobs": "Managed jobs.", "serve": "Services."}[kind]
	s := section(doc,
		Key{"controller", controller},
		Key{"bucket", text("Bucket for files on their way; absent: one per job.").
			match(pattern(`^(https|s3|gs|r2|cos)://.+`, "a bucket URL that begins with s3://, gs://, r2://, cos:// or https://"))},
		Key{"force_disable_cloud_bucket", yesNo("Never put files in a bucket on their way.", false)},
	).openToNewer()
	if kind == "jobs" {
		s.Keys = append(s.Keys, Key{"callback_runner", list("Program with its arguments that runs the event_callback of a job that has no node at the time; the script's file is its last argument, "+
			"and its environment is the callback's, with PATH. It must confine what it runs: the script is a user's. Absent: such callbacks are not run.", text("An argument.")).serverOnly()})
	}
	return s
}

// Values of jobs.controller.mode.
const (
	JobsOnServer  = "server"
	JobsOnCluster = "cluster"
)

// resourceKeys names the fields of a task's resources; their values are
// checked where resources are.
func resourceKeys() *Spec {
	s := section("Machine of the controller, as in a task's resources but without ports.")
	for _, name := range []string{
		"infra", "cloud", "region", "zone", "instance_type", "cpus", "memory", "accelerators", "gpus", "accelerator_args",
		"use_spot", "job_recovery", "disk_size", "ephemeral_storage", "disk_tier", "network_tier", "local_disk",
		"max_hourly_cost", "labels", "image_id", "volumes", "autostop", "priority", "priority_class", "any_of", "ordered",
	} {
		s.Keys = append(s.Keys, Key{name, anything("As in a task's resources.")})
	}
	return s.banned("controllers open no ports of their own; remove it", "ports")
}

func autostopKeys() *Spec {
	s := section("When the idle controller stops.",
		Key{"idle_minutes", whole("Minutes without work.").min(0).def(0)},
		Key{"down", yesNo("Terminate instead of stopping.", false)},
		Key{"wait_for", choice("What counts as work.", "jobs_and_ssh", "jobs", "none").anyCase().def("jobs_and_ssh")},
		Key{"hook", text("Script to run before.")},
		Key{"hook_timeout", whole("Seconds the script may take.").min(1)},
	).or(Bool | Int | Text | Null)
	return s.match(pattern(`^[0-9]+[mhdwMHDW]?$`, `a duration such as "10m" or "2h"`))
}

package config

import (
	"regexp"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/config/keys"
)

// Clouds returns the names allowed_clouds and workspaces know, in the order of
// their introduction.
func Clouds() []string { return facts.Names(func(*facts.Cloud) bool { return true }) }

// Keys returns the description of the whole configuration. It is shared:
// callers must not change it.
func Keys() *keys.Spec { return all() }

var all = sync.OnceValue(func() *keys.Spec {
	s := keys.Section("Settings of sky, layered over server, user, project, task and command line.",
		keys.New("active_workspace", keys.Text("The workspace that new clusters, jobs and services belong to.").Defaults("default").ForTasks()),
		keys.New("allowed_clouds", keys.List("The clouds that sky check looks at; all of them when absent.", keys.Choice("A cloud.", Clouds()...).Caseless()).OnServer()),
		keys.New("admin_policy", adminPolicyKeys()),
		keys.New("db", keys.Text("Connection string of the server's database; files under ~/.sky when absent.").Hidden().Quietly()),
		keys.New("workspace", keys.Text("Has no effect.").Instead("write active_workspace")),
		keys.New("docker", keys.Section("Containers that run docker: images.",
			keys.New("run_options", keys.Text("More flags for docker run.").Or(keys.ListKind).Of(keys.Text("A flag.")).ForTasks()))),
		keys.New("nvidia_gpus", keys.Section("NVIDIA GPUs.",
			keys.New("disable_ecc", keys.YesNo("Turn error correction off, with one reboot after provisioning.", false).ForTasks()))),
		keys.New("catalogs", catalogKeys()),
		keys.New("provision", provisionKeys()),
		keys.New("data", keys.Section("File transfer.",
			keys.New("mount_cached", keys.Section("Buckets in MOUNT_CACHED mode.",
				keys.New("sequential_upload", keys.YesNo("Upload one file at a time.", false).Instead("set config.mount_cached.transfers to 1 on the bucket")))))),
		keys.New("storage", keys.Section("Object stores.",
			keys.New("endpoints", storageEndpoints()),
			keys.New("allow_users", keys.YesNo("Where people log in: whether everybody's tasks use buckets with the server's credentials, which their nodes get. Otherwise only administrators' do.", false)),
		).ByAdmins(keys.Opens)),
		keys.New("dashboard", keys.Section("The dashboard.",
			keys.New("external_links", keys.List("Links that are found in logs.",
				keys.Section("A kind of link.",
					keys.New("label", keys.Text("What the link is called.")),
					keys.New("regex", keys.Text("What a link looks like.").Checked(compiles))).Needs("label", "regex")))).ByAdmins(keys.Confines)),
		keys.New("plugins", keys.Anything("Settings of plugins, passed through.").ByAdmins(keys.Executes)),
		keys.New("api_server", apiServerKeys()),
		keys.New("rbac", rbacKeys()),
		keys.New("tracing", tracingKeys()),
		keys.New("daemons", daemonKeys()),
		keys.New("logs", logKeys()),
		keys.New("jobs", controllerKeys("jobs", map[string]any{"cpus": "4+", "memory": "4x", "disk_size": 50})),
		keys.New("serve", controllerKeys("serve", map[string]any{"cpus": "4+", "memory": "8+", "disk_size": 200})),
	)
	s.Keys = append(append(s.Keys, cloudKeys()...), keys.New("workspaces", workspaceKeys()))
	return s.Formerly(
		"spot", "jobs",
		"experimental", "the config section of a task",
	)
})

func compiles(value any) string {
	if _, err := regexp.Compile(value.(string)); err != nil {
		return "is not a regular expression that Go understands: " + err.Error()
	}
	return ""
}

func adminPolicyKeys() *keys.Spec {
	s := keys.Text("What every request must pass: the URL of a policy service, or rules in CEL.").Or(keys.MapKind).OnServer().Matching(keys.Regexp(
		`^([a-zA-Z_]\w*(\.[a-zA-Z_]\w*)+|https?://.+)$`, "an http(s) URL"))
	s.Keys = []keys.Key{
		keys.New("cel", keys.List("Rules; each must hold for every task.",
			keys.Section("A rule.",
				keys.New("expr", keys.Text("A CEL expression over task, candidates, config, request and user that must be true.")),
				keys.New("message", keys.Text("What the user reads when it is not."))).Needs("expr", "message"))),
	}
	return s.Needs("cel")
}

func apiServerKeys() *keys.Spec {
	hours := func(what string) *keys.Spec {
		return keys.Number("Hours that " + what + " are kept; negative: for ever.").Defaults(720)
	}
	return keys.Section("The API server.",
		keys.New("endpoint", keys.Text("Where the server is; absent: http://127.0.0.1:46580, started when needed.").
			Matching(keys.Regexp(`^https?://.*$`, "a URL that begins with http:// or https://"))),
		keys.New("service_account_token", keys.Text("Token to log in with.").Or(keys.NullKind).Hidden().
			Matching(keys.Regexp(`^sky_.+$`, "a token that begins with sky_"))),
		keys.New("requests_retention_hours", keys.Whole("Hours that finished requests are kept; negative: for ever.").Defaults(24)),
		keys.New("cluster_event_retention_hours", hours("status events of clusters")),
		keys.New("cluster_debug_event_retention_hours", hours("debug events of clusters")),
		keys.New("cluster_terminal_event_retention_hours", hours("the last events of clusters")),
		keys.New("daemon_log_max_bytes", keys.Whole("Size in bytes at which the server's own log begins anew; what it held becomes server.log.1. 0: never.").AtLeast(0).Defaults(128<<20)),
	).OnServer()
}

func tracingKeys() *keys.Spec {
	return keys.Section("OpenTelemetry traces of what the server does; none when neither this nor the standard OTEL_… variables name a receiver.",
		keys.New("endpoint", keys.Text("URL of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318; absent: from OTEL_EXPORTER_OTLP_ENDPOINT.").
			Matching(keys.Regexp(`^https?://.+$`, "a URL that begins with http:// or https://"))),
		keys.New("headers", keys.Anything("Headers of each call to the receiver, such as its key.").Hidden()),
		keys.New("sample", keys.Number("Which part of the traces that begin at this server is kept, 0 to 1; absent: from OTEL_TRACES_SAMPLER, else all.").AtLeast(0)),
	).OnServer()
}

func rbacKeys() *keys.Spec {
	rules := keys.List("Routes.", keys.Section("A route.",
		keys.New("path", keys.Text("Path of the route.")),
		keys.New("method", keys.Text("HTTP method."))).Needs("path", "method"))
	rules.Items.Doc = "A route and a method."
	role := func(doc, kind string) *keys.Spec {
		return keys.Section(doc, keys.New("permissions", keys.Section("What the role may call.", keys.New(kind, rules))))
	}
	return keys.Section("Roles and what they may do.",
		keys.New("default_role", keys.Choice("Role of users seen for the first time.", "admin", "user", "viewer").Caseless().Defaults("admin")),
		keys.New("roles", keys.Section("Permissions of each role; absent: the built-in ones.",
			keys.New("admin", role("Administrators.", "blocklist")),
			keys.New("user", role("Users.", "blocklist")),
			keys.New("viewer", role("People who only look.", "allowlist")))),
	).OnServer()
}

func daemonKeys() *keys.Spec {
	s := keys.Section("Background work of the server.").OnServer()
	for _, id := range []string{
		"skypilot-status-refresh-daemon", "skypilot-volume-status-refresh-daemon", "managed-job-status-refresh-daemon",
		"sky-serve-status-refresh-daemon", "pool-status-refresh-daemon", "server-heartbeat-daemon", "expired-token-cleanup-daemon",
	} {
		kind := keys.Section("One kind of background work.",
			keys.New("log_level", keys.Choice("How much it logs.", "DEBUG", "INFO", "WARNING")),
			keys.New("interval_seconds", keys.Whole("Seconds between two runs.").AtLeast(1)))
		if id != "skypilot-volume-status-refresh-daemon" {
			kind = kind.NoEffect("what it would look for is told to the server when it happens")
		}
		s.Keys = append(s.Keys, keys.New(id, kind))
	}
	return s
}

func logKeys() *keys.Spec {
	return keys.Section("Where logs of clusters are collected.",
		keys.New("store", keys.Choice("The service that keeps them.", "gcp", "aws")),
		keys.New("gcp", keys.Section("Google Cloud Logging.",
			keys.New("project_id", keys.Text("Project that receives the logs.")),
			keys.New("credentials_file", keys.Text("Credentials to write with.")),
			keys.New("additional_labels", keys.Dict("More labels on each entry.", keys.Text("A label's value.")))).Opened()),
		keys.New("aws", keys.Section("CloudWatch.",
			keys.New("region", keys.Text("Region that receives the logs.")),
			keys.New("credentials_file", keys.Text("Credentials to write with.")),
			keys.New("log_group_name", keys.Text("Log group.").Defaults("skypilot-logs")),
			keys.New("log_stream_prefix", keys.Text("What log streams begin with.").Defaults("skypilot-")),
			keys.New("auto_create_group", keys.YesNo("Create the log group when it is missing.", true)),
			keys.New("additional_tags", keys.Dict("More tags on each entry.", keys.Text("A tag's value.")))).Opened()),
	).Needs("store").ByAdmins(keys.Opens).NoEffect("sky keeps logs itself and collects them nowhere yet")
}

func controllerKeys(kind string, resources map[string]any) *keys.Spec {
	retention := func(what string) *keys.Spec {
		return keys.Whole("Hours that " + what + " are kept; negative: for ever.").Defaults(168)
	}
	controller := keys.Section("What runs on the controller's behalf.",
		keys.New("resources", resourceKeys().Defaults(resources)),
		keys.New("autostop", autostopKeys().Defaults(map[string]any{"idle_minutes": 10, "down": false})),
		keys.New("high_availability", keys.YesNo("Restart the controller elsewhere when its node fails (Kubernetes).", false).NoEffect("managed jobs outlive the server and its machine anyway")),
		keys.New("consolidation_mode", &keys.Spec{Doc: "Run the controller inside the API server; absent: yes on servers started with --deploy that have no controller cluster.",
			Kinds: keys.BoolKind, ServerOnly: true}),
		keys.New("controller_logs_gc_retention_hours", retention("logs of the controller")),
		keys.New("task_logs_gc_retention_hours", retention("logs of tasks")),
	).ForNewer().ByAdmins(keys.Rights)
	if kind == "jobs" {
		controller.Keys = append(controller.Keys, keys.New("mode", keys.Choice("Where managed jobs are looked after: by the API server itself (server), or by one like it on a rented cluster of its own "+
			"(cluster), for a machine that sleeps. Absent: server, or cluster where consolidation_mode is false.", JobsOnServer, JobsOnCluster)))
		patience := keys.Whole("Minutes after which a job whose node does not answer, although its provider says that it runs, is run elsewhere; " +
			"its machines are ended first. Absent: never.").AtLeast(1)
		patience.ServerOnly = true
		controller.Keys = append(controller.Keys, keys.New("unreachable_minutes", patience))
		controller.Find("controller_logs_gc_retention_hours").ServerOnly = true
		controller.Find("task_logs_gc_retention_hours").ServerOnly = true
	}
	doc := map[string]string{"jobs": "Managed jobs.", "serve": "Services."}[kind]
	s := keys.Section(doc,
		keys.New("controller", controller),
		keys.New("bucket", keys.Text("Bucket that exists, with or without a prefix, through which local files reach nodes; absent: they need no bucket.").
			Matching(keys.Regexp(`^(https|s3|gs|r2|cos)://.+`, "a bucket URL that begins with s3://, gs://, r2://, cos:// or https://"))),
		keys.New("force_disable_cloud_bucket", keys.YesNo("Let local files reach nodes without a bucket although bucket is set.", false)),
	).ForNewer()
	if kind == "serve" {
		s.Keys = append(s.Keys, keys.New("balancer", keys.Choice("Where load balancers of services run: in the API server too (server), or only beside it (beside), as `sky serve balancer`, "+
			"so that no request ends with the server. Absent: server.", BalancerOnServer, BalancerBeside).OnServer()),
			keys.New("host", keys.Text("Name or address under which clients reach the load balancers, for the endpoints that are shown. Absent: the server's own address.").OnServer()))
	}
	if kind == "jobs" {
		s.Keys = append(s.Keys, keys.New("callback_runner", keys.List("Program with its arguments that runs the event_callback of a job that has no node at the time; the script's file is its last argument, "+
			"and its environment is the callback's, with PATH. It must confine what it runs: the script is a user's. Absent: such callbacks are not run.", keys.Text("An argument.")).OnServer()))
	}
	return s
}

// storageEndpoints are servers in place of the stores' own ones.
func storageEndpoints() *keys.Spec {
	s := keys.Section("Servers that answer in place of the stores' own ones: any server that speaks the API of S3 as s3, say.")
	for _, name := range []string{"s3", "gcs", "azure", "r2", "ibm", "oci", "nebius", "coreweave", "vastdata", "hf"} {
		s.Keys = append(s.Keys, keys.New(name, keys.Text("Where buckets of this store are.").Matching(keys.Regexp(`^https?://.+`, "an address that begins with https:// or http://"))))
	}
	return s
}

// Values of jobs.controller.mode.
const (
	JobsOnServer  = "server"
	JobsOnCluster = "cluster"
)

// Values of serve.balancer.
const (
	BalancerOnServer = "server"
	BalancerBeside   = "beside"
)

// resourceKeys names the fields of a task's resources; their values are
// checked where resources are.
func resourceKeys() *keys.Spec {
	s := keys.Section("Machine of the controller, as in a task's resources but without ports.")
	for _, name := range []string{
		"infra", "cloud", "region", "zone", "instance_type", "cpus", "memory", "accelerators", "gpus", "accelerator_args",
		"use_spot", "job_recovery", "disk_size", "ephemeral_storage", "disk_tier", "network_tier", "local_disk",
		"max_hourly_cost", "labels", "image_id", "volumes", "autostop", "priority", "priority_class", "any_of", "ordered",
	} {
		s.Keys = append(s.Keys, keys.New(name, keys.Anything("As in a task's resources.")))
	}
	return s.Bans("controllers open no ports of their own; remove it", "ports")
}

func autostopKeys() *keys.Spec {
	s := keys.Section("When the idle controller stops.",
		keys.New("idle_minutes", keys.Whole("Minutes without work.").AtLeast(0).Defaults(0)),
		keys.New("down", keys.YesNo("Terminate instead of stopping.", false)),
		keys.New("wait_for", keys.Choice("What counts as work.", "jobs_and_ssh", "jobs", "none").Caseless().Defaults("jobs_and_ssh")),
		keys.New("hook", keys.Text("Script to run before.")),
		keys.New("hook_timeout", keys.Whole("Seconds the script may take.").AtLeast(1)),
	).Or(keys.BoolKind | keys.IntKind | keys.TextKind | keys.NullKind)
	return s.Matching(keys.Regexp(`^[0-9]+[mhdwMHDW]?$`, `a duration such as "10m" or "2h"`))
}

package config

import (
	"regexp"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/schema"
)

// Clouds returns the names allowed_clouds and workspaces know, in the order of
// their introduction.
func Clouds() []string { return facts.Names(func(*facts.Cloud) bool { return true }) }

// Keys returns the description of the whole configuration. It is shared:
// callers must not change it.
func Keys() *schema.Spec { return all() }

var all = sync.OnceValue(func() *schema.Spec {
	s := schema.Section("Settings of sky, layered over server, user, project, task and command line.",
		schema.New("active_workspace", schema.Text("The workspace that new clusters, jobs and services belong to.").Defaults("default").ForTasks()),
		schema.New("allowed_clouds", schema.List("The clouds that sky check looks at; all of them when absent.", schema.Choice("A cloud.", Clouds()...).Caseless()).OnServer()),
		schema.New("admin_policy", adminPolicyKeys()),
		schema.New("db", schema.Text("Connection string of the server's database; files under ~/.sky when absent.").Hidden().Quietly()),
		schema.New("workspace", schema.Text("Has no effect.").Instead("write active_workspace")),
		schema.New("docker", schema.Section("Containers that run docker: images.",
			schema.New("run_options", schema.Text("More flags for docker run.").Or(schema.ListKind).Of(schema.Text("A flag.")).ForTasks()))),
		schema.New("nvidia_gpus", schema.Section("NVIDIA GPUs.",
			schema.New("disable_ecc", schema.YesNo("Turn error correction off, with one reboot after provisioning.", false).ForTasks().NoEffect("nodes are not rebooted; use an image that has it off")))),
		schema.New("catalogs", catalogKeys()),
		schema.New("provision", provisionKeys()),
		schema.New("data", schema.Section("File transfer.",
			schema.New("mount_cached", schema.Section("Buckets in MOUNT_CACHED mode.",
				schema.New("sequential_upload", schema.YesNo("Upload one file at a time.", false).Instead("set config.mount_cached.transfers to 1 on the bucket")))))),
		schema.New("storage", schema.Section("Object stores.",
			schema.New("endpoints", storageEndpoints()),
			schema.New("allow_users", schema.YesNo("Where people log in: whether everybody's tasks use buckets with the server's credentials, which their nodes get. Otherwise only administrators' do.", false)),
		).ByAdmins(schema.Opens)),
		schema.New("dashboard", schema.Section("The dashboard.",
			schema.New("external_links", schema.List("Links that are found in logs.",
				schema.Section("A kind of link: one that is found in logs (regex), or one that is made (url).",
					schema.New("label", schema.Text("What the link is called.")),
					schema.New("regex", schema.Text("What a link in a log looks like.").Checked(compiles)),
					schema.New("url", schema.Text("The link itself, with ${cluster_name}, ${job_id}, ${job_name}, ${user} and ${workspace} in it.")),
					schema.New("scope", schema.List("On which pages it is shown; absent: on all.", schema.Choice("A kind of page.", "cluster", "jobs")))).Needs("label")))).ByAdmins(schema.Confines)),
		schema.New("metrics", schema.Section("Metrics of GPUs that the dashboard shows.",
			schema.New("prometheus", schema.Section("Where Prometheus is in the cluster of a context.",
				schema.New("namespace", schema.Text("Its namespace.").Defaults("skypilot")),
				schema.New("service", schema.Text("Its service.").Defaults("skypilot-prometheus-server")),
				schema.New("port", schema.Whole("The service's port.").AtLeast(1).Defaults(80)),
				schema.New("url", schema.Text("Its address."))).Opened())).NoEffect("the dashboard shows none of them")),
		schema.New("plugins", schema.Anything("Settings of plugins, passed through.").ByAdmins(schema.Executes)),
		schema.New("api_server", apiServerKeys()),
		schema.New("rbac", rbacKeys()),
		schema.New("tracing", tracingKeys()),
		schema.New("daemons", daemonKeys()),
		schema.New("logs", logKeys()),
		schema.New("jobs", controllerKeys("jobs", map[string]any{"cpus": "4+", "memory": "4x", "disk_size": 50})),
		schema.New("serve", controllerKeys("serve", map[string]any{"cpus": "4+", "memory": "8+", "disk_size": 200})),
	)
	s.Title = "the configuration"
	s.Keys = append(append(s.Keys, cloudKeys()...), schema.New("workspace_config", schema.Section("All workspaces.", readAccess()).OnServer()), schema.New("workspaces", workspaceKeys()))
	return s.Without(`write "jobs"`, "spot").Without("write the config section of a task", "experimental")
})

func compiles(value any) string {
	if _, err := regexp.Compile(value.(string)); err != nil {
		return "is not a regular expression that Go understands: " + err.Error()
	}
	return ""
}

func adminPolicyKeys() *schema.Spec {
	s := schema.Text("What every request must pass: the URL of a policy service, or rules in CEL.").Or(schema.MapKind).OnServer().Matching(schema.Regexp(
		`^([a-zA-Z_]\w*(\.[a-zA-Z_]\w*)+|https?://.+)$`, "an http(s) URL"))
	s.Keys = []schema.Key{
		schema.New("cel", schema.List("Rules; each must hold for every task.",
			schema.Section("A rule.",
				schema.New("expr", schema.Text("A CEL expression over task, candidates, config, request and user that must be true.")),
				schema.New("message", schema.Text("What the user reads when it is not."))).Needs("expr", "message"))),
	}
	return s.Needs("cel")
}

func apiServerKeys() *schema.Spec {
	hours := func(what string) *schema.Spec {
		return schema.Number("Hours that " + what + " are kept; negative: for ever.").Defaults(720)
	}
	return schema.Section("The API server.",
		schema.New("endpoint", schema.Text("Where the server is; absent: http://127.0.0.1:46580, started when needed.").
			Matching(schema.Regexp(`^https?://.*$`, "a URL that begins with http:// or https://"))),
		schema.New("service_account_token", schema.Text("Token to log in with.").Or(schema.NullKind).Hidden().
			Matching(schema.Regexp(`^sky_.+$`, "a token that begins with sky_"))),
		schema.New("logs_retention_hours", schema.Whole("Hours that downloaded logs and logs of uploads are kept.").Defaults(720).
			NoEffect("the server keeps neither; logs of requests go with them, after requests_retention_hours")),
		schema.New("launch_attempt_retention_hours", schema.Number("Hours that records of launch attempts are kept.").NoEffect("what attempts have seen is kept while it may help plans")),
		schema.New("requests_retention_hours", schema.Whole("Hours that finished requests are kept; negative: for ever.").Defaults(24)),
		schema.New("cluster_event_retention_hours", hours("status events of clusters")),
		schema.New("cluster_debug_event_retention_hours", hours("debug events of clusters")),
		schema.New("cluster_terminal_event_retention_hours", hours("the last events of clusters")),
		schema.New("daemon_log_max_bytes", schema.Whole("Size in bytes at which the server's own log begins anew; what it held becomes server.log.1. 0: never.").AtLeast(0).Defaults(128<<20)),
	).OnServer()
}

func tracingKeys() *schema.Spec {
	return schema.Section("OpenTelemetry traces of what the server does; none when neither this nor the standard OTEL_… variables name a receiver.",
		schema.New("endpoint", schema.Text("URL of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318; absent: from OTEL_EXPORTER_OTLP_ENDPOINT.").
			Matching(schema.Regexp(`^https?://.+$`, "a URL that begins with http:// or https://"))),
		schema.New("headers", schema.Anything("Headers of each call to the receiver, such as its key.").Hidden()),
		schema.New("sample", schema.Number("Which part of the traces that begin at this server is kept, 0 to 1; absent: from OTEL_TRACES_SAMPLER, else all.").AtLeast(0)),
	).OnServer()
}

func rbacKeys() *schema.Spec {
	rules := schema.List("Routes.", schema.Section("A route.",
		schema.New("path", schema.Text("Path of the route.")),
		schema.New("method", schema.Text("HTTP method."))).Needs("path", "method"))
	rules.Items.Doc = "A route and a method."
	role := func(doc, kind string) *schema.Spec {
		return schema.Section(doc, schema.New("permissions", schema.Section("What the role may call.", schema.New(kind, rules))))
	}
	return schema.Section("Roles and what they may do.",
		schema.New("restrict_config_to_admins", schema.YesNo("Show the server's configuration to administrators only, not to all users. Secrets in it are shown to nobody.", true)),
		schema.New("default_role", schema.Choice("Role of users seen for the first time.", "admin", "user", "viewer").Caseless().Defaults("admin")),
		schema.New("roles", schema.Section("Permissions of each role; absent: the built-in ones.",
			schema.New("admin", role("Administrators.", "blocklist")),
			schema.New("user", role("Users.", "blocklist")),
			schema.New("viewer", role("People who only look.", "allowlist")))),
	).OnServer()
}

func daemonKeys() *schema.Spec {
	s := schema.Section("Background work of the server.").OnServer()
	for _, id := range []string{
		"skypilot-status-refresh-daemon", "skypilot-volume-status-refresh-daemon", "managed-job-status-refresh-daemon",
		"sky-serve-status-refresh-daemon", "pool-status-refresh-daemon", "server-heartbeat-daemon", "expired-token-cleanup-daemon",
	} {
		kind := schema.Section("One kind of background work.",
			schema.New("log_level", schema.Choice("How much it logs.", "DEBUG", "INFO", "WARNING")),
			schema.New("interval_seconds", schema.Whole("Seconds between two runs.").AtLeast(1)))
		if id != "skypilot-volume-status-refresh-daemon" {
			kind = kind.NoEffect("what it would look for is told to the server when it happens")
		}
		s.Keys = append(s.Keys, schema.New(id, kind))
	}
	return s
}

func logKeys() *schema.Spec {
	return schema.Section("Where logs of clusters are collected.",
		schema.New("store", schema.Choice("The service that keeps them.", "gcp", "aws")),
		schema.New("gcp", schema.Section("Google Cloud Logging.",
			schema.New("project_id", schema.Text("Project that receives the logs.")),
			schema.New("credentials_file", schema.Text("Credentials to write with.")),
			schema.New("additional_labels", schema.Dict("More labels on each entry.", schema.Text("A label's value.")))).Opened()),
		schema.New("aws", schema.Section("CloudWatch.",
			schema.New("region", schema.Text("Region that receives the logs.")),
			schema.New("credentials_file", schema.Text("Credentials to write with.")),
			schema.New("log_group_name", schema.Text("Log group.").Defaults("skypilot-logs")),
			schema.New("log_stream_prefix", schema.Text("What log streams begin with.").Defaults("skypilot-")),
			schema.New("auto_create_group", schema.YesNo("Create the log group when it is missing.", true)),
			schema.New("additional_tags", schema.Dict("More tags on each entry.", schema.Text("A tag's value.")))).Opened()),
	).Needs("store").ByAdmins(schema.Opens).NoEffect("sky keeps logs itself and collects them nowhere yet")
}

func controllerKeys(kind string, resources map[string]any) *schema.Spec {
	retention := func(what string) *schema.Spec {
		return schema.Whole("Hours that " + what + " are kept; negative: for ever.").Defaults(168)
	}
	controller := schema.Section("What runs on the controller's behalf.",
		schema.New("resources", resourceKeys().Defaults(resources)),
		schema.New("autostop", autostopKeys().Defaults(map[string]any{"idle_minutes": 10, "down": false})),
		schema.New("high_availability", schema.YesNo("Restart the controller elsewhere when its node fails (Kubernetes).", false).NoEffect("managed jobs outlive the server and its machine anyway")),
		schema.New("consolidation_mode", &schema.Spec{Doc: "Run the controller inside the API server; absent: yes on servers started with --deploy that have no controller cluster.",
			Kinds: schema.BoolKind, ServerOnly: true}),
		schema.New("controller_logs_gc_retention_hours", retention("logs of the controller")),
		schema.New("task_logs_gc_retention_hours", retention("logs of tasks")),
	).ForNewer().ByAdmins(schema.Rights)
	what := map[string]string{"jobs": "managed jobs", "serve": "services"}[kind]
	controller.Keys = append(controller.Keys, schema.New("mode", schema.Choice("Where "+what+" are looked after: by the API server itself (server), or by one like it on a rented cluster of its own "+
		"(cluster), for a machine that sleeps. Absent: server, or cluster where consolidation_mode is false.", OnServer, OnCluster)))
	if kind == "jobs" {
		patience := schema.Whole("Minutes after which a job whose node does not answer, although its provider says that it runs, is run elsewhere; " +
			"its machines are ended first. Absent: never.").AtLeast(1)
		patience.ServerOnly = true
		controller.Keys = append(controller.Keys, schema.New("unreachable_minutes", patience))
		controller.Find("controller_logs_gc_retention_hours").ServerOnly = true
		controller.Find("task_logs_gc_retention_hours").ServerOnly = true
	}
	doc := map[string]string{"jobs": "Managed jobs.", "serve": "Services."}[kind]
	s := schema.Section(doc,
		schema.New("controller", controller),
		schema.New("bucket", schema.Text("Bucket that exists, with or without a prefix, through which local files reach nodes; absent: they need no bucket.").
			Matching(schema.Regexp(`^(https|s3|gs|r2|cos)://.+`, "a bucket URL that begins with s3://, gs://, r2://, cos:// or https://"))),
		schema.New("force_disable_cloud_bucket", schema.YesNo("Let local files reach nodes without a bucket although bucket is set.", false)),
	).ForNewer()
	if kind == "serve" {
		s.Keys = append(s.Keys, schema.New("balancer", schema.Choice("Where load balancers of services run: in the API server too (server), or only beside it (beside), as `sky serve balancer`, "+
			"so that no request ends with the server. Absent: server.", BalancerOnServer, BalancerBeside).OnServer()),
			schema.New("host", schema.Text("Name or address under which clients reach the load balancers, for the endpoints that are shown. Absent: the server's own address.").OnServer()))
	}
	if kind == "jobs" {
		s.Keys = append(s.Keys, schema.New("status_check", schema.Section("When a job whose checks fail is run elsewhere.",
			schema.New("min_elapsed_seconds", schema.Whole("Seconds for which they fail.").AtLeast(0).Defaults(60)),
			schema.New("min_retries", schema.Whole("Checks that fail.").AtLeast(0).Defaults(5))).
			NoEffect("a job is run elsewhere when its machine is gone, and never because the way to it fails (see jobs.controller.unreachable_minutes)")))
		s.Keys = append(s.Keys, schema.New("callback_runner", schema.List("Program with its arguments that runs the event_callback of a job that has no node at the time; the script's file is its last argument, "+
			"and its environment is the callback's, with PATH. It must confine what it runs: the script is a user's. Absent: such callbacks are not run.", schema.Text("An argument.")).OnServer()))
	}
	return s
}

// storageEndpoints are servers in place of the stores' own ones.
func storageEndpoints() *schema.Spec {
	s := schema.Section("Servers that answer in place of the stores' own ones: any server that speaks the API of S3 as s3, say.")
	for _, name := range []string{"s3", "gcs", "azure", "r2", "ibm", "oci", "nebius", "coreweave", "vastdata", "hf"} {
		s.Keys = append(s.Keys, schema.New(name, schema.Text("Where buckets of this store are.").Matching(schema.Regexp(`^https?://.+`, "an address that begins with https:// or http://"))))
	}
	return s
}

// Values of jobs.controller.mode and serve.controller.mode.
const (
	OnServer  = "server"
	OnCluster = "cluster"
)

// Values of serve.balancer.
const (
	BalancerOnServer = "server"
	BalancerBeside   = "beside"
)

// resourceKeys names the fields of a task's resources; their values are
// checked where resources are.
func resourceKeys() *schema.Spec {
	s := schema.Section("Machine of the controller, as in a task's resources but without ports.")
	for _, name := range []string{
		"infra", "cloud", "region", "zone", "instance_type", "cpus", "memory", "accelerators", "gpus", "accelerator_args",
		"use_spot", "job_recovery", "disk_size", "ephemeral_storage", "disk_tier", "network_tier", "local_disk",
		"max_hourly_cost", "estimated_runtime", "labels", "image_id", "volumes", "autostop", "priority", "priority_class", "any_of", "ordered",
	} {
		s.Keys = append(s.Keys, schema.New(name, schema.Anything("As in a task's resources.")))
	}
	return s.Without("controllers open no ports of their own; remove it", "ports")
}

func autostopKeys() *schema.Spec {
	s := schema.Section("When the idle controller stops.",
		schema.New("idle_minutes", schema.Whole("Minutes without work.").AtLeast(0).Defaults(0)),
		schema.New("down", schema.YesNo("Terminate instead of stopping.", false)),
		schema.New("wait_for", schema.Choice("What counts as work.", "jobs_and_ssh", "jobs", "none").Caseless().Defaults("jobs_and_ssh")),
		schema.New("hook", schema.Text("Script to run before.")),
		schema.New("hook_timeout", schema.Whole("Seconds the script may take.").AtLeast(1)),
	).Or(schema.BoolKind | schema.IntKind | schema.TextKind | schema.NullKind)
	return s.Matching(schema.Regexp(`^[0-9]+[mhdwMHDW]?$`, `a duration such as "10m" or "2h"`))
}

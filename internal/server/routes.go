package server

import (
	"net/http"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// A Role is the least a caller must be to use a route.
type Role int

const (
	// Anyone may call even while a login is required.
	Anyone Role = iota + 1
	Viewer
	User
	Admin
)

var roles = map[string]Role{"viewer": Viewer, "user": User, "admin": Admin}

// A Kind is how a route answers.
type Kind int

const (
	// Async routes accept a request: null, its id in a header, the result later.
	Async Kind = iota + 1
	// Log routes accept a request and answer with its log.
	Log
	// Direct routes answer themselves.
	Direct
	// Page routes answer browsers, which may come from another site.
	Page
	// Socket routes become a websocket.
	Socket
)

// A Route is one row of the table.
type Route struct {
	Method, Path string
	Role         Role
	Kind         Kind

	// Name is the request's name without "sky.", for Async and Log.
	Name string
	// Body is checked before a request is accepted; nil: the body is not read.
	Body *bodyType
	// Query is what makes up the body of a GET.
	Query query
	// Long requests wait in the queue of the long ones.
	Long bool
	// Empty is the result while nothing on this server provides Name; "": it fails
	// as not supported.
	Empty string

	handle func(*Server, http.ResponseWriter, *http.Request)
}

const (
	get  = http.MethodGet
	post = http.MethodPost
	del  = http.MethodDelete
)

// Routes is every route of the server.
func Routes() []Route {
	return []Route{
		// The life of requests.
		{Method: get, Path: "/api/health", Role: Anyone, Kind: Direct, handle: (*Server).health},
		{Method: get, Path: "/api/get", Role: Viewer, Kind: Direct, handle: (*Server).get},
		{Method: get, Path: "/api/stream", Role: Viewer, Kind: Direct, handle: (*Server).stream},
		{Method: get, Path: "/api/status", Role: Viewer, Kind: Direct, handle: (*Server).status},
		{Method: get, Path: "/api/sizes", Role: Viewer, Kind: Direct, handle: (*Server).sizes},
		{Method: post, Path: "/api/cancel", Role: Viewer, Kind: Async, Name: "api_cancel", Body: body[api.APICancelBody]()},
		{Method: get, Path: "/api/completion/cluster_name", Role: Viewer, Kind: Direct, handle: (*Server).completeCluster},
		{Method: get, Path: "/api/completion/storage_name", Role: Viewer, Kind: Direct, handle: (*Server).completeStorage},
		{Method: get, Path: "/api/completion/volume_name", Role: Viewer, Kind: Direct, handle: (*Server).completeVolume},
		{Method: get, Path: "/api/completion/api_request", Role: Viewer, Kind: Direct, handle: (*Server).completeRequest},
		{Method: get, Path: "/api/openapi.json", Role: Anyone, Kind: Direct, handle: (*Server).openAPI},
		{Method: get, Path: "/api/docs", Role: Anyone, Kind: Page, handle: (*Server).docs},
		{Method: get, Path: "/metrics", Role: Viewer, Kind: Direct, handle: (*Server).metrics},
		{Method: get, Path: "/api/plugins", Role: Viewer, Kind: Direct, handle: (*Server).plugins},

		// Clusters.
		{Method: post, Path: "/check", Role: User, Kind: Async, Name: "check", Body: body[api.CheckBody]()},
		{Method: post, Path: "/validate", Role: Viewer, Kind: Direct, Body: body[api.DagBody]("dag"), handle: (*Server).validate},
		{Method: post, Path: "/optimize", Role: Viewer, Kind: Async, Name: "optimize", Body: body[api.DagBody]("dag")},
		{Method: post, Path: "/launch", Role: User, Kind: Async, Name: "launch", Body: body[api.LaunchBody]("task", "cluster_name"), Long: true},
		{Method: post, Path: "/exec", Role: User, Kind: Async, Name: "exec", Body: body[api.ExecBody]("task", "cluster_name"), Long: true},
		{Method: post, Path: "/status", Role: Viewer, Kind: Async, Name: "status", Body: body[api.StatusBody]()},
		{Method: post, Path: "/start", Role: User, Kind: Async, Name: "start", Body: body[api.StartBody]("cluster_name"), Long: true},
		{Method: post, Path: "/stop", Role: User, Kind: Async, Name: "stop", Body: body[api.StopBody]("cluster_name")},
		{Method: post, Path: "/down", Role: User, Kind: Async, Name: "down", Body: body[api.StopBody]("cluster_name")},
		{Method: post, Path: "/autostop", Role: User, Kind: Async, Name: "autostop", Body: body[api.AutostopBody]("cluster_name", "idle_minutes")},
		{Method: post, Path: "/endpoints", Role: Viewer, Kind: Async, Name: "endpoints", Body: body[api.EndpointsBody]("cluster")},
		{Method: post, Path: "/cost_report", Role: Viewer, Kind: Async, Name: "cost_report", Body: body[api.CostReportBody]()},
		{Method: post, Path: "/cluster_events", Role: Viewer, Kind: Async, Name: "cluster_events", Body: body[api.ClusterEventsBody]()},
		{Method: get, Path: "/status_kubernetes", Role: Viewer, Kind: Async, Name: "status_kubernetes", Empty: `[[],[],[],null]`},

		// Jobs and logs of a cluster.
		{Method: post, Path: "/queue", Role: Viewer, Kind: Async, Name: "queue", Body: body[api.QueueBody]("cluster_name")},
		{Method: post, Path: "/job_status", Role: Viewer, Kind: Async, Name: "job_status", Body: body[api.JobStatusBody]("cluster_name")},
		{Method: post, Path: "/cancel", Role: User, Kind: Async, Name: "cancel", Body: body[api.CancelBody]("cluster_name")},
		{Method: post, Path: "/logs", Role: Viewer, Kind: Log, Name: "logs", Body: body[api.LogsBody]("cluster_name")},
		{Method: post, Path: "/hook_logs", Role: Viewer, Kind: Log, Name: "hook_logs", Body: body[api.HookLogsBody]("cluster_name")},
		{Method: post, Path: "/autostop_logs", Role: Viewer, Kind: Log, Name: "autostop_logs", Body: body[api.HookLogsBody]("cluster_name")},
		{Method: post, Path: "/provision_logs", Role: Viewer, Kind: Direct, Body: body[api.ProvisionLogsBody]("cluster_name"), handle: (*Server).provisionLogs},
		{Method: post, Path: "/download_logs", Role: Viewer, Kind: Async, Name: "download_logs", Body: body[api.DownloadLogsBody]("cluster_name")},
		{Method: post, Path: "/download", Role: Viewer, Kind: Direct, Body: body[api.DownloadBody]("folder_paths"), handle: (*Server).download},
		{Method: get, Path: "/shell", Role: User, Kind: Socket, handle: (*Server).shell},

		// Files of clients that do not share this machine's file system.
		{Method: get, Path: "/upload_v2/blob", Role: Viewer, Kind: Direct, handle: (*Server).blob},
		{Method: post, Path: "/upload_v2", Role: User, Kind: Direct, handle: (*Server).upload},
		{Method: post, Path: "/upload", Role: User, Kind: Direct, handle: (*Server).legacyUpload},

		// Managed jobs and pools.
		{Method: post, Path: "/jobs/launch", Role: User, Kind: Async, Name: "jobs.launch", Body: body[api.JobsLaunchBody]("task"), Long: true},
		{Method: post, Path: "/jobs/queue/v2", Role: Viewer, Kind: Async, Name: "jobs.queue_v2", Body: body[api.JobsQueueBody](),
			Empty: `{"jobs":[],"total":0,"total_no_filter":0,"status_counts":{}}`},
		{Method: post, Path: "/jobs/queue", Role: Viewer, Kind: Async, Name: "jobs.queue", Body: body[api.JobsQueueBody](), Empty: `[]`},
		{Method: post, Path: "/jobs/cancel", Role: User, Kind: Async, Name: "jobs.cancel", Body: body[api.JobsCancelBody]()},
		{Method: post, Path: "/jobs/schedules", Role: Viewer, Kind: Async, Name: "jobs.schedules", Body: body[api.JobsSchedulesBody](), Empty: `[]`},
		{Method: post, Path: "/jobs/end_schedules", Role: User, Kind: Async, Name: "jobs.end_schedules", Body: body[api.JobsEndSchedulesBody]()},
		{Method: post, Path: "/jobs/logs", Role: Viewer, Kind: Log, Name: "jobs.logs", Body: body[api.JobsLogsBody]()},
		{Method: post, Path: "/jobs/wait", Role: Viewer, Kind: Async, Name: "jobs.wait", Body: body[api.JobsWaitBody](), Long: true},
		{Method: post, Path: "/jobs/download_logs", Role: Viewer, Kind: Async, Name: "jobs.download_logs", Body: body[api.JobsDownloadLogsBody]()},
		{Method: post, Path: "/jobs/events", Role: Viewer, Kind: Async, Name: "jobs.events", Body: body[api.JobsEventsBody]("job_id")},
		{Method: post, Path: "/jobs/pool_apply", Role: User, Kind: Async, Name: "jobs.pool_apply", Body: body[api.PoolApplyBody]("pool_name"), Long: true},
		{Method: post, Path: "/jobs/pool_down", Role: User, Kind: Async, Name: "jobs.pool_down", Body: body[api.PoolDownBody]()},
		{Method: post, Path: "/jobs/pool_status", Role: Viewer, Kind: Async, Name: "jobs.pool_status", Body: body[api.PoolStatusBody](), Empty: `[]`},
		{Method: post, Path: "/jobs/pool_logs", Role: Viewer, Kind: Log, Name: "jobs.pool_logs", Body: body[api.PoolLogsBody]("pool_name")},
		{Method: post, Path: "/jobs/pool_sync-down-logs", Role: Viewer, Kind: Async, Name: "jobs.pool_sync_down_logs", Body: body[api.PoolSyncLogsBody]("pool_name")},

		// Services.
		{Method: post, Path: "/serve/up", Role: User, Kind: Async, Name: "serve.up", Body: body[api.ServeUpBody]("task", "service_name"), Long: true},
		{Method: post, Path: "/serve/update", Role: User, Kind: Async, Name: "serve.update", Body: body[api.ServeUpdateBody]("task", "service_name"), Long: true},
		{Method: post, Path: "/serve/down", Role: User, Kind: Async, Name: "serve.down", Body: body[api.ServeDownBody]()},
		{Method: post, Path: "/serve/terminate-replica", Role: User, Kind: Async, Name: "serve.terminate_replica",
			Body: body[api.ServeTerminateReplicaBody]("service_name", "replica_id")},
		{Method: post, Path: "/serve/status", Role: Viewer, Kind: Async, Name: "serve.status", Body: body[api.ServeStatusBody](), Empty: `[]`},
		{Method: post, Path: "/serve/logs", Role: Viewer, Kind: Log, Name: "serve.logs", Body: body[api.ServeLogsBody]("service_name")},
		{Method: post, Path: "/serve/sync-down-logs", Role: Viewer, Kind: Async, Name: "serve.sync_down_logs", Body: body[api.ServeSyncLogsBody]("service_name")},

		{Method: post, Path: "/serve/promote", Role: User, Kind: Async, Name: "serve.promote", Body: body[api.ServeTurnBody]("service_name")},
		{Method: post, Path: "/serve/rollback", Role: User, Kind: Async, Name: "serve.rollback", Body: body[api.ServeTurnBody]("service_name")},
		{Method: get, Path: balancerapi.TablePath, Role: Admin, Kind: Direct, Query: query{"epoch": textParam, "after": intParam}, handle: (*Server).balancers},
		{Method: get, Path: balancerapi.ConnectPath, Role: Admin, Kind: Direct, Query: query{"service": textParam, "replica": intParam}, handle: (*Server).connectReplica},
		{Method: post, Path: balancerapi.ReportPath, Role: Admin, Kind: Direct, handle: (*Server).balancers},

		// Benchmarks.
		{Method: post, Path: "/bench/create", Role: User, Kind: Async, Name: "bench.create", Body: body[api.BenchCreateBody]("name", "candidates")},
		{Method: post, Path: "/bench/list", Role: Viewer, Kind: Async, Name: "bench.list", Body: body[api.BenchListBody](), Empty: `[]`},
		{Method: post, Path: "/bench/show", Role: Viewer, Kind: Async, Name: "bench.show", Body: body[api.BenchShowBody]("name")},
		{Method: post, Path: "/bench/delete", Role: User, Kind: Async, Name: "bench.delete", Body: body[api.BenchDeleteBody]("names")},

		// Buckets and volumes.
		{Method: get, Path: "/storage/ls", Role: Viewer, Kind: Async, Name: "storage_ls", Empty: `[]`},
		{Method: post, Path: "/storage/delete", Role: User, Kind: Async, Name: "storage_delete", Body: body[api.StorageDeleteBody]("name")},
		{Method: get, Path: "/volumes", Role: Viewer, Kind: Async, Name: "volume_list", Query: query{"refresh": boolParam}, Empty: `[]`},
		{Method: post, Path: "/volumes/apply", Role: User, Kind: Async, Name: "volume_apply", Body: body[api.VolumeApplyBody]("name", "volume_type", "cloud")},
		{Method: post, Path: "/volumes/delete", Role: User, Kind: Async, Name: "volume_delete", Body: body[api.VolumesDeleteBody]("names")},
		{Method: post, Path: "/volumes/validate", Role: Viewer, Kind: Direct, Body: body[api.VolumeValidateBody](), handle: (*Server).validateVolume},

		// What is enabled and what can be rented.
		{Method: get, Path: "/enabled_clouds", Role: Viewer, Kind: Async, Name: "enabled_clouds",
			Query: query{"workspace": textParam, "expand": boolParam}, Empty: `[]`},
		{Method: get, Path: "/enabled_clouds/batch", Role: Viewer, Kind: Async, Name: "enabled_clouds_batch",
			Query: query{"workspaces": listParam, "expand": boolParam}, Empty: `{}`},
		{Method: post, Path: "/list_accelerators", Role: Viewer, Kind: Async, Name: "list_accelerators", Body: body[api.ListAcceleratorsBody]()},
		{Method: post, Path: "/list_accelerator_counts", Role: Viewer, Kind: Async, Name: "list_accelerator_counts", Body: body[api.ListAcceleratorsBody]()},
		{Method: post, Path: "/availability", Role: Viewer, Kind: Async, Name: "availability", Body: body[api.AvailabilityBody]()},
		{Method: post, Path: "/sweep", Role: Admin, Kind: Async, Name: "sweep", Body: body[api.SweepBody](), Long: true},
		{Method: get, Path: "/catalog/status", Role: Viewer, Kind: Async, Name: "catalog.status"},
		{Method: post, Path: "/catalog/refresh", Role: User, Kind: Async, Name: "catalog.refresh", Body: body[api.CatalogRefreshBody]()},
		{Method: post, Path: "/realtime_kubernetes_gpu_availability", Role: Viewer, Kind: Async, Name: "realtime_kubernetes_gpu_availability",
			Body: body[api.GPUAvailabilityBody](), Empty: `[]`},
		{Method: post, Path: "/kubernetes_node_info", Role: Viewer, Kind: Async, Name: "kubernetes_node_info", Body: body[api.NodeInfoBody]()},
		{Method: post, Path: "/slurm_gpu_availability", Role: Viewer, Kind: Async, Name: "realtime_slurm_gpu_availability", Body: body[api.SlurmBody](), Empty: `[]`},
		{Method: post, Path: "/slurm_node_info", Role: Viewer, Kind: Async, Name: "slurm_node_info", Body: body[api.SlurmBody](), Empty: `[]`},
		{Method: get, Path: "/slurm_node_info", Role: Viewer, Kind: Async, Name: "slurm_node_info", Body: body[api.SlurmBody](), Empty: `[]`},
		{Method: post, Path: "/kubernetes_label_gpus", Role: User, Kind: Async, Name: "kubernetes_label_gpus", Body: body[api.LabelGPUsBody](), Long: true},
		{Method: get, Path: "/all_contexts", Role: Viewer, Kind: Async, Name: "all_contexts", Empty: `[]`},
		{Method: post, Path: "/local_up", Role: Admin, Kind: Async, Name: "local_up", Body: body[api.LocalUpBody](), Long: true},
		{Method: post, Path: "/local_down", Role: Admin, Kind: Async, Name: "local_down", Body: body[api.LocalDownBody](), Long: true},

		// Users, tokens, workspaces, configuration.
		{Method: get, Path: "/users", Role: Viewer, Kind: Direct, handle: (*Server).users},
		{Method: get, Path: "/users/role", Role: Viewer, Kind: Direct, handle: (*Server).role},
		{Method: get, Path: "/users/me/workspace", Role: Viewer, Kind: Direct, handle: (*Server).workspace},
		{Method: post, Path: "/users/me/workspace", Role: User, Kind: Direct, Body: body[api.UserWorkspaceBody](), handle: (*Server).preferWorkspace},
		{Method: post, Path: "/users/create", Role: Admin, Kind: Direct, Body: body[api.UserCreateBody]("username", "password"), handle: (*Server).createUser},
		{Method: post, Path: "/users/update", Role: User, Kind: Direct, Body: body[api.UserUpdateBody]("user_id"), handle: (*Server).updateUser},
		{Method: post, Path: "/users/delete", Role: Admin, Kind: Direct, Body: body[api.UserDeleteBody]("user_id"), handle: (*Server).deleteUser},
		{Method: post, Path: "/users/batch_update", Role: Admin, Kind: Direct, Body: body[api.UsersUpdateBody]("user_ids", "role"), handle: (*Server).updateUsers},
		{Method: post, Path: "/users/import", Role: Admin, Kind: Direct, Body: body[api.UsersImportBody]("csv_content"), handle: (*Server).importUsers},
		{Method: get, Path: "/users/export", Role: Admin, Kind: Direct, handle: (*Server).exportUsers},
		{Method: get, Path: "/users/service-account-tokens", Role: Viewer, Kind: Direct, handle: (*Server).tokens},
		{Method: post, Path: "/users/service-account-tokens", Role: User, Kind: Direct, Body: body[api.TokenCreateBody]("token_name"), handle: (*Server).createToken},
		{Method: post, Path: "/users/service-account-tokens/delete", Role: User, Kind: Direct, Body: body[api.TokenBody]("token_id"), handle: (*Server).deleteToken},
		{Method: post, Path: "/users/service-account-tokens/get-role", Role: User, Kind: Direct, Body: body[api.TokenBody]("token_id"), handle: (*Server).tokenRole},
		{Method: post, Path: "/users/service-account-tokens/update-role", Role: User, Kind: Direct, Body: body[api.TokenRoleBody]("token_id", "role"), handle: (*Server).updateTokenRole},
		{Method: post, Path: "/users/service-account-tokens/rotate", Role: User, Kind: Direct, Body: body[api.TokenRotateBody]("token_id"), handle: (*Server).rotateToken},
		{Method: get, Path: "/workspaces", Role: Viewer, Kind: Async, Name: "workspaces.get", Empty: `{"default":{}}`},
		{Method: post, Path: "/workspaces/create", Role: Admin, Kind: Async, Name: "workspaces.create", Body: body[api.WorkspaceBody]("workspace_name", "config")},
		{Method: post, Path: "/workspaces/update", Role: Admin, Kind: Async, Name: "workspaces.update", Body: body[api.WorkspaceBody]("workspace_name", "config")},
		{Method: post, Path: "/workspaces/delete", Role: Admin, Kind: Async, Name: "workspaces.delete", Body: body[api.WorkspaceBody]("workspace_name")},
		{Method: post, Path: "/workspaces/batch_add_users", Role: Admin, Kind: Async, Name: "workspaces.batch_add_users",
			Body: body[api.WorkspaceUsersBody]("workspace_names", "user_ids")},
		{Method: post, Path: "/workspaces/batch_remove_users", Role: Admin, Kind: Async, Name: "workspaces.batch_remove_users",
			Body: body[api.WorkspaceUsersBody]("workspace_names", "user_ids")},
		{Method: get, Path: "/workspaces/config", Role: Admin, Kind: Async, Name: "workspaces.get_config", Empty: `{}`},
		{Method: post, Path: "/workspaces/config", Role: Admin, Kind: Async, Name: "workspaces.update_config", Body: body[api.ConfigBody]("config")},

		// Pools of own machines, recipes, support.
		{Method: get, Path: "/ssh_node_pools", Role: Viewer, Kind: Direct, handle: ownMachines((*Server).sshPools)},
		{Method: post, Path: "/ssh_node_pools", Role: Admin, Kind: Direct, Body: body[map[string]map[string]any](), handle: ownMachines((*Server).setSSHPools)},
		{Method: del, Path: "/ssh_node_pools/{pool}", Role: Admin, Kind: Direct, handle: ownMachines((*Server).removeSSHPool)},
		{Method: get, Path: "/ssh_node_pools/keys", Role: Admin, Kind: Direct, handle: ownMachines((*Server).sshKeys)},
		{Method: post, Path: "/ssh_node_pools/keys", Role: Admin, Kind: Direct, handle: ownMachines((*Server).addSSHKey)},
		{Method: post, Path: "/ssh_node_pools/deploy", Role: User, Kind: Async, Name: "ssh_node_pools.up", Body: body[api.SSHPoolBody](), Long: true},
		{Method: post, Path: "/ssh_node_pools/down", Role: User, Kind: Async, Name: "ssh_node_pools.down", Body: body[api.SSHPoolBody](), Long: true},
		{Method: post, Path: "/ssh_node_pools/{pool}/deploy", Role: User, Kind: Async, Name: "ssh_node_pools.up", Long: true},
		{Method: post, Path: "/ssh_node_pools/{pool}/down", Role: User, Kind: Async, Name: "ssh_node_pools.down", Long: true},
		{Method: get, Path: "/ssh_node_pools/{pool}/status", Role: Viewer, Kind: Direct, handle: ownMachines((*Server).sshPoolStatus)},
		{Method: get, Path: "/recipes", Role: Viewer, Kind: Async, Name: "recipes.list", Empty: `[]`,
			Query: query{"pinned_only": boolParam, "my_recipes_only": boolParam, "recipe_type": textParam}},
		{Method: post, Path: "/recipes/list", Role: Viewer, Kind: Async, Name: "recipes.list", Body: body[api.RecipeListBody](), Empty: `[]`},
		{Method: post, Path: "/recipes/get", Role: Viewer, Kind: Async, Name: "recipes.get", Body: body[api.RecipeBody]("recipe_name")},
		{Method: post, Path: "/recipes/create", Role: User, Kind: Async, Name: "recipes.create", Body: body[api.RecipeCreateBody]("name", "content", "recipe_type")},
		{Method: post, Path: "/recipes/update", Role: User, Kind: Async, Name: "recipes.update", Body: body[api.RecipeBody]("recipe_name")},
		{Method: post, Path: "/recipes/delete", Role: User, Kind: Async, Name: "recipes.delete", Body: body[api.RecipeBody]("recipe_name")},
		{Method: post, Path: "/recipes/pin", Role: User, Kind: Async, Name: "recipes.pin", Body: body[api.RecipeBody]("recipe_name", "pinned")},
		{Method: post, Path: "/debug/dump_create", Role: Admin, Kind: Async, Name: "create_debug_dump", Body: body[api.DebugDumpBody]()},
		{Method: get, Path: "/debug/dump_download/{name}", Role: Admin, Kind: Direct, handle: (*Server).downloadDump},
		{Method: post, Path: "/backup", Role: Admin, Kind: Direct, Body: body[api.BackupBody](), handle: (*Server).backup},
		{Method: post, Path: "/debug/dump", Role: Admin, Kind: Direct, Body: body[api.DebugDumpBody](), handle: (*Server).dump},

		// Logins of command lines, and who did what.
		{Method: get, Path: "/auth/authorize", Role: Viewer, Kind: Page, handle: (*Server).authorizePage},
		{Method: post, Path: authorizePath, Role: Viewer, Kind: Direct, Body: body[api.AuthorizeBody]("code_challenge"), handle: (*Server).authorize},
		{Method: get, Path: auth.PollPath, Role: Anyone, Kind: Direct, handle: (*Server).pollLogin},
		{Method: get, Path: "/token", Role: Viewer, Kind: Page, handle: (*Server).tokenPage},
		{Method: get, Path: "/audit", Role: Admin, Kind: Direct, handle: (*Server).audit},

		// Pages and tunnels.
		{Method: get, Path: "/{$}", Role: Anyone, Kind: Page, handle: redirect("/dashboard/")},
		{Method: get, Path: "/dashboard", Role: Viewer, Kind: Page, handle: redirect("/dashboard/")},
		{Method: get, Path: "/dashboard/{path...}", Role: Viewer, Kind: Page, handle: (*Server).dashboard},
		{Method: get, Path: "/dashboard_config", Role: Viewer, Kind: Direct, handle: (*Server).dashboardConfig},
		{Method: get, Path: "/kubernetes-pod-ssh-proxy", Role: User, Kind: Socket, handle: (*Server).sshProxy},
		{Method: get, Path: "/slurm-job-ssh-proxy", Role: User, Kind: Socket, handle: (*Server).sshProxy},
		{Method: get, Path: "/port-forward", Role: User, Kind: Socket, handle: (*Server).forward},
		{Method: get, Path: "/ssh-interactive-auth", Role: User, Kind: Socket, handle: (*Server).noInteractiveLogin},
	}
}

// requestName is the name of a request as it is stored.
func requestName(name string) string { return "sky." + name }

// shortName is a stored name without its prefix.
func shortName(name string) string { return strings.TrimPrefix(name, "sky.") }

func (r Route) schedule() api.ScheduleType {
	if r.Long {
		return api.ScheduleLong
	}
	return api.ScheduleShort
}

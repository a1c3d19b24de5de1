package server

import (
	"reflect"
	"sync"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
)

// An outcome is what a route gives back, for those who read its description: of
// a request the value that it ends with, of other routes their answer. The
// handlers write these very types, and the tests check that.
type outcome struct {
	result reflect.Type // nil: any JSON
	media  string       // of an answer that is not JSON
	params query        // that the handler reads itself
}

func gives[T any](params ...query) outcome {
	o := outcome{result: reflect.TypeFor[T]()}
	for _, p := range params {
		o.params = p
	}
	return o
}

func media(kind string, params query) outcome { return outcome{media: kind, params: params} }

// nothing is the type of null.
type nothing = *struct{}

const (
	mediaText = "text/plain"
	mediaHTML = "text/html"
	mediaZip  = "application/zip"
	mediaTar  = "application/gzip"
)

var (
	incomplete  = query{"incomplete": textParam}
	chunkParams = query{"user_hash": textParam, "upload_id": textParam, "chunk_index": intParam, "total_chunks": intParam}
	allSpaces   = gives[map[string]map[string]any]()
)

// outcomes by method and path; a route that is not here gives any JSON.
var outcomes = sync.OnceValue(func() map[string]outcome {
	return map[string]outcome{
		"GET /api/health":                  gives[healthAnswer](),
		"GET /api/get":                     gives[api.RequestPayload](query{"request_id": textParam}),
		"GET /api/status":                  gives[[]api.RequestPayload](query{"request_ids": textParam, "fields": textParam, "all_status": boolParam, "limit": intParam, "cluster_name": textParam}),
		"GET /api/stream":                  media(mediaText, query{"request_id": textParam, "log_path": textParam, "tail": intParam, "follow": boolParam, "format": textParam, "download": textParam, "compress": textParam, "progress": boolParam}),
		"POST /api/cancel":                 gives[[]string](),
		"GET /api/sizes":                   gives[api.Sizes](nil),
		"GET /api/completion/cluster_name": gives[[]string](incomplete),
		"GET /api/completion/storage_name": gives[[]string](incomplete),
		"GET /api/completion/volume_name":  gives[[]string](incomplete),
		"GET /api/completion/api_request":  gives[[]string](incomplete),
		"GET /api/docs":                    media(mediaHTML, nil),
		"GET /metrics":                     media(mediaText, nil),
		"GET /api/plugins":                 gives[api.Plugins](),

		"POST /check":          gives[map[string]map[string][]string](),
		"POST /validate":       gives[nothing](),
		"POST /launch":         gives[api.LaunchResult](),
		"POST /exec":           gives[api.LaunchResult](),
		"POST /start":          gives[*api.Handle](),
		"POST /stop":           gives[nothing](),
		"POST /down":           gives[nothing](),
		"POST /autostop":       gives[nothing](),
		"POST /cancel":         gives[nothing](),
		"POST /status":         gives[[]api.StatusRecord](),
		"POST /endpoints":      gives[map[string]string](),
		"POST /cost_report":    gives[[]api.CostRecord](),
		"POST /queue":          gives[[]api.JobRecord](),
		"POST /job_status":     gives[map[string]*api.JobStatus](),
		"POST /logs":           gives[int](),
		"POST /provision_logs": media(mediaText, query{"follow": boolParam, "tail": intParam}),
		"POST /download_logs":  gives[map[string]string](),
		"POST /download":       media(mediaZip, query{"relative": textParam}),
		"GET /shell": {params: query{"cluster_name": textParam, "command": textParam, "term": textParam, "tty": boolParam,
			"node": intParam, "rows": intParam, "cols": intParam}},
		"GET /port-forward": {params: query{"cluster_name": textParam, "node": intParam, "host": textParam, "port": intParam}},

		"GET /upload_v2/blob": gives[map[string]bool](query{"user_hash": textParam, "blob_id": textParam}),
		"POST /upload_v2":     gives[uploadAnswer](chunkParams),
		"POST /upload":        gives[uploadAnswer](chunkParams),

		"POST /optimize":          gives[nothing](),
		"POST /cluster_events":    gives[clusterEvents](),
		"POST /volumes/validate":  gives[nothing](),
		"POST /volumes/apply":     gives[nothing](),
		"POST /volumes/delete":    gives[nothing](),
		"POST /list_accelerators": gives[map[string][]api.AcceleratorOffer](),

		"POST /realtime_kubernetes_gpu_availability": gives[[]api.ContextGPUs](),
		"POST /kubernetes_node_info":                 gives[api.KubernetesNodes](),
		"POST /local_up":                             gives[nothing](),
		"POST /local_down":                           gives[nothing](),

		"POST /jobs/launch":        gives[api.JobsLaunchResult](),
		"POST /jobs/queue/v2":      gives[api.JobsQueueResult](),
		"POST /jobs/queue":         gives[[]api.ManagedJob](),
		"POST /jobs/cancel":        gives[nothing](),
		"POST /jobs/schedules":     gives[[]api.JobsSchedule](),
		"POST /jobs/end_schedules": gives[nothing](),
		"POST /jobs/wait":          gives[int](),
		"POST /jobs/events":        gives[[]api.JobsEvent](),
		"POST /jobs/download_logs": gives[map[string]string](),

		"POST /serve/up":                gives[[]string](),
		"POST /serve/update":            gives[nothing](),
		"POST /serve/down":              gives[nothing](),
		"POST /serve/terminate-replica": gives[nothing](),
		"POST /serve/promote":           gives[nothing](),
		"POST /serve/rollback":          gives[nothing](),
		"POST /serve/status":            gives[[]api.Service](),
		"POST /serve/sync-down-logs":    gives[string](),

		"POST /bench/create": gives[nothing](),
		"POST /bench/list":   gives[[]api.Benchmark](),
		"POST /bench/show":   gives[api.Benchmark](),
		"POST /bench/delete": gives[nothing](),

		"GET /enabled_clouds":           gives[[]string](),
		"GET /enabled_clouds/batch":     gives[map[string][]string](),
		"GET /all_contexts":             gives[[]string](),
		"POST /list_accelerator_counts": gives[map[string][]float64](),
		"POST /availability":            gives[[]api.Availability](),
		"POST /sweep":                   gives[api.SweepReport](),
		"GET /catalog/status":           gives[[]api.CatalogStatus](),
		"POST /catalog/refresh":         gives[[]api.CatalogStatus](),

		"GET /users":                                     gives[[]api.UserRecord](),
		"GET /users/role":                                gives[api.UserRole](),
		"GET /users/me/workspace":                        gives[api.WorkspaceChoice](query{"requested": textParam}),
		"POST /users/me/workspace":                       gives[api.UserWorkspaceBody](),
		"POST /users/create":                             gives[nothing](),
		"POST /users/update":                             gives[nothing](),
		"POST /users/delete":                             gives[nothing](),
		"POST /users/batch_update":                       gives[api.UsersUpdated](),
		"POST /users/import":                             gives[api.UsersImported](),
		"GET /users/export":                              gives[api.UsersExport](),
		"GET /users/service-account-tokens":              gives[[]api.ServiceToken](),
		"POST /users/service-account-tokens":             gives[api.NewToken](),
		"POST /users/service-account-tokens/delete":      gives[api.Message](),
		"POST /users/service-account-tokens/get-role":    gives[api.TokenRoles](),
		"POST /users/service-account-tokens/update-role": gives[api.TokenRoleChanged](),
		"POST /users/service-account-tokens/rotate":      gives[api.NewToken](),
		"GET /workspaces":                                allSpaces,
		"POST /workspaces/create":                        allSpaces,
		"POST /workspaces/update":                        allSpaces,
		"POST /workspaces/delete":                        allSpaces,
		"POST /workspaces/batch_add_users":               gives[api.WorkspacesChanged](),
		"POST /workspaces/batch_remove_users":            gives[api.WorkspacesChanged](),
		"GET /workspaces/config":                         gives[map[string]any](),
		"POST /workspaces/config":                        gives[map[string]any](),

		"GET /auth/authorize":      media(mediaHTML, query{"code_challenge": textParam}),
		"POST " + authorizePath:    gives[map[string]string](),
		"GET " + auth.PollPath:     gives[map[string]string](query{"code_verifier": textParam}),
		"GET /token":               media(mediaHTML, query{"local_port": intParam}),
		"GET /audit":               gives[[]api.AuditRecord](query{"since": textParam, "until": textParam, "user": textParam, "cluster": textParam, "action": textParam, "limit": intParam, "format": textParam}),
		"GET /dashboard/{path...}": media(mediaHTML, nil),

		"GET /ssh_node_pools":                gives[map[string]map[string]any](),
		"POST /ssh_node_pools":               gives[map[string]string](),
		"DELETE /ssh_node_pools/{pool}":      gives[map[string]string](),
		"GET /ssh_node_pools/{pool}/status":  gives[api.SSHPoolStatus](),
		"POST /ssh_node_pools/keys":          gives[map[string]string](),
		"GET /ssh_node_pools/keys":           gives[[]string](),
		"GET /storage/ls":                    gives[[]api.Storage](),
		"POST /storage/delete":               gives[nothing](),
		"GET /volumes":                       gives[[]api.Volume](),
		"POST /backup":                       media(mediaBackup, nil),
		"POST /debug/dump":                   media(mediaTar, nil),
		"GET /debug/dump_download/{name}":    media(mediaZip, nil),
		"POST /debug/dump_create":            gives[string](),
		"POST /kubernetes_label_gpus":        gives[api.LabelResult](),
		"POST /jobs/pool_apply":              gives[nothing](),
		"POST /jobs/pool_down":               gives[nothing](),
		"POST /jobs/pool_status":             gives[[]api.Service](),
		"POST /jobs/pool_sync-down-logs":     gives[string](),
		"GET /recipes":                       gives[[]api.Recipe](),
		"POST /recipes/list":                 gives[[]api.Recipe](),
		"POST /recipes/get":                  gives[*api.Recipe](),
		"POST /recipes/create":               gives[*api.Recipe](),
		"POST /recipes/update":               gives[*api.Recipe](),
		"POST /recipes/pin":                  gives[*api.Recipe](),
		"POST /recipes/delete":               gives[bool](),
		"POST /ssh_node_pools/deploy":        gives[nothing](),
		"POST /ssh_node_pools/down":          gives[nothing](),
		"POST /ssh_node_pools/{pool}/deploy": gives[nothing](),
		"POST /ssh_node_pools/{pool}/down":   gives[nothing](),
	}
})

// clusterEvents are [api.ClusterEvent]s, or their texts alone; see known.
type clusterEvents struct{}

// healthAnswer stands for [api.Health] or a part of it; see known.
type healthAnswer struct{}

func (r Route) outcome() outcome { return outcomes()[r.Method+" "+r.Path] }

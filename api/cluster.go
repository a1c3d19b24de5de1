package api

// Bodies and results of the cluster verbs.

// LaunchBody asks for a cluster and a job on it. Task is the multi-document
// YAML of the Dag.
type LaunchBody struct {
	Envelope
	Task                string         `json:"task"`
	ClusterName         string         `json:"cluster_name"`
	RetryUntilUp        bool           `json:"retry_until_up"`
	Dryrun              bool           `json:"dryrun"`
	Backend             *string        `json:"backend,omitempty"`
	OptimizeTarget      int            `json:"optimize_target"` // 0 cost, 1 time
	NoSetup             bool           `json:"no_setup"`
	CloneDiskFrom       *string        `json:"clone_disk_from,omitempty"`
	Fast                bool           `json:"fast"`
	QuietOptimizer      bool           `json:"quiet_optimizer"`
	IncludeCredentials  bool           `json:"include_credentials"`
	Down                bool           `json:"down"`
	IdleMinutesAutostop *int           `json:"idle_minutes_to_autostop,omitempty"`
	ExtraLaunchContext  map[string]any `json:"extra_launch_context,omitempty"`
	// AgreedPrice is what a node may cost an hour, in dollars, if its price has risen since the
	// plan was shown; above that the launch ends with an error of [KindPriceRose]. null: prices that
	// have risen are bounded by max_hourly_cost alone.
	AgreedPrice *float64 `json:"agreed_price,omitempty"`
	PlanOptions
}

// ExecBody asks for a job on a cluster that is up.
type ExecBody struct {
	Envelope
	Task        string  `json:"task"`
	ClusterName string  `json:"cluster_name"`
	Dryrun      bool    `json:"dryrun"`
	Down        bool    `json:"down"`
	Backend     *string `json:"backend,omitempty"`
}

// LaunchResult is the result of launch and exec.
type LaunchResult struct {
	JobID  *int    `json:"job_id"`
	Handle *Handle `json:"handle"`
	Plan   *Plan   `json:"plan,omitempty"` // of a dry run that asked for it
	// SubmittedAt is when the agent took the job, by the agent's clock; 0: unknown.
	// It is for callers inside the server.
	SubmittedAt float64 `json:"-"`
}

// RequestOptions travel with validate and optimize for admin policies.
type RequestOptions struct {
	ClusterName         *string `json:"cluster_name"`
	IdleMinutesAutostop *int    `json:"idle_minutes_to_autostop"`
	Down                bool    `json:"down"`
	Dryrun              bool    `json:"dryrun"`
}

// DagBody is the body of /validate and /optimize.
type DagBody struct {
	Envelope
	Dag            string          `json:"dag"`
	RequestOptions *RequestOptions `json:"request_options"`
	Minimize       int             `json:"minimize,omitempty"`
	CloneDiskFrom  *string         `json:"clone_disk_from,omitempty"` // as in LaunchBody; of /optimize
	PlanOptions
}

// RefreshMode says whether status asks the provider.
type RefreshMode string

const (
	RefreshNone  RefreshMode = "NONE"
	RefreshAuto  RefreshMode = "AUTO"
	RefreshForce RefreshMode = "FORCE"
)

// StatusBody selects clusters; names may be globs. Limit and Page ask for a part
// of the list, the newest launched first; without them it is whole.
type StatusBody struct {
	Envelope
	ClusterNames       []string    `json:"cluster_names"`
	Refresh            RefreshMode `json:"refresh"`
	AllUsers           *bool       `json:"all_users,omitempty"`           // default true
	IncludeCredentials *bool       `json:"include_credentials,omitempty"` // default true
	SummaryResponse    bool        `json:"summary_response"`
	IncludeHandle      *bool       `json:"include_handle,omitempty"` // default true
	Limit              *int        `json:"limit,omitempty"`          // at most so many clusters
	Page               *int        `json:"page,omitempty"`           // which so many, from 1; needs Limit
}

// StartBody restarts a stopped cluster.
type StartBody struct {
	Envelope
	ClusterName         string   `json:"cluster_name"`
	IdleMinutesAutostop *int     `json:"idle_minutes_to_autostop,omitempty"`
	WaitFor             *WaitFor `json:"wait_for,omitempty"`
	RetryUntilUp        bool     `json:"retry_until_up"`
	Down                bool     `json:"down"`
	Force               bool     `json:"force"`
}

// StopBody is the body of /stop and /down.
type StopBody struct {
	Envelope
	ClusterName     string `json:"cluster_name"`
	Purge           bool   `json:"purge"`
	Graceful        bool   `json:"graceful"`
	GracefulTimeout *int   `json:"graceful_timeout,omitempty"` // seconds
}

// AutostopBody sets or (IdleMinutes < 0) cancels autostop.
type AutostopBody struct {
	Envelope
	ClusterName string   `json:"cluster_name"`
	IdleMinutes int      `json:"idle_minutes"`
	WaitFor     *WaitFor `json:"wait_for,omitempty"`
	Down        bool     `json:"down"`
	Hook        *string  `json:"hook,omitempty"`
	HookTimeout *int     `json:"hook_timeout,omitempty"`
}

// QueueBody lists the jobs of one cluster.
type QueueBody struct {
	Envelope
	ClusterName  string `json:"cluster_name"`
	SkipFinished bool   `json:"skip_finished"`
	AllUsers     bool   `json:"all_users"`
}

// JobStatusBody asks for states; no ids means the latest job.
type JobStatusBody struct {
	Envelope
	ClusterName string `json:"cluster_name"`
	JobIDs      []int  `json:"job_ids"`
}

// CancelBody cancels jobs on a cluster.
type CancelBody struct {
	Envelope
	ClusterName string `json:"cluster_name"`
	JobIDs      []int  `json:"job_ids"`
	All         bool   `json:"all"`
	AllUsers    bool   `json:"all_users"`
	TryIfInit   bool   `json:"try_cancel_if_cluster_is_init"`
}

// LogsBody follows or prints one job's log.
type LogsBody struct {
	Envelope
	ClusterName string `json:"cluster_name"`
	JobID       *int   `json:"job_id"`           // nil: the latest
	Follow      *bool  `json:"follow,omitempty"` // default true
	Tail        int    `json:"tail"`             // 0: all
}

// DownloadLogsBody gathers job logs on the server for /download.
type DownloadLogsBody struct {
	Envelope
	ClusterName string   `json:"cluster_name"`
	JobIDs      []string `json:"job_ids"`
	LocalDir    string   `json:"local_dir,omitempty"`
}

// CheckBody checks which infrastructure is enabled.
type CheckBody struct {
	Envelope
	Clouds    []string `json:"clouds"`
	Verbose   bool     `json:"verbose"`
	Workspace *string  `json:"workspace,omitempty"`
}

// APICancelBody cancels requests; nil ids means all active ones.
type APICancelBody struct {
	Envelope
	RequestIDs []string `json:"request_ids"`
	UserID     *string  `json:"user_id"`
}

// Handle describes a cluster's nodes to clients (the object form).
type Handle struct {
	ClusterName        string             `json:"cluster_name"`
	ClusterNameOnCloud string             `json:"cluster_name_on_cloud,omitempty"`
	ClusterYAML        *string            `json:"cluster_yaml,omitempty"`
	LaunchedNodes      int                `json:"launched_nodes,omitempty"`
	LaunchedResources  *LaunchedResources `json:"launched_resources,omitempty"`
	StableIPs          [][2]string        `json:"stable_internal_external_ips,omitempty"` // head first
	StableSSHPorts     []int              `json:"stable_ssh_ports,omitempty"`
	DockerUser         *string            `json:"docker_user,omitempty"`
	IsGRPCEnabled      bool               `json:"is_grpc_enabled"`
	SSHUser            *string            `json:"ssh_user,omitempty"`
	RuntimeMetadata    map[string]bool    `json:"provision_runtime_metadata,omitempty"`
	CannotStop         bool               `json:"cannot_stop,omitempty"` // its nodes can only be given back
}

// LaunchedResources are what was rented, in the words of a task's resources.
type LaunchedResources struct {
	Accelerators map[string]float64 `json:"accelerators,omitempty"` // of one node
	CPUs         string             `json:"cpus"`
	Infra        string             `json:"infra,omitempty"` // "", as InstanceType, on clouds that only sky has
	InstanceType string             `json:"instance_type,omitempty"`
	Memory       string             `json:"memory"` // GB
	UseSpot      bool               `json:"use_spot,omitempty"`
}

// Credentials are what ssh logs in to a cluster's nodes with.
type Credentials struct {
	DockerUser   string `json:"docker_user,omitempty"` // instead of User, where nodes are containers
	ControlName  string `json:"ssh_control_name"`
	PrivateKey   string `json:"ssh_private_key"`                   // the server's file
	KeyContent   string `json:"ssh_private_key_content,omitempty"` // of that file
	ProxyCommand string `json:"ssh_proxy_command,omitempty"`
	User         string `json:"ssh_user"`
}

// StatusRecord is one cluster in the answer of status.
type StatusRecord struct {
	Name            string            `json:"name"`
	LaunchedAt      int64             `json:"launched_at"` // Unix seconds
	Status          ClusterStatus     `json:"status"`
	Autostop        int               `json:"autostop"` // minutes, -1 none
	ToDown          bool              `json:"to_down"`
	ClusterHash     string            `json:"cluster_hash"`
	ClusterEverUp   bool              `json:"cluster_ever_up"`
	UserHash        string            `json:"user_hash"`
	UserName        string            `json:"user_name"`
	Workspace       string            `json:"workspace"`
	Nodes           int               `json:"nodes"`
	LastUse         string            `json:"last_use"`
	StatusUpdatedAt int64             `json:"status_updated_at"`
	Labels          map[string]string `json:"labels"`

	Handle             *Handle        `json:"handle,omitempty"`
	Owner              []string       `json:"owner,omitempty"`
	Metadata           map[string]any `json:"metadata,omitempty"`
	ConfigHash         string         `json:"config_hash,omitempty"`
	LastCreationYAML   string         `json:"last_creation_yaml,omitempty"`
	LastCreationCmd    string         `json:"last_creation_command,omitempty"`
	IsManaged          bool           `json:"is_managed"`
	LastEvent          string         `json:"last_event,omitempty"`
	LaunchStatusReason string         `json:"launch_status_reason,omitempty"`
	ResourcesStr       string         `json:"resources_str"`
	ResourcesStrFull   string         `json:"resources_str_full"`
	Credentials        *Credentials   `json:"credentials,omitempty"`
	Cloud              string         `json:"cloud,omitempty"` // display name: "Local", "AWS"
	Region             string         `json:"region,omitempty"`
	Zone               string         `json:"zone,omitempty"`
	Infra              string         `json:"infra,omitempty"` // as the INFRA column shows it
	CPUs               string         `json:"cpus,omitempty"`
	Memory             string         `json:"memory,omitempty"`
	Accelerators       string         `json:"accelerators,omitempty"`
	ClusterNameOnCloud string         `json:"cluster_name_on_cloud,omitempty"`
	NodeNames          string         `json:"node_names,omitempty"` // in rank order, separated by commas
	Unsaved            *Unsaved       `json:"unsaved,omitempty"`    // nil: buckets that are mounted have all that was written to them
}

// Unsaved is what was written to mounted buckets and is not in them yet.
type Unsaved struct {
	Files int      `json:"files"`
	Bytes int64    `json:"bytes"`
	Names []string `json:"names,omitempty"` // some of the files, as on the nodes
	Error string   `json:"error,omitempty"` // why they are not stored
}

// JobRecord is one job in a cluster's queue.
type JobRecord struct {
	JobID       int            `json:"job_id"`
	JobName     string         `json:"job_name"`
	Username    string         `json:"username"`
	UserHash    string         `json:"user_hash"`
	SubmittedAt float64        `json:"submitted_at"`
	StartAt     *float64       `json:"start_at"`
	EndAt       *float64       `json:"end_at"`
	Resources   string         `json:"resources"`
	Status      JobStatus      `json:"status"`
	LogPath     string         `json:"log_path"`
	Metadata    map[string]any `json:"metadata"`             // free-form facts, such as its git commit
	ExitCodes   []int          `json:"exit_codes,omitempty"` // in rank order
	Reason      string         `json:"reason,omitempty"`     // why it waits or failed
}

// ClusterEvent is something that happened to a cluster.
type ClusterEvent struct {
	Reason string `json:"reason"`
	At     int64  `json:"transitioned_at"` // Unix seconds
}

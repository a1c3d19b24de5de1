// Package task is sky's task language: what a user writes in YAML (or builds
// in Go) to say what to run, on what, with which files.
//
// [Load] reads files, [Parse] text; both answer with a [Dag] or with an
// [*Error] that names file, line and column. Parsing needs no network and no
// catalog; [Dag.Override] lays the flags of a command over what was read, and
// [Dag.Check] does the checks that need files. [Dag.YAML] is how a Dag
// travels, [Dag.DisplayYAML] how people see it.
//
// The language is written down once, in the tables of fields.go and its
// siblings: validation, "did you mean", [JSONSchema] and [Reference] read them.
package task

// Dag is one or more tasks and the order between them. A file with one
// document is a Dag of one task.
type Dag struct {
	Name      string
	Execution Execution
	Tasks     []*Task
	// Job groups only.
	PrimaryTasks     []string
	TerminationDelay map[string]int // seconds by job name, "default" for the rest
	Schedule         *Schedule      // nil: submitted once

	warnings []string
}

// Warnings are notices about what was read: accepted, but not as meant.
func (d *Dag) Warnings() []string { return d.warnings }

// Execution says how the tasks of a Dag relate.
type Execution string

const (
	Serial   Execution = "serial"   // one after the other (the default)
	Parallel Execution = "parallel" // a job group
)

// Task is one unit of work.
type Task struct {
	Name     string
	NumNodes int // at least 1
	Workdir  string
	Git      *GitWorkdir // instead of Workdir
	Setup    string
	Run      string
	Envs     map[string]string
	Secrets  map[string]Secret
	// SecretRefs are names of secrets that the server keeps, without "secrets:".
	SecretRefs     []string
	ManagedSecrets []ManagedSecret
	// Resources are the candidates; at least one. Preference reports how they
	// compete.
	Resources  []Resources
	Preference Preference
	// BlockedResources are never used, also where the task fits.
	BlockedResources []BlockedResources
	EstimatedRuntime float64 // minutes; 0: not known

	FileMounts        map[string]string       // destination → local path or URL
	StorageMounts     map[string]StorageMount // destination → bucket
	Volumes           map[string]VolumeMount
	Service           *Service
	Pool              *Pool
	Inputs, Outputs   *DataSize
	Config            map[string]any // overrides, hooks included
	Hooks             []Hook         // from config.hooks
	EventCallback     string
	DependsOn         []string // names of tasks of the Dag, see [Dag.After]; nil if the task does not say
	MaxDuration       int      // seconds from the first run to the end; 0: no limit
	APIServerAccess   *bool
	FileMountsMapping map[string]string // internal: path on the client → path in the upload

	// UserYAML is the text as written, for display. Metadata is carried along.
	UserYAML string
	Metadata map[string]any

	origin *origin // where it was written; nil if built in Go
}

// Preference says how the candidates in Task.Resources compete.
type Preference string

const (
	AnyOf   Preference = "any_of"  // the cheapest wins (the default)
	Ordered Preference = "ordered" // the first that can be had wins
)

// Secret is a value that never shows itself: it prints, marshals and logs as
// "<redacted>". Reveal gives the text.
type Secret struct{ v string }

// NewSecret keeps s.
func NewSecret(s string) Secret { return Secret{s} }

// Reveal returns the secret text.
func (s Secret) Reveal() string { return s.v }

func (Secret) String() string               { return Redacted }
func (Secret) GoString() string             { return Redacted }
func (Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// Redacted stands where a secret was.
const Redacted = "<redacted>"

// ManagedSecret is a server-kept secret, optionally written to a file.
type ManagedSecret struct{ Name, MountPath string }

// GitWorkdir is a repository cloned into ~/sky_workdir.
type GitWorkdir struct{ URL, Ref string }

// DataSize is where a task's data is and how much of it there is.
type DataSize struct {
	URI string
	GB  float64
}

// Hook runs on the head node before the cluster goes away.
type Hook struct {
	Run     string
	Events  []string // stop, preemption, down
	Timeout int      // seconds
}

// Resources is one candidate of what a task asks for. Zero values mean "not
// asked". Texts with a grammar ("8+", "4x") are kept in canonical form.
type Resources struct {
	Cloud            string // lower case; "" any
	Region, Zone     string
	Regions          []string // when region: is a list; Region is then ""
	Zones            []string
	InstanceType     string
	CPUs             string        // "8", "8+"
	Memory           string        // "16", "16+", "4x": GB
	Accelerators     []Accelerator // a conjunction; in practice at most one
	AcceleratorArgs  map[string]any
	UseSpot          *bool
	JobRecovery      *JobRecovery
	DiskSize         int               // GB; 0: default 256
	EphemeralStorage int               // GB
	ImageID          map[string]string // region → image; "" for any region; "docker" for a container
	DiskTier         string
	NetworkTier      string
	LocalDisk        string
	MaxHourlyCost    float64
	Ports            []string // merged and sorted: "8080", "9000-9010"
	Labels           map[string]string
	Volumes          []map[string]any
	Autostop         *Autostop
	Priority         *int
	PriorityClass    string
	Internal         map[string]any // keys that begin with "_"
	EstimatedRuntime float64        // minutes that the task takes on it; 0: as the task says
}

// BlockedResources is a pattern of what a task must not run on: it matches what
// equals it in all fields that are set. At least one is.
type BlockedResources struct {
	Cloud, Region, Zone string
	InstanceType        string
	Accelerator         string  // "" any
	AcceleratorCount    float64 // 0: any number of Accelerator
	UseSpot             *bool   // nil: both
}

// Accelerator is a GPU or TPU and how many per node.
type Accelerator struct {
	Name  string
	Count float64
}

// JobRecovery says how a managed job comes back.
type JobRecovery struct {
	Strategy            string
	MaxRestartsOnErrors int
	RecoverOnExitCodes  []int
	Extra               map[string]any // passed on to whoever knows the strategy
}

// Autostop says when a cluster gives itself back.
type Autostop struct {
	Enabled     bool // false cancels
	IdleMinutes int
	Down        bool
	WaitFor     string // jobs_and_ssh, jobs, none
}

// StorageMount is a bucket in file_mounts.
type StorageMount struct {
	Name       string
	Sources    []string
	SourceList bool // source was written as a list
	Store      string
	Persistent bool
	Mode       string // MOUNT, COPY, MOUNT_CACHED
	Type       string
	Config     map[string]any
	Internal   map[string]any
}

// VolumeMount is an entry of volumes.
type VolumeMount struct {
	Name, SubPath string
	// Ephemeral volumes have a size instead of a name.
	Size, Type string
	Labels     map[string]string
	Config     map[string]any
}

// Service describes replicas behind one endpoint. Of optional numbers, nil is
// the default, which package internal/serve/spec knows.
type Service struct {
	ReadinessProbe       Probe
	Replicas             *int
	Policy               *ReplicaPolicy
	Ports                int
	LoadBalancingPolicy  string
	StreamTimeoutSeconds float64
	Balancer             *Balancer
	Update               *ServiceUpdate
	DrainSeconds         *float64
	TLSKeyfile           string
	TLSCertfile          string
}

// Probe asks a replica whether it is ready.
type Probe struct {
	Protocol                string // http, tcp or grpc; "": http
	Path                    string // http only
	GRPCService             string // grpc only; "": the whole server
	InitialDelaySeconds     float64
	TimeoutSeconds          float64
	IntervalSeconds         float64
	FailureThresholdSeconds float64
	PostData                string // JSON; "" means GET
	Headers                 map[string]string
}

// ReplicaPolicy scales a service.
type ReplicaPolicy struct {
	Min                   int
	Max                   *int
	TargetQPS             *float64
	TargetQPSByGPU        map[string]float64
	TargetInFlight        *float64
	TargetLatencySeconds  *float64 // 95th percentile of the time to the first byte
	Metric                *MetricTarget
	Schedules             []ReplicaSchedule
	Predictive            bool
	Overprovision         int
	UpscaleDelaySeconds   float64
	DownscaleDelaySeconds float64
	BaseOndemandFallback  int
	DynamicOndemand       bool
	SpotPlacer            string
}

// MetricTarget scales by a Prometheus metric of the replicas: its mean over
// replicas is kept at the target.
type MetricTarget struct {
	Name   string
	Target float64
}

// ReplicaSchedule keeps at least Min replicas for a time after each time of Cron.
type ReplicaSchedule struct {
	Cron            string
	Timezone        string // IANA name; "": UTC
	DurationSeconds int
	Min             int
}

// Balancer has settings of the load balancer; zero is the default.
type Balancer struct {
	AffinityHeader, AffinityCookie string // of the session_affinity policy, one of them
	PrefixLoadFactor               *float64
	QueueRequests                  *int // that wait while no replica can take them
	QueueBytes                     *int
	QueueSeconds                   *float64
	RequestTimeoutSeconds          *float64
	IdleTimeoutSeconds             *float64
	MaxHeaderBytes                 *int
	MaxBodyBytes                   *int
	ReplicaRequests                *int   // that each replica gets at the same time
	Metrics                        string // path of those of vLLM or SGLang
	SlowStartSeconds               *float64
	EjectFailures                  *int // in a row; 0: never
	EjectFirstSeconds              *float64
	EjectMaxSeconds                *float64
	EjectMaxPercent                *float64
	Attempts                       *int
	RetryAfterSeconds              *float64
	KeepAliveSeconds               *float64 // of connections to replicas
	ReplicaProtocol                string
	TrustForwarded                 bool
}

// ServiceUpdate says how a new version takes over.
type ServiceUpdate struct {
	CanaryWeight *float64 // percent of the traffic
	ErrorMargin  *float64 // by which a canary's share of errors or failed probes may exceed the old version's
	MinRequests  *int     // before shares are compared
	MaxSurge     *int     // replicas beyond the target while versions change
}

// Pool is a set of warm workers for managed jobs.
type Pool struct {
	Workers               *int
	Min, Max              *int
	QueueLengthThreshold  *int
	UpscaleDelaySeconds   *float64
	DownscaleDelaySeconds *float64
}

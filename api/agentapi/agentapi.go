// Package agentapi is the schema of the node agent's protocol.
//
// An agent serves HTTP over TLS on its node's own address. Both sides show a
// certificate of the cluster's own authority: the server's names "server", a
// node's names its agent, and nothing else is accepted. How the connection
// reaches the node (directly, through an ssh channel, through a port-forward)
// is the transport's business and invisible here.
//
// The head node's agent owns the cluster's job queue and drives the agents of
// the other nodes. All times are Unix seconds as floats; zero means "not yet".
package agentapi

import (
	"time"

	"github.com/skypilot-go/sky/api"
)

// Port is where an agent listens on its node's address unless told otherwise.
const Port = 46590

// Routes of an agent. {id} is a job id; "head" routes answer 421 on a worker.
const (
	PathInfo     = "GET /v1/info"              // -> Info
	PathCluster  = "PUT /v1/cluster"           // ClusterSpec -> Info; (re)configures, idempotent
	PathSubmit   = "POST /v1/jobs"             // head: SubmitRequest -> SubmitResponse
	PathJobs     = "GET /v1/jobs"              // head: -> []Job, newest first
	PathJob      = "GET /v1/jobs/{id}"         // head: -> Job; id may be "latest"; 404 Error
	PathCancel   = "POST /v1/jobs/cancel"      // head: CancelRequest -> CancelResponse
	PathReported = "POST /v1/jobs/reported"    // head: ReportedRequest -> nothing; how these jobs ended is stored
	PathLog      = "GET /v1/jobs/{id}/log"     // head: raw bytes of the merged log; query offset, tail, follow
	PathLogFiles = "GET /v1/jobs/{id}/files"   // head: tar of the job's log folder, paths relative to ~/sky_logs
	PathEvents   = "GET /v1/events"            // stream of Event, one JSON object a line, for ever; a worker has no jobs to tell of
	PathAutostop = "PUT /v1/autostop"          // head: Autostop -> Info
	PathNotice   = "PUT /v1/notice"            // Notice -> Info: what the cloud announced to the server
	PathShutdown = "POST /v1/shutdown"         // ShutdownRequest -> Info; ends jobs and then the agent
	PathShell    = "GET /v1/shell"             // upgrade to a ShellFrame stream; query: ShellQuery
	PathSync     = "POST /v1/sync"             // upgrade to package filesync's protocol
	PathHookLogs = "GET /v1/hooks/{event}/log" // head: raw bytes
	PathCallback = "POST /v1/callbacks/{key}"  // head: CallbackRequest -> CallbackResult, when the script has ended; the same key never starts it twice
	PathServer   = "GET /v1/server"            // upgrade to a connection to the API server that runs on the node; query home: its home folder, below the agent's; 404 Error if none runs
	PathMounts   = "PUT /v1/mounts"            // MountsRequest -> MountsAnswer; mounts buckets, idempotent
	PathDial     = "GET /v1/dial"              // upgrade to a connection to a TCP address as the node sees it; query address
)

// Headers of PathLog answers.
const (
	HeaderLogOffset = "X-Sky-Log-Offset" // where the body's first byte stands in the log
)

// ClusterSpec tells an agent which cluster it belongs to. Workers get the same
// spec as the head, with their own Self.
type ClusterSpec struct {
	Name        string   `json:"name"`          // display name
	NameOnCloud string   `json:"name_on_cloud"` //
	Hash        string   `json:"hash"`          // one incarnation of the cluster
	Epoch       int64    `json:"epoch"`         // grows with every (re)configuration; an agent refuses a smaller one
	Cloud       string   `json:"cloud"`
	Region      string   `json:"region"`
	Zone        string   `json:"zone"`
	User        string   `json:"user"`     // who launched it
	Nodes       []Node   `json:"nodes"`    // in stable order, head first
	Self        int      `json:"self"`     // index into Nodes
	Capacity    Capacity `json:"capacity"` // of each node
	// Hosts is how many nodes are one TPU slice, which jobs get as a whole: Nodes has those of
	// the first slice, then those of the next; 0: none are.
	Hosts int `json:"hosts,omitempty"`
}

// Node is one node of the cluster.
type Node struct {
	ID      string `json:"id"`
	IP      string `json:"ip"`      // internal address
	Address string `json:"address"` // host:port of its agent, for the other agents
}

// Capacity is what jobs on one node share.
type Capacity struct {
	CPUs      float64 `json:"cpus"`
	MemoryGiB float64 `json:"memory_gib"`
	// Accelerators by name, such as {"A100": 8}. At most one name in practice.
	Accelerators map[string]float64 `json:"accelerators,omitempty"`
}

// Info is what an agent says about itself.
type Info struct {
	Version   string         `json:"version"`
	BuildID   string         `json:"build_id"`
	Platform  string         `json:"platform"` // "linux/amd64"
	NodeID    string         `json:"node_id"`
	Epoch     int64          `json:"epoch"`
	PID       int            `json:"pid"`
	BootID    string         `json:"boot_id"`
	StartedAt float64        `json:"started_at"`
	Home      string         `json:"home"`
	Autostop  *Autostop      `json:"autostop,omitempty"`
	State     AgentState     `json:"state"`
	IdleSince float64        `json:"idle_since"`
	Jobs      map[string]int `json:"jobs,omitempty"`   // count by api.JobStatus
	Notice    *Notice        `json:"notice,omitempty"` // nil: the cloud has announced nothing
	Mounts    *MountsInfo    `json:"mounts,omitempty"` // nil: no bucket is mounted
	// Ended: the cluster is stopping itself and all that ran has ended, but no machine of it can
	// switch itself off: the server is to stop or end them.
	Ended bool   `json:"ended,omitempty"`
	Stuck string `json:"stuck,omitempty"` // why the machine is still on although it was to be stopped; the agent goes on trying
}

// Notice is what a cloud announced about a machine that it may take back.
type Notice struct {
	Action string  `json:"action"` // terminate, stop, hibernate, or NoticeRebalance
	At     float64 `json:"at"`     // when it is done, or since when it is likely
}

// Where the node is a container whose orchestrator is about to end it, EndingFile
// is written in EndingDir: it holds how many seconds are left. The head's agent
// runs the hooks of preemption then and makes EndedFile, for which the
// orchestrator waits that long, or until the process in EndingPID is no more.
const (
	EndingDir  = "/opt/sky"
	EndingFile = "ending"
	EndedFile  = "ended"
	EndingPID  = "agent.pid"
)

// NoticeRebalance says that an interruption is likely and not yet decided.
const NoticeRebalance = "rebalance"

// Final reports that the machine will be taken back.
func (n Notice) Final() bool { return n.Action != NoticeRebalance }

// AgentState says whether the node is on its way out.
type AgentState string

const (
	AgentRunning      AgentState = "running"
	AgentAutostopping AgentState = "autostopping"
	AgentShuttingDown AgentState = "shutting_down"
)

// SubmitRequest queues a job. Key makes it repeatable: the same key gives the
// same job id and never a second job. The server uses the request's id.
type SubmitRequest struct {
	Key   string  `json:"key"`
	Epoch int64   `json:"epoch"`
	Spec  JobSpec `json:"spec"`
	// Report: somebody must learn how the job ended, whatever becomes of the machine.
	// Each Hello and Beat tells it until PathReported says that it is stored.
	Report bool `json:"report,omitempty"`
}

// ReportedRequest says how which jobs ended is stored where it outlives the
// cluster.
type ReportedRequest struct {
	IDs []int `json:"ids"`
}

// SubmitResponse names the job.
type SubmitResponse struct {
	JobID       int     `json:"job_id"`
	Duplicate   bool    `json:"duplicate"` // the key was known
	SubmittedAt float64 `json:"submitted_at"`
}

// JobSpec is all an agent needs to run a job.
type JobSpec struct {
	Name      string            `json:"name"`      // "" shows as "-"
	TaskName  string            `json:"task_name"` // prefix of log lines; "" means "task"
	User      string            `json:"user"`
	UserHash  string            `json:"user_hash"`
	NumNodes  int               `json:"num_nodes"`
	Setup     string            `json:"setup,omitempty"` // script text; run on every node the job uses, first
	Run       string            `json:"run,omitempty"`   // script text; empty: setup only
	Envs      map[string]string `json:"envs,omitempty"`
	Secrets   map[string]string `json:"secrets,omitempty"` // exported like Envs; never logged, never in argv
	Workdir   string            `json:"workdir,omitempty"` // where scripts start, relative to home; "" is ~/sky_workdir if it exists, else ~
	Resources string            `json:"resources"`         // as the RESOURCES column shows it
	// Per-node demand. CPUs 0 counts as 0.5. Accelerator counts may be fractions.
	CPUs         float64            `json:"cpus,omitempty"`
	MemoryGiB    float64            `json:"memory_gib,omitempty"`
	Accelerators map[string]float64 `json:"accelerators,omitempty"`
	// TaskID presets SKYPILOT_TASK_ID (managed jobs); else the agent makes one.
	TaskID   string            `json:"task_id,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Mounts are the paths at which the task mounts buckets: it does not start without them.
	Mounts []string `json:"mounts,omitempty"`
}

// Job is the record of a job on the cluster.
type Job struct {
	ID          int           `json:"id"`
	Key         string        `json:"key"`
	Name        string        `json:"name"`
	User        string        `json:"user"`
	UserHash    string        `json:"user_hash"`
	Status      api.JobStatus `json:"status"`
	SubmittedAt float64       `json:"submitted_at"`
	StartedAt   float64       `json:"started_at"`
	EndedAt     float64       `json:"ended_at"` // of a cancelled job: when it was asked for, and when its processes are gone, that
	Resources   string        `json:"resources"`
	NumNodes    int           `json:"num_nodes"`
	LogDir      string        `json:"log_dir"` // "~/sky_logs/<id>-<name>"
	TaskID      string        `json:"task_id"`
	ExitCodes   []int         `json:"exit_codes,omitempty"`  // rank order; setup's when FAILED_SETUP
	EndedRanks  []int         `json:"ended_ranks,omitempty"` // ranks that were ended because another one failed
	Reason      string        `json:"reason,omitempty"`      // why it waits, or why it failed
	// Noticed: when it failed, the cloud had announced that the head's machine is taken back.
	Noticed bool `json:"noticed,omitempty"`
	// Silent is which of its nodes does not answer the head, and why. Its processes
	// there may be fine.
	Silent   string            `json:"silent,omitempty"`
	Report   bool              `json:"report,omitempty"` // see SubmitRequest
	Metadata map[string]string `json:"metadata,omitempty"`
}

// CancelRequest ends jobs. Exactly one selector counts: IDs, else All (of
// UserHash, or of everybody when UserHash is ""), else the latest running job
// of UserHash.
type CancelRequest struct {
	IDs      []int  `json:"ids,omitempty"`
	All      bool   `json:"all,omitempty"`
	UserHash string `json:"user_hash,omitempty"`
	// GraceSeconds is how long the jobs' processes have between TERM and KILL; 0: 10.
	GraceSeconds int `json:"grace_seconds,omitempty"`
}

// CancelResponse lists the ids that this call really cancelled.
type CancelResponse struct {
	Cancelled []int `json:"cancelled"`
}

// Autostop is when and how the cluster gives itself back.
type Autostop struct {
	IdleMinutes int         `json:"idle_minutes"` // < 0: off
	Down        bool        `json:"down"`
	WaitFor     api.WaitFor `json:"wait_for"`
	// Hooks: nil leaves them, empty clears them.
	Hooks *[]Hook `json:"hooks,omitempty"`
}

// HookTimeout is how long a hook may run that says nothing about it.
const HookTimeout = time.Hour

// Hook runs on the head before the cluster goes away.
type Hook struct {
	Run     string   `json:"run"`
	Events  []string `json:"events"`  // stop, preemption, down; empty: all
	Timeout int      `json:"timeout"` // seconds; 0: HookTimeout
}

// FlushTime is how long the end of a node waits for files of mounted buckets that are not
// uploaded.
const FlushTime = 10 * time.Minute

// ShutdownRequest ends an agent and everything it started.
type ShutdownRequest struct {
	Event        string `json:"event,omitempty"`         // hooks to run first: "stop", "down", or none
	GraceSeconds int    `json:"grace_seconds,omitempty"` // between TERM and KILL; 0: 10
	// FlushSeconds bounds the wait for files of mounted buckets that are not uploaded; 0:
	// FlushTime. The Info of the answer says what is left.
	FlushSeconds int    `json:"flush_seconds,omitempty"`
	Machine      string `json:"machine,omitempty"` // "stop" or "terminate": the agent's machine, too, afterwards
}

// CallbackRequest is a script that is run beside the cluster's jobs: it is none of
// them, and does not keep the cluster from being idle.
type CallbackRequest struct {
	Script         string            `json:"script"`
	Env            map[string]string `json:"env"`             // may hold secrets: never logged, never in argv
	Log            string            `json:"log"`             // name of the file below ~/sky_logs/managed_job_event that its output is added to
	TimeoutSeconds int               `json:"timeout_seconds"` // then it is ended, with all that it started
}

// CallbackResult is how the script ended.
type CallbackResult struct {
	Code     int    `json:"code"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Output   string `json:"output"` // the end of it; "" if it ran before this call
}

// Event is pushed by an agent to whoever listens on PathEvents. The first
// one is a Hello with the whole state, so a listener needs nothing else; a Beat
// comes at least every 10 seconds.
type Event struct {
	Kind EventKind `json:"kind"`
	At   float64   `json:"at"`
	Info *Info     `json:"info,omitempty"` // Hello, Beat, State
	Job  *Job      `json:"job,omitempty"`  // JobChanged
	Jobs []Job     `json:"jobs,omitempty"` // Hello: jobs that have not ended; Hello, Beat: those whose end is to be reported
}

// EventKind names what an Event tells.
type EventKind string

const (
	EventHello      EventKind = "hello"
	EventBeat       EventKind = "beat"
	EventJobChanged EventKind = "job"
	EventState      EventKind = "state" // AgentState or autostop changed
)

// ShellQuery are the query parameters of PathShell. With TTY the command runs
// in a pseudo-terminal of Rows × Cols. An empty Command is a login shell.
type ShellQuery struct {
	Command string
	TTY     bool
	Term    string
	Rows    int
	Cols    int
	Node    int // index into ClusterSpec.Nodes; the head forwards
}

// ProgramEnv is the variable by which a command of PathShell finds the agent's program.
const ProgramEnv = "SKY_AGENT_PROGRAM"

// DevicesEnv is a variable of the agent of a node that has a share of its machine: the
// machine's GPUs that belong to it, by index, with commas; "": none of them. What the agent
// starts sees no others.
const DevicesEnv = "SKY_NODE_GPUS"

// ShellProtocol, SyncProtocol, ServerProtocol and DialProtocol are the Upgrade tokens
// of PathShell, PathSync, PathServer and PathDial.
const (
	ShellProtocol  = "sky-shell/1"
	SyncProtocol   = "sky-sync/1"
	ServerProtocol = "sky-server/1"
	DialProtocol   = "sky-dial/1"
)

// Error is the body of every answer that is not 2xx.
type Error struct {
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// ErrorCode is what a caller branches on.
type ErrorCode string

const (
	CodeNotFound   ErrorCode = "not_found"
	CodeInvalid    ErrorCode = "invalid"
	CodeStaleEpoch ErrorCode = "stale_epoch"   // the caller (or the agent) is out of date
	CodeNotHead    ErrorCode = "not_head"      // 421
	CodeStopping   ErrorCode = "shutting_down" // the node is going away
	CodeNoSpace    ErrorCode = "no_space"      // disk full
	CodeNoFUSE     ErrorCode = "no_fuse"       // nothing can be mounted on the node
	CodeInUse      ErrorCode = "in_use"        // what is to be changed is in use
	CodeBucket     ErrorCode = "bucket"        // a bucket does not exist or cannot be reached with the credentials
	CodeInternal   ErrorCode = "internal"
)

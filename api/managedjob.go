package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// ManagedStatus is the state of one task of a managed job.
type ManagedStatus string

// The states in the order in which they compare.
const (
	ManagedPending         ManagedStatus = "PENDING"
	ManagedStarting        ManagedStatus = "STARTING"
	ManagedRunning         ManagedStatus = "RUNNING"
	ManagedWindingDown     ManagedStatus = "WINDING_DOWN"
	ManagedRecovering      ManagedStatus = "RECOVERING"
	ManagedCancelling      ManagedStatus = "CANCELLING"
	ManagedSucceeded       ManagedStatus = "SUCCEEDED"
	ManagedCancelled       ManagedStatus = "CANCELLED"
	ManagedFailed          ManagedStatus = "FAILED"
	ManagedFailedSetup     ManagedStatus = "FAILED_SETUP"
	ManagedFailedPrechecks ManagedStatus = "FAILED_PRECHECKS"
	ManagedFailedResource  ManagedStatus = "FAILED_NO_RESOURCE"
	ManagedFailedControl   ManagedStatus = "FAILED_CONTROLLER"
)

// ManagedStatuses is every state, in order.
var ManagedStatuses = []ManagedStatus{
	ManagedPending, ManagedStarting, ManagedRunning, ManagedWindingDown, ManagedRecovering, ManagedCancelling,
	ManagedSucceeded, ManagedCancelled, ManagedFailed, ManagedFailedSetup, ManagedFailedPrechecks, ManagedFailedResource, ManagedFailedControl,
}

// Terminal reports whether the state can no longer change.
func (s ManagedStatus) Terminal() bool {
	return s == ManagedSucceeded || s == ManagedCancelled || s.Failed()
}

// Failed reports whether the task ended badly without being cancelled.
func (s ManagedStatus) Failed() bool { return strings.HasPrefix(string(s), string(ManagedFailed)) }

// ExitCode is what following a managed job in this state ends with.
func (s ManagedStatus) ExitCode() int {
	switch {
	case s == ManagedSucceeded:
		return ExitJobSucceeded
	case s == ManagedCancelled:
		return ExitJobCancelled
	case s.Failed():
		return ExitJobFailed
	}
	return ExitJobNotFinished
}

// ScheduleState is what the controller of a managed job does with it.
type ScheduleState string

const (
	ScheduleWaiting      ScheduleState = "WAITING"       // for its first launch
	ScheduleLaunching    ScheduleState = "LAUNCHING"     // holds one of the launches that may run at once
	ScheduleAlive        ScheduleState = "ALIVE"         // runs, or is being ended
	ScheduleAliveBackoff ScheduleState = "ALIVE_BACKOFF" // pauses before it is launched again
	ScheduleAliveWaiting ScheduleState = "ALIVE_WAITING" // for a later launch
	ScheduleDone         ScheduleState = "DONE"
)

// Bodies of the managed job and pool verbs (prefix /jobs).

// JobsLaunchBody starts a managed job, or jobs on a pool.
type JobsLaunchBody struct {
	Envelope
	Task    string  `json:"task"`
	Name    *string `json:"name"`
	Pool    *string `json:"pool"`
	NumJobs *int    `json:"num_jobs"`
}

// JobsLaunchResult names what was submitted.
type JobsLaunchResult struct {
	JobID      IntList `json:"job_id"`                // a number on the wire if it is one job and no array
	ScheduleID int     `json:"schedule_id,omitempty"` // a schedule was kept instead
	Handle     *Handle `json:"handle"`                // null: a job has no cluster yet
	Array      bool    `json:"-"`
}

// MarshalJSON writes the id of a single job as a number.
func (r JobsLaunchResult) MarshalJSON() ([]byte, error) {
	type plain JobsLaunchResult
	if r.Array || len(r.JobID) != 1 {
		return json.Marshal(plain(r))
	}
	return json.Marshal(struct {
		JobID int `json:"job_id"`
		plain
	}{r.JobID[0], plain(r)})
}

// JobsSchedulesBody lists schedules of managed jobs.
type JobsSchedulesBody struct {
	Envelope
	All      bool `json:"all"` // those that have ended, too
	AllUsers bool `json:"all_users"`
}

// JobsSchedule is a schedule that submits a managed job again and again. Times
// are Unix seconds, null for none.
type JobsSchedule struct {
	ID          int      `json:"schedule_id"`
	Name        string   `json:"name"`
	UserName    string   `json:"user_name"`
	UserHash    string   `json:"user_hash"`
	Workspace   string   `json:"workspace"`
	Cron        string   `json:"cron"`
	Timezone    string   `json:"timezone"`
	Missed      string   `json:"missed"`  // once, skip, all
	Overlap     string   `json:"overlap"` // skip, allow
	SubmittedAt *float64 `json:"submitted_at"`
	NextAt      *float64 `json:"next_at"`
	LastAt      *float64 `json:"last_at"`
	LastJob     *int     `json:"last_job_id"` // the first of an array
	Runs        int      `json:"runs"`
	LeftOut     int      `json:"left_out"` // times without a run
	EndedAt     *float64 `json:"end_at"`
}

// JobsEndSchedulesBody ends schedules of managed jobs.
type JobsEndSchedulesBody struct {
	Envelope
	ScheduleIDs []int   `json:"schedule_ids"`
	Name        *string `json:"name"`
	All         bool    `json:"all"`
	AllUsers    bool    `json:"all_users"`
}

// JobsQueueBody lists managed jobs, filtered and paged by the server.
type JobsQueueBody struct {
	Envelope
	Refresh        bool     `json:"refresh"`
	SkipFinished   bool     `json:"skip_finished"`
	AllUsers       bool     `json:"all_users"`
	JobIDs         []int    `json:"job_ids"`
	UserMatch      *string  `json:"user_match"`
	WorkspaceMatch *string  `json:"workspace_match"`
	NameMatch      *string  `json:"name_match"`
	PoolMatch      *string  `json:"pool_match"`
	Page           *int     `json:"page"` // from 1
	Limit          *int     `json:"limit"`
	Statuses       []string `json:"statuses"`
	Fields         []string `json:"fields"`
	SortBy         *string  `json:"sort_by"`
	SortOrder      *string  `json:"sort_order"` // asc, desc
	Attempts       bool     `json:"attempts"`   // with the history of each task's clusters
}

// JobsAttempt is one cluster that a task of a managed job had, or tried to get.
// Times are Unix seconds, null for not yet.
type JobsAttempt struct {
	Attempt     int      `json:"attempt"` // from 1
	Cluster     string   `json:"cluster_name"`
	Infra       string   `json:"infra"`
	Cloud       string   `json:"cloud,omitempty"`
	Region      string   `json:"region,omitempty"`
	Zone        string   `json:"zone,omitempty"`
	Resources   string   `json:"resources,omitempty"`
	Spot        bool     `json:"use_spot"`
	Nodes       int      `json:"nodes"`
	HourlyPrice float64  `json:"hourly_price"` // dollars, of all nodes
	StartedAt   *float64 `json:"started_at"`   // asked for
	RanAt       *float64 `json:"ran_at"`       // the cluster took the job
	EndedAt     *float64 `json:"ended_at"`     // the outcome was known
	ClosedAt    *float64 `json:"closed_at"`    // the cluster was gone
	Outcome     string   `json:"outcome,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	ExitCodes   []int    `json:"exit_codes,omitempty"`
}

// JobsQueueResult is one page of managed jobs.
type JobsQueueResult struct {
	Jobs          []ManagedJob   `json:"jobs"`
	Total         int            `json:"total"`
	TotalNoFilter int            `json:"total_no_filter"`
	StatusCounts  map[string]int `json:"status_counts"`
}

// ManagedJob is one task of a managed job. Times are Unix seconds; null is for what
// is not, or not yet.
type ManagedJob struct {
	JobID           *int           `json:"job_id"`
	Same            *int           `json:"_job_id,omitempty"` // as JobID, where clients of SkyPilot look for it
	TaskID          *int           `json:"task_id"`
	JobName         string         `json:"job_name"`
	TaskName        string         `json:"task_name"`
	Status          ManagedStatus  `json:"status"`
	ScheduleState   ScheduleState  `json:"schedule_state"`
	JobDuration     *float64       `json:"job_duration"` // seconds, without what was lost in between
	RecoveryCount   int            `json:"recovery_count"`
	Workspace       string         `json:"workspace"`
	UserName        string         `json:"user_name"`
	UserHash        string         `json:"user_hash"`
	Details         *string        `json:"details"` // what it waits for
	FailureReason   *string        `json:"failure_reason"`
	SubmittedAt     *float64       `json:"submitted_at"`
	StartAt         *float64       `json:"start_at"`
	EndAt           *float64       `json:"end_at"`
	LastRecoveredAt *float64       `json:"last_recovered_at"`
	RunTimestamp    string         `json:"run_timestamp"`
	UserYAML        string         `json:"user_yaml"`
	Entrypoint      string         `json:"entrypoint"`
	Metadata        map[string]any `json:"metadata"` // free-form facts, such as its git commit
	Priority        int            `json:"priority"`
	PriorityClass   *string        `json:"priority_class"`

	// What it asks for, and the cluster that it has.
	Resources            string         `json:"resources"`
	ClusterResources     string         `json:"cluster_resources"`
	ClusterResourcesFull string         `json:"cluster_resources_full"`
	Infra                string         `json:"infra"`
	Cloud                *string        `json:"cloud"`
	Region               *string        `json:"region"`
	Zone                 *string        `json:"zone"`
	Accelerators         map[string]int `json:"accelerators"` // null: none, or a fraction of one
	NodeNames            *string        `json:"node_names"`   // in rank order, separated by commas
	CurrentCluster       *string        `json:"current_cluster_name"`
	ClusterNameOnCloud   *string        `json:"cluster_name_on_cloud"`

	Execution      string `json:"execution"` // serial, parallel
	JobGroup       bool   `json:"is_job_group"`
	PrimaryInGroup *bool  `json:"is_primary_in_job_group"`
	ArrayID        *int   `json:"array_id"` // the first job of its array
	ArrayRank      *int   `json:"array_rank"`
	ScheduleID     *int   `json:"schedule_id"` // that submitted it

	// Of jobs on pools and of batches.
	Pool        *string `json:"pool"`
	PoolHash    *string `json:"pool_hash"`
	JobIDOnPool *int    `json:"job_id_on_pool_cluster"`
	Batch       bool    `json:"is_batch"`
	BatchTotal  *int    `json:"batch_total_batches"`
	BatchDone   *int    `json:"batch_completed_batches"`

	// Clients of SkyPilot look for these; there is no controller of its own.
	Labels                 map[string]string `json:"labels"`
	Links                  map[string]string `json:"links"`
	ControllerPID          *int              `json:"controller_pid"`
	ControllerPIDStartedAt *float64          `json:"controller_pid_started_at"`
	InternalExternalIPs    [][2]string       `json:"internal_external_ips"`
	InternalServices       []string          `json:"internal_services"`

	Attempts []JobsAttempt `json:"attempts,omitzero"` // if asked for

	only []string
}

// Only makes JSON of j hold only the fields named, and those that every client needs.
func (j *ManagedJob) Only(fields []string) {
	j.only = append([]string{"job_id", "status", "attempts"}, fields...)
}

// MarshalJSON writes the fields that were asked for.
func (j ManagedJob) MarshalJSON() ([]byte, error) {
	type plain ManagedJob
	if j.only == nil {
		return json.Marshal(plain(j))
	}
	var b bytes.Buffer
	v := reflect.ValueOf(j)
	for i, name := range managedJobFields() {
		if name == "" || !slices.Contains(j.only, name) || name == "attempts" && j.Attempts == nil {
			continue
		}
		value, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			return nil, err
		}
		b.WriteString(`,"` + name + `":`)
		b.Write(value)
	}
	b.WriteByte('}')
	text := b.Bytes()
	text[0] = '{' // in place of the first comma: there is always the id
	return text, nil
}

// managedJobFields are the names of the fields of ManagedJob in JSON, "" for those that
// are not part of it.
var managedJobFields = sync.OnceValue(func() []string {
	t := reflect.TypeFor[ManagedJob]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
})

// JobsCancelBody ends managed jobs.
type JobsCancelBody struct {
	Envelope
	Name            *string `json:"name"`
	JobIDs          []int   `json:"job_ids"`
	All             bool    `json:"all"`
	AllUsers        bool    `json:"all_users"`
	Pool            *string `json:"pool"`
	Graceful        bool    `json:"graceful"`
	GracefulTimeout *int    `json:"graceful_timeout"` // seconds
}

// JobsLogsBody follows or prints a managed job's log or its controller's.
type JobsLogsBody struct {
	Envelope
	Name       *string      `json:"name"`
	JobID      *int         `json:"job_id"`           // nil: the latest
	Follow     *bool        `json:"follow,omitempty"` // default true
	Controller bool         `json:"controller"`
	Refresh    bool         `json:"refresh"`
	Tail       *int         `json:"tail"`
	TailOffset *int         `json:"tail_offset"`
	Task       *IntOrString `json:"task"` // index or name
}

// JobsWaitBody waits for a managed job to end.
type JobsWaitBody struct {
	Envelope
	Name         *string      `json:"name"`
	JobID        *int         `json:"job_id"`
	Timeout      *float64     `json:"timeout"`       // seconds
	PollInterval *float64     `json:"poll_interval"` // seconds
	Task         *IntOrString `json:"task"`
}

// JobsDownloadLogsBody gathers a managed job's logs on the server.
type JobsDownloadLogsBody struct {
	Envelope
	Name       *string `json:"name"`
	JobID      *int    `json:"job_id"`
	Refresh    bool    `json:"refresh"`
	Controller bool    `json:"controller"`
	LocalDir   string  `json:"local_dir"`
}

// JobsEventsBody lists what happened to a managed job, newest first.
type JobsEventsBody struct {
	Envelope
	JobID                int  `json:"job_id"`
	TaskID               *int `json:"task_id"`
	Limit                *int `json:"limit"` // default 10
	IncludeClusterEvents bool `json:"include_cluster_events"`
}

// PoolApplyBody makes or resizes a pool.
type PoolApplyBody struct {
	Envelope
	Task     *string `json:"task"`
	Workers  *int    `json:"workers"`
	PoolName string  `json:"pool_name"`
	Mode     string  `json:"mode"` // rolling, blue_green
}

// PoolDownBody ends pools.
type PoolDownBody struct {
	Envelope
	PoolNames Strings `json:"pool_names"`
	All       bool    `json:"all"`
	Purge     bool    `json:"purge"`
}

// PoolStatusBody selects pools; nil names means all.
type PoolStatusBody struct {
	Envelope
	PoolNames Strings `json:"pool_names"`
}

// PoolLogsBody follows the log of a pool's controller or of one worker.
type PoolLogsBody struct {
	Envelope
	PoolName string `json:"pool_name"`
	Target   string `json:"target"` // controller, load_balancer, replica
	WorkerID *int   `json:"worker_id"`
	Follow   *bool  `json:"follow,omitempty"` // default true
	Tail     *int   `json:"tail"`
}

// PoolSyncLogsBody gathers a pool's logs on the server.
type PoolSyncLogsBody struct {
	Envelope
	PoolName  string  `json:"pool_name"`
	LocalDir  string  `json:"local_dir"`
	Targets   Strings `json:"targets"`
	WorkerIDs []int   `json:"worker_ids"`
	Tail      *int    `json:"tail"`
}

// JobsEvent is something that happened to a task of a managed job, or to its cluster.
type JobsEvent struct {
	JobID     int            `json:"spot_job_id"`
	TaskID    *int           `json:"task_id"`
	NewStatus *ManagedStatus `json:"new_status"` // null: it stayed
	Code      string         `json:"code"`
	Reason    string         `json:"reason"`
	Timestamp *float64       `json:"timestamp"` // Unix seconds
}

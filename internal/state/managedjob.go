package state

import (
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
)

// ManagedJob is a job that sky keeps going until it has ended by itself. With
// its tasks and their attempts it is one unit: Version grows with every change
// of any of them.
type ManagedJob struct {
	ID        int
	RequestID string // that submitted it: the same request never makes two
	Version   int64
	Epoch     int64 // fencing: of the lease of the server that runs it

	Name               string
	UserHash, UserName string
	Workspace          string
	Priority           int
	PriorityClass      string
	Entrypoint         string // command line

	Dag      []byte   // tasks in the form that travels, with their secrets
	Config   []byte   // of the request, JSON; lies over the server's
	UserYAML string   // for people
	Files    []string // folders of files that the job needs
	Parallel bool     // its tasks are a job group

	// Of a job array: the id of its first job, which of the Size jobs this is,
	// from 0. Size 0: no array.
	Array, Rank, Size int
	// ScheduleID is the schedule that submitted it; 0: somebody did.
	ScheduleID int

	Schedule    api.ScheduleState
	CancelAsked bool
	CancelBy    time.Time // until then its processes may end by themselves; zero: they are ended at once
	SubmittedAt time.Time
	EndedAt     time.Time

	Tasks []*ManagedTask // in order; all of them
}

// ManagedTask is one task of a managed job.
type ManagedTask struct {
	JobID     int
	Index     int
	Name      string
	Status    api.ManagedStatus
	Resources string // as asked for, for people
	UserYAML  string
	Metadata  map[string]any
	Auxiliary bool // of a job group: its end does not count

	Attempt   int       // number of the latest attempt; 0: none
	Tries     int       // launches of that attempt that found nothing
	NotBefore time.Time // the next launch
	Restarts  int       // attempts after the user's program failed

	Recoveries      int
	SubmittedAt     time.Time // when a controller took it
	StartedAt       time.Time // when it ran first
	EndedAt         time.Time
	LastRecoveredAt time.Time     // since when it runs
	RanFor          time.Duration // before that

	Details string // what it waits for
	Failure string // why it failed
}

// ManagedAttempt is one cluster of a managed job's task. It is written before
// anything is asked of a cloud, and closed when the cluster is gone.
type ManagedAttempt struct {
	JobID, Task, Number int

	ClusterName string
	ClusterHash string // the incarnation; "": not up yet
	ClusterJob  int    // the job's id there; 0: not submitted yet
	Offer       cloud.Offer
	Nodes       int
	NodeNames   []string
	Resources   string // RESOURCES as people see it, short and full
	Full        string
	Progress    []byte // of its launch, for a later life

	StartedAt time.Time
	RanAt     time.Time // the cluster took the job
	EndedAt   time.Time // its outcome was known
	Outcome   string    // "" while it is under way
	Reason    string
	ExitCodes []int

	LogKept  bool      // all of its log that can be had is on the server
	ClosedAt time.Time // the cluster is gone

	// Report is how the agent said that the job ended; nil: it was not heard. Save
	// leaves it alone, see [ManagedJobs.Report].
	Report *ManagedReport
}

// Machines is how many machines the attempt's cluster has, as [Cluster.Machines].
func (a *ManagedAttempt) Machines() int { return a.Offer.Machines(a.Nodes) }

// ManagedReport is an agent's word on how the job of an attempt ended. Times are by
// the agent's clock.
type ManagedReport struct {
	ClusterHash string        `json:"cluster_hash"` // the incarnation that it comes from
	ClusterJob  int           `json:"cluster_job"`
	Status      api.JobStatus `json:"status"`
	StartedAt   float64       `json:"started_at"` // Unix seconds; 0: it did not start
	EndedAt     float64       `json:"ended_at"`
	ExitCodes   []int         `json:"exit_codes,omitempty"`
	Reason      string        `json:"reason,omitempty"`
	Noticed     bool          `json:"noticed,omitempty"` // see agentapi.Job
}

// ManagedEvent is one line of a managed job's history.
type ManagedEvent struct {
	JobID, Task int
	Status      api.ManagedStatus
	Code        string
	Reason      string
	At          time.Time
}

// Current is the task whose state is the job's: the first that has not ended;
// when all have, the first that failed, else the first that did not succeed,
// else the last. Auxiliary tasks do not count; a job has one that is not.
func (j *ManagedJob) Current() *ManagedTask {
	var best *ManagedTask
	for _, t := range j.Tasks {
		if !t.Auxiliary && (best == nil || weight(t.Status) > weight(best.Status)) {
			best = t
		}
	}
	if best.Status == api.ManagedSucceeded {
		for _, t := range slices.Backward(j.Tasks) {
			if !t.Auxiliary {
				return t
			}
		}
	}
	return best
}

func weight(s api.ManagedStatus) int {
	switch {
	case !s.Terminal():
		return 3
	case s.Failed():
		return 2
	case s != api.ManagedSucceeded:
		return 1
	}
	return 0
}

// LogValue keeps tasks, which may hold secrets, out of logs.
func (j ManagedJob) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("id", j.ID), slog.String("name", j.Name), slog.String("schedule", string(j.Schedule)))
}

// String is the job without its contents.
func (j ManagedJob) String() string {
	return strconv.Itoa(j.ID) + " " + j.Name + " " + string(j.Schedule)
}

package agent

import (
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
)

// jobEvent is something that happens to a job.
type jobEvent string

const (
	evQueued      jobEvent = "queued"       // it is on disk and waits
	evSetup       jobEvent = "setup"        // resources are reserved, setup starts
	evRun         jobEvent = "run"          // setup is done or there is none
	evSucceeded   jobEvent = "succeeded"    // every rank ended with 0
	evFailed      jobEvent = "failed"       // a rank did not
	evSetupFailed jobEvent = "setup failed" // setup did not, on some node
	evDriverLost  jobEvent = "driver lost"  // the machine was restarted under it
	evCancelled   jobEvent = "cancelled"    //
)

// moves is the life of a job on a cluster. Ends lead nowhere: they are written
// once.
var moves = fsm.Table[api.JobStatus, jobEvent]{
	api.JobInit: {
		evQueued:     api.JobPending,
		evFailed:     api.JobFailed,
		evDriverLost: api.JobFailedDriver,
		evCancelled:  api.JobCancelled,
	},
	api.JobPending: {
		evSetup:      api.JobSettingUp,
		evRun:        api.JobRunning,
		evFailed:     api.JobFailed,
		evDriverLost: api.JobFailedDriver,
		evCancelled:  api.JobCancelled,
	},
	api.JobSettingUp: {
		evRun:         api.JobRunning,
		evSetupFailed: api.JobFailedSetup,
		evDriverLost:  api.JobFailedDriver,
		evCancelled:   api.JobCancelled,
	},
	api.JobRunning: {
		evSucceeded:  api.JobSucceeded,
		evFailed:     api.JobFailed,
		evDriverLost: api.JobFailedDriver,
		evCancelled:  api.JobCancelled,
	},
	api.JobFailedDriver: {},
	api.JobSucceeded:    {},
	api.JobFailed:       {},
	api.JobFailedSetup:  {},
	api.JobCancelled:    {},
}

package fsm

import (
	"sync"

	"github.com/skypilot-go/sky/api"
)

// ManagedEvent is something that happens to a task of a managed job.
type ManagedEvent string

const (
	ManagedLaunch     ManagedEvent = "launch"      // its first cluster is asked for
	ManagedBackoff    ManagedEvent = "backoff"     // nothing to be had at the moment
	ManagedRelaunch   ManagedEvent = "relaunch"    // a lost cluster is replaced, after a pause
	ManagedRan        ManagedEvent = "ran"         // its cluster has taken the job
	ManagedLost       ManagedEvent = "lost"        // the cluster is gone, or the job is run again
	ManagedCancel     ManagedEvent = "cancel"      // somebody wants it ended
	ManagedSucceeded  ManagedEvent = "succeeded"   // the job ended well
	ManagedCancelled  ManagedEvent = "cancelled"   // what was to be cancelled is gone
	ManagedFailed     ManagedEvent = "failed"      // the user's program failed
	ManagedBadSetup   ManagedEvent = "bad_setup"   // the user's setup failed
	ManagedRefused    ManagedEvent = "refused"     // it can never be launched as it is
	ManagedNoResource ManagedEvent = "no_resource" // it ran once, and nothing can run it any more
	ManagedBroken     ManagedEvent = "broken"      // none of the user's doing
)

// ManagedJobs is the life of a task of a managed job.
var ManagedJobs = sync.OnceValue(func() Table[api.ManagedStatus, ManagedEvent] {
	// Whatever has not ended can be cancelled or fail.
	live := func(more map[ManagedEvent]api.ManagedStatus) map[ManagedEvent]api.ManagedStatus {
		row := map[ManagedEvent]api.ManagedStatus{
			ManagedCancel:     api.ManagedCancelling,
			ManagedFailed:     api.ManagedFailed,
			ManagedBadSetup:   api.ManagedFailedSetup,
			ManagedRefused:    api.ManagedFailedPrechecks,
			ManagedNoResource: api.ManagedFailedResource,
			ManagedBroken:     api.ManagedFailedControl,
			ManagedCancelled:  api.ManagedCancelled,
			ManagedSucceeded:  api.ManagedSucceeded,
		}
		for e, s := range more {
			row[e] = s
		}
		return row
	}
	return Table[api.ManagedStatus, ManagedEvent]{
		api.ManagedPending: live(map[ManagedEvent]api.ManagedStatus{
			ManagedLaunch:   api.ManagedStarting,
			ManagedRelaunch: api.ManagedRecovering,
			ManagedRan:      api.ManagedRunning,
			ManagedLost:     api.ManagedRecovering,
		}),
		api.ManagedStarting: live(map[ManagedEvent]api.ManagedStatus{
			ManagedBackoff: api.ManagedPending,
			ManagedRan:     api.ManagedRunning,
			ManagedLost:    api.ManagedRecovering,
		}),
		api.ManagedRunning: live(map[ManagedEvent]api.ManagedStatus{
			ManagedLost: api.ManagedRecovering,
		}),
		api.ManagedWindingDown: live(nil),
		api.ManagedRecovering: live(map[ManagedEvent]api.ManagedStatus{
			ManagedBackoff: api.ManagedPending,
			ManagedRan:     api.ManagedRunning,
			ManagedLost:    api.ManagedRecovering,
		}),
		// What ends by itself while it is being cancelled keeps its own outcome.
		api.ManagedCancelling: {
			ManagedCancelled: api.ManagedCancelled,
			ManagedSucceeded: api.ManagedSucceeded,
			ManagedFailed:    api.ManagedFailed,
			ManagedBadSetup:  api.ManagedFailedSetup,
			ManagedBroken:    api.ManagedFailedControl,
		},
		api.ManagedSucceeded:       {},
		api.ManagedCancelled:       {},
		api.ManagedFailed:          {},
		api.ManagedFailedSetup:     {},
		api.ManagedFailedPrechecks: {},
		api.ManagedFailedResource:  {},
		api.ManagedFailedControl:   {},
	}
})

// ScheduleEvent is something that the scheduler of managed jobs does.
type ScheduleEvent string

const (
	ScheduleClaimed  ScheduleEvent = "claimed"  // it may launch now
	ScheduleLaunched ScheduleEvent = "launched" // its launch is over
	SchedulePaused   ScheduleEvent = "paused"   // it tries again later
	ScheduleQueued   ScheduleEvent = "queued"   // it wants to launch again
	ScheduleEnded    ScheduleEvent = "ended"    // nothing is left to do
)

// Schedules is the life of a managed job for its scheduler.
var Schedules = sync.OnceValue(func() Table[api.ScheduleState, ScheduleEvent] {
	return Table[api.ScheduleState, ScheduleEvent]{
		api.ScheduleWaiting: {
			ScheduleClaimed: api.ScheduleLaunching,
			ScheduleEnded:   api.ScheduleDone, // cancelled
		},
		api.ScheduleLaunching: {
			ScheduleLaunched: api.ScheduleAlive,
			SchedulePaused:   api.ScheduleAliveBackoff,
			ScheduleQueued:   api.ScheduleAliveWaiting, // another server takes over, or another task waits
			ScheduleEnded:    api.ScheduleDone,
		},
		api.ScheduleAlive: {
			ScheduleClaimed: api.ScheduleLaunching, // another task
			SchedulePaused:  api.ScheduleAliveBackoff,
			ScheduleQueued:  api.ScheduleAliveWaiting,
			ScheduleEnded:   api.ScheduleDone,
		},
		api.ScheduleAliveBackoff: {
			ScheduleLaunched: api.ScheduleAlive, // cancelled: what is left is ended
			ScheduleQueued:   api.ScheduleAliveWaiting,
			ScheduleClaimed:  api.ScheduleLaunching, // another task
			ScheduleEnded:    api.ScheduleDone,
		},
		api.ScheduleAliveWaiting: {
			SchedulePaused:   api.ScheduleAliveBackoff, // another task pauses
			ScheduleClaimed:  api.ScheduleLaunching,
			ScheduleLaunched: api.ScheduleAlive, // cancelled
			ScheduleEnded:    api.ScheduleDone,
		},
		api.ScheduleDone: {},
	}
})

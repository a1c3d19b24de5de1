package fsm

import (
	"sync"

	"github.com/skypilot-go/sky/api"
)

// ReplicaEvent is something that happens to a replica of a service, or to a worker of a pool.
type ReplicaEvent string

const (
	ReplicaProvision ReplicaEvent = "provision" // its machines are about to be asked for
	ReplicaRetry     ReplicaEvent = "retry"     // there were none; it is tried again
	ReplicaLaunched  ReplicaEvent = "launched"  // its program was started
	ReplicaReady     ReplicaEvent = "ready"     // a probe succeeded
	ReplicaNotReady  ReplicaEvent = "not_ready" // a probe failed
	ReplicaStop      ReplicaEvent = "stop"      // it is not needed any more, or has failed
	ReplicaPreempt   ReplicaEvent = "preempt"   // its machines are gone, or their end was announced
	ReplicaGone      ReplicaEvent = "gone"      // its machines were given back, and nothing of it needs to be seen

	// What it is when its machines were given back after a failure.
	ReplicaFailed        ReplicaEvent = "failed"          // its program or setup failed
	ReplicaTooLate       ReplicaEvent = "too_late"        // it was not ready in time
	ReplicaUnhealthy     ReplicaEvent = "unhealthy"       // it was ready once, and its probes failed for too long
	ReplicaUnprovisioned ReplicaEvent = "not_provisioned" // it could not be launched

	ReplicaUncleaned ReplicaEvent = "uncleaned" // its machines could not be given back
	ReplicaForget    ReplicaEvent = "forget"    // nobody needs to see it any more
)

// ReplicaAbsent stands for "no such replica" in [Replicas].
const ReplicaAbsent api.ReplicaStatus = ""

// Replicas is the life of a replica or worker.
var Replicas = sync.OnceValue(func() Table[api.ReplicaStatus, ReplicaEvent] {
	return Table[api.ReplicaStatus, ReplicaEvent]{
		ReplicaAbsent: {},
		api.ReplicaPending: {
			ReplicaProvision: api.ReplicaProvisioning,
			ReplicaForget:    ReplicaAbsent, // it has no machines
		},
		api.ReplicaProvisioning: {
			ReplicaLaunched: api.ReplicaStarting,
			ReplicaRetry:    api.ReplicaPending,
			ReplicaStop:     api.ReplicaShuttingDown,
			ReplicaPreempt:  api.ReplicaPreempted,
		},
		api.ReplicaStarting: {
			ReplicaReady:   api.ReplicaReady,
			ReplicaStop:    api.ReplicaShuttingDown,
			ReplicaPreempt: api.ReplicaPreempted,
		},
		api.ReplicaReady: {
			ReplicaNotReady: api.ReplicaNotReady,
			ReplicaStop:     api.ReplicaShuttingDown,
			ReplicaPreempt:  api.ReplicaPreempted,
		},
		api.ReplicaNotReady: {
			ReplicaReady:   api.ReplicaReady,
			ReplicaStop:    api.ReplicaShuttingDown,
			ReplicaPreempt: api.ReplicaPreempted,
		},
		api.ReplicaShuttingDown: {
			ReplicaGone:          ReplicaAbsent,
			ReplicaFailed:        api.ReplicaFailed,
			ReplicaTooLate:       api.ReplicaFailedDelay,
			ReplicaUnhealthy:     api.ReplicaFailedProbing,
			ReplicaUnprovisioned: api.ReplicaFailedProvision,
			ReplicaUncleaned:     api.ReplicaFailedCleanup,
			ReplicaPreempt:       api.ReplicaPreempted,
		},
		api.ReplicaPreempted: {
			ReplicaGone:      ReplicaAbsent,
			ReplicaUncleaned: api.ReplicaFailedCleanup,
		},
		api.ReplicaFailedCleanup: { // giving its machines back is tried again and again
			ReplicaStop:          api.ReplicaShuttingDown,
			ReplicaForget:        ReplicaAbsent, // purged
			ReplicaGone:          ReplicaAbsent,
			ReplicaFailed:        api.ReplicaFailed,
			ReplicaTooLate:       api.ReplicaFailedDelay,
			ReplicaUnhealthy:     api.ReplicaFailedProbing,
			ReplicaUnprovisioned: api.ReplicaFailedProvision,
		},
		api.ReplicaFailed:          {ReplicaForget: ReplicaAbsent},
		api.ReplicaFailedDelay:     {ReplicaForget: ReplicaAbsent},
		api.ReplicaFailedProbing:   {ReplicaForget: ReplicaAbsent},
		api.ReplicaFailedProvision: {ReplicaForget: ReplicaAbsent},
	}
})

package replicas

import (
	"fmt"
	"slices"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
)

// killed is the exit code of a process that got SIGKILL, as the kernel sends it
// when memory runs out.
const killed = 137

// Ended is the end of a replica's program, which should not end. full reports that
// a disk of the replica was full.
func Ended(status api.JobStatus, codes []int, reason string, full bool) Fact {
	f := Fact{Event: fsm.ReplicaStop, Failure: Crashed, Detail: reason}
	switch {
	case full:
		f.Failure = OutOfDisk
	case slices.Contains(codes, killed) || status == api.JobFailedDriver:
		f.Failure = OutOfMemory
	case status == api.JobFailedSetup:
		f.Failure = SetupFailed
	}
	code := 0
	for _, c := range codes {
		if code == 0 {
			code = c
		}
	}
	if len(codes) > 0 {
		f.Detail = fmt.Sprintf("exit code %d", code)
		if reason != "" {
			f.Detail += ", " + reason
		}
	}
	return f
}

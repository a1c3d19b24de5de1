package replicas

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

func TestProgramsThatEnd(t *testing.T) {
	for _, c := range []struct {
		status api.JobStatus
		codes  []int
		reason string
		full   bool
		want   Failure
		detail string
	}{
		{api.JobFailed, []int{0, 3}, "", false, Crashed, "exit code 3"},
		{api.JobSucceeded, []int{0}, "", false, Crashed, "exit code 0"},
		{api.JobFailedSetup, []int{1}, "pip failed", false, SetupFailed, "exit code 1, pip failed"},
		{api.JobFailed, []int{137}, "", false, OutOfMemory, "exit code 137"},
		{api.JobFailedDriver, nil, "cut off", false, OutOfMemory, "cut off"},
		{api.JobFailed, []int{1}, "", true, OutOfDisk, "exit code 1"},
	} {
		if f := Ended(c.status, c.codes, c.reason, c.full); f.Event != fsm.ReplicaStop || f.Failure != c.want || f.Detail != c.detail {
			t.Errorf("%s %v: %+v", c.status, c.codes, f)
		}
	}
}

// A worker of an older version gets no more jobs when the new one has taken over,
// finishes the one it has, and goes.
func TestUpdatesOfPoolsEnd(t *testing.T) {
	sp := &spec.Spec{Kind: spec.Pool, Scale: spec.Scale{Min: 2, Max: 2}}
	b := newBench(t, sp)
	b.run(10 * time.Minute)
	b.rows[0].InFlight = 1
	b.versions = append(b.versions, Version{2, sp})
	b.state = b.state.Begin(Rolling, 0)
	b.run(10 * time.Minute)
	b.want("rows", b.text(), "1:v1:READY 3:v2:READY 4:v2:READY")
	b.want("routing", b.last.Routing.Ready, []int{3, 4})
	b.rows[0].InFlight = 0
	b.run(time.Minute)
	b.want("rows", b.text(), "3:v2:READY 4:v2:READY")
}

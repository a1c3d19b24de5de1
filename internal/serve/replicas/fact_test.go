package replicas

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/serve/probe"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

func TestProbesBecomeFacts(t *testing.T) {
	s := probe.Settings{Interval: 10 * time.Second, InitialDelay: time.Minute, FailureSpan: 30 * time.Second}
	for _, c := range []struct {
		name    string
		status  api.ReplicaStatus
		answers string // o good, x bad, t silent
		want    fsm.ReplicaEvent
		failure Failure
	}{
		{"never probed", api.ReplicaStarting, "", "", ""},
		{"not yet", api.ReplicaStarting, "x", "", ""},
		{"ready", api.ReplicaStarting, "xo", fsm.ReplicaReady, ""},
		{"still ready", api.ReplicaReady, "oo", "", ""},
		{"not ready", api.ReplicaReady, "ox", fsm.ReplicaNotReady, ""},
		{"still not", api.ReplicaNotReady, "oxx", "", ""},
		{"back", api.ReplicaNotReady, "oxo", fsm.ReplicaReady, ""},
		{"too late", api.ReplicaStarting, "xxxxxxxx", fsm.ReplicaStop, TooLate},
		{"for too long", api.ReplicaNotReady, "oxxxx", fsm.ReplicaStop, Unhealthy},
		{"silent for too long", api.ReplicaNotReady, "oxxxt", fsm.ReplicaStop, Hung},
		{"it goes already", api.ReplicaShuttingDown, "oxxxx", "", ""},
	} {
		var h probe.History
		for i, a := range c.answers {
			h, _ = h.After(s, probe.Result{OK: a == 'o', Timeout: a == 't', Reason: "the reason"}, noon.Add(time.Duration(i)*10*time.Second))
		}
		f, ok := Probed(&Replica{Status: c.status}, h, s)
		if ok != (c.want != "") || ok && (f.Event != c.want || f.Failure != c.failure) || ok && c.want != fsm.ReplicaReady && f.Detail != "the reason" {
			t.Errorf("%s: %+v, %v", c.name, f, ok)
		}
	}
}

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

func TestTerminatingReplicas(t *testing.T) {
	for _, c := range []struct {
		status api.ReplicaStatus
		purge  bool
		want   fsm.ReplicaEvent
		says   string
	}{
		{api.ReplicaReady, false, fsm.ReplicaStop, ""},
		{api.ReplicaProvisioning, false, fsm.ReplicaStop, ""},
		{api.ReplicaPending, false, fsm.ReplicaForget, ""},
		{api.ReplicaFailed, true, fsm.ReplicaForget, ""},
		{api.ReplicaFailed, false, "", "add --purge"},
		{api.ReplicaFailedCleanup, false, fsm.ReplicaStop, ""},
		{api.ReplicaFailedCleanup, true, fsm.ReplicaForget, ""},
		{api.ReplicaShuttingDown, true, "", "already"},
		{api.ReplicaPreempted, false, "", "already"},
	} {
		r := Replica{ID: 1, Status: c.status}
		f, err := Terminate(&r, time.Minute, c.purge, noon)
		if f.Event != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", c.status, f, err)
			continue
		}
		if err != nil {
			continue
		}
		after, err := r.After(f, noon)
		if err != nil || c.status == api.ReplicaReady && (after.Work() != Drain || !after.DrainTo.Equal(noon.Add(time.Minute)) || after.Reason != "terminated by the user") {
			t.Errorf("%s: %+v, %v", c.status, after, err)
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

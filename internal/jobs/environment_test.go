//go:build unix

package jobs

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// attemptOn is an attempt of job 7 whose cluster of so many nodes has its job.
func attemptOn(t *testing.T, s *testbed.Server, nodes string) (*onClusters, *state.ManagedAttempt) {
	t.Helper()
	e, r := &onClusters{s.Store, s.Executor, s.Clusters}, testbed.NewRequest()
	a := &state.ManagedAttempt{JobID: 7, Number: 1, ClusterName: "train-7"}
	p, err := e.Launch(s.Context(), launch{
		call: s.Call(r), attempt: a, held: execution.Held{Holder: state.JobHolder(7)},
		task: "num_nodes: " + nodes + "\nresources: {infra: fluffycloud, cpus: 2+}\nrun: |\n  echo working\n  sleep 5h\n",
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Out)
	}
	if p.Offer.Region != "north" || len(p.NodeNames) != p.Nodes || p.Resources == "" || p.Full == "" || p.At.IsZero() {
		t.Errorf("%+v", p)
	}
	a.ClusterHash, a.ClusterJob, a.Nodes = p.Hash, p.Job, p.Nodes
	time.Sleep(time.Second)
	return e, a
}

// What a server finds out about an attempt whose cluster runs, whose agent is silent,
// or whose cluster is another one by now.
func TestWhatIsFoundOutAboutAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		e, a := attemptOn(t, s, "1")
		ctx := s.Context()
		if o := e.Observe(ctx, a); !o.observed || o.cluster != clusterUp || o.job == nil || o.job.Status != api.JobRunning || o.silent != "" || o.noJob || o.confirmed {
			t.Errorf("it runs: %+v", o)
		}
		if o := e.Recorded(ctx, a); !o.observed || o.cluster != clusterUp || o.confirmed || o.job != nil {
			t.Errorf("on record: %+v", o)
		}
		if c, reason, err := e.Confirm(ctx, a); c != clusterUp || reason != "" || err != nil {
			t.Errorf("the provider says %v, %q, %v", c, reason, err)
		}
		for job, taken := range map[int]bool{7: false, 8: true} {
			if got, err := e.Taken(ctx, a.ClusterName, job); got != taken || err != nil {
				t.Errorf("its name is taken for job %d: %v, %v", job, got, err)
			}
		}
		if got, err := e.Taken(ctx, "other", 7); got || err != nil {
			t.Errorf("a free name is taken: %v, %v", got, err)
		}
		unknown, other := *a, *a
		unknown.ClusterJob, other.ClusterHash = 9, "other"
		if o := e.Observe(ctx, &unknown); !o.noJob || o.job != nil || o.silent != "" {
			t.Errorf("a job that it does not know: %+v", o)
		}
		if o := e.Observe(ctx, &other); o.cluster != clusterGone || !o.confirmed || o.reason != "the cluster is gone" {
			t.Errorf("another incarnation: %+v", o)
		}
		if c, reason, err := e.Confirm(ctx, &other); c != clusterGone || reason == "" || err != nil {
			t.Errorf("of another incarnation the provider says %v, %q, %v", c, reason, err)
		}
		if rc, err := e.Log(ctx, &other, 0); err == nil {
			rc.Close()
			t.Error("another incarnation has a log")
		}
		if err := e.End(ctx, &other, 0); err != nil {
			t.Errorf("to end what is gone: %v", err)
		}
		if _, err := e.Callback(ctx, &other, "k", agentapi.CallbackRequest{}); !errors.Is(err, errNoNode) {
			t.Errorf("a callback on another incarnation: %v", err)
		}
		if _, err := e.Callback(ctx, a, "k", agentapi.CallbackRequest{}); err == nil || errors.Is(err, errNoNode) {
			t.Errorf("a callback that its agent does not know of: %v", err)
		}
		rc, err := e.Log(ctx, a, 4)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 4)
		if _, err := io.ReadFull(rc, text); string(text) != "ing\n" || err != nil {
			t.Errorf("from byte 4: %q, %v", text, err)
		}
		rc.Close()
		if rc, err := e.Log(ctx, a, 1000); err == nil {
			rc.Close()
			t.Error("there is a log behind its end")
		}
		if o := e.Observe(ctx, a); o.job.Status != api.JobRunning {
			t.Errorf("it was ended: %s", o.job.Status)
		}
		if err := e.End(ctx, a, 0); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if o := e.Observe(ctx, a); o.job == nil || o.job.Status != api.JobCancelled {
			t.Errorf("after its end: %+v", o)
		}
		if at := e.Heard(ctx, a); time.Since(at) > time.Minute && !at.IsZero() {
			t.Errorf("heard of at %v", at)
		}
		s.Refuse("agent.start", errors.New("no shell"))
		b.Head(a.ClusterName).Crash()
		if o := e.Observe(ctx, a); o.silent == "" || o.job != nil || o.noJob || o.cluster != clusterUp {
			t.Errorf("its agent is silent: %+v", o)
		}
		s.End()
	})
}

// A cluster that lost a node is broken, and its head may still tell of its job; one
// of a single node has nobody to ask.
func TestWhatIsFoundOutAboutAnAttemptThatLostAMachine(t *testing.T) {
	for nodes, head := range map[string]bool{"1": false, "2": true} {
		synctest.Test(t, func(t *testing.T) {
			b := testbed.New(t)
			s := b.Boot(failpoint.Endless)
			e, a := attemptOn(t, s, nodes)
			c := b.Cluster(a.ClusterName)
			lost := c.Nodes[len(c.Nodes)-1].ID
			if err := b.Cloud.Kill(lost, "taken back"); err != nil {
				t.Fatal(err)
			}
			b.Node(lost)
			s.Refuse("agent.start", errors.New("no shell"))
			got, reason, err := e.Confirm(s.Context(), a)
			if got == clusterUp || got == clusterUnknown || reason == "" || err != nil || head != (got == clusterBroken) {
				t.Errorf("of %s nodes: %v, %q, %v", nodes, got, reason, err)
			}
			o := e.Observe(s.Context(), a)
			if o.cluster != got || !o.confirmed || o.reason == "" || (o.job != nil) != head {
				t.Errorf("of %s nodes: %+v", nodes, o)
			}
			s.End()
		})
	}
}

// What a record says of a cluster, and for how long that counts as confirmed.
func TestWhatARecordConfirms(t *testing.T) {
	for _, c := range []struct {
		status    api.ClusterStatus
		ago       time.Duration
		want      clusterState
		confirmed bool
	}{
		{api.ClusterUp, 0, clusterUp, false},
		{api.ClusterAutostopping, 0, clusterUp, false},
		{api.ClusterInit, freshRecord - 1, clusterBroken, true},
		{api.ClusterInit, freshRecord, clusterBroken, false},
		{api.ClusterStopped, 0, clusterBroken, true},
	} {
		var o observation
		o.recorded(&state.Cluster{Status: c.status, StatusUpdatedAt: noon.Add(-c.ago), LastEvent: "why"}, noon)
		if reason := map[bool]string{true: "why"}[c.want == clusterBroken]; o.cluster != c.want || o.confirmed != c.confirmed || o.reason != reason {
			t.Errorf("%s since %v: %+v", c.status, c.ago, o)
		}
	}
	for _, c := range []struct {
		job  agentapi.Job
		want string
	}{{agentapi.Job{Status: api.JobRunning, Silent: "worker1"}, "worker1"}, {agentapi.Job{Status: api.JobSucceeded, Silent: "worker1"}, ""}} {
		var o observation
		if o.answered(&c.job); o.silent != c.want || o.job == nil {
			t.Errorf("%s: %+v", c.job.Status, o)
		}
	}
}

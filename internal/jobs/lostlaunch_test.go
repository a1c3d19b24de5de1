//go:build unix

package jobs

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// TestALaunchIsLostWithMachinesThatWereTakenAwayAfterItsJobWasSent takes a machine
// away while a server that has just sent a job is dead. There is no room any more
// where it was: the next server gives the attempt up at once.
func TestALaunchIsLostWithMachinesThatWereTakenAwayAfterItsJobWasSent(t *testing.T) {
	for name, nodes := range map[string]string{"one node": "1", "a gang": "2"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := testbed.New(t)
				a := &state.ManagedAttempt{JobID: 7, Number: 1, ClusterName: "train-7"}
				r := testbed.NewRequest()
				bring := func(s *testbed.Server) (placed, error) {
					e := &onClusters{s.Store, s.Executor, s.Clusters}
					return e.Launch(s.Context(), launch{
						call: s.Call(r), attempt: a, held: execution.Held{Holder: state.JobHolder(7)},
						task: "num_nodes: " + nodes + "\nresources: {infra: fluffycloud, cpus: 2+}\nrun: sleep 1h\n",
					})
				}
				s := b.Boot(failpoint.Endless)
				p, err := bring(s)
				if err != nil {
					t.Fatalf("%v\n%s", err, r.Out)
				}
				// The answer of the agent was never stored.
				if a.Progress, err = json.Marshal(execution.Progress{Submitting: p.Hash}); err != nil {
					t.Fatal(err)
				}
				if err := s.Call(r).Save(t.Context(), a.Progress); err != nil {
					t.Fatal(err)
				}
				s.End()
				c := b.Cluster("train-7")
				if err := b.Cloud.Kill(c.Nodes[c.NumNodes-1].ID, "taken back"); err != nil {
					t.Fatal(err)
				}
				b.Inject(model.Fault{ID: "full", Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NoCapacity, Message: "no room"})
				began := time.Now()
				s = b.Boot(failpoint.Endless)
				if nodes == "2" { // what the watch of a server notes
					if _, err := s.Clusters.Confirm(s.Context(), "train-7"); err != nil {
						t.Fatal(err)
					}
				}
				_, err = bring(s)
				if judge(err, false) != lostIt {
					t.Errorf("%v\n%s", err, r.Out)
				}
				if _, ok := errors.AsType[*provision.UnplacedError](err); ok {
					t.Error("room was looked for where it was")
				}
				if took := time.Since(began); took > 2*time.Minute {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

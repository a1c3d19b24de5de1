//go:build unix

package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// A server that ends when it is idle goes on while anything is left to do.
func TestAServerIsIdleOnceNothingIsLeftToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		const long = 10 * time.Minute
		began := time.Now()
		if b.d.waitIdle(b.ctx, long); time.Since(began) < long || time.Since(began) > long+2*idlePoll {
			t.Errorf("with nothing to do from the start it waited %v", time.Since(began))
		}
		idle := func(ctx context.Context) <-chan struct{} {
			done := make(chan struct{})
			go func() { b.d.waitIdle(ctx, long); close(done) }()
			return done
		}
		over := func(done <-chan struct{}) bool {
			time.Sleep(3 * long)
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
		// A cluster, and the request that brings it up.
		b.launch("box", "sleep 100h")
		done := idle(b.ctx)
		if over(done) {
			t.Error("it ended beside a cluster")
		}
		if err := b.do("sky.down", "box", api.StopBody{ClusterName: "box"}, nil); err != nil {
			t.Fatal(err)
		}
		if !over(done) {
			t.Error("it goes on with nothing to do")
		}
		// A managed job that nobody has begun.
		job, err := b.Store.ManagedJobs().Submit(t.Context(), &state.ManagedJob{RequestID: "r", Name: "j", UserHash: testbed.Ann.ID, Workspace: "default",
			SubmittedAt: time.Now(), Dag: []byte("name: x\n---\nrun: x\n"), Tasks: []*state.ManagedTask{{Name: "j"}}})
		if err != nil {
			t.Fatal(err)
		}
		done = idle(b.ctx)
		if over(done) {
			t.Errorf("it ended before job %d", job.ID)
		}
		ctx, stop := context.WithCancel(b.ctx)
		left := idle(ctx)
		stop()
		if !over(left) {
			t.Error("it waits on although it is to end")
		}
		// What cannot be found out counts as work.
		gone, end := context.WithCancel(t.Context())
		end()
		if !b.d.busy(gone) {
			t.Error("without a database it thinks that nothing is to do")
		}
	})
}

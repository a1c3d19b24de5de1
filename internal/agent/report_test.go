//go:build unix

package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

// told is the ends of jobs that the head tells whoever comes.
func (c *testCluster) told() (ended []agentapi.Job) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	done := errors.New("seen")
	for { // an agent that was just restarted does not answer yet
		err := c.head.Events(ctx, func(e agentapi.Event) error {
			for _, j := range e.Jobs {
				if j.Status.Terminal() {
					ended = append(ended, j)
				}
			}
			return done
		})
		if errors.Is(err, done) {
			return ended
		}
		if ctx.Err() != nil {
			c.t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// How a job ended is told to whoever comes, also by the next agent, until somebody
// says that it is stored. Jobs that do not ask for it are not told of.
func TestAnEndIsToldUntilItIsStored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, agentapi.Capacity{}, false)
	resp, err := c.head.Submit(t.Context(), agentapi.SubmitRequest{Key: "k", Epoch: c.spec.Epoch, Spec: agentapi.JobSpec{Run: "exit 3"}, Report: true})
	if err != nil {
		t.Fatal(err)
	}
	id := resp.JobID
	c.awaitEnd(id)
	c.awaitEnd(c.submit(agentapi.JobSpec{Run: "true"}))
	for range 2 {
		if got := c.told(); len(got) != 1 || got[0].ID != id || got[0].Status != api.JobFailed || len(got[0].ExitCodes) != 1 || got[0].ExitCodes[0] != 3 || !got[0].Report {
			t.Errorf("told: %s", mustJSON(got))
		}
		c.nodes[0].kill()
		c.nodes[0].spawn()
	}
	c.told()
	for range 2 { // a second time changes nothing
		if err := c.head.Reported(t.Context(), []int{id, 77}); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.told(); len(got) != 0 {
		t.Errorf("told although it is stored: %s", mustJSON(got))
	}
	c.nodes[0].kill()
	c.nodes[0].spawn()
	if got := c.told(); len(got) != 0 {
		t.Errorf("the next agent tells it although it is stored: %s", mustJSON(got))
	}
}

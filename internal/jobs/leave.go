package jobs

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/proc"
)

// leaveAgain is how often it is looked whether a job that may end by itself
// still can, and how soon an agent that did not answer is asked again.
const leaveAgain = 5 * time.Second

// endBy is until when the processes of an attempt that is ended from here may end
// by themselves: as whoever cancelled its job allows, else as anywhere.
func endBy(s situation) time.Time {
	if outcome(s.attempt.Outcome) == outAborted && s.job.CancelAsked {
		return s.job.CancelBy
	}
	return s.attempt.EndedAt.Add(proc.Grace)
}

// leave lets the job of an attempt that is ended from here end by itself,
// until the time is up or its cluster is lost. It reports whether there is nothing
// more to wait for; if not, somebody changed the job: it is to be decided anew.
func (r *runner) leave(ctx context.Context, s situation) (over bool, err error) {
	a, by := s.attempt, endBy(s)
	r.follow(a)
	t := time.NewTicker(leaveAgain)
	defer t.Stop()
	for told := false; ; {
		if !told {
			if err := r.end(ctx, s); err != nil {
				r.out.Printf("Cluster %s could not be asked to end its job; asking again: %v", a.ClusterName, err)
			} else {
				told = true
				r.out.Printf("The job's processes on cluster %s may end by themselves until %s", a.ClusterName, by.UTC().Format("15:04:05 MST"))
			}
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-r.copy.done:
			return true, nil
		case <-r.rows:
			return false, nil
		case <-r.changed:
		case <-t.C:
		}
		if o := r.observe(ctx, a); o.cluster == clusterGone || o.cluster == clusterBroken || !time.Now().Before(by) {
			return true, nil
		}
	}
}

func (r *runner) end(ctx context.Context, s situation) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return r.m.env.End(ctx, s.attempt, time.Until(endBy(s)))
}

package serve

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/serve/replicas"
)

// worker is what is being done about one replica.
type worker struct {
	work   replicas.Work
	again  bool // it has come to its end although the row still asks for its work
	cancel context.CancelFunc
	done   chan struct{}
}

// catchUp is how long replicas that may be in the tables of balancers stay after a
// server began to look after the service: the one before may have died before balancers
// got its last decision.
const catchUp = 5 * time.Second

// act makes every replica have the worker that its row asks for. It returns after what
// time to do so again; 0: when something changes.
func (c *controller) act(ctx context.Context) (again time.Duration) {
	for id, w := range c.workers {
		if r, ok := c.rows[id]; !ok || r.Work() != w.work && r.Work() != replicas.Drain {
			w.cancel()
			if !ok {
				delete(c.workers, id)
				c.forget(id)
			}
		}
	}
	for _, id := range sortedIDs(c.rows) {
		r := c.rows[id]
		work := r.Work()
		w := c.workers[id]
		if w != nil && w.work == work && !w.again || work == replicas.Nothing || work == replicas.Drain {
			continue
		}
		if wait := catchUp - time.Since(c.begin); work == replicas.End && wait > 0 && r.at.Endpoint != "" && !c.svc.DownAsked {
			again = wait
			continue
		}
		var do func(context.Context, row)
		switch work {
		case replicas.Launch:
			do = c.launch
		case replicas.Probe:
			own, latest := c.settingsOf(r.Version)
			if own == nil {
				continue // no version can be read, which the log says
			}
			do = func(ctx context.Context, r row) { c.watch(ctx, r, own, latest) }
		case replicas.End:
			do = c.end
		}
		wctx, cancel := context.WithCancel(ctx)
		next := &worker{work: work, cancel: cancel, done: make(chan struct{})}
		c.workers[id] = next
		go func() {
			defer close(next.done)
			defer cancel()
			if w != nil { // two never work on one replica
				w.cancel()
				<-w.done
			}
			if wctx.Err() == nil {
				do(wctx, r)
			}
		}()
	}
	return again
}

// report hands over what a worker has to say.
func (c *controller) report(ctx context.Context, r report) {
	select {
	case c.reports <- r:
	case <-ctx.Done():
	}
}

// forget drops what is remembered of a replica that is gone.
func (c *controller) forget(id int) {
	c.metricsMu.Lock()
	defer c.metricsMu.Unlock()
	delete(c.metrics, id)
}

func (c *controller) metric(id int) (float64, bool) {
	c.metricsMu.Lock()
	defer c.metricsMu.Unlock()
	x, ok := c.metrics[id]
	return x, ok
}

func (c *controller) setMetric(id int, x float64, ok bool) {
	c.metricsMu.Lock()
	defer c.metricsMu.Unlock()
	if !ok {
		delete(c.metrics, id)
		return
	}
	c.metrics[id] = x
}

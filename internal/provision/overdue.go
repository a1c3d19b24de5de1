package provision

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// GoneWithin is how long machines that are given back may stay listed before
// somebody is told: each second of it may cost money.
const GoneWithin = time.Minute

// overdue raises its voice, once, when machines are not proven gone in time. It
// asks nobody; whoever gives them back says what is known.
type overdue struct {
	mu    sync.Mutex
	known string
	over  bool
	timer *time.Timer
}

// watchOver waits for the machines of a cluster to go. late, if given, is told in
// one sentence that they have not, as the log is. The caller ends it with stop;
// after that nothing is told.
func (e *Engine) watchOver(ctx context.Context, cluster string, at cloud.Place, late func(string)) *overdue {
	w := &overdue{known: "the cloud has not answered yet"}
	w.timer = time.AfterFunc(GoneWithin, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.over {
			return
		}
		e.log.ErrorContext(ctx, "machines are not proven gone in time; ending them goes on", "cluster", cluster, "place", at.String(), "after", GoneWithin, "known", w.known)
		if late != nil {
			late(fmt.Sprintf("The machines of cluster %s in %v were to be gone within %s, and that is not proven: %s. They may still run and cost money; ending them goes on.",
				cluster, at, took(GoneWithin), w.known))
		}
	})
	return w
}

// saw notes how the latest try to end them came out.
func (w *overdue) saw(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.known = err.Error()
	}
}

func (w *overdue) stop() {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

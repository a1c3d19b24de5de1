package provision

import (
	"context"
	"io"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// ReportProgress shows on out what providers wait for under the returned context, and
// every half minute that doing still goes on, until end is called. It begins
// with doing, as in "stopping cluster c". A nil out hears nothing.
func ReportProgress(ctx context.Context, out io.Writer, doing string) (told context.Context, end func()) {
	if out == nil {
		return ctx, func() {}
	}
	return reportProgress(ctx, &progress{w: out}, doing)
}

func reportProgress(ctx context.Context, out *progress, doing string) (context.Context, func()) {
	w := &waits{step: &step{doing: doing, out: out}}
	began := time.Now()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(reportEvery)
		defer t.Stop()
		for {
			select {
			case <-stop:
				return
			case <-t.C:
				out.say("… still %s%s: %s so far", doing, w.now(), took(time.Since(began)))
			}
		}
	}()
	return cloud.WithWaitReports(ctx, w.hear), func() { close(stop); <-ended }
}

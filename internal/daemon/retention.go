package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// attemptsKept is how long tries to get machines are remembered: they teach
// where capacity is.
const attemptsKept = 90 * 24 * time.Hour

const forgetEvery = time.Hour

// hours turns a setting into a time span; negative stays negative: for ever.
func hours(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }

// forget removes what is older than the configuration wants it kept.
func (d *daemon) forget(ctx context.Context) {
	t := time.NewTicker(forgetEvery)
	defer t.Stop()
	for {
		d.oncePer(ctx, forgetEvery, "forget", d.forgetOnce)
		d.forgetFiles(ctx) // each server has its own
		d.advance(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (d *daemon) forgetOnce(ctx context.Context) {
	c := d.settings.current()
	for key, types := range map[string][]string{
		"cluster_event_retention_hours":          {"STATUS_CHANGE", "LAUNCH_PROGRESS"},
		"cluster_debug_event_retention_hours":    {"DEBUG"},
		"cluster_terminal_event_retention_hours": {"TERMINAL"},
	} {
		if kept := hours(c.Float("api_server", key)); kept >= 0 {
			if _, err := d.store.Clusters().DeleteEvents(ctx, types, time.Now().Add(-kept)); err != nil && ctx.Err() == nil {
				d.log.WarnContext(ctx, "old cluster events not removed", "err", err)
			}
		}
	}
	if _, err := d.store.Attempts().Delete(ctx, time.Now().Add(-attemptsKept)); err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "old attempts not removed", "err", err)
	}
}

// forgetFiles removes old files of this server.
func (d *daemon) forgetFiles(ctx context.Context) {
	c := d.settings.current()
	kept := func(what string) time.Duration {
		return hours(c.Float("jobs", "controller", what+"_logs_gc_retention_hours"))
	}
	if err := d.jobs.Forget(ctx, kept("task"), kept("controller")); err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "old logs of managed jobs not removed", "err", err)
	}
	if err := shorten(os.Stderr, filepath.Join(d.o.Home, ".sky", "api_server", "server.log"), int64(c.Int("api_server", "daemon_log_max_bytes"))); err != nil {
		d.log.WarnContext(ctx, "the server's log grows on", "err", err)
	}
}

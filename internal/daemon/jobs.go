package daemon

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/jobs"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/taskfiles"
)

// newJobs makes the manager of managed jobs.
func (d *daemon) newJobs() *jobs.Manager {
	return jobs.New(jobs.Deps{
		Store: d.store, Executor: d.executor, Clusters: d.clusters, Log: d.log,
		ServerID: d.serverID(), Dir: filepath.Join(d.dir, "jobs"), LogLimits: d.logLimits, Files: d.taskFiles, Buckets: d.buckets,
		Patience: func() time.Duration {
			return time.Duration(d.settings.current().Int("jobs", "controller", "unreachable_minutes")) * time.Minute
		},
		Callbacks: func(ctx context.Context, owner state.User) jobs.CallbackPlace {
			if !d.logins && d.administers(ctx, owner) {
				return jobs.CallbackPlace{Here: true}
			}
			return jobs.CallbackPlace{Runner: d.settings.current().Texts("jobs", "callback_runner")}
		},
		Admit: func(ctx context.Context, user state.User, dag string, sent map[string]any, out io.Writer) (string, *config.Config, error) {
			return d.admitHeld(ctx, policy.JobsLaunchCluster, user, dag, sent, out)
		},
	})
}

// newTaskFiles is the copies of files that jobs and services need.
func (d *daemon) newTaskFiles() *taskfiles.Files {
	var shared *logstore.Files
	if d.store.Shared() {
		shared = &logstore.Files{Store: d.store}
	}
	return taskfiles.New(filepath.Join(d.dir, "jobs", "files"), shared,
		func(ctx context.Context) (map[string]bool, error) { return d.store.ManagedJobs().FilesInUse(ctx) },
		func(ctx context.Context) (map[string]bool, error) { return d.store.Services().FilesInUse(ctx) })
}

// registerJobs makes the verbs of managed jobs known to the engine.
func (d *daemon) registerJobs() {
	e, j := d.engine, d.jobs
	e.Handle(reqJobsLaunch, api.ScheduleLong, d.forwardToController(d.jobsController, verb(func(ctx context.Context, c cluster.Call, b api.JobsLaunchBody) (_ any, err error) {
		if b.Task, err = d.admit(ctx, &c, policy.JobsLaunch, b.Task, nil, b.Envelope); err != nil {
			return nil, err
		}
		if c.Attempt <= 1 { // what was accepted before goes on
			if err := d.executor.CheckVolumes(ctx, c, b.Task); err != nil {
				return nil, err
			}
		}
		return j.Submit(ctx, c, b)
	})))
	e.HandleRead("sky.jobs.queue_v2", d.forwardToController(d.jobsController, verb(func(ctx context.Context, c cluster.Call, b api.JobsQueueBody) (any, error) {
		return j.Queue(ctx, c, b)
	})))
	e.HandleRead("sky.jobs.queue", d.forwardToController(d.jobsController, verb(func(ctx context.Context, c cluster.Call, b api.JobsQueueBody) (any, error) {
		return j.OldQueue(ctx, c, b)
	})))
	e.Handle("sky.jobs.cancel", api.ScheduleShort, d.forwardToController(d.jobsController, silent(func(ctx context.Context, c cluster.Call, b api.JobsCancelBody) error {
		if err := d.configure(&c, b.Envelope); err != nil {
			return err
		}
		return j.Cancel(ctx, c, b)
	})))
	e.HandleRead("sky.jobs.schedules", d.forwardToController(d.jobsController, verb(func(ctx context.Context, c cluster.Call, b api.JobsSchedulesBody) (any, error) {
		return j.Schedules(ctx, c, b)
	})))
	e.Handle("sky.jobs.end_schedules", api.ScheduleShort, d.forwardToController(d.jobsController, silent(func(ctx context.Context, c cluster.Call, b api.JobsEndSchedulesBody) error {
		return j.EndSchedules(ctx, c, b)
	})))
	e.Handle("sky.jobs.wait", api.ScheduleLong, d.forwardToController(d.jobsController, verb(func(ctx context.Context, c cluster.Call, b api.JobsWaitBody) (any, error) {
		return j.Wait(ctx, c, b)
	})))
	e.HandleRead("sky.jobs.events", d.forwardToController(d.jobsController, verb(func(ctx context.Context, c cluster.Call, b api.JobsEventsBody) (any, error) {
		return j.Events(ctx, c, b)
	})))
	e.Handle(reqJobsDownload, api.ScheduleShort, d.forwardToController(d.jobsController, verb(func(ctx context.Context, c cluster.Call, b api.JobsDownloadLogsBody) (any, error) {
		return d.downloads.Gather(ctx, c.User.ID, func(room *diskspace.Share) (map[string]string, error) {
			return j.DownloadLogs(ctx, c, b, d.downloads.Dir(c.User.ID), room)
		})
	})))
	e.HandleLog("sky.jobs.logs", d.farLog(d.jobsController, d.jobLogs))
}

// jobLogs streams a managed job's log; where it began is kept, so that a replay
// is the same to the letter.
func (d *daemon) jobLogs(ctx context.Context, c *requests.Call, w io.Writer) (any, error) {
	var body api.JobsLogsBody
	if err := c.Decode(&body); err != nil {
		return nil, err
	}
	call, err := callOf(c, &body)
	if err != nil {
		return nil, err
	}
	begin := func(p jobs.Position) error {
		b, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return c.SetState(ctx, b)
	}
	return d.jobs.Logs(ctx, call, body, jobs.ParsePosition(c.State()), begin, w)
}

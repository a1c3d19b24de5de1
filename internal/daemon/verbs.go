package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/buckets"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/state"
)

// Names of requests that other code asks about.
const (
	reqLaunch = "sky.launch"
	reqExec   = "sky.exec"
	reqStart  = "sky.start"

	reqJobsLaunch    = "sky.jobs.launch"
	reqJobsDownload  = "sky.jobs.download_logs"
	reqServeDownload = "sky.serve.sync_down_logs"
	reqServeUp       = "sky.serve.up"
	reqServeUpdate   = "sky.serve.update"
)

// verb is a function of the engine whose body has the type B.
func verb[B any](f func(context.Context, cluster.Call, B) (any, error)) requests.Func {
	return func(ctx context.Context, c *requests.Call) (any, error) {
		var body B
		if err := c.Decode(&body); err != nil {
			return nil, err
		}
		call, err := callOf(c, &body)
		if err != nil {
			return nil, err
		}
		defer c.Log.StopSpin()
		return f(ctx, call, body)
	}
}

// silent is a verb without a result.
func silent[B any](f func(context.Context, cluster.Call, B) error) requests.Func {
	return verb(func(ctx context.Context, call cluster.Call, b B) (any, error) { return nil, f(ctx, call, b) })
}

// callOf is the call that a request is, with the body that was read from it.
func callOf(c *requests.Call, body any) (cluster.Call, error) {
	env, ok := body.(interface{ Sent() *api.Envelope })
	if !ok {
		env = new(api.Envelope)
		if err := c.Decode(env); err != nil {
			return cluster.Call{}, err
		}
	}
	return cluster.Call{
		RequestID: c.ID, User: c.User, Scope: c.Scope, Attempt: c.Attempt, Command: config.Mask(env.Sent().EntrypointCommand), // other clients leave values in
		Out: c.Log, Files: c.Files, Load: c.State, Save: c.SetState, Rest: c.Rest,
	}, nil
}

// register makes every verb known to the engine.
func (d *daemon) register() {
	server.Provide(d.engine)
	d.registerCatalogs()
	d.registerProvision()
	d.registerKubernetes()
	d.registerPools()
	d.registerJobs()
	d.registerServices()
	d.registerWorkspaces()
	d.registerVolumes()
	d.registerBuckets()
	d.registerBenchmarks()
	e, m, x := d.engine, d.clusters, d.executor
	e.Handle(reqLaunch, api.ScheduleLong, verb(func(ctx context.Context, c cluster.Call, b api.LaunchBody) (_ any, err error) {
		o := &api.RequestOptions{ClusterName: &b.ClusterName, IdleMinutesAutostop: b.IdleMinutesAutostop, Down: b.Down, Dryrun: b.Dryrun}
		if b.Task, err = d.admit(ctx, &c, policy.Launch, b.Task, o, b.Envelope); err != nil {
			return nil, err
		}
		if err := reserved(b.ClusterName, "Launching tasks on it"); err != nil {
			return nil, err
		}
		return x.Launch(ctx, c, b)
	}))
	e.Handle(reqExec, api.ScheduleLong, verb(func(ctx context.Context, c cluster.Call, b api.ExecBody) (_ any, err error) {
		o := &api.RequestOptions{ClusterName: &b.ClusterName, Down: b.Down, Dryrun: b.Dryrun}
		if b.Task, err = d.admit(ctx, &c, policy.Exec, b.Task, o, b.Envelope); err != nil {
			return nil, err
		}
		if err := reserved(b.ClusterName, "Executing tasks on it"); err != nil {
			return nil, err
		}
		return x.Exec(ctx, c, b, d.launching)
	}))
	e.Handle(reqStart, api.ScheduleLong, verb(func(ctx context.Context, c cluster.Call, b api.StartBody) (any, error) {
		if err := d.configure(&c, b.Envelope); err != nil {
			return nil, err
		}
		return x.Start(ctx, c, b)
	}))
	e.Handle("sky.optimize", api.ScheduleShort, verb(func(ctx context.Context, c cluster.Call, b api.DagBody) (_ any, err error) {
		if b.Dag, err = d.admit(ctx, &c, policy.Optimize, b.Dag, b.RequestOptions, b.Envelope); err != nil {
			return nil, err
		}
		plan, err := x.Optimize(ctx, c, b)
		if plan == nil {
			return nil, err
		}
		return plan, err
	}))
	e.HandleRead("sky.status", verb(func(ctx context.Context, c cluster.Call, b api.StatusBody) (any, error) {
		list, err := m.StatusJSON(ctx, c, b)
		return requests.Encoded(list), err
	}))
	e.Handle("sky.stop", api.ScheduleShort, silent(func(ctx context.Context, c cluster.Call, b api.StopBody) error {
		if err := reserved(b.ClusterName, "Stopping it"); err != nil {
			return err
		}
		return m.Stop(ctx, c, b)
	}))
	e.Handle("sky.down", api.ScheduleShort, silent(d.down))
	e.Handle("sky.autostop", api.ScheduleShort, silent(func(ctx context.Context, c cluster.Call, b api.AutostopBody) error {
		if err := reserved(b.ClusterName, "Changing its autostop"); err != nil {
			return err
		}
		return m.Autostop(ctx, c, b)
	}))
	e.HandleRead("sky.queue", verb(func(ctx context.Context, c cluster.Call, b api.QueueBody) (any, error) {
		return m.Queue(ctx, c, b)
	}))
	e.HandleRead("sky.job_status", verb(func(ctx context.Context, _ cluster.Call, b api.JobStatusBody) (any, error) {
		return m.JobStatus(ctx, b)
	}))
	e.Handle("sky.cancel", api.ScheduleShort, silent(func(ctx context.Context, c cluster.Call, b api.CancelBody) error {
		if err := reserved(b.ClusterName, "Cancelling the job of its server"); err != nil {
			return err
		}
		return m.Cancel(ctx, c, b)
	}))
	e.HandleRead("sky.cost_report", verb(func(ctx context.Context, c cluster.Call, b api.CostReportBody) (any, error) {
		return m.CostReport(ctx, c, b)
	}))
	e.HandleRead("sky.cluster_events", verb(func(ctx context.Context, c cluster.Call, b api.ClusterEventsBody) (any, error) {
		return m.Events(ctx, c, b)
	}))
	e.HandleRead("sky.endpoints", verb(func(ctx context.Context, _ cluster.Call, b api.EndpointsBody) (any, error) {
		return m.Endpoints(ctx, b)
	}))
	e.Handle("sky.check", api.ScheduleShort, verb(d.check))
	e.HandleRead("sky.enabled_clouds", verb(d.enabled))
	e.HandleRead("sky.enabled_clouds_batch", verb(d.enabledIn))
	e.Handle("sky.download_logs", api.ScheduleShort, verb(func(ctx context.Context, c cluster.Call, b api.DownloadLogsBody) (any, error) {
		run := "sky-" + time.Now().UTC().Format("2006-01-02-15-04-05-000000")
		return d.downloads.Gather(ctx, c.User.ID, func(room *diskspace.Share) (map[string]string, error) {
			return m.DownloadLogs(ctx, c, b, filepath.Join(d.downloads.Dir(c.User.ID), b.ClusterName+"-"+run), room)
		})
	}))
	e.HandleLog("sky.logs", d.logs)
	e.HandleLog("sky.hook_logs", d.hookLogs(""))
	e.HandleLog("sky.autostop_logs", d.hookLogs("stop")) // as clients of early API versions ask for it
}

// configure finds the configuration that holds for a request, the server's with
// the client's laid over, and says what of the client's does not count.
func (d *daemon) configure(call *cluster.Call, env api.Envelope) (err error) {
	if call.Config, err = d.settings.current().Request(env.OverrideConfig, sender(call.Scope)); err != nil {
		return err
	}
	if call.Scope != nil {
		call.Config = d.offMachine(call.Config)
	}
	if call.Attempt <= 1 { // a resumed request has said so already
		for _, w := range call.Config.Warnings() {
			fmt.Fprintln(call.Out, w)
		}
	}
	return nil
}

// admit lets the administrator's policy judge a request. It returns the tasks as
// the policy wants them and leaves the configuration to go on with in call.
func (d *daemon) admit(ctx context.Context, call *cluster.Call, name, dag string, o *api.RequestOptions, env api.Envelope) (_ string, err error) {
	if err := d.configure(call, env); err != nil {
		return "", err
	}
	if dag, call.Config, err = d.applyPolicy(ctx, call.Config, name, dag, o, call.User, env, call.Out); err == nil && call.Scope != nil {
		call.Config = d.offMachine(call.Config)
	}
	return dag, err
}

// logs streams a job's log; where it began is kept, so that a replay is the
// same to the letter.
func (d *daemon) logs(ctx context.Context, c *requests.Call, w io.Writer) (any, error) {
	var body api.LogsBody
	if err := c.Decode(&body); err != nil {
		return nil, err
	}
	begin := func(p cluster.LogPosition) error {
		b, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return c.SetState(ctx, b)
	}
	return d.clusters.Logs(ctx, body, cluster.ParseLogPosition(c.State()), begin, w)
}

// hookLogs shows what hooks printed, those of the event if the body names none.
func (d *daemon) hookLogs(event string) requests.LogFunc {
	return func(ctx context.Context, c *requests.Call, w io.Writer) (any, error) {
		var body api.HookLogsBody
		if err := c.Decode(&body); err != nil {
			return nil, err
		}
		of := event
		if body.Event != nil {
			of = *body.Event
		}
		return api.ExitJobSucceeded, d.clusters.HookLogs(ctx, body.ClusterName, of, w)
	}
}

// check tries the credentials of every provider, or of those named.
func (d *daemon) check(ctx context.Context, call cluster.Call, b api.CheckBody) (any, error) {
	if err := d.configure(&call, b.Envelope); err != nil {
		return nil, err
	}
	c, err := inWorkspace(call.Config, b.Workspace)
	if err != nil {
		return nil, err
	}
	defer d.working.forget()
	checker := cluster.Checker{Providers: d.providers, Config: c, Store: buckets.CheckStore, Verbose: b.Verbose}
	report, err := checker.Check(ctx, b.Clouds, call.Out)
	if err != nil {
		return nil, err
	}
	return map[string]map[string][]string{c.ActiveWorkspace(): report}, nil
}

// inWorkspace is c with the workspace that a request names, if it names one.
func inWorkspace(c *config.Config, name *string) (*config.Config, error) {
	if name == nil || *name == "" {
		return c, nil
	}
	return c.InWorkspace(*name)
}

// enabled lists the clouds that may be used and whose credentials work, as
// clients call them.
func (d *daemon) enabled(ctx context.Context, call cluster.Call, b api.EnabledCloudsBody) (any, error) {
	if err := d.configure(&call, b.Envelope); err != nil {
		return nil, err
	}
	c, err := inWorkspace(call.Config, b.Workspace)
	if err != nil {
		return nil, err
	}
	all := d.providers.All()
	works, places := make([]bool, len(all)), make([][]string, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		if ok, _ := c.CloudUseFor(c.ActiveWorkspace(), p.Name(), config.Compute); ok {
			wg.Go(func() {
				works[i], places[i] = d.working.ask(ctx, p, d.settings.current().Sections(config.Scope{Cloud: p.Name()}))
			})
		}
	}
	wg.Wait()
	names := []string{}
	for i, p := range all {
		switch {
		case !works[i]:
		case b.Expand && len(places[i]) > 0:
			for _, region := range places[i] {
				names = append(names, p.DisplayName()+"/"+facts.Of(p.Name()).RegionName(region))
			}
		default:
			names = append(names, p.DisplayName())
		}
	}
	return names, ctx.Err()
}

// enabledIn is enabled for several workspaces.
func (d *daemon) enabledIn(ctx context.Context, call cluster.Call, b api.EnabledCloudsBatchBody) (any, error) {
	by := map[string]any{}
	for _, name := range b.Workspaces {
		names, err := d.enabled(ctx, call, api.EnabledCloudsBody{Envelope: b.Envelope, Workspace: &name, Expand: b.Expand})
		if err != nil {
			return nil, err
		}
		by[name] = names
	}
	return by, nil
}

// launching reports whether a launch or start of the cluster is on its way. That of
// a controller is part of launching what it looks after.
func (d *daemon) launching(ctx context.Context, name string) (bool, error) {
	filter := state.RequestFilter{
		ClusterName: name, Names: []string{reqLaunch, reqStart},
		Statuses: []api.RequestStatus{api.RequestPending, api.RequestRunning}, Limit: 1,
	}
	if at := d.controllerNamed(name); at != nil {
		filter.ClusterName, filter.Names = "", at.Kind.Launches()
	}
	rows, err := d.engine.List(ctx, filter)
	return len(rows) > 0, err
}

// cancelTimeout bounds how long a stop or down waits for the requests that it
// cancels: a launch that is called off gives back what it has, which may take a
// quarter of an hour.
const cancelTimeout = 16 * time.Minute

// cancelRequests ends what is in flight for a cluster and waits until it has
// ended: two writers never work on one cluster.
func (d *daemon) cancelRequests(ctx context.Context, name, except string) error {
	rows, err := d.engine.List(ctx, state.RequestFilter{
		ClusterName: name, Names: []string{reqLaunch, reqExec, reqStart},
		Statuses: []api.RequestStatus{api.RequestPending, api.RequestRunning},
	})
	if err != nil {
		return err
	}
	var ids []string
	for _, r := range rows {
		if r.ID != except {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if _, err := d.engine.Cancel(ctx, ids); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	for _, id := range ids {
		if _, err := d.engine.Wait(ctx, id); err != nil {
			return fmt.Errorf("waiting for request %s on cluster %s to end: %w", id, name, err)
		}
	}
	return nil
}

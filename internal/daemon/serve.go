package daemon

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/serve"
	"github.com/skypilot-go/sky/internal/serve/balancer"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/state"
)

// newServices makes the manager of services.
func (d *daemon) newServices() *serve.Manager {
	last := 0
	if os.Getenv(controller.EnvListen) != "" { // the others are not open on this machine
		last = controller.LastPort
	}
	return serve.New(serve.Deps{
		Store: d.store, Executor: d.executor, Clusters: d.clusters, Log: d.log, ServerID: d.serverID(), Files: d.taskFiles, Buckets: d.buckets, Kept: d.serviceLogs(),
		Host: d.balancerHost(), LastPort: last, Endpoint: d.serviceEndpoint, Networks: ownNetworks(),
		Admit: func(ctx context.Context, user state.User, dag string, sent map[string]any, out io.Writer) (string, *config.Config, error) {
			return d.admitHeld(ctx, policy.ServeLaunchReplica, user, dag, sent, out)
		},
	})
}

// ownNetworks are the networks of replicas that this server is in.
func ownNetworks() []string {
	if name := kubernetes.OwnContext(); name != "" {
		return []string{balancerapi.KubernetesNetwork(name)}
	}
	return nil
}

// admitHeld lets the administrator's policy judge the launch of a cluster that is held
// for a user, and finds the configuration that holds for it.
func (d *daemon) admitHeld(ctx context.Context, name string, user state.User, dag string, sent map[string]any, out io.Writer) (string, *config.Config, error) {
	c, err := d.settings.current().Request(sent, d.senderOf(ctx, user))
	if err != nil {
		return "", nil, err
	}
	own, version := api.Version, api.ProductVersion // this server asks for what it looks after
	env := api.Envelope{ClientAPIVersion: &own, ClientVersion: &version}
	if dag, c, err = d.applyPolicy(ctx, c, name, dag, nil, user, env, out); err == nil && !d.administers(ctx, user) {
		c = d.offMachine(c)
	}
	return dag, c, err
}

// serviceLogs is where logs of services are kept.
func (d *daemon) serviceLogs() logstore.Logs {
	if d.store.Shared() {
		return logstore.Stored{Store: d.store, Prefix: ""}
	}
	return logstore.Folder(d.dir)
}

// balancerHost is the address on which the balancer in this server listens: that of
// the API server, or of the machine on which this one looks after services for another.
func (d *daemon) balancerHost() string { return cmp.Or(os.Getenv(controller.EnvListen), d.o.Host) }

// serviceEndpoint is where clients reach a port of the balancer.
func (d *daemon) serviceEndpoint(port int, tls bool) string {
	scheme, host := "http", cmp.Or(d.settings.current().Text("serve", "host"), os.Getenv(controller.EnvHost), d.o.Host)
	if tls {
		scheme = "https"
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = ownAddress()
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// ownAddress is one under which others reach this machine, or, where it has none, the
// one under which it reaches itself.
func ownAddress() string {
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// registerServices makes the verbs of services known to the engine.
func (d *daemon) registerServices() {
	e, s := d.engine, d.services
	far := func(f requests.Func) requests.Func { return d.forwardToController(d.serveController, f) }
	e.Handle(reqServeUp, api.ScheduleLong, far(verb(func(ctx context.Context, c cluster.Call, b api.ServeUpBody) (_ any, err error) {
		if b.Task, err = d.admit(ctx, &c, policy.ServeUp, b.Task, nil, b.Envelope); err != nil {
			return nil, err
		}
		return s.Up(ctx, c, b)
	})))
	e.Handle(reqServeUpdate, api.ScheduleLong, far(silent(func(ctx context.Context, c cluster.Call, b api.ServeUpdateBody) (err error) {
		if b.Task, err = d.admit(ctx, &c, policy.ServeUpdate, b.Task, nil, b.Envelope); err != nil {
			return err
		}
		return s.Update(ctx, c, b)
	})))
	e.Handle("sky.serve.down", api.ScheduleShort, far(silent(func(ctx context.Context, c cluster.Call, b api.ServeDownBody) error { return s.Down(ctx, c, b) })))
	e.Handle("sky.serve.terminate_replica", api.ScheduleShort, far(silent(func(ctx context.Context, c cluster.Call, b api.ServeTerminateReplicaBody) error {
		return s.TerminateReplica(ctx, c, b)
	})))
	e.Handle("sky.serve.promote", api.ScheduleShort, far(silent(func(ctx context.Context, c cluster.Call, b api.ServeTurnBody) error {
		return s.Turn(ctx, c, b.ServiceName, state.AskedPromote)
	})))
	e.Handle("sky.serve.rollback", api.ScheduleShort, far(silent(func(ctx context.Context, c cluster.Call, b api.ServeTurnBody) error {
		return s.Turn(ctx, c, b.ServiceName, state.AskedRollback)
	})))
	e.HandleRead("sky.serve.status", far(verb(func(ctx context.Context, c cluster.Call, b api.ServeStatusBody) (any, error) {
		return s.Status(ctx, c, b.ServiceNames)
	})))
	e.Handle(reqServeDownload, api.ScheduleShort, far(verb(func(ctx context.Context, c cluster.Call, b api.ServeSyncLogsBody) (any, error) {
		dirs, err := d.downloads.Gather(ctx, c.User.ID, func(room *diskspace.Share) (map[string]string, error) {
			dir, err := s.DownloadLogs(ctx, c, b, d.downloads.Dir(c.User.ID), room)
			return map[string]string{"0": dir}, err
		})
		return dirs["0"], err
	})))
	e.HandleLog("sky.serve.logs", d.farLog(d.serveController, d.serveLogs))
}

// serveLogs streams a log of a service; where it began is kept, so that a replay is
// the same to the letter.
func (d *daemon) serveLogs(ctx context.Context, c *requests.Call, w io.Writer) (any, error) {
	var body api.ServeLogsBody
	if err := c.Decode(&body); err != nil {
		return nil, err
	}
	call, err := callOf(c, &body)
	if err != nil {
		return nil, err
	}
	offset := int64(-1)
	if b := c.State(); len(b) > 0 {
		if offset, err = strconv.ParseInt(string(b), 10, 64); err != nil {
			return nil, fmt.Errorf("the stored position of a log: %w", err)
		}
	}
	begin := func(at int64) error { return c.SetState(ctx, strconv.AppendInt(nil, at, 10)) }
	return nil, d.services.Logs(ctx, call, body, offset, begin, w)
}

// reportEvery is how often the balancer in this server says what it has counted.
const reportEvery = 500 * time.Millisecond

// balance runs the balancer in this server, unless all of them run beside it, until ctx
// ends, and then until its requests have.
func (d *daemon) balance(ctx context.Context) {
	if d.settings.current().Text("serve", "balancer") == config.BalancerBeside {
		return
	}
	b, err := balancer.New(balancer.Options{
		StateDir: filepath.Join(d.dir, "balancer"), Logger: d.log.With("part", "balancer"),
		Networks: ownNetworks(), Connect: d.services.Connect,
	})
	if err != nil {
		d.log.ErrorContext(ctx, "services are not served from here", "err", err)
		return
	}
	d.services.Feed(func(t balancerapi.Table) {
		if err := b.Apply(t); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "the balancer cannot serve all of its table", "err", err)
		}
	})
	t := time.NewTicker(reportEvery)
	defer t.Stop()
	have := map[string]int64(nil)
	for ctx.Err() == nil {
		have = d.services.Reported(b.Report(have)).Have
		select {
		case <-ctx.Done():
		case <-b.Waiting():
		case <-t.C:
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), balancerDrain)
	defer cancel()
	if err := b.Shutdown(end); err != nil {
		d.log.Warn("the balancer ended before its requests", "err", err)
	}
}

// balancerDrain is how long requests may go on when the server ends. Services that need more
// have a balancer beside the server.
const balancerDrain = 5 * time.Second

// Package daemon is the API server as a process: it opens the state, puts the
// parts together, serves, and hands over when it is asked to go.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/buckets"
	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/all"
	"github.com/skypilot-go/sky/internal/cloud/docker"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
	"github.com/skypilot-go/sky/internal/cloud/nebius"
	"github.com/skypilot-go/sky/internal/cloud/sshpool"
	"github.com/skypilot-go/sky/internal/cloud/wrap"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/credentials"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/envelope"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/jobs"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/remote/agents"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/serve"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/taskfiles"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/internal/volumes"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// Options say where a server keeps its things and where it listens.
type Options struct {
	Home   string // the user's home; everything is below ~/.sky
	Host   string
	Port   int
	Logger *slog.Logger
	// AnyPort makes the server listen on another port if that one is in use.
	AnyPort bool
	// UntilIdle ends the server, with [ErrIdle], when there was nothing to do for so
	// long; 0: never.
	UntilIdle time.Duration
	// AcceptDatabase goes on with a database that is older than what this home folder
	// knows, or of another installation; StartAnew begins a new one in the place of
	// one that is lost. Without them both are an [*installation.LostError].
	AcceptDatabase, StartAnew bool
	Ready                     func() // called once requests are answered; may be nil
}

type daemon struct {
	o           Options
	dir         string // ~/.sky/api_server
	log         *slog.Logger
	store       *state.Store
	engine      *requests.Engine
	providers   *cloud.Registry
	settings    *settings
	catalogs    *catalog.Store
	provision   *provision.Engine
	clusters    *cluster.Manager
	volumes     *volumes.Manager
	buckets     *buckets.Manager
	credentials *credentials.Manager
	executor    *execution.Executor
	jobs        *jobs.Manager
	services    *serve.Manager
	taskFiles   *taskfiles.Files
	// These look after managed jobs and services elsewhere, if the configuration says so.
	jobsController, serveController *controller.Controller
	self                            state.User
	instance                        string
	// Which installation this is, and what notes the generation of its database.
	installation string
	note         func(generation int64) error
	unchecked    bool // the database was not looked through before the start
	metrics      *server.Metrics
	uploads      *server.Uploads
	downloads    *server.Downloads
	logLimits    diskspace.Limits // of managed jobs' logs
	tracer       *trace.Tracer    // nil: nothing is traced
	working      working
	disk         *disk
	// logins reports that people have to log in: then what they write runs, and is
	// looked at, with their own rights and never with the server's.
	logins     bool
	keySources keySources
	ring       *envelope.Ring // the keys of the store
}

// Bounds of going down.
const (
	drainTimeout  = 20 * time.Second
	settleAtStart = 10 * time.Second
)

// Run serves until ctx ends. Unfinished long requests stay as they are and go
// on with the next server.
func Run(ctx context.Context, o Options) error {
	proc.CloseOnExec() // agents and callbacks get nothing that whoever started this server had open
	return (&daemon{o: o}).run(ctx)
}

func (d *daemon) run(ctx context.Context) error {
	o := d.o
	d.dir, d.log = filepath.Join(o.Home, ".sky", "api_server"), slog.New(trace.Handler(o.Logger.Handler()))
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fmt.Errorf("making room for the API server's files: %w", err)
	}
	// The port first: it tells a second server before anything is touched.
	l, err := net.Listen("tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
	if err != nil && o.AnyPort {
		l, err = net.Listen("tcp", net.JoinHostPort(o.Host, "0"))
	}
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("the port is in use (%w). End what listens there, or set SKY_API_PORT to a free port", err)
		}
		return fmt.Errorf("listening on %s:%d: %w", o.Host, o.Port, err)
	}
	defer l.Close()
	unlock, err := lockDir(d.dir)
	if err != nil {
		return err
	}
	defer unlock()
	if d.settings, err = loadSettings(d.o.Home, d.log); err != nil {
		return err
	}
	if d.tracer, err = newTracer(d.settings.current(), d.log); err != nil {
		return err
	}
	defer d.endTraces()
	d.disk = newDisk(d.dir, d.log)
	if err := d.disk.open(); err != nil {
		return err
	}
	if err := d.openStore(ctx); err != nil {
		return err
	}
	d.store.KeepReserve(d.disk.reserve)
	defer d.store.Close()
	d.keySources = newKeySources(d.dir)
	if err := d.unlock(ctx); err != nil {
		return err
	}
	if err := d.wire(ctx); err != nil {
		return err
	}
	return d.serve(ctx, l)
}

// requestLogs is where requests' logs are when servers share them; nil: in a folder.
func (d *daemon) requestLogs() logstore.Logs {
	if !d.store.Shared() {
		return nil
	}
	return logstore.Stored{Store: d.store, Prefix: "requests/"}
}

// machine names the machine and home of this server among those that share a
// database; "" for one that shares none.
func (d *daemon) machine() string {
	if !d.store.Shared() {
		return ""
	}
	host, _ := os.Hostname()
	return host + ":" + d.o.Home
}

// shareKey makes all servers that share a database use one ssh key for a user;
// nil for one that shares none.
func (d *daemon) shareKey() func(user string, private []byte) ([]byte, error) {
	if !d.store.Shared() {
		return nil
	}
	return func(user string, private []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return d.store.Settings().SetIfAbsent(ctx, "ssh-key/"+user, private)
	}
}

// sshConfigHome is the home folder whose ssh configuration gets an entry for each
// cluster; "": none does. Where people log in, the names of clusters are other
// people's, and an entry could take the place of a host that the server's own
// account connects to.
func (d *daemon) sshConfigHome() string {
	if d.logins {
		old, _ := filepath.Glob(filepath.Join(d.o.Home, ".sky", "generated", "ssh", "*")) // of a life without logins
		for _, file := range old {
			os.Remove(file)
		}
		return ""
	}
	return d.o.Home
}

// sshProxy is the ProxyCommand, less the node and the cluster, by which the user's ssh
// reaches nodes without an sshd through the server here at that port; "" is the default.
func sshProxy(port string) string {
	self, err := os.Executable()
	if err != nil {
		self = "sky"
	}
	proxy := sshconn.Quote(self) + " ssh --stdio"
	if port != "" {
		proxy = "env SKY_API_PORT=" + sshconn.Quote(port) + " " + proxy
	}
	return strings.ReplaceAll(proxy, "%", "%%") // which ssh has a meaning for
}

// serverID names this server in leases. A database that one server at a time
// uses (the folder is locked) knows it by the same name in every life, so that
// what a killed server held is not waited for.
func (d *daemon) serverID() string {
	if d.store.Shared() {
		return d.instance
	}
	return "local"
}

// wire puts the parts together. Nothing runs yet.
func (d *daemon) wire(ctx context.Context) error {
	var err error
	d.instance = uuid.NewString()
	if d.self, err = self(d.o.Home); err != nil {
		return err
	}
	if err := d.settings.inDatabase(ctx, d.store); err != nil {
		return err
	}
	logins, err := auth.Load(d.o.Home, os.Getenv)
	if err != nil {
		return err
	}
	d.logins = logins.Demanded()
	cfg := d.settings.current()
	sky := filepath.Join(d.o.Home, ".sky")
	conns := sshconn.New(sshconn.Options{
		Home: d.o.Home, KnownHosts: filepath.Join(sky, "known_hosts"), AgentSocket: os.Getenv("SSH_AUTH_SOCK"),
		Timeout:  time.Duration(cfg.Int("provision", "ssh_timeout")) * time.Second,
		Password: sshpool.Passwords(filepath.Join(sky, sshpool.PoolsFile), d.o.Home),
	})
	pools := sshpool.InSkyDir(d.o.Home, conns, d.store.Settings())
	pools.Submitter = d.submitter
	engine := docker.NewEngine(docker.SocketFromEnv())
	d.metrics = server.NewMetrics()
	contexts := kubernetes.NewContexts(d.o.Home)
	d.providers = wrap.All(all.Providers(all.Options{
		LocalRoot: filepath.Join(sky, "local"), Pools: pools, Docker: engine,
		Kubernetes: kubernetes.Options{Contexts: contexts, Dir: filepath.Join(sky, "kubernetes"), Sections: d.sections(kubernetes.Name), Everywhere: d.everywhere(kubernetes.Name)},
		AWS:        d.awsOptions(),
		GCP:        d.gcpOptions(),
		Azure:      d.azureOptions(),
		Nebius:     nebius.Options{Settings: func() map[string]any { return d.settings.current().For(config.Scope{Cloud: nebius.Name}).Written() }},
	}), func(cloud string, m wrap.Method, took time.Duration, err error) {
		d.metrics.CloudCalled(cloud, string(m), provision.Outcome(err), took)
		if code, ok := provision.UnknownCode(err); ok {
			d.metrics.CloudRefused(cloud, string(m), code)
		}
	})
	d.catalogs = catalog.NewStore(catalogOptions(cfg, filepath.Join(sky, "catalogs", "v8"), d.log))
	d.provision = provision.New(d.installation, d.providers, d.store, d.log)
	connector := remote.New(remote.Options{
		BuildID: buildid.ID(), RuntimeDir: filepath.Join(sky, "runtime"), Agents: agents.For, Mounts: agents.Mount, Logger: d.log,
		SSH: conns, Docker: engine, Kubernetes: contexts, SkyDir: sky, SSHConfig: d.sshConfigHome(), SSHProxy: sshProxy(os.Getenv("SKY_API_PORT")), ShareKey: d.shareKey(),
	})
	limits, err := server.UploadLimitsFrom(os.Getenv)
	if err != nil {
		return err
	}
	d.uploads = &server.Uploads{Home: d.o.Home, Store: d.store, Limits: limits}
	if err := d.uploads.Clean(); err != nil {
		d.log.WarnContext(ctx, "not all that was left of uploads was removed", "error", err)
	}
	d.downloads = server.NewDownloads(d.o.Home, d.store)
	var requestLogs diskspace.Limits
	if d.logLimits, d.downloads.Limits, requestLogs, err = server.LogLimitsFrom(os.Getenv); err != nil {
		return err
	}
	if d.store.Shared() {
		requestLogs = logstore.StoredLimits(requestLogs)
	}
	d.engine = requests.New(d.store, requests.Options{
		ServerID: d.serverID(), LogDir: filepath.Join(d.dir, "request_logs"), Logs: d.requestLogs(), Logger: d.log, Tracer: d.tracer, Files: d.files,
		Admit:     d.disk.admit,
		LogLimits: requestLogs,
		Retention: hours(float64(cfg.Int("api_server", "requests_retention_hours"))),
	})
	d.clusters = cluster.New(cluster.Deps{
		Store: d.store, Providers: d.providers, Provision: d.provision, Remote: connector,
		Log: d.log, ServerID: d.serverID(), CancelRequests: d.cancelRequests, OncePer: d.oncePer, Machine: d.machine(), Logins: d.logins,
		Ended:      func(ctx context.Context, hash string, j agentapi.Job) error { return d.jobs.Ended(ctx, hash, j) },
		NeedMounts: func(hash string) { d.buckets.NeedMounts(hash) },
	})
	d.volumes = volumes.New(volumes.Deps{
		Store: d.store, Providers: d.providers, Installation: d.installation, ServerID: d.serverID(), Log: d.log, Config: d.settings.current,
	})
	d.buckets = buckets.New(buckets.Deps{
		Store: d.store, Remote: connector, ServerID: d.serverID(), Dir: filepath.Join(d.dir, "buckets"), Log: d.log, Config: d.settings.current,
		Machine: d.machine(),
	})
	d.credentials = credentials.New(credentials.Deps{
		Store: d.store, Providers: d.providers, Remote: connector, Home: d.o.Home, Log: d.log, Config: d.settings.current, Machine: d.machine(),
	})
	d.executor = execution.New(execution.Deps{
		Store: d.store, Providers: d.providers, Provision: d.provision, Remote: connector,
		Clusters: d.clusters, Volumes: d.volumes, Buckets: d.buckets, Credentials: d.credentials, Catalogs: d.catalogs, Log: d.log, BuildID: buildid.ID(),
	})
	d.taskFiles = d.newTaskFiles()
	d.jobs = d.newJobs()
	d.services = d.newServices()
	d.jobsController, d.serveController = d.newController(controller.Jobs, connector), d.newController(controller.Services, connector)
	d.register()
	return nil
}

// pruneRuntime removes the agents' binaries of other builds. Agents that run
// from them go on, and are of this build when they start again.
func pruneRuntime(dir, build string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != build {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// handler is the HTTP side of the server.
func (d *daemon) handler(access access) *server.Server {
	return server.New(server.Deps{
		Engine: d.engine, Store: d.store, Logger: d.log, Self: d.self,
		Gate: access.gate, Rules: d.settings.rules, Config: d.settings.current,
		AuditKept: access.auditKept, Hosts: access.hosts, Metrics: d.metrics, Tracer: d.tracer,
		Degraded:   d.disk.trouble,
		InstanceID: d.instance, BuildID: buildid.ID(), BuildCode: buildid.Code, NotYet: notYet, Home: d.o.Home,
		Uploads:        d.uploads,
		Downloads:      d.downloads,
		Validate:       d.validate,
		ValidateVolume: d.validateVolume, VolumeNames: d.volumes.Names, StorageNames: d.buckets.Names,
		ProvisionLogs: d.provisionLogs,
		Backup:        d.backup,
		OwnMachines:   ownMachines{sshpool.FileInSkyDir(d.o.Home), d},
		Shell:         d.clusters.Shell,
		SSHD:          d.clusters.SSHD,
		Forward:       d.clusters.Forward,
		Balancers:     d.services.Source(),
		Replica:       d.services.Connect,
	})
}

func (d *daemon) serve(ctx context.Context, l net.Listener) error {
	pruneRuntime(filepath.Join(d.o.Home, ".sky", "runtime"), buildid.ID())
	d.pruneBackups()
	access, err := d.access(ctx, l.Addr())
	if err != nil {
		return err
	}
	defer os.Remove(sky.OwnerFile(d.o.Home))
	handler := d.handler(access)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// Attempts that a crash cut off are settled before requests resume, if that
	// is quick; a cloud that does not answer must not keep the server from
	// starting. Then again now and then, as strays are looked for.
	quickly, cancel := context.WithTimeout(work, settleAtStart)
	if err := d.provision.Settle(quickly); err != nil {
		d.log.WarnContext(ctx, "not every interrupted attempt could be settled", "err", err)
	}
	cancel()
	if err := d.engine.Start(work); err != nil {
		return err
	}
	var loops sync.WaitGroup
	loops.Go(func() { d.clusters.Watch(work) })
	loops.Go(func() { d.jobs.Run(work) })
	loops.Go(func() { d.balance(work) })
	loops.Go(func() { d.services.Run(work) })
	loops.Go(func() { d.jobsController.Keep(work) })
	loops.Go(func() { d.serveController.Keep(work) })
	loops.Go(func() { d.sweep(work) })
	loops.Go(func() { d.disk.keep(work) })
	loops.Go(func() { handler.Housekeep(work) })
	loops.Go(func() { d.forget(work) })
	loops.Go(func() { d.checkDatabase(work) })
	loops.Go(func() { d.keepSealed(work) })
	loops.Go(func() { d.volumes.Keep(work, d.oncePer) })
	loops.Go(func() { d.buckets.Keep(work, d.oncePer) })
	loops.Go(func() { d.buckets.KeepMounts(work) })
	loops.Go(func() { d.credentials.Keep(work) })
	loops.Go(func() { d.keepBenchmarks(work) })

	if err := d.writeInstance(l.Addr()); err != nil {
		return err
	}
	defer os.Remove(d.instanceFile())
	d.log.InfoContext(ctx, "API server started", "address", l.Addr().String(), "build", buildid.ID(), "pid", os.Getpid())
	if d.o.Ready != nil {
		d.o.Ready()
	}
	serving, end := context.WithCancel(ctx)
	defer end()
	if d.o.UntilIdle > 0 {
		loops.Go(func() {
			d.waitIdle(serving, d.o.UntilIdle)
			end()
		})
	}
	err = handler.Serve(serving, l, drainTimeout)
	d.log.InfoContext(ctx, "API server ended")
	end()
	stop()
	loops.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	// Nothing comes in any more: what came before is seen here, and the next life
	// goes on with it.
	if err == nil && ctx.Err() == nil && d.o.UntilIdle > 0 && !d.busy(context.WithoutCancel(ctx)) {
		return ErrIdle
	}
	return err
}

// instance is instance.json: how commands of this user find the server, and how
// they know that it sees the same files.
type instance struct {
	PID        int    `json:"pid"`
	Start      string `json:"start"`
	InstanceID string `json:"instance_id"`
	Endpoint   string `json:"endpoint"`
	BuildID    string `json:"build_id"`
}

func (d *daemon) instanceFile() string { return filepath.Join(d.dir, "instance.json") }

func (d *daemon) writeInstance(addr net.Addr) error {
	start, err := proc.StartTime(os.Getpid())
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(instance{
		PID: os.Getpid(), Start: start, InstanceID: d.instance,
		Endpoint: "http://" + net.JoinHostPort("127.0.0.1", port), BuildID: buildid.ID(),
	}, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Write(d.instanceFile(), append(b, '\n'), 0o600)
}

// selfID are the ids of users that the environment may give to the server's own.
var selfID = lazyregexp.New(`^[0-9a-f]{8}$`)

// self is the user whom requests without an identity belong to.
func self(home string) (state.User, error) {
	name := "user"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if id := os.Getenv(api.EnvUserID); selfID.MatchString(id) {
		return state.User{ID: id, Name: name}, nil
	}
	id, err := sky.StoredUserID(home)
	return state.User{ID: id, Name: name}, err
}

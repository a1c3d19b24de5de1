// Package buckets looks after the buckets that tasks name: making and adopting them,
// filling them with local files or from other buckets, deleting them, and copying buckets
// to the nodes of clusters or mounting them there.
//
// What is wanted of a bucket is on record before its store is asked for it, and stays there
// until the store has done it: what a crash cut off is taken up by the request that is
// resumed, or by [Manager.Settle]. A bucket is changed under its lock only. One that sky
// made carries a mark, by which one that others made in its place is told from it. Buckets
// that tasks give as URLs have no record and are never deleted. Prefixes of such buckets
// with intermediate files of managed jobs and services have one, and are.
package buckets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/scoped"
	"github.com/skypilot-go/sky/internal/storage/stores"
	"github.com/skypilot-go/sky/task"
)

// Deps are what a Manager works with.
type Deps struct {
	Store    *state.Store
	Remote   *remote.Connector
	ServerID string
	Dir      string // what unfinished uploads are remembered in
	Log      *slog.Logger
	// Config is the server's configuration just then, for what no request asks for.
	Config func() *config.Config
	// Machine names the machine of this server, if several servers share the database.
	Machine string
}

// Manager looks after all buckets of an installation.
type Manager struct {
	Deps
	locks *cluster.Locks
	kick  chan struct{} // has room for one

	handed handed
	scoped scoped.Maker // of credentials for nodes
}

// New returns a manager. Nothing runs yet.
func New(d Deps) *Manager {
	m := &Manager{Deps: d, locks: cluster.NewLocks(d.Store, d.ServerID, "bucket"), kick: make(chan struct{}, 1)}
	m.handed.needs, m.handed.pushed, m.handed.kick = map[string]bool{}, map[string][]agentapi.MountCredentials{}, make(chan struct{}, 1)
	return m
}

// storeClouds are the clouds whose credentials and settings the stores go by.
var storeClouds = map[storage.Store]string{
	storage.S3: "aws", storage.GCS: "gcp", storage.Azure: "azure", storage.R2: "cloudflare", storage.IBM: "ibm", storage.OCI: "oci",
	storage.Nebius: "nebius", storage.CoreWeave: "coreweave", storage.VastData: "vastdata", storage.HF: "huggingface",
}

// storeOf is the store of a cloud; "": it has none.
func storeOf(cloud string) storage.Store {
	for s, c := range storeClouds {
		if c == strings.ToLower(cloud) {
			return s
		}
	}
	return ""
}

// writable are the stores in which buckets can be made, in the order in which one is
// chosen.
var writable = []storage.Store{storage.S3, storage.GCS, storage.Azure, storage.R2, storage.IBM, storage.OCI, storage.Nebius, storage.VastData}

// options say how a store is reached.
func options(c *config.Config, s storage.Store) stores.Options {
	return stores.Options{
		Endpoint: c.Text("storage", "endpoints", strings.ToLower(string(s))),
		Account:  c.Text("azure", "storage_account"),
	}
}

// allowed refuses a store whose cloud may not be used.
func allowed(c *config.Config, s storage.Store) error {
	if ok, why := c.CloudUseFor(c.ActiveWorkspace(), storeClouds[s], config.Storage); !ok {
		return &api.Error{Type: api.ErrNoCloudAccess, Message: fmt.Sprintf("Buckets of %s cannot be used: %s.", s, why)}
	}
	return nil
}

// configOf is the configuration of a call.
func (m *Manager) configOf(call cluster.Call) *config.Config {
	if call.Config != nil {
		return call.Config
	}
	return m.Config()
}

// usable reports whether there are credentials for a store.
func usable(ctx context.Context, c *config.Config, s storage.Store) bool {
	if allowed(c, s) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b, err := stores.Open(ctx, storage.Location{Store: s, Bucket: "any"}, options(c, s))
	if err != nil {
		return false
	}
	_, err = grantOf(ctx, b)
	return err == nil
}

// CheckStore tries the credentials of a cloud's object store; an [*cloud.AuthError] says that
// there are none, or that they are refused.
func CheckStore(ctx context.Context, c *config.Config, of string) error {
	s := storeOf(of)
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, &cloud.OverdueError{Err: fmt.Errorf("%s did not answer within 10 seconds", s)})
	defer cancel()
	found, err := stores.Check(ctx, s, options(c, s))
	if refused, ok := errors.AsType[*storage.CredentialsError](err); ok {
		return &cloud.AuthError{Cloud: of, Fix: refused.Fix, Err: cmp.Or(refused.Err, errors.New("there are no credentials")), NotSetUp: !found}
	}
	return err
}

// grantOf is what opens a bucket elsewhere as it is opened here.
func grantOf(ctx context.Context, b storage.Bucket) (storage.Grant, error) {
	g, ok := storage.Driver(b).(storage.Granter)
	if !ok {
		return storage.GrantTo(b.Location(), ""), nil
	}
	return g.Grant(ctx)
}

// get is a bucket that the caller may see; else an [*api.Error] with names that are close.
func (m *Manager) get(ctx context.Context, scope *state.Scope, name string) (*state.Bucket, error) {
	b, err := m.Store.Buckets().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) || err == nil && (!scope.Sees(b.Workspace) || b.Intermediate()) {
		return nil, m.notFound(ctx, scope, name)
	}
	return b, err
}

func (m *Manager) notFound(ctx context.Context, scope *state.Scope, name string) error {
	e := &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Storage name %q not found.", name), Err: state.ErrNotFound,
		Hint: "List buckets with: sky storage ls"}
	if names, err := m.Names(ctx, scope, ""); err == nil {
		if near := similar.Names(name, names); len(near) > 0 {
			e.Message += " Did you mean " + strings.Join(near, " or ") + "?"
		}
	}
	return e
}

// Names are those of buckets that a caller sees, with a prefix.
func (m *Manager) Names(ctx context.Context, scope *state.Scope, prefix string) ([]string, error) {
	all, err := m.Store.Buckets().List(ctx, state.BucketFilter{Scope: scope})
	var out []string
	for _, b := range all {
		if strings.HasPrefix(b.Name, prefix) && !b.Intermediate() {
			out = append(out, b.Name)
		}
	}
	return out, err
}

// List is the buckets of workspaces that the caller sees.
func (m *Manager) List(ctx context.Context, call cluster.Call) ([]api.Storage, error) {
	all, err := m.Store.Buckets().List(ctx, state.BucketFilter{Scope: call.Scope})
	if err != nil {
		return nil, err
	}
	mounts, err := m.mountedBy(ctx, call.Scope)
	if err != nil {
		return nil, err
	}
	out := []api.Storage{}
	for _, b := range all {
		if b.Intermediate() { // it goes with its managed job or service
			continue
		}
		out = append(out, api.Storage{Name: b.Name, LaunchedAt: b.LaunchedAt.Unix(), Store: []string{b.Store}, LastUse: b.LastUse, Status: b.Status, MountedBy: mounts[identityOf(at(b), b.Endpoint)]})
	}
	return out, nil
}

// identity tells buckets of different stores, accounts and servers apart.
type identity struct {
	store                     storage.Store
	account, bucket, endpoint string
}

func identityOf(l storage.Location, endpoint string) identity {
	return identity{l.Store, l.Account, l.Bucket, endpoint}
}

// mountedBy lists which clusters that the caller sees mount a bucket.
func (m *Manager) mountedBy(ctx context.Context, scope *state.Scope) (map[identity][]string, error) {
	clusters, err := m.Store.Clusters().List(ctx, state.ClusterFilter{Scope: scope})
	if err != nil {
		return nil, err
	}
	out := map[identity][]string{}
	for _, c := range clusters {
		for _, s := range c.Notes.Mounts {
			l, err := storage.Parse(s.URL)
			if err != nil {
				continue // it was noted by another version
			}
			if p := identityOf(l, s.Endpoint); !slices.Contains(out[p], c.Name) {
				out[p] = append(out[p], c.Name)
			}
		}
	}
	return out, nil
}

// at is where a bucket on record is.
func at(b *state.Bucket) storage.Location {
	return storage.Location{Store: storage.Store(b.Store), Account: b.Account, Region: b.Region, Bucket: b.InStore()}
}

// recorded opens a bucket on record, where it was made. It fails if the settings name
// another server by now: what is missing there may be here.
func (m *Manager) recorded(ctx context.Context, c *config.Config, b *state.Bucket) (storage.Bucket, error) {
	o := options(c, storage.Store(b.Store))
	if b.Endpoint != "" {
		o.Endpoint = b.Endpoint
	}
	opened, err := stores.Open(ctx, at(b), o)
	if err != nil {
		return nil, err
	}
	g, err := grantOf(ctx, opened)
	if err != nil {
		return nil, err
	}
	if g.Endpoint != b.Endpoint {
		return nil, fmt.Errorf("it was made in the store itself, and the settings of this server name another one now: %s (storage.endpoints, or a variable such as AWS_ENDPOINT_URL); take that out to reach the bucket", g.Endpoint)
	}
	return storage.Retry(opened, storage.Retries{}), nil
}

func invalid(kind, format string, args ...any) *api.Error {
	return &api.Error{Type: kind, Message: fmt.Sprintf(format, args...)}
}

// failed is the error of a step that a store did not do.
func failed(kind, what string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return &api.Error{Type: kind, Message: fmt.Sprintf("%s: %v", what, err), Err: err}
}

// inField notes in an error which field of a task it is about: a key of the mount at dst, or
// with "" the mount itself.
func inField(err error, t *task.Task, dst, key string) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Details[api.DetailField] != nil {
		return err
	}
	field := "file_mounts." + dst
	if key != "" {
		field += "." + key
	}
	about := *e
	about.Details = maps.Clone(e.Details)
	if about.Details == nil {
		about.Details = map[string]any{}
	}
	about.Details[api.DetailTask], about.Details[api.DetailField] = t.Name, field
	return &about
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// handedOver reports whether a context ended because the server goes down.
func handedOver(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), state.ErrHandover)
}

// Runnable refuses what this version cannot do with buckets yet, and URLs that name none.
func Runnable(t *task.Task) error {
	_, err := read(t)
	return err
}

package buckets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/scoped"
	"github.com/skypilot-go/sky/internal/storage/stores"
	"github.com/skypilot-go/sky/task"
)

// probes are the retries of requests that somebody waits for.
var probes = storage.Retries{Attempts: 4, Max: 2 * time.Second}

// Check finds out, without making anything, whether what a task wants of buckets can be
// had: credentials, the buckets and objects that there have to be, permissions. With say it
// prints what will be done, and which credentials nodes get.
func (m *Manager) Check(ctx context.Context, call cluster.Call, t *task.Task, say bool) error {
	uses, err := read(t)
	if err != nil || len(uses) == 0 {
		return err
	}
	if err := m.mayUse(call, uses[0]); err != nil {
		return inField(err, t, uses[0].dst, "")
	}
	call.Out.Spin("Looking at buckets")
	defer call.Out.StopSpin()
	c := m.configOf(call)
	var lines []string
	for _, u := range uses {
		line, err := m.checkOne(ctx, call, c, t, u)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return inField(failed(api.ErrStorageGet, u.where(), err), t, u.dst, u.key())
		}
		lines = append(lines, line)
	}
	if say {
		call.Out.StopSpin()
		for _, line := range lines {
			fmt.Fprintln(call.Out, line)
		}
	}
	return nil
}

// mayUse refuses callers who may not use the server's credentials.
func (m *Manager) mayUse(call cluster.Call, u mount) error {
	if call.Scope == nil || m.Config().Bool("storage", "allow_users") {
		return nil
	}
	return &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("file_mounts.%s: buckets are reached with this server's credentials, which only administrators may use.", u.dst),
		Hint: "An administrator can let everybody use them: storage.allow_users: true"}
}

func (m *Manager) checkOne(ctx context.Context, call cluster.Call, c *config.Config, t *task.Task, u mount) (string, error) {
	source := ""
	if u.given {
		b, err := m.find(ctx, c, u.from)
		if err == nil {
			err = there(ctx, b, u.from.Key)
		}
		if err != nil {
			return "", inField(failed(api.ErrStorageGet, u.where(), err), t, u.dst, "source")
		}
		source = "what is in " + u.from.String()
		if u.name == "" {
			if err := m.mayWrite(ctx, c, b, u, u.from.Key); err != nil {
				return "", err
			}
			return fmt.Sprintf("Bucket %s is %s %s; nodes get %s.", u.from, u.verb(), u.dst, m.whose(ctx, b, u.use(c, b, u.from.Key))), nil
		}
	} else if len(u.spec.Sources) > 0 {
		source = strings.Join(u.spec.Sources, ", ")
	}
	rec, b, err := m.wanted(ctx, call, c, t, u)
	if err != nil {
		return "", err
	}
	_, err = b.Head(ctx)
	missing := is[*storage.NotFoundError](err)
	if err != nil && !missing {
		return "", err
	}
	if !missing {
		if rec.Version == 0 && source == "" {
			return "", notOurs(u, b.Location())
		}
		if err := m.same(ctx, rec, b); err != nil {
			return "", err
		}
		if source != "" {
			err = storage.ProbeWrite(ctx, b, rec.SubPath)
		} else {
			err = m.mayWrite(ctx, c, b, u, rec.SubPath)
		}
		if err != nil {
			return "", err
		}
	} else if !b.Caps().Create {
		return "", fmt.Errorf("the bucket %s does not exist, and sky makes none of %s", b.Location(), rec.Store)
	}
	what := fmt.Sprintf("Bucket %s", b.Location())
	if missing {
		what += fmt.Sprintf(" is made in %s", b.Location().Region)
		if !rec.Persistent {
			what += ", and deleted with what needs it"
		}
		what += ";"
	}
	if source != "" {
		what += fmt.Sprintf(" gets %s, and", source)
	}
	return fmt.Sprintf("%s is %s %s; nodes get %s.", what, u.verb(), u.dst, m.whose(ctx, b, u.use(c, b, rec.SubPath))), nil
}

// verb is what is done with a bucket, up to the destination.
func (u *mount) verb() string {
	if u.mounted() {
		return "mounted at"
	}
	return "copied to"
}

// mayWrite refuses to mount a bucket for writing which cannot be written to.
func (m *Manager) mayWrite(ctx context.Context, c *config.Config, b storage.Bucket, u mount, sub string) error {
	if _, readOnly, err := howMounted(u.spec, c); !u.mounted() || readOnly || err != nil || b.Caps().ReadOnly {
		return err
	}
	err := storage.ProbeWrite(ctx, b, sub)
	if is[*storage.DeniedError](err) {
		key := "config.mount"
		if u.spec.Mode == string(agentapi.MountCached) {
			key = "config.mount_cached"
		}
		return fmt.Errorf("%w; to read only, write %s: {read_only: true}", err, key)
	}
	return err
}

// use is what nodes do with a bucket.
func (u *mount) use(c *config.Config, b storage.Bucket, key string) scoped.Use {
	if !u.mounted() {
		return scoped.Use{ReadOnly: true, Prefix: key}
	}
	_, readOnly, err := howMounted(u.spec, c)
	return scoped.Use{ReadOnly: err == nil && readOnly || b.Caps().ReadOnly}
}

// whose says whose credentials nodes get for a bucket.
func (m *Manager) whose(ctx context.Context, b storage.Bucket, u scoped.Use) string {
	g, err := m.scoped.Grant(ctx, b, u)
	if err != nil { // the launch itself ends then, unless it was trouble of the moment
		g, err = grantOf(ctx, b)
	}
	if err != nil || g.Whose == "" {
		return "no credentials for it, as it is public"
	}
	if !g.Expires.IsZero() {
		return fmt.Sprintf("short-lived credentials for it (%s, until %s, renewed while they are used)", g.Whose, g.Expires.UTC().Format("15:04 MST"))
	}
	return fmt.Sprintf("the server's own credentials for it (%s), in memory only", g.Whose)
}

// find opens a bucket that a task gives.
func (m *Manager) find(ctx context.Context, c *config.Config, from storage.Location) (storage.Bucket, error) {
	if err := allowed(c, from.Store); err != nil {
		return nil, err
	}
	at := from
	at.Key = ""
	var b storage.Bucket
	err := again(ctx, func() (err error) {
		b, _, err = stores.Find(ctx, at, options(c, from.Store))
		return err
	})
	if is[*storage.DeniedError](err) { // who may not describe a bucket may be allowed to read it
		if b, err2 := stores.Open(ctx, at, options(c, from.Store)); err2 == nil {
			if there(ctx, storage.Retry(b, probes), from.Key) == nil {
				return storage.Retry(b, probes), nil
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return storage.Retry(b, probes), nil
}

// again repeats what fails for the moment.
func again(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || !storage.Temporary(err) || try == probes.Attempts || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try) * 300 * time.Millisecond):
		}
	}
}

// there finds out whether a key is an object or has some below it.
func there(ctx context.Context, b storage.Bucket, key string) error {
	prefix := key
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	page, err := b.List(ctx, storage.ListOptions{Prefix: prefix, Max: 1})
	if err == nil && (key == "" || strings.HasSuffix(key, "/") || len(page.Objects)+len(page.Prefixes) > 0) {
		return nil
	}
	if err != nil && !is[*storage.DeniedError](err) || key == "" || strings.HasSuffix(key, "/") {
		return err
	}
	if _, err2 := b.Stat(ctx, key); err2 != nil {
		return cmp.Or(err, err2)
	}
	return nil
}

// below is a key below a prefix.
func below(sub, key string) string {
	if sub == "" {
		return key
	}
	return sub + "/" + key
}

// wanted is the record that a named bucket has, or will have if its Version is 0, and the
// bucket, which need not exist.
func (m *Manager) wanted(ctx context.Context, call cluster.Call, c *config.Config, t *task.Task, u mount) (*state.Bucket, storage.Bucket, error) {
	rec, err := m.Store.Buckets().Get(ctx, u.name)
	switch {
	case errors.Is(err, state.ErrNotFound):
		rec = nil
	case err != nil:
		return nil, nil, err
	case !call.Scope.Sees(rec.Workspace):
		return nil, nil, invalid(api.ErrStorageName, "file_mounts.%s: the name %q is taken by a bucket in a workspace that you may not use. Choose another name.", u.dst, u.name)
	case cmp.Or(rec.Workspace, state.DefaultWorkspace) != cmp.Or(c.ActiveWorkspace(), state.DefaultWorkspace):
		return nil, nil, invalid(api.ErrStorageName, "file_mounts.%s: the name %q is taken by a bucket in the workspace %s. Choose another name, or use it from there: sky -w %s", u.dst, u.name, rec.Workspace, rec.Workspace)
	case u.spec.Store != "" && u.spec.Store != rec.Store:
		return nil, nil, &api.Error{Type: api.ErrStorageCreate, Message: fmt.Sprintf("file_mounts.%s: bucket %q exists in %s, not in %s.", u.dst, u.name, rec.Store, u.spec.Store),
			Hint: fmt.Sprintf("Choose another name, or delete it first with all that is in it: sky storage delete %s", u.name)}
	}
	if rec != nil {
		if err := allowed(c, storage.Store(rec.Store)); err != nil {
			return nil, nil, err
		}
		b, err := m.recorded(ctx, c, rec)
		return rec, b, err
	}
	if len(u.spec.Sources) == 0 && !u.mounted() {
		return nil, nil, invalid(api.ErrStorageSource, "file_mounts.%s: sky has no bucket %q yet, and mode COPY has nothing to copy: add source. A bucket that sky did not make is given by its URL as source.", u.dst, u.name)
	}
	store, err := m.choose(ctx, c, t, u)
	if err != nil {
		return nil, nil, err
	}
	if err := allowed(c, store); err != nil {
		return nil, nil, err
	}
	if err := task.ValidBucketName(string(store), u.name); err != nil {
		return nil, nil, invalid(api.ErrStorageName, "file_mounts.%s: %v", u.dst, err)
	}
	where := storage.Location{Store: store, Bucket: u.name, Region: region(t, store)}
	var b storage.Bucket
	err = again(ctx, func() (err error) {
		if b, _, err = stores.Find(ctx, where, options(c, store)); is[*storage.NotFoundError](err) || is[*storage.DeniedError](err) {
			denied := err
			if b, err = stores.Open(ctx, where, options(c, store)); err == nil && is[*storage.DeniedError](denied) {
				err = denied
			}
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	g, err := grantOf(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	l := b.Location()
	rec = &state.Bucket{
		Name: u.name, Hash: uuid.NewString(), Stage: state.BucketMaking, Status: api.StorageInit,
		UserHash: call.User.ID, UserName: call.User.Name, Workspace: c.ActiveWorkspace(),
		Store: string(l.Store), Account: l.Account, Region: l.Region, Endpoint: g.Endpoint, SubPath: u.sub(),
		Persistent: u.spec.Persistent, LaunchedAt: time.Now(),
	}
	return rec, storage.Retry(b, storage.Retries{}), nil
}

// choose is the store of a bucket: the task's, that of a cloud which the task asks for, or
// the first one with credentials.
func (m *Manager) choose(ctx context.Context, c *config.Config, t *task.Task, u mount) (storage.Store, error) {
	if u.spec.Store != "" {
		return storage.Store(u.spec.Store), nil
	}
	var tried []storage.Store
	for _, r := range t.Resources {
		if s := storeOf(r.Cloud); s != "" && slices.Contains(writable, s) && !slices.Contains(tried, s) {
			tried = append(tried, s)
		}
	}
	for _, s := range writable {
		if !slices.Contains(tried, s) {
			tried = append(tried, s)
		}
	}
	for _, s := range tried {
		if usable(ctx, c, s) {
			return s, nil
		}
	}
	return "", &api.Error{Type: api.ErrNoCloudAccess, Message: fmt.Sprintf("file_mounts.%s: there are no credentials for any object store in which bucket %q could be made.", u.dst, u.name),
		Hint: "docs/storage.md says which credentials each store takes."}
}

// region is where the task runs, if it says so for the store's cloud; "": the store's usual
// region.
func region(t *task.Task, s storage.Store) string {
	for _, r := range t.Resources {
		if strings.EqualFold(r.Cloud, storeClouds[s]) && r.Region != "" {
			return r.Region
		}
	}
	return ""
}

func notOurs(u mount, at storage.Location) error {
	return &api.Error{Type: api.ErrStorageSpec, Message: fmt.Sprintf("file_mounts.%s: a bucket %s exists, and sky did not make it.", u.dst, at),
		Hint: fmt.Sprintf("To use it, give its URL: source: %s, without name. For a new bucket, choose another name.", at)}
}

// same refuses a bucket that others have made in the place of the one on record.
func (m *Manager) same(ctx context.Context, rec *state.Bucket, b storage.Bucket) error {
	if rec.Version == 0 || rec.Stage == state.BucketMaking || !rec.Managed || !b.Caps().Tags {
		return nil
	}
	tags, err := b.Tags(ctx)
	if err != nil {
		return err
	}
	if tags[storage.MarkerTag] == rec.Hash {
		return nil
	}
	return &api.Error{Type: api.ErrStorageGet, Message: fmt.Sprintf("The bucket %s is not the one that sky made: it was deleted and made again by others, or its tag %s was changed.", b.Location(), storage.MarkerTag),
		Hint: fmt.Sprintf("Forget the one that sky made with: sky storage delete %s (the bucket that is there now is left alone). Then give the URL as source, or choose another name.", rec.Name)}
}

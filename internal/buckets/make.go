package buckets

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/transfer"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// Prepare makes the named buckets of a task, or takes those that exist, and brings their
// sources into them. What is there already is not brought again. by is who needs those that
// are not to outlive it.
func (m *Manager) Prepare(ctx context.Context, call cluster.Call, t *task.Task, by ...state.Holder) error {
	uses, err := read(t)
	if err != nil {
		return err
	}
	for _, u := range uses {
		if u.name == "" {
			continue
		}
		if err := m.prepare(ctx, call, t, u, by); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return failed(api.ErrStorageCreate, "file_mounts."+u.dst, err)
		}
	}
	return nil
}

func (m *Manager) prepare(ctx context.Context, call cluster.Call, t *task.Task, u mount, by []state.Holder) error {
	call.Out.Spin("Waiting for other requests on bucket " + u.name)
	ctx, unlock, err := m.locks.Lock(ctx, u.name)
	if err != nil {
		return err
	}
	defer unlock()
	c := m.configOf(call)
	if old, err := m.Store.Buckets().Get(ctx, u.name); err == nil && (old.Stage == state.BucketDeleting || old.Stage == state.BucketUndoing) && call.Scope.Sees(old.Workspace) {
		call.Out.Spin("Bucket " + u.name + " is being deleted; waiting until it is gone")
		if err := m.finishDelete(ctx, call.Out, c, old); err != nil {
			return err
		}
	}
	rec, b, err := m.wanted(ctx, call, c, t, u)
	if err != nil {
		return err
	}
	filled, err := m.filled(ctx, rec, u, by)
	if err != nil {
		return err
	}
	was := rec.Hash
	if rec, err = m.make(ctx, call, rec, b, u, filled, by); err != nil {
		return err
	}
	if len(u.spec.Sources) == 0 || filled && rec.Hash == was {
		return nil
	}
	err = m.fill(ctx, call, c, t, rec, b, u)
	if err != nil && handedOver(ctx) {
		return context.Cause(ctx)
	}
	_, serr := m.Store.Buckets().Update(context.WithoutCancel(ctx), rec.Name, rec.Hash, func(now *state.Bucket) error {
		now.Status, now.Problem = api.StorageReady, ""
		if err != nil {
			now.Status, now.Problem = api.StorageUploadFailed, err.Error()
		}
		return nil
	})
	if err != nil {
		return failed(api.ErrStorageUpload, fmt.Sprintf("file_mounts.%s: not all files were brought into bucket %s", u.dst, b.Location()), err)
	}
	return serr
}

// filled reports whether a managed job has filled a bucket already that it mounts. When the
// job goes on elsewhere, what it wrote over its sources must not be replaced by them.
func (m *Manager) filled(ctx context.Context, rec *state.Bucket, u mount, by []state.Holder) (bool, error) {
	if !u.mounted() || rec.Version == 0 || rec.Stage != state.BucketThere || rec.Status != api.StorageReady {
		return false, nil
	}
	for _, h := range by {
		if h.Kind != state.HeldByJob {
			continue
		}
		if held, err := m.Store.Buckets().HeldBy(ctx, rec.Hash, h); held || err != nil {
			return held, err
		}
	}
	return false, nil
}

// make brings a bucket to be there, with a record.
func (m *Manager) make(ctx context.Context, call cluster.Call, rec *state.Bucket, b storage.Bucket, u mount, filled bool, by []state.Holder) (*state.Bucket, error) {
	_, err := b.Head(ctx)
	missing := is[*storage.NotFoundError](err)
	if err != nil && !missing {
		return nil, err
	}
	switch {
	case rec.Version == 0 && !missing: // somebody else's: it is filled, and never deleted
		if len(u.spec.Sources) == 0 {
			return nil, notOurs(u, b.Location())
		}
		rec.Stage, rec.Managed = state.BucketThere, false
		fmt.Fprintf(call.Out, "Bucket %s exists and was not made by sky: it is used, and never deleted.\n", b.Location())
	case rec.Version == 0:
		rec.Managed = true
	case missing && rec.Stage == state.BucketThere:
		// What is gone was deleted by somebody who could; a new bucket is another one.
		fmt.Fprintf(call.Out, "Bucket %s was deleted behind sky's back; it is made again.\n", b.Location())
		if err := m.Store.Buckets().Delete(ctx, rec.Name, rec.Hash); err != nil {
			return nil, err
		}
		filled = false
		rec.Hash, rec.Version, rec.Stage, rec.Managed = uuid.NewString(), 0, state.BucketMaking, true
		rec.UserHash, rec.UserName, rec.LaunchedAt = call.User.ID, call.User.Name, time.Now()
	}
	was := rec.Persistent
	change := func(rec *state.Bucket) error {
		if rec.Problem = ""; !filled {
			rec.Status = api.StorageInit
		}
		if rec.Stage == state.BucketThere && len(u.spec.Sources) == 0 {
			rec.Status = api.StorageReady // there is nothing to bring
		}
		rec.Persistent = u.spec.Persistent || rec.Version > 0 && was
		rec.LastUse = cmp.Or(call.Command, rec.LastUse)
		rec.Config = state.BucketConfig{Sources: u.spec.Sources, Mode: u.spec.Mode, Type: u.spec.Type, Config: u.spec.Config}
		return nil
	}
	if rec.Version == 0 {
		_ = change(rec)
		err = m.Store.Buckets().Create(ctx, rec, by...)
	} else {
		if err = m.Store.Buckets().Hold(ctx, rec.Hash, by...); err == nil {
			rec, err = m.Store.Buckets().Update(ctx, rec.Name, rec.Hash, change)
		}
		if err == nil && was && !u.spec.Persistent && rec.Managed {
			fmt.Fprintf(call.Out, "Bucket %s stays, although the task says persistent: false: it was made to stay.\n", b.Location())
		}
	}
	if err != nil {
		return nil, err
	}
	if rec.Stage == state.BucketThere {
		if err := m.same(ctx, rec, b); err != nil {
			return nil, err
		}
		return rec, nil
	}
	return m.finishMake(ctx, call, rec, b, missing)
}

// finishMake makes a bucket whose record says that it is being made.
func (m *Manager) finishMake(ctx context.Context, call cluster.Call, rec *state.Bucket, b storage.Bucket, missing bool) (*state.Bucket, error) {
	if !missing && b.Caps().Tags {
		// Made by an earlier life of this request, or by others in the meantime. In some
		// stores the mark is set after the bucket was made.
		tags, err := b.Tags(ctx)
		if err != nil {
			return nil, err
		}
		if tags[storage.MarkerTag] == "" {
			page, err := b.List(ctx, storage.ListOptions{Max: 1})
			if err == nil && len(page.Objects) == 0 {
				marked := maps.Clone(tags)
				if marked == nil {
					marked = map[string]string{}
				}
				marked[storage.MarkerTag] = rec.Hash
				if err = b.SetTags(ctx, marked); err == nil {
					tags = marked
				}
			}
			if err != nil {
				return nil, err
			}
		}
		if tags[storage.MarkerTag] != rec.Hash {
			if err := m.Store.Buckets().Delete(ctx, rec.Name, rec.Hash); err != nil {
				return nil, err
			}
			return nil, invalid(api.ErrStorageCreate, "A bucket %s was made by others in this moment: choose another name.", b.Location())
		}
	}
	if missing {
		call.Out.Spin("Making bucket " + b.Location().String())
		if err := b.Create(ctx, map[string]string{storage.MarkerTag: rec.Hash}); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, m.notMade(ctx, rec, b, err)
		}
	}
	made, err := m.Store.Buckets().Update(context.WithoutCancel(ctx), rec.Name, rec.Hash, func(rec *state.Bucket) error {
		rec.Stage = state.BucketThere
		if len(rec.Config.Sources) == 0 {
			rec.Status = api.StorageReady
		}
		return nil
	})
	if err == nil && missing {
		call.Out.StopSpin()
		fmt.Fprintf(call.Out, "✓ Made bucket %s in %s\n", b.Location(), b.Location().Region)
	}
	return made, err
}

// notMade deals with a refusal to make a bucket.
func (m *Manager) notMade(ctx context.Context, rec *state.Bucket, b storage.Bucket, err error) error {
	ctx = context.WithoutCancel(ctx)
	why := failed(api.ErrStorageCreate, "Bucket "+b.Location().String()+" could not be made", err)
	if is[*storage.BucketExistsError](err) || is[*storage.DeniedError](err) || is[*storage.InvalidError](err) || is[*storage.CredentialsError](err) || is[*storage.UnsupportedError](err) {
		return errors.Join(why, m.Store.Buckets().Delete(ctx, rec.Name, rec.Hash)) // nothing was made
	}
	_, serr := m.Store.Buckets().Update(ctx, rec.Name, rec.Hash, func(rec *state.Bucket) error {
		rec.Status, rec.Problem = api.StorageInitFailed, err.Error()
		return nil
	})
	if serr != nil {
		return errors.Join(why, serr)
	}
	return why
}

// fill brings what a task names into a bucket.
func (m *Manager) fill(ctx context.Context, call cluster.Call, c *config.Config, t *task.Task, rec *state.Bucket, b storage.Bucket, u mount) error {
	if u.given {
		from, err := m.find(ctx, c, u.from)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%s -> %s", u.from, b.Location().At(rec.SubPath))
		key := u.from.Key
		report, err := transfer.Copy(ctx, from, key, b, rec.SubPath, transfer.Options{Progress: progress(call.Out, "transfer", "Copying", what)})
		if err != nil {
			return err
		}
		done(call.Out, "Copied "+what, report)
		return nil
	}
	for _, name := range u.spec.Sources {
		if err := m.upload(ctx, call, t, rec, b, u, name); err != nil {
			return err
		}
	}
	return nil
}

// upload brings one local source into a bucket: what is in a folder that stands alone, and
// in a list each one under its own name.
func (m *Manager) upload(ctx context.Context, call cluster.Call, t *task.Task, rec *state.Bucket, b storage.Bucket, u mount, name string) error {
	key := rec.SubPath
	if u.spec.SourceList {
		key = below(rec.SubPath, path.Base(filepath.ToSlash(name)))
	}
	return m.uploadTo(ctx, call, t, rec, b, name, key)
}

// uploadTo uploads what is in a local folder below a key, or a local file to it.
func (m *Manager) uploadTo(ctx context.Context, call cluster.Call, t *task.Task, rec *state.Bucket, b storage.Bucket, name, key string) error {
	where, err := call.Files.Source(t, name)
	if err != nil {
		return err
	}
	src, closed, err := open(where)
	if err != nil {
		return upload.Error(where, err)
	}
	defer closed()
	journal := ""
	if err := os.MkdirAll(m.journals(rec), 0o700); err == nil { // else a crash costs repetition
		journal = filepath.Join(m.journals(rec), "journal")
	}
	what := fmt.Sprintf("%s -> %s", where, b.Location().At(key))
	report, err := transfer.Upload(ctx, src, b, key, transfer.Options{Journal: journal, Progress: progress(call.Out, "upload", "Uploading", what)})
	if err == nil && rec.Intermediate() && report.Files+report.Same == 0 { // an empty folder is one on nodes, too
		_, err = b.Put(ctx, key+"/", bytes.NewReader(nil), storage.PutOptions{})
	}
	if err != nil {
		return err
	}
	os.RemoveAll(m.journals(rec)) // it remembers what is unfinished, and nothing is
	done(call.Out, "Uploaded "+what, report)
	return nil
}

// journals is where the unfinished uploads into a bucket are remembered.
func (m *Manager) journals(rec *state.Bucket) string { return filepath.Join(m.Dir, rec.Hash) }

// open opens a source of files.
func open(s filesync.Source) (*transfer.Source, func(), error) {
	if _, err := filesync.Stat(s); err != nil { // it refuses sky's own state
		return nil, nil, err
	}
	src, closed, err := openAt(s)
	if err != nil {
		return nil, nil, err
	}
	own := filesync.IsOwnState()
	src.LeaveOut(func(dir *os.Root, name string, info fs.FileInfo) string {
		if own(dir, name, info) {
			return "sky's own state, which is never copied"
		}
		return ""
	})
	return src, closed, nil
}

func openAt(s filesync.Source) (*transfer.Source, func(), error) {
	dir, at := s.At()
	if dir == "" {
		src, err := transfer.Local(at)
		if err != nil {
			return nil, nil, err
		}
		return src, func() { src.Close() }, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	src, err := transfer.Within(root, filepath.FromSlash(at), s.String())
	if err != nil {
		root.Close()
		return nil, nil, err
	}
	return src, func() { src.Close(); root.Close() }, nil
}

// Hold notes that a holder needs the buckets of a task that are not to outlive it, and that
// a request does not need them any more.
func (m *Manager) Hold(ctx context.Context, t *task.Task, by state.Holder) error {
	uses, err := read(t)
	if err != nil {
		return err
	}
	for _, u := range uses {
		if u.name == "" {
			continue
		}
		rec, err := m.Store.Buckets().Get(ctx, u.name)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err == nil {
			err = m.Store.Buckets().Hold(ctx, rec.Hash, by)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// progress shows how far a transfer is.
func progress(out cluster.Output, operation, verb, what string) func(transfer.Progress) {
	return func(p transfer.Progress) {
		out.Spin(verb + " " + what + ": " + howFar(p))
		tell(out, operation, what, p)
	}
}

// done prints what a transfer did.
func done(out cluster.Output, what string, r transfer.Report) {
	out.StopSpin()
	fmt.Fprintf(out, "✓ %s (%s)\n", what, summary(r.Files, r.Bytes, r.Same))
	for _, note := range r.Notes {
		fmt.Fprintln(out, "  "+note)
	}
}

func summary(files, bytes, same int64) string {
	parts := []string{plural(files, "file") + ", " + size(bytes)}
	if same > 0 {
		parts = append(parts, fmt.Sprintf("%d there already", same))
	}
	return strings.Join(parts, "; ")
}

package buckets

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// Workdir is where a task's working folder is on nodes.
const Workdir = "~/sky_workdir"

// Intermediate uploads the local files of managed jobs (section "jobs") or services
// ("serve") to the bucket that the configuration names for them, if it names one, and makes
// the tasks copy them from there: each task's below a prefix of its own, job-<id>. It
// returns the hashes of the records of these prefixes, for [Manager.HoldIntermediate]; a
// prefix that nothing needs any more is deleted, and the bucket stays.
//
// Local sources of storage maps go to the buckets of these.
func (m *Manager) Intermediate(ctx context.Context, call cluster.Call, section string, dag *task.Dag) (hashes []string, err error) {
	c := m.configOf(call)
	url := c.Text(section, "bucket")
	if url == "" || c.Bool(section, "force_disable_cloud_bucket") {
		return nil, nil
	}
	setting := section + ".bucket"
	var b storage.Bucket
	var prefix string
	for i, t := range dag.Tasks {
		if !hasLocalFiles(t) {
			continue
		}
		if b == nil {
			if b, prefix, err = m.intermediateBucket(ctx, call, setting, url); err != nil {
				return nil, err
			}
		}
		hash, err := m.intermediate(ctx, call, t, b, below(prefix, "job-"+intermediateID(call.RequestID, i)))
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, failed(api.ErrStorageUpload, fmt.Sprintf("%s: not all files were uploaded to %s", setting, url), err)
		}
		hashes = append(hashes, hash)
	}
	return hashes, nil
}

// hasLocalFiles reports whether a task has a local workdir or local file mounts.
func hasLocalFiles(t *task.Task) bool {
	return t.Workdir != "" || slices.ContainsFunc(slices.Collect(maps.Values(t.FileMounts)), isLocal)
}

func isLocal(src string) bool { return !strings.Contains(src, "://") }

// intermediateID is what tells the prefix of one task from all others. It is the same when
// the request is resumed.
func intermediateID(request string, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", request, index))
	text := new(big.Int).SetBytes(sum[:]).Text(36)
	return text[len(text)-8:]
}

// intermediateBucket opens the bucket that a setting names for intermediate files, and tells
// the prefix in it.
func (m *Manager) intermediateBucket(ctx context.Context, call cluster.Call, setting, url string) (b storage.Bucket, prefix string, err error) {
	if call.Scope != nil && !m.Config().Bool("storage", "allow_users") {
		return nil, "", &api.Error{Type: api.ErrPermissionDenied, Message: setting + " is set, and buckets are reached with this server's credentials, which only administrators may use.",
			Hint: "An administrator can let everybody use them (storage.allow_users: true), or let files travel without a bucket (" + strings.ReplaceAll(setting, ".bucket", ".force_disable_cloud_bucket") + ": true)."}
	}
	at, err := storage.Parse(url)
	if err != nil {
		return nil, "", invalid(api.ErrStorageSpec, "%s: %v", setting, err)
	}
	whole := at.At("") // the prefix need not be there
	if b, err = m.find(ctx, m.configOf(call), whole); err != nil {
		e := &api.Error{Type: api.ErrStorageGet, Message: fmt.Sprintf("%s: %v", setting, err), Err: err}
		if is[*storage.NotFoundError](err) {
			e.Hint = "Create the bucket, or remove the setting: files reach nodes without a bucket, too."
		}
		return nil, "", e
	}
	return b, strings.Trim(at.Key, "/"), nil
}

// intermediate uploads the files of one task below a key and rewrites the task.
func (m *Manager) intermediate(ctx context.Context, call cluster.Call, t *task.Task, b storage.Bucket, key string) (hash string, err error) {
	name := b.Location().Bucket + "/" + key
	ctx, unlock, err := m.locks.Lock(ctx, name)
	if err != nil {
		return "", err
	}
	defer unlock()
	rec, err := m.Store.Buckets().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		if rec, err = m.newIntermediate(ctx, call, b, name, key); err == nil {
			err = m.Store.Buckets().Create(ctx, rec, state.Holder{Kind: state.HeldByRequest, ID: call.RequestID})
		}
	}
	if err != nil {
		return "", err
	}
	mounts := maps.Clone(t.FileMounts)
	if mounts == nil {
		mounts = map[string]string{}
	}
	place := func(dst, name, at string) error {
		if err := m.uploadTo(ctx, call, t, rec, b, name, at); err != nil {
			return err
		}
		mounts[dst] = b.Location().At(at).String()
		return nil
	}
	if t.Workdir != "" {
		if err := place(Workdir, t.Workdir, below(key, "workdir")); err != nil {
			return "", err
		}
	}
	folders, files := 0, 0
	for _, dst := range slices.Sorted(maps.Keys(t.FileMounts)) {
		name := t.FileMounts[dst]
		if !isLocal(name) {
			continue
		}
		src, err := call.Files.Source(t, name)
		if err != nil {
			return "", err
		}
		e, err := filesync.Stat(src)
		if err != nil {
			return "", upload.Error(src, err)
		}
		at := ""
		if e.Mode.IsDir() {
			at = below(key, fmt.Sprintf("local-file-mounts/%d", folders))
			folders++
		} else {
			at = below(key, fmt.Sprintf("tmp-files/file-%d", files))
			files++
		}
		if err := place(dst, name, at); err != nil {
			return "", err
		}
	}
	t.Workdir, t.FileMounts = "", mounts
	_, err = m.Store.Buckets().Update(ctx, rec.Name, rec.Hash, func(rec *state.Bucket) error {
		rec.Status = api.StorageReady
		return nil
	})
	return rec.Hash, err
}

// newIntermediate is the record of a prefix for intermediate files.
func (m *Manager) newIntermediate(ctx context.Context, call cluster.Call, b storage.Bucket, name, key string) (*state.Bucket, error) {
	g, err := grantOf(ctx, b)
	if err != nil {
		return nil, err
	}
	l := b.Location()
	return &state.Bucket{
		Name: name, Hash: uuid.NewString(), Stage: state.BucketThere, Status: api.StorageInit,
		UserHash: call.User.ID, UserName: call.User.Name, Workspace: m.configOf(call).ActiveWorkspace(),
		Store: string(l.Store), Account: l.Account, Region: l.Region, Endpoint: g.Endpoint, SubPath: key,
		LaunchedAt: time.Now(), LastUse: call.Command,
	}, nil
}

// HoldIntermediate notes who needs prefixes of intermediate files.
func (m *Manager) HoldIntermediate(ctx context.Context, hashes []string, by ...state.Holder) error {
	for _, hash := range hashes {
		if err := m.Store.Buckets().Hold(ctx, hash, by...); err != nil {
			return err
		}
	}
	return nil
}

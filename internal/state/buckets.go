package state

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

// Buckets is the store of buckets.
type Buckets struct{ s *Store }

// Buckets is the store of buckets.
func (s *Store) Buckets() *Buckets { return &Buckets{s} }

// BucketFilter selects buckets; zero fields select all.
type BucketFilter struct {
	Names     []string
	Workspace string
	Scope     *Scope // in workspaces that it sees
	Stages    []BucketStage
}

var (
	bucketColumns = columns{"name", "hash", "version", "stage", "status", "user_hash", "user_name", "workspace", "store", "account", "region", "endpoint",
		"sub_path", "managed", "persistent", "config", "problem", "launched_at", "last_use"}
	selectBuckets = "SELECT " + bucketColumns.of("b") + " FROM buckets b "
	insertBucket  = "INSERT INTO buckets (" + bucketColumns.list() + ") VALUES (" + bucketColumns.marks() + ") ON CONFLICT DO NOTHING"
	updateBucket  = "UPDATE buckets SET " + bucketColumns.set() + " WHERE name = ? AND hash = ? AND version = ?"
)

func bucketFields(b *Bucket) []any {
	return []any{text(&b.Name), text(&b.Hash), number(&b.Version), text(&b.Stage), text(&b.Status), text(&b.UserHash), text(&b.UserName), text(&b.Workspace),
		text(&b.Store), text(&b.Account), text(&b.Region), text(&b.Endpoint), text(&b.SubPath), truth(&b.Managed), truth(&b.Persistent),
		nested(&b.Config), text(&b.Problem), instant(&b.LaunchedAt), text(&b.LastUse)}
}

// Create writes a new bucket with Version 1, and who needs it; [ErrConflict] if the name
// is taken.
func (t *Buckets) Create(ctx context.Context, b *Bucket, by ...Holder) error {
	row := *b
	row.Version = 1
	err := t.s.createOnce(ctx, func(s *session) error {
		if err := changed(s.exec(insertBucket, bucketFields(&row)...)); err != nil {
			return err
		}
		return holdBucket(s, row.Hash, by)
	})
	if err == nil {
		b.Version = 1
	}
	return err
}

// Get is the bucket of that name, or [ErrNotFound].
func (t *Buckets) Get(ctx context.Context, name string) (*Bucket, error) {
	b := new(Bucket)
	if err := t.s.read(ctx).one(bucketFields(b), selectBuckets+"WHERE b.name = ?", name); err != nil {
		return nil, t.s.explain(err)
	}
	return b, nil
}

// List is the buckets that the filter selects, by name.
func (t *Buckets) List(ctx context.Context, f BucketFilter) ([]*Bucket, error) {
	var w where
	w.anyOf(t.s.db.d, "b.name", f.Names)
	w.equal("b.workspace", f.Workspace)
	within(&w, "b.workspace", f.Scope)
	in(&w, "b.stage", f.Stages)
	list, err := all(t.s.read(ctx).varying(), bucketFields, selectBuckets+w.String()+" ORDER BY b.name", w.args...)
	return list, t.s.explain(err)
}

// Save writes the bucket if its Version is still what is stored, and increments it in
// place; else [ErrConflict].
func (t *Buckets) Save(ctx context.Context, b *Bucket) error {
	row := *b
	row.Version++
	err := t.s.write(ctx, func(s *session) error {
		return changed(s.exec(updateBucket, append(bucketFields(&row), b.Name, b.Hash, b.Version)...))
	})
	if err == nil {
		b.Version = row.Version
	}
	return err
}

// Update reads the bucket, lets f change it and saves it, again and again until nobody
// interfered. An error of f ends it and is returned. [ErrNotFound] if that incarnation of
// the name is gone.
func (t *Buckets) Update(ctx context.Context, name, hash string, f func(*Bucket) error) (*Bucket, error) {
	return update(func() (*Bucket, error) {
		b, err := t.Get(ctx, name)
		if err == nil && b.Hash != hash {
			err = ErrNotFound
		}
		return b, err
	}, f, func(b *Bucket) error { return t.Save(ctx, b) })
}

// Delete removes one incarnation of a bucket; one that is gone is success.
func (t *Buckets) Delete(ctx context.Context, name, hash string) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		if _, err := s.exec("DELETE FROM bucket_holders WHERE bucket_hash = ?", hash); err != nil {
			return err
		}
		_, err := s.exec("DELETE FROM buckets WHERE name = ? AND hash = ?", name, hash)
		return err
	})
}

// Hold notes who needs a bucket; twice is once.
func (t *Buckets) Hold(ctx context.Context, hash string, by ...Holder) error {
	return t.s.writeAgain(ctx, func(s *session) error { return holdBucket(s, hash, by) })
}

func holdBucket(s *session, hash string, by []Holder) error {
	for _, h := range by {
		if _, err := s.exec("INSERT INTO bucket_holders (bucket_hash, kind, id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", hash, string(h.Kind), h.ID); err != nil {
			return err
		}
	}
	return nil
}

// HeldBy reports whether it was noted that somebody needs a bucket.
func (t *Buckets) HeldBy(ctx context.Context, hash string, by Holder) (bool, error) {
	n := 0
	err := t.s.read(ctx).one([]any{number(&n)}, "SELECT COUNT(*) FROM bucket_holders h WHERE h.bucket_hash = ? AND h.kind = ? AND h.id = ?", hash, string(by.Kind), by.ID)
	return n > 0, t.s.explain(err)
}

// Needed reports whether somebody who is still there needs a bucket: a request that has not
// ended, a cluster that exists, a managed job that has not ended, a service or pool, also
// one without replicas at the time.
func (t *Buckets) Needed(ctx context.Context, hash string) (bool, error) {
	var n int64
	err := t.s.read(ctx).one([]any{number(&n)}, `SELECT COUNT(*) FROM bucket_holders h WHERE h.bucket_hash = ? AND (
		h.kind = ? AND EXISTS (SELECT 1 FROM requests r WHERE r.id = h.id AND r.status IN (?, ?)) OR
		h.kind = ? AND EXISTS (SELECT 1 FROM clusters c WHERE c.hash = h.id) OR
		h.kind = ? AND EXISTS (SELECT 1 FROM managed_jobs j WHERE CAST(j.id AS TEXT) = h.id AND j.schedule <> 'DONE') OR
		h.kind IN (?, ?) AND EXISTS (SELECT 1 FROM services v WHERE v.name || '/' || v.hash = h.id))`,
		hash, string(HeldByRequest), string(api.RequestPending), string(api.RequestRunning), string(HeldByCluster), string(HeldByJob),
		string(HeldByService), string(HeldByPool))
	return n > 0, t.s.explain(err)
}

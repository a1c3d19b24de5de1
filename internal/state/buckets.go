package state

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

// Buckets is the store of buckets.
type Buckets struct{ named[Bucket] }

// Buckets is the store of buckets.
func (s *Store) Buckets() *Buckets { return &Buckets{named[Bucket]{s, bucketTable}} }

// BucketFilter selects buckets; zero fields select all.
type BucketFilter struct {
	Names     []string
	Workspace string
	Scope     *Scope // in workspaces that it sees
	Stages    []BucketStage
}

var bucketTable = newTable("buckets", "hash", columns{"name", "hash", "version", "stage", "status", "user_hash", "user_name", "workspace", "store", "account", "region", "endpoint",
	"sub_path", "managed", "persistent", "config", "problem", "launched_at", "last_use"},
	bucketFields, func(b *Bucket) (name, incarnation string, version *int64) { return b.Name, b.Hash, &b.Version })

func bucketFields(b *Bucket) []any {
	return []any{text(&b.Name), text(&b.Hash), number(&b.Version), text(&b.Stage), text(&b.Status), text(&b.UserHash), text(&b.UserName), text(&b.Workspace),
		text(&b.Store), text(&b.Account), text(&b.Region), text(&b.Endpoint), text(&b.SubPath), truth(&b.Managed), truth(&b.Persistent),
		nested(&b.Config), text(&b.Problem), instant(&b.LaunchedAt), text(&b.LastUse)}
}

// Create writes a new bucket with Version 1, and who needs it; [ErrConflict] if the name
// is taken.
func (t *Buckets) Create(ctx context.Context, b *Bucket, by ...Holder) error {
	return t.createWith(ctx, b, func(s *session, b *Bucket) error { return holdBucket(s, b.Hash, by) })
}

// List is the buckets that the filter selects, by name.
func (t *Buckets) List(ctx context.Context, f BucketFilter) ([]*Bucket, error) {
	var w where
	w.anyOf(t.s.db.d, "name", f.Names)
	w.equal("workspace", f.Workspace)
	within(&w, "workspace", f.Scope)
	in(&w, "stage", f.Stages)
	list, err := all(t.s.read(ctx).varying(), t.fields, t.find+w.String()+" ORDER BY name", w.args...)
	return list, t.s.explain(err)
}

// Delete removes one incarnation of a bucket; one that is gone is success.
func (t *Buckets) Delete(ctx context.Context, name, hash string) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		if _, err := s.exec("DELETE FROM bucket_holders WHERE bucket_hash = ?", hash); err != nil {
			return err
		}
		_, err := s.exec(t.remove, name, hash)
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

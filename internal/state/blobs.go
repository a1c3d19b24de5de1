package state

import (
	"context"
	"time"
)

// Blobs is the store of whole files: each is a stream that was written to its
// end, under a name. One that is being written is there, too, so that what a
// crash leaves of it is found.
type Blobs struct{ s *Store }

// Blobs is the store of whole files.
func (s *Store) Blobs() *Blobs { return &Blobs{s} }

// Blob is one file. Its bytes are a stream of [Streams].
type Blob struct {
	Name   string
	Stream string
	UserID string
	Size   int64
	Whole  bool // written to its end
	UsedAt time.Time
}

var blobColumns = columns{"name", "stream", "user_id", "size", "whole", "used_at"}

func blobFields(b *Blob) []any {
	return []any{text(&b.Name), text(&b.Stream), text(&b.UserID), number(&b.Size), truth(&b.Whole), instant(&b.UsedAt)}
}

// Begin notes a file that is about to be written; [ErrConflict] if there is one
// of that name.
func (t *Blobs) Begin(ctx context.Context, b Blob) error {
	b.Whole, b.UsedAt = false, t.s.Now()
	return t.s.write(ctx, func(s *session) error {
		return changed(s.exec("INSERT INTO blobs ("+blobColumns.list()+") VALUES ("+blobColumns.marks()+") ON CONFLICT DO NOTHING", blobFields(&b)...))
	})
}

// Finish makes a file whole under its final name, together with what was
// written; [ErrConflict] if it was removed meanwhile, or the name is taken.
func (t *Blobs) Finish(ctx context.Context, name, final string, size int64) error {
	now := nanos(t.s.Now())
	return t.s.write(ctx, func(s *session) error {
		return changed(s.exec(`UPDATE blobs SET name = ?, size = ?, whole = TRUE, used_at = ? WHERE name = ? AND NOT whole
			AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.name = ?)`, final, size, now, name, final))
	})
}

// Use is the whole file of that name, noted as used now; [ErrNotFound] if there
// is none.
func (t *Blobs) Use(ctx context.Context, name string) (Blob, error) {
	now := nanos(t.s.Now())
	var b Blob
	err := t.s.writeAgain(ctx, func(s *session) error {
		return s.one(blobFields(&b), "UPDATE blobs SET used_at = ? WHERE name = ? AND whole RETURNING "+blobColumns.list(), now, name)
	})
	return b, err
}

// List is the files whose names begin with prefix, in order of their names.
func (t *Blobs) List(ctx context.Context, prefix string) ([]Blob, error) {
	cond, args := t.s.db.d.prefixed("name", prefix)
	list, err := all(t.s.read(ctx), blobFields, "SELECT "+blobColumns.list()+" FROM blobs WHERE "+cond+" ORDER BY name", args...)
	return values(list), t.s.explain(err)
}

// UsedBy is how many bytes a user's files have.
func (t *Blobs) UsedBy(ctx context.Context, user string) (int64, error) {
	var n int64
	err := t.s.read(ctx).one([]any{&n}, "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM blobs WHERE user_id = ?", user)
	return n, t.s.explain(err)
}

// Delete removes a file, if it was not used since.
func (t *Blobs) Delete(ctx context.Context, b Blob) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		n, err := s.exec("DELETE FROM blobs WHERE name = ? AND stream = ? AND used_at <= ?", b.Name, b.Stream, nanos(b.UsedAt))
		if err != nil || n == 0 {
			return err
		}
		_, err = s.exec("DELETE FROM stream_pieces WHERE stream = ?", b.Stream)
		return err
	})
}

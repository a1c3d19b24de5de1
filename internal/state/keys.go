package state

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/envelope"
)

// EncryptionKey is what a database knows of a master key. The key itself is
// elsewhere, or here as a key management service encrypted it.
type EncryptionKey struct {
	Number    int // the highest is current
	ID        envelope.ID
	Source    string // where it was when it was first used, for people
	Wrapped   []byte // by a key management service; nil: servers have it
	MadeAt    time.Time
	RetiredAt time.Time // since when no value is encrypted with it; zero: some may be
	Complete  bool      // no value is in clear, or encrypted with another key
}

// EncryptionKeys is the store of what is known of master keys.
type EncryptionKeys struct{ s *Store }

// EncryptionKeys is the store of what is known of master keys.
func (s *Store) EncryptionKeys() *EncryptionKeys { return &EncryptionKeys{s} }

var encryptionKeyColumns = columns{"number", "id", "source", "wrapped", "made_at", "retired_at", "complete"}

func encryptionKeyFields(k *EncryptionKey) []any {
	return []any{number(&k.Number), text(&k.ID), text(&k.Source), binary(&k.Wrapped), instant(&k.MadeAt), instant(&k.RetiredAt), truth(&k.Complete)}
}

// List is every key that was ever used, the current one first.
func (t *EncryptionKeys) List(ctx context.Context) ([]EncryptionKey, error) {
	list, err := all(t.s.read(ctx), encryptionKeyFields, "SELECT "+encryptionKeyColumns.list()+" FROM encryption_keys ORDER BY number DESC")
	return values(list), t.s.explain(err)
}

// Add makes a key the current one; its Number says which it is from the first,
// 1, on. [ErrConflict] if another server added one at the same time.
func (t *EncryptionKeys) Add(ctx context.Context, k EncryptionKey) error {
	k.MadeAt = t.s.Now()
	return t.s.createOnce(ctx, func(s *session) error {
		return changed(s.exec("INSERT INTO encryption_keys ("+encryptionKeyColumns.list()+") VALUES ("+encryptionKeyColumns.marks()+") ON CONFLICT DO NOTHING", encryptionKeyFields(&k)...))
	})
}

// Finish notes that every value is encrypted with the current key of that
// number, so that the keys before it are not needed for this database any more.
// [ErrConflict] if another key has become current meanwhile.
func (t *EncryptionKeys) Finish(ctx context.Context, current int) error {
	now := nanos(t.s.Now())
	return t.s.writeAgain(ctx, func(s *session) error {
		if err := changed(s.exec("UPDATE encryption_keys SET complete = TRUE WHERE number = ? AND number = (SELECT MAX(number) FROM encryption_keys)", current)); err != nil {
			return err
		}
		_, err := s.exec("UPDATE encryption_keys SET retired_at = ? WHERE number < ? AND retired_at = 0", now, current)
		return err
	})
}

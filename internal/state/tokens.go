package state

import (
	"context"
	"time"
)

// Token lets a program act as a service account. Only the hash of the token's
// text is kept.
type Token struct {
	ID, Name  string
	Hash      string // hex SHA-256 of the whole token
	AccountID string // the service account: a user
	CreatorID string // "" if nobody was logged in
	CreatedAt time.Time
	UsedAt    time.Time // zero: never
	ExpiresAt time.Time // zero: never
}

// Expired reports whether the token is worth nothing any more.
func (t Token) Expired(now time.Time) bool { return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt) }

// NamedToken is a token with the names and the role that belong to its ids.
type NamedToken struct {
	Token
	CreatorName string
	Account     User
}

// Tokens is the store of tokens of service accounts.
type Tokens struct{ s *Store }

var tokenColumns = columns{"id", "name", "hash", "account_id", "creator_id", "created_at", "used_at", "expires_at"}

func tokenFields(k *Token) []any {
	return []any{text(&k.ID), text(&k.Name), text(&k.Hash), text(&k.AccountID), text(&k.CreatorID),
		instant(&k.CreatedAt), instant(&k.UsedAt), instant(&k.ExpiresAt)}
}

func namedTokenFields(k *NamedToken) []any {
	return append(append(tokenFields(&k.Token), text(&k.CreatorName)), userFields(&k.Account)...)
}

// namedTokens joins what belongs to a token; a token without its account is
// none.
var namedTokens = "SELECT " + tokenColumns.of("t") + ", COALESCE(c.name, ''), " + userColumns.of("a") +
	" FROM tokens t JOIN users a ON a.id = t.account_id LEFT JOIN users c ON c.id = t.creator_id "

// Create adds a token together with its service account; [ErrConflict] if
// either exists.
func (t *Tokens) Create(ctx context.Context, k Token, account User) error {
	return t.s.write(ctx, func(s *session) error {
		if err := createUser(s, account, ""); err != nil {
			return err
		}
		n, err := s.exec("INSERT INTO tokens ("+tokenColumns.list()+") VALUES ("+tokenColumns.marks()+")", tokenFields(&k)...)
		return changed(n, err)
	})
}

// Get is the token of that id, or [ErrNotFound].
func (t *Tokens) Get(ctx context.Context, id string) (NamedToken, error) {
	var k NamedToken
	err := t.s.read(ctx).one(namedTokenFields(&k), namedTokens+"WHERE t.id = ?", id)
	return k, t.s.explain(err)
}

// ByHash is the token whose text has that hash, or [ErrNotFound].
func (t *Tokens) ByHash(ctx context.Context, hash string) (NamedToken, error) {
	var k NamedToken
	err := t.s.read(ctx).one(namedTokenFields(&k), namedTokens+"WHERE t.hash = ?", hash)
	return k, t.s.explain(err)
}

// List is every token, or those that a creator made, the oldest first.
func (t *Tokens) List(ctx context.Context, creator string) ([]NamedToken, error) {
	var w where
	w.equal("t.creator_id", creator)
	list, err := all(t.s.read(ctx), namedTokenFields, namedTokens+w.String()+" ORDER BY t.created_at, t.id", w.args...)
	return values(list), t.s.explain(err)
}

// Rotate puts another hash and end in the place of a token's.
func (t *Tokens) Rotate(ctx context.Context, id, hash string, expires time.Time) error {
	return t.s.write(ctx, func(s *session) error {
		return found(s.exec("UPDATE tokens SET hash = ?, expires_at = ? WHERE id = ?", hash, nanos(expires), id))
	})
}

// Used notes when a token was last used.
func (t *Tokens) Used(ctx context.Context, id string, at time.Time) error {
	return t.s.write(ctx, func(s *session) error {
		return found(s.exec("UPDATE tokens SET used_at = ? WHERE id = ?", nanos(at), id))
	})
}

// Delete revokes a token and forgets its account when nothing else stands for
// it.
func (t *Tokens) Delete(ctx context.Context, id string) error {
	return t.s.write(ctx, func(s *session) error {
		var account string
		if err := s.one([]any{&account}, "SELECT account_id FROM tokens WHERE id = ?", id); err != nil {
			return err
		}
		if _, err := s.exec("DELETE FROM tokens WHERE id = ?", id); err != nil {
			return err
		}
		_, err := s.exec("DELETE FROM users WHERE id = ? AND NOT EXISTS (SELECT 1 FROM tokens WHERE account_id = ?)", account, account)
		return err
	})
}

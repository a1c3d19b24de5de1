package state

import (
	"context"
	"time"
)

// Logins is the store of browser logins that a command line waits for.
type Logins struct{ s *Store }

// Put keeps what a login is worth under its challenge until it is taken or
// expires. Logins that have expired are forgotten.
func (t *Logins) Put(ctx context.Context, challenge, token string, expires time.Time) error {
	now := nanos(t.s.Now())
	return t.s.write(ctx, func(s *session) error {
		if _, err := s.exec("DELETE FROM logins WHERE expires_at <= ?", now); err != nil {
			return err
		}
		_, err := s.exec("INSERT INTO logins (challenge, token, expires_at) VALUES (?, ?, ?) ON CONFLICT (challenge) DO UPDATE SET token = excluded.token, expires_at = excluded.expires_at",
			challenge, t.s.in("logins", &challenge, "token").of(text(&token)), nanos(expires))
		return err
	})
}

// Take hands a login out once; [ErrNotFound] if there is none, or no more.
func (t *Logins) Take(ctx context.Context, challenge string) (string, error) {
	now := nanos(t.s.Now())
	// Pollers ask every second: nothing is written before there is something.
	var n int64
	if err := t.s.read(ctx).one([]any{&n}, "SELECT 1 FROM logins WHERE challenge = ?", challenge); err != nil {
		return "", t.s.explain(err)
	}
	var token string
	err := t.s.write(ctx, func(s *session) error {
		return s.one([]any{t.s.in("logins", &challenge, "token").of(text(&token))}, "DELETE FROM logins WHERE challenge = ? AND expires_at > ? RETURNING token", challenge, now)
	})
	return token, err
}

package state

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skypilot-go/sky/api"
)

func TestPasswords(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, users := context.Background(), s.Users()
		ada := User{ID: "ada1", Name: "ada", Type: "basic", Role: "user"}
		if err := users.Create(ctx, ada, "h1"); err != nil {
			t.Fatal(err)
		}
		if err := users.Create(ctx, ada, "h2"); !errors.Is(err, ErrConflict) {
			t.Errorf("created twice: %v", err)
		}
		if err := users.SeedAdmin(ctx, ada, "h3"); err != nil {
			t.Fatal(err)
		}
		c, err := users.Credential(ctx, "ada1")
		if err != nil || c.Hash != "h1" || c.Role != "user" {
			t.Errorf("the seed changed somebody who has a password: %+v, %v", c, err)
		}
		if _, err := users.Touch(ctx, User{ID: "bob1", Name: "bob", Role: "user"}); err != nil {
			t.Fatal(err)
		}
		if err := users.SeedAdmin(ctx, User{ID: "bob1", Name: "bob"}, "h4"); err != nil {
			t.Fatal(err)
		}
		if c, err := users.Credential(ctx, "bob1"); err != nil || c.Hash != "h4" || c.Role != "admin" {
			t.Errorf("seeded: %+v, %v", c, err)
		}
		if err := errors.Join(users.SetPassword(ctx, "ada1", "h5"), users.SetRole(ctx, "ada1", "viewer"), users.Prefer(ctx, "ada1", "team")); err != nil {
			t.Fatal(err)
		}
		c, err = users.Credential(ctx, "ada1")
		if err != nil || c.Hash != "h5" || c.Role != "viewer" || c.PreferredWorkspace != "team" {
			t.Errorf("%+v, %v", c, err)
		}
		if list, err := users.Credentials(ctx); err != nil || len(list) != 2 {
			t.Errorf("%v, %v", list, err)
		}
		for _, err := range []error{users.SetPassword(ctx, "no", "h"), users.SetRole(ctx, "no", "user"), users.Prefer(ctx, "no", ""), users.Delete(ctx, "no")} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("of nobody: %v", err)
			}
		}
	})
}

func TestTokens(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, tokens := context.Background(), s.Tokens()
		at := time.Unix(1000, 0).UTC()
		for _, id := range []string{"ada1", "bob1"} {
			if err := s.Users().Create(ctx, User{ID: id, Name: id[:3], Role: "admin"}, ""); err != nil {
				t.Fatal(err)
			}
		}
		k := Token{ID: "k1", Name: "ci", Hash: "h1", AccountID: "sa-1", CreatorID: "ada1", CreatedAt: at}
		sa := User{ID: "sa-1", Name: "ci", Type: "sa", Role: "admin", CreatedAt: at}
		if err := tokens.Create(ctx, k, sa); err != nil {
			t.Fatal(err)
		}
		if err := tokens.Create(ctx, k, sa); !errors.Is(err, ErrConflict) {
			t.Errorf("created twice: %v", err)
		}
		got, err := tokens.ByHash(ctx, "h1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(NamedToken{Token: k, CreatorName: "ada", Account: sa}, got); diff != "" {
			t.Error(diff)
		}
		if err := errors.Join(tokens.Rotate(ctx, "k1", "h2", at.Add(time.Hour)), tokens.Used(ctx, "k1", at.Add(time.Minute))); err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.ByHash(ctx, "h1"); !errors.Is(err, ErrNotFound) {
			t.Errorf("the text before the rotation: %v", err)
		}
		got, err = tokens.Get(ctx, "k1")
		if err != nil || got.UsedAt != at.Add(time.Minute) || got.Expired(at) || !got.Expired(at.Add(time.Hour)) {
			t.Errorf("%+v, %v", got, err)
		}
		for creator, want := range map[string]int{"": 1, "ada1": 1, "bob1": 0} {
			if list, err := tokens.List(ctx, creator); err != nil || len(list) != want {
				t.Errorf("of %q: %v, %v", creator, list, err)
			}
		}
		if err := s.Users().SetRole(ctx, "ada1", "user"); err != nil {
			t.Fatal(err)
		}
		if u, err := s.Users().Get(ctx, "sa-1"); err != nil || u.Role != "user" {
			t.Errorf("a service account may do more than who made it: %+v, %v", u, err)
		}
		if err := s.Users().Delete(ctx, "ada1"); err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.ByHash(ctx, "h2"); !errors.Is(err, ErrNotFound) {
			t.Errorf("the token of somebody who left: %v", err)
		}
		k.CreatorID = "bob1"
		if err := errors.Join(tokens.Create(ctx, k, sa), tokens.Delete(ctx, "k1")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Users().Get(ctx, "sa-1"); !errors.Is(err, ErrNotFound) {
			t.Errorf("the account of a revoked token: %v", err)
		}
	})
}

func TestLogins(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, logins := context.Background(), s.Logins()
		now := s.Now()
		if err := errors.Join(logins.Put(ctx, "a", "one", now.Add(time.Minute)), logins.Put(ctx, "b", "late", now.Add(-time.Second))); err != nil {
			t.Fatal(err)
		}
		if token, err := logins.Take(ctx, "a"); token != "one" || err != nil {
			t.Errorf("%q, %v", token, err)
		}
		for _, c := range []string{"a", "b", "c"} {
			if _, err := logins.Take(ctx, c); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %v", c, err)
			}
		}
	})
}

func TestAudit(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, audit := context.Background(), s.Audit()
		now := s.Now().Truncate(time.Microsecond)
		add := func(id string, ago time.Duration, user, cluster string, queued bool) {
			e := AuditEntry{ID: id, At: now.Add(-ago), UserID: user, UserName: "n" + user, Action: "sky.down", Method: "POST", Path: "/down", Cluster: cluster, Queued: queued}
			if err := audit.Add(ctx, e); err != nil {
				t.Fatal(err)
			}
		}
		add("a", 5*time.Hour, "u1", "c1", true)
		add("b", 4*time.Hour, "u2", "c2", true)
		add("c", 3*time.Hour, "u1", "other", false)
		add("d", time.Second, "u1", "c1", true)
		if err := audit.Add(ctx, AuditEntry{ID: "a"}); !errors.Is(err, ErrConflict) {
			t.Errorf("an entry was replaced: %v", err)
		}
		if err := errors.Join(audit.End(ctx, "c", "200", ""), audit.End(ctx, "c", "500", "again")); err != nil {
			t.Fatal(err)
		}
		r := fullRequest("a")
		r.Status, r.FinishedAt = api.RequestFailed, now
		if err := s.Requests().Create(ctx, r); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := audit.Settle(ctx); err != nil {
				t.Fatal(err)
			}
		}
		list, err := audit.List(ctx, AuditFilter{})
		if err != nil {
			t.Fatal(err)
		}
		var got [][2]string
		for _, e := range list {
			got = append(got, [2]string{e.ID, e.Result})
		}
		if diff := cmp.Diff([][2]string{{"d", ""}, {"c", "200"}, {"b", "unknown"}, {"a", "FAILED"}}, got); diff != "" {
			t.Error(diff)
		}
		for _, c := range []struct {
			f    AuditFilter
			want int
		}{
			{AuditFilter{User: "u1"}, 3}, {AuditFilter{User: "nu2"}, 1}, {AuditFilter{Cluster: "c1"}, 2}, {AuditFilter{Cluster: "c*"}, 3},
			{AuditFilter{Since: now.Add(-time.Hour)}, 1}, {AuditFilter{Until: now.Add(-time.Hour)}, 3}, {AuditFilter{Limit: 2, Offset: 3}, 1},
			{AuditFilter{Action: "sky.up"}, 0},
		} {
			if list, err := audit.List(ctx, c.f); err != nil || len(list) != c.want {
				t.Errorf("%+v: %d entries, %v, want %d", c.f, len(list), err, c.want)
			}
		}
		if n, err := audit.Prune(ctx, now.Add(-time.Hour)); n != 3 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
		if list, _ := audit.List(ctx, AuditFilter{}); len(list) != 1 {
			t.Errorf("left: %v", list)
		}
	})
}

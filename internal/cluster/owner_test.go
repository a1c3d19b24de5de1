package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// banked is a cloud with accounts.
type banked struct {
	cloud.Provider
	stamp  string
	who    cloud.Identity
	err    error
	checks int
}

func (b *banked) Name() string            { return "bank" }
func (b *banked) DisplayName() string     { return "Bank" }
func (b *banked) CredentialStamp() string { return b.stamp }
func (b *banked) Check(context.Context) (cloud.Identity, error) {
	b.checks++
	return b.who, b.err
}

func TestSameAccount(t *testing.T) {
	for _, tt := range []struct {
		name  string
		owner []string
		now   cloud.Identity
		err   error
		skip  bool
		want  bool
	}{
		{"the same", []string{"user", "acct"}, cloud.Identity{"user", "acct"}, nil, false, true},
		{"another role of the account", []string{"user", "acct"}, cloud.Identity{"role", "acct"}, nil, false, true},
		{"another account", []string{"user", "acct"}, cloud.Identity{"user2", "acct2"}, nil, false, false},
		{"another account, and the check is off", []string{"user", "acct"}, cloud.Identity{"user2", "acct2"}, nil, true, true},
		{"launched before owners were noted", nil, cloud.Identity{"user2"}, nil, false, true},
		{"credentials that do not work", []string{"user"}, nil, errors.New("expired"), false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.skip {
				t.Setenv(skipOwnerCheck, "1")
			}
			m := &Manager{}
			p := &banked{stamp: "s", who: tt.now, err: tt.err}
			err := m.SameAccount(t.Context(), &state.Cluster{Name: "c", Owner: tt.owner}, p)
			if (err == nil) != tt.want {
				t.Fatalf("%v", err)
			}
			var e *api.Error
			if err != nil && (!errors.As(err, &e) || e.Type != api.ErrClusterOwnerMismatch) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAccountsAreAskedForOnce(t *testing.T) {
	m := &Manager{}
	p := &banked{stamp: "s", who: cloud.Identity{"a"}}
	for range 3 {
		if who, err := m.Account(t.Context(), p); err != nil || who[0] != "a" {
			t.Fatal(who, err)
		}
	}
	p.stamp, p.who = "s2", cloud.Identity{"b"}
	if who, err := m.Account(t.Context(), p); err != nil || who[0] != "b" || p.checks != 2 {
		t.Errorf("%v, %v after %d checks", who, err, p.checks)
	}
}

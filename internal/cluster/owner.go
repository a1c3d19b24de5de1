package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// skipOwnerCheck is the environment variable that lets any account act on any
// cluster, for those who know that two names are one account.
const skipOwnerCheck = "SKYPILOT_SKIP_CLOUD_IDENTITY_CHECK"

// accounts remembers whose the credentials for each cloud are. One set of
// credentials belongs to one account for good, so the cloud is asked once.
type accounts struct {
	mu    sync.Mutex
	known map[string]account
}

type account struct {
	stamp string
	who   cloud.Identity
}

// Account is whose machines a launch with today's credentials makes; nil where
// there are no accounts (this machine, one's own hosts) or that is not known.
func (m *Manager) Account(ctx context.Context, p cloud.Provider) (cloud.Identity, error) {
	stamper, ok := cloud.As[cloud.CredentialStamper](p)
	if !ok {
		return nil, nil
	}
	stamp := stamper.CredentialStamp()
	if stamp == "" {
		return nil, nil
	}
	m.accounts.mu.Lock()
	a, ok := m.accounts.known[p.Name()]
	m.accounts.mu.Unlock()
	if ok && a.stamp == stamp {
		return a.who, nil
	}
	who, err := p.Check(ctx)
	if err != nil {
		return nil, err
	}
	m.accounts.mu.Lock()
	defer m.accounts.mu.Unlock()
	if m.accounts.known == nil {
		m.accounts.known = map[string]account{}
	}
	m.accounts.known[p.Name()] = account{stamp, who}
	return who, nil
}

// SameAccount refuses to act on a cluster whose machines belong to another
// account than today's credentials: that account's lists do not show them, which
// would look as if they were gone. Credentials that do not work are the next
// call's business.
func (m *Manager) SameAccount(ctx context.Context, c *state.Cluster, p cloud.Provider) error {
	if len(c.Owner) == 0 || os.Getenv(skipOwnerCheck) == "1" {
		return nil
	}
	who, err := m.Account(ctx, p)
	if err != nil || len(who) == 0 || sameAccount(c.Owner, who) {
		return nil
	}
	return &api.Error{
		Type: api.ErrClusterOwnerMismatch,
		Message: fmt.Sprintf("Cluster %q belongs to the %s account %s, but the credentials in use are those of %s.",
			c.Name, p.DisplayName(), strings.Join(c.Owner, ", "), strings.Join(who, ", ")),
		Hint: fmt.Sprintf("Log in to %s as the account that launched it; if both are one account, set %s=1 for the API server.", p.DisplayName(), skipOwnerCheck),
	}
}

// sameAccount compares two identities, strictest name first: one that fits in
// any place is enough, since the strict ones change with roles and sessions.
func sameAccount(owner, now []string) bool {
	for i := range min(len(owner), len(now)) {
		if owner[i] == now[i] {
			return true
		}
	}
	return slices.Equal(owner, now)
}

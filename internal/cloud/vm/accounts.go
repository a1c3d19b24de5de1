package vm

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Accounts remembers in which accounts besides the one in use machines of clusters were
// listed. The zero value is ready.
type Accounts struct {
	mu sync.Mutex
	m  map[cloud.ClusterID][]string
}

// mostAccounts bounds what is remembered: a list of all accounts finds the rest again.
const mostAccounts = 10_000

// Of are the accounts of a cluster's machines besides the one in use.
func (a *Accounts) Of(id cloud.ClusterID) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.m[id])
}

func (a *Accounts) note(m Machine, account string) {
	id := cloud.ClusterID{Installation: m.Tags[cloud.TagInstallation], Name: m.Tags[cloud.TagCluster], Hash: m.Tags[cloud.TagHash]}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m == nil || len(a.m) > mostAccounts {
		a.m = map[cloud.ClusterID][]string{}
	}
	if !slices.Contains(a.m[id], account) {
		a.m[id] = append(a.m[id], account)
	}
}

// ListAccounts lists accounts, several at once, for a provider's [cloud.AccountLister]. The
// account in use is the first one; what is found in others is remembered.
func (p *Provider) ListAccounts(ctx context.Context, remember *Accounts, accounts []string, list func(ctx context.Context, account string) ([]Machine, error)) (nodes []cloud.Node, failed map[string]error) {
	found, errs := make([][]Machine, len(accounts)), make([]error, len(accounts))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, account := range accounts {
		g.Go(func() error {
			listed, err := list(ctx, account)
			if err != nil {
				errs[i] = p.refusal(ctx, p.at(""), err)
				return nil
			}
			found[i], errs[i] = checked(listed)
			return nil
		})
	}
	g.Wait()
	failed = map[string]error{}
	for i, account := range accounts {
		if errs[i] != nil {
			failed[account] = errs[i]
			continue
		}
		there := p.nodes(found[i])
		if i > 0 {
			for _, m := range found[i] {
				remember.note(m, account)
			}
			for n := range there {
				there[n].Account = account
			}
		}
		nodes = append(nodes, there...)
	}
	return nodes, failed
}

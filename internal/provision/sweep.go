package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// A Stray is machines that carry our tags and belong to no cluster and no
// attempt on record.
type Stray struct {
	Cloud   string       `json:"cloud"`
	Cluster string       `json:"cluster"` // the name on the cloud
	Hash    string       `json:"cluster_hash"`
	Nodes   []cloud.Node `json:"nodes"`
	Since   time.Time    `json:"since"` // the oldest machine was made, or first seen
}

func (s *Stray) key() owner { return owner{s.Cloud, s.Cluster, s.Hash} }

// owner is how a record claims machines: one incarnation of a name on one cloud.
type owner struct{ cloud, name, hash string }

// DefaultGrace is how old machines must be before they count as strays.
const DefaultGrace = 5 * time.Minute

// SweepOptions say where to look and what to do.
type SweepOptions struct {
	Clouds []string      // by name; none: all that there are
	Grace  time.Duration // 0: [DefaultGrace]; negative: none
	// End selects the strays to give back; nil: none, they are only listed.
	End func(Stray) bool
}

// asks reports whether a cloud is one of those to look at.
func (o SweepOptions) asks(name string) bool {
	return len(o.Clouds) == 0 || slices.Contains(o.Clouds, name)
}

// imagesTimeout bounds the list of a cloud's images.
const imagesTimeout = 2 * time.Minute

// SweepReport is what a sweep found and did.
type SweepReport struct {
	Strays []SweptStray `json:"strays"`
	// Unlisted are clouds, and accounts of them as "CLOUD (ACCOUNT)", that could not be asked,
	// and why. Clouds that nothing was ever rented from, and accounts that the credentials see
	// but may list no machines in, are left out, unless the cloud was named.
	Unlisted map[string]string `json:"unlisted,omitempty"`
	// Images are images of disks that no cluster started from any more, and what became
	// of them. They are removed by every sweep that ends strays.
	Images []SweptImage `json:"images,omitempty"`
	// Elsewhere means that another server sweeps at the moment: strays were
	// listed and none was ended.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// SweptStray is a stray and what became of it.
type SweptStray struct {
	Stray
	Ended bool   `json:"ended"`
	Error string `json:"error,omitempty"`
}

// sweepLease is held by the server that ends strays.
const sweepLease = "sweep"

// Sweep lists strays and ends those that the options select. Of several servers
// one does so at a time. Clouds that cannot be asked are reported and do not
// keep the others from being swept.
func (e *Engine) Sweep(ctx context.Context, o SweepOptions) (SweepReport, error) {
	var report SweepReport
	list := func(ctx context.Context) error {
		strays, failed, err := e.strays(ctx, o)
		report.Unlisted = failed
		report.Strays = make([]SweptStray, len(strays))
		for i, s := range strays {
			report.Strays[i] = SweptStray{Stray: s}
		}
		return err
	}
	if o.End == nil {
		return report, list(ctx)
	}
	ran, err := e.alone(ctx, sweepLease, func(ctx context.Context) error {
		if err := list(ctx); err != nil {
			return err
		}
		for i := range report.Strays {
			s := &report.Strays[i]
			if !o.End(s.Stray) {
				continue
			}
			if err := e.End(ctx, s.Stray); err != nil {
				s.Error = err.Error()
				continue
			}
			s.Ended = true
		}
		var err error
		report.Images, err = e.sweepImages(ctx, o)
		return err
	})
	if err == nil && !ran {
		report.Elsewhere = true
		err = list(ctx)
	}
	return report, err
}

func (e *Engine) strays(ctx context.Context, o SweepOptions) ([]Stray, map[string]string, error) {
	// Machines first: a record is written before its machines are made, so what
	// is listed now and unknown afterwards has no owner.
	listed, failed := e.listAll(ctx, o.Clouds)
	owned, err := e.owned(ctx)
	if err != nil {
		return nil, failed, err
	}
	if len(o.Clouds) == 0 {
		used := e.used(ctx, owned)
		maps.DeleteFunc(failed, func(name, _ string) bool { of, _, _ := strings.Cut(name, " "); return !used[of] })
	}
	byOwner := map[owner]*Stray{}
	now := e.records.Now()
	for name, nodes := range listed {
		for _, n := range nodes {
			k := owner{name, n.Cluster, n.Hash}
			if n.State == cloud.NodeGone || owned[k] {
				continue
			}
			s := byOwner[k]
			if s == nil {
				s = &Stray{Cloud: name, Cluster: n.Cluster, Hash: n.Hash, Since: e.sightings.first(k, now)}
				byOwner[k] = s
			}
			if !n.Created.IsZero() && n.Created.Before(s.Since) {
				s.Since = n.Created
			}
			s.Nodes = append(s.Nodes, n)
		}
	}
	e.sightings.only(listed, byOwner)
	grace := o.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	strays := []Stray{}
	for _, s := range byOwner {
		if now.Sub(s.Since) >= grace {
			strays = append(strays, *s)
		}
	}
	slices.SortFunc(strays, func(a, b Stray) int {
		return strings.Compare(a.Cloud+"/"+a.Cluster+"/"+a.Hash, b.Cloud+"/"+b.Cluster+"/"+b.Hash)
	})
	return strays, failed, nil
}

// listAll asks all clouds at once for everything that this installation has.
func (e *Engine) listAll(ctx context.Context, clouds []string) (map[string][]cloud.Node, map[string]string) {
	h := e.history(ctx)
	listed, failed := map[string][]cloud.Node{}, map[string]string{}
	named := len(clouds) > 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range e.providers.All() {
		if !(SweepOptions{Clouds: clouds}).asks(p.Name()) {
			continue
		}
		wg.Go(func() {
			limit := h.Deadline(stepList, cloud.Offer{Place: cloud.Place{Cloud: p.Name()}}, 0)
			list := func(ctx context.Context) ([]cloud.Node, error) { return e.Listed(ctx, p) }
			var unread []cloud.UnreadAccount
			if accounts, ok := cloud.As[cloud.AccountLister](p); ok {
				limit = accountsTimeout
				list = func(ctx context.Context) (nodes []cloud.Node, err error) {
					nodes, unread, err = accounts.ListAccounts(ctx, e.install)
					return nodes, err
				}
			}
			nodes, err := run(ctx, step{name: stepList, limit: limit}, list)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				for _, u := range unread {
					if named || !outOfReach(u) {
						failed[p.Name()+" ("+u.Name+")"] = u.Err.Error()
					}
				}
			}
			if err != nil {
				failed[p.Name()] = err.Error()
				return
			}
			listed[p.Name()] = nodes
		})
	}
	wg.Wait()
	return listed, failed
}

// accountsTimeout bounds the lists of all accounts that a cloud's credentials reach.
const accountsTimeout = 5 * time.Minute

// outOfReach reports whether an account is one that nobody named and in which the
// credentials may list no machines: they have made none there, as that takes more rights.
func outOfReach(u cloud.UnreadAccount) bool {
	var forbidden *cloud.PermissionError
	return u.Found && errors.As(u.Err, &forbidden)
}

// used are the clouds that something was rented from, as far as is remembered.
func (e *Engine) used(ctx context.Context, owned map[owner]bool) map[string]bool {
	used := map[string]bool{}
	for k := range owned {
		used[k.cloud] = true
	}
	for _, a := range e.history(ctx).attempts {
		used[a.Offer.Cloud] = true
	}
	return used
}

// owned is everything that a record claims: clusters where their record says
// they are, and attempts that have not ended.
func (e *Engine) owned(ctx context.Context) (map[owner]bool, error) {
	// Attempts first: one ends only after its cluster's record names its
	// machines.
	open, err := e.records.Open(ctx)
	if err != nil {
		return nil, err
	}
	clusters, err := e.records.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	owned := map[owner]bool{}
	own := func(o cloud.Offer, name, hash string) {
		owned[owner{o.Cloud, name, hash}] = true
		owned[owner{o.Cloud, name, cloud.ShortHash(hash)}] = true // on clouds without tags
	}
	for _, a := range open {
		own(a.Offer, a.NameOnCloud, a.ClusterHash)
	}
	for _, c := range clusters {
		own(c.Offer, c.NameOnCloud, c.Hash)
	}
	return owned, nil
}

// GivenUp reports whether a stray is what a launch of ours made and gave up: an
// attempt on record has its name and incarnation. Machines come late when a call
// was still on its way while its attempt was given back. Nobody can want those;
// of a stray that no record explains, nobody here knows.
func (e *Engine) GivenUp(ctx context.Context, s Stray) bool {
	attempts, err := e.records.OfCluster(ctx, s.Hash)
	if s.Hash == cloud.ShortHash(s.Hash) { // attempts are on record under the whole one
		attempts = e.history(ctx).attempts
	}
	return err == nil && slices.ContainsFunc(attempts, func(a state.Attempt) bool {
		return a.Offer.Cloud == s.Cloud && a.NameOnCloud == s.Cluster && cloud.SameHash(a.ClusterHash, s.Hash)
	})
}

// End gives a stray's machines back and makes sure that they are gone. It does
// nothing to one that somebody claims by now.
func (e *Engine) End(ctx context.Context, s Stray) error {
	p, ok := e.providers.Get(s.Cloud)
	if !ok {
		return fmt.Errorf("this version of sky knows no cloud %q", s.Cloud)
	}
	end := func(ctx context.Context) error {
		owned, err := e.owned(ctx)
		if err != nil || owned[s.key()] {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
		o := cloud.Offer{Place: cloud.Place{Cloud: s.Cloud}}
		watch := e.watchOver(ctx, s.Cluster, o.Place, nil)
		defer watch.stop()
		err = e.giveBack(ctx, p, cloud.ClusterID{Installation: e.install, Name: s.Cluster, Hash: s.Hash}, o, len(s.Nodes), e.history(ctx), nil, watch)
		if err == nil {
			e.Freed()
		}
		return err
	}
	// While its cluster is on record a launch could claim it at any moment.
	clusters, err := e.records.Clusters(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(clusters, func(c *state.Cluster) bool { return cloud.SameHash(c.Hash, s.Hash) })
	if i < 0 {
		return end(ctx)
	}
	ran, err := e.alone(ctx, clusterLease(clusters[i].Name), end)
	if err == nil && !ran {
		return fmt.Errorf("cluster %s is being worked on; it is looked at again later", clusters[i].Name)
	}
	return err
}

// sightings remembers when strays were first seen: not every cloud says when a
// machine was made.
type sightings struct {
	mu   sync.Mutex
	seen map[owner]time.Time
}

func (s *sightings) first(k owner, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[owner]time.Time{}
	}
	if at, ok := s.seen[k]; ok {
		return at
	}
	s.seen[k] = now
	return now
}

// only forgets what the listed clouds no longer have.
func (s *sightings) only(listed map[string][]cloud.Node, strays map[owner]*Stray) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.seen {
		if _, asked := listed[k.cloud]; asked && strays[k] == nil {
			delete(s.seen, k)
		}
	}
}

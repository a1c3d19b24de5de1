package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Regions are those of a cloud that lists machines one region at a time. In which one a
// cluster is, is remembered; where it is not known all are asked.
//
// Some regions let nobody in: those that the account has not switched on, and those that
// its organization denies. Nothing of ours can be there, so they are passed over. One that
// has let us in before is another matter: machines may be there, and that they cannot be
// seen any more is an error.
type Regions struct {
	All  func(ctx context.Context) ([]string, error) // the account's
	List func(ctx context.Context, region string, id cloud.ClusterID) ([]Machine, error)
	// Cloud and Refusal, as in Options and Driver, say in the words of package cloud what All,
	// List and questions to [Everywhere] return; Refusal nil: they do so themselves.
	Cloud   string
	Refusal func(ctx context.Context, at cloud.Place, err error) error

	mu      sync.Mutex
	in      map[cloud.ClusterID]seenIn
	entered map[string]bool  // regions that have let us in
	shut    map[string]error // those that do not
}

type seenIn struct {
	region string
	at     time.Time
}

const (
	// remembered is how long a place is believed: another server may launch the cluster
	// elsewhere.
	remembered = 10 * time.Minute
	// regionsAtOnce is how many regions are asked at the same time.
	regionsAtOnce = 20
)

// Learn notes in which region a cluster is.
func (r *Regions) Learn(id cloud.ClusterID, region string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.in == nil {
		r.in = map[cloud.ClusterID]seenIn{}
	}
	r.in[id] = seenIn{region, time.Now()}
}

func (r *Regions) forget(id cloud.ClusterID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.in, id)
}

// Reset is for other credentials: which regions let them in is not known.
func (r *Regions) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entered, r.shut = nil, nil
}

// said is an error of the cloud's in the words of package cloud.
func (r *Regions) said(ctx context.Context, region string, err error) error {
	if r.Refusal == nil {
		return err
	}
	return refusal(ctx, r.Refusal, cloud.Place{Cloud: r.Cloud, Region: region}, err)
}

func (r *Regions) all(ctx context.Context) ([]string, error) {
	all, err := r.All(ctx)
	return all, r.said(ctx, "", err)
}

func (r *Regions) list(ctx context.Context, region string, id cloud.ClusterID) ([]Machine, error) {
	list, err := r.List(ctx, region, id)
	return list, r.said(ctx, region, err)
}

// Find is a driver's List. A region that is remembered is asked alone, and all of them
// when nothing is there.
func (r *Regions) Find(ctx context.Context, id cloud.ClusterID, where ListScope) ([]Machine, error) {
	if where.Region != "" {
		return r.list(ctx, where.Region, id)
	}
	r.mu.Lock()
	last, ok := r.in[id]
	r.mu.Unlock()
	if ok && !where.Exhaustive && time.Since(last.at) < remembered {
		list, err := r.list(ctx, last.region, id)
		if err != nil || existing(list) > 0 {
			return list, err
		}
	}
	r.forget(id)
	regions, found, err := Everywhere(ctx, r, func(ctx context.Context, region string) ([]Machine, error) { return r.list(ctx, region, id) })
	if err != nil {
		return nil, err
	}
	for i, list := range found {
		if id.Name != "" && existing(list) > 0 {
			r.Learn(id, regions[i])
		}
	}
	return slices.Concat(found...), nil
}

// Everywhere asks every region the same, and returns an answer for each. A region that
// did not answer may hold what is looked for: then there is none, unless the region lets
// nobody in.
func Everywhere[T any](ctx context.Context, r *Regions, ask func(ctx context.Context, region string) (T, error)) (regions []string, found []T, err error) {
	if regions, err = r.all(ctx); err != nil {
		return nil, nil, err
	}
	found = make([]T, len(regions))
	errs := make([]error, len(regions))
	var g errgroup.Group
	g.SetLimit(regionsAtOnce)
	for i, region := range regions {
		g.Go(func() error {
			found[i], errs[i] = ask(ctx, region)
			errs[i] = r.said(ctx, region, errs[i])
			return nil
		})
	}
	g.Wait()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	return regions, found, r.answers(regions, errs)
}

// answers takes in what the regions have said to the same question, one error each, and
// returns what says nothing about the region itself.
func (r *Regions) answers(regions []string, errs []error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut == nil {
		r.shut, r.entered = map[string]error{}, map[string]bool{}
	}
	anywhere := slices.Contains(errs, nil)
	var first error
	more := 0
	for i, region := range regions {
		err := errs[i]
		var auth *cloud.AuthError
		var forbidden *cloud.PermissionError
		switch {
		case err == nil:
			r.entered[region] = true
			delete(r.shut, region)
		case anywhere && !r.entered[region] && (errors.As(err, &auth) || errors.As(err, &forbidden)):
			r.shut[region] = err
		case first == nil:
			first = err
		default:
			more++
		}
	}
	if more > 0 {
		return fmt.Errorf("%w (and %d more regions say so or the like)", first, more)
	}
	return first
}

// Has is an error if the account does not have a region: what it lacks, before the names of
// those that it has.
func (r *Regions) Has(ctx context.Context, region, lacks string) error {
	all, err := r.All(ctx)
	if err == nil && !slices.Contains(all, region) {
		err = &cloud.InvalidError{Place: cloud.Place{Cloud: r.Cloud, Region: region}, Err: fmt.Errorf("%s; there are %s", lacks, strings.Join(all, ", "))}
	}
	return err
}

// Open are the account's regions but those that let nobody in.
func (r *Regions) Open(ctx context.Context) ([]string, error) {
	all, err := r.all(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(region string) bool { _, why := r.Asked(region); return why != nil }), nil
}

// Asked says what a region has said last: that it lets us in, or why not.
func (r *Regions) Asked(region string) (entered bool, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entered[region], r.shut[region]
}

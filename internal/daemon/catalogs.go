package daemon

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/requests"
)

// registerCatalogs makes the questions about price lists known to the engine.
func (d *daemon) registerCatalogs() {
	d.engine.HandleRead("sky.list_accelerators", verb(func(ctx context.Context, c cluster.Call, b api.ListAcceleratorsBody) (any, error) {
		tables, q, err := d.listing(ctx, c, b)
		if err != nil {
			return nil, err
		}
		return catalog.List(tables, q), nil
	}))
	d.engine.HandleRead("sky.list_accelerator_counts", verb(func(ctx context.Context, c cluster.Call, b api.ListAcceleratorsBody) (any, error) {
		tables, q, err := d.listing(ctx, c, b)
		if err != nil {
			return nil, err
		}
		return catalog.Counts(tables, q), nil
	}))
	d.engine.HandleRead("sky.catalog.status", func(ctx context.Context, c *requests.Call) (any, error) {
		return d.catalogStatus(ctx), nil
	})
	d.engine.Handle("sky.catalog.refresh", api.ScheduleShort, verb(d.catalogRefresh))
}

// listing turns the question of a client into a query over price lists. Without
// clouds every list that can be had is asked; those that cannot are named.
func (d *daemon) listing(ctx context.Context, call cluster.Call, b api.ListAcceleratorsBody) ([]*catalog.Table, catalog.ListQuery, error) {
	yes := func(p *bool) bool { return p == nil || *p }
	q := catalog.ListQuery{
		CaseSensitive: yes(b.CaseSensitive), AllRegions: b.AllRegions,
		Unlisted: !yes(b.GPUsOnly), Unpriced: !yes(b.RequirePrice),
	}
	if b.NameFilter != nil {
		if _, err := regexp.Compile(*b.NameFilter); err != nil {
			return nil, q, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("The name filter %q is no regular expression: %v", *b.NameFilter, err)}
		}
		q.Name = *b.NameFilter
	}
	if b.RegionFilter != nil {
		q.Region = *b.RegionFilter
	}
	if b.QuantityFilter != nil {
		q.Count = *b.QuantityFilter
	}
	var names, without []string
	for _, n := range b.Clouds {
		if c, ok := facts.Find(n); ok && d.catalogs.Has(c) {
			names = append(names, c.Name)
		} else {
			without = append(without, n)
		}
	}
	switch {
	case len(b.Clouds) == 0:
		names = facts.Names(d.catalogs.Has)
	case len(names) == 0:
		return nil, q, d.noPriceList(without[0])
	case len(without) > 0: // clients name all clouds that they know
		fmt.Fprintf(call.Out, "Not listed: %s (there is no price list)\n", strings.Join(without, ", "))
	}
	tables, err := d.catalogs.Tables(ctx, names)
	if err != nil && len(tables) == 0 {
		return nil, q, &api.Error{Type: api.ErrRuntime, Message: "No price list could be had: " + catalog.Missing(err),
			Hint: "Fetch them with: sky catalog refresh", Err: err}
	}
	if err != nil {
		fmt.Fprintf(call.Out, "Not listed: %s\n", catalog.Missing(err))
	}
	return tables, q, nil
}

// noPriceList says where to look instead.
func (d *daemon) noPriceList(name string) error {
	e := &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("There is no price list for %q; there are: %s.", name, strings.Join(facts.Names(d.catalogs.Has), ", "))}
	if p, ok := d.providers.Get(strings.ToLower(name)); ok {
		e.Message = fmt.Sprintf("%s has no price list.", p.DisplayName())
		e.Hint = "What it has for a task shows in a plan: sky launch --dryrun --infra " + p.Name() + " TASK.yaml"
	}
	return e
}

// catalogStatus tells of every price list where it comes from and how old it is.
func (d *daemon) catalogStatus(ctx context.Context) []api.CatalogStatus {
	at := time.Now()
	out := []api.CatalogStatus{}
	for _, name := range facts.Names(d.catalogs.Has) {
		i := d.catalogs.Info(name, at)
		s := api.CatalogStatus{Cloud: name, File: i.File, Edited: i.Edited, Overdue: i.Overdue, PeriodSeconds: int64(i.Period.Seconds())}
		if !i.Fetched.IsZero() {
			s.FetchedAt = i.Fetched.Unix()
			s.AgeSeconds = int64(at.Sub(i.Fetched).Seconds())
			if t, err := d.catalogs.Table(ctx, name); err != nil {
				s.Problem = err.Error()
			} else {
				s.Offers, s.Unpriced, s.Malformed = t.Report.Rows, t.Report.Unpriced, t.Report.Skipped
				for _, p := range t.Report.Problems {
					s.Problems = append(s.Problems, fmt.Sprint(p))
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// catalogRefresh fetches price lists again; what the user edited stays.
func (d *daemon) catalogRefresh(ctx context.Context, call cluster.Call, b api.CatalogRefreshBody) (any, error) {
	names := []string(b.Clouds)
	if len(names) == 0 {
		names = facts.Names((*facts.Cloud).Priced)
	}
	failed := map[string]string{}
	for _, name := range names {
		c, ok := facts.Find(name)
		if !ok || !c.Priced() {
			return nil, d.noPriceList(name)
		}
		call.Out.Spin("Fetching the price list of " + c.Name)
		if err := d.catalogs.Refresh(ctx, c.Name); err != nil {
			failed[c.Name] = err.Error()
			continue
		}
		call.Out.StopSpin()
		fmt.Fprintf(call.Out, "✓ %s\n", c.Name)
	}
	call.Out.StopSpin()
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		fmt.Fprintf(call.Out, "✗ %s: %s\n", name, failed[name])
	}
	if len(failed) == len(names) {
		return nil, &api.Error{Type: api.ErrRuntime, Message: "No price list could be fetched; those on disk stay in use.",
			Hint: "Offline, put CLOUD/vms.csv below ~/.sky/catalogs/v8, or plan with --catalog-dir."}
	}
	return d.catalogStatus(ctx), nil
}

package gcp

import (
	"cmp"
	"context"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// share is machines of a launch that are asked for together.
type share struct {
	ranks []int
	in    string // the reservation that they are in; "": none is named
	dense bool   // it is of capacity that is in one place, and ends with the reservation
}

// reservation is capacity that the user has paid for already.
type reservation struct {
	Name       string `json:"name"`
	Link       string `json:"selfLink"`
	Status     string `json:"status"`
	Deployment string `json:"deploymentType"`
	Specific   struct {
		Count      string `json:"count"`
		InUse      string `json:"inUseCount"`
		Properties struct {
			Type         string `json:"machineType"`
			Accelerators []struct {
				Type  string `json:"acceleratorType"`
				Count int    `json:"acceleratorCount"`
			} `json:"guestAccelerators"`
		} `json:"instanceProperties"`
	} `json:"specificReservation"`
}

// free is how many machines fit into it.
func (r reservation) free() int {
	count, _ := strconv.Atoi(r.Specific.Count)
	used, _ := strconv.Atoi(r.Specific.InUse)
	if r.Status != "" && r.Status != "READY" {
		return 0
	}
	return max(0, count-used)
}

// fits reports whether it is of such machines.
func (r reservation) fits(o cloud.Offer) bool {
	p := r.Specific.Properties
	if path.Base(p.Type) != o.InstanceType {
		return false
	}
	kind, count := attached(o)
	if kind == "" {
		return true
	}
	return len(p.Accelerators) == 1 && path.Base(p.Accelerators[0].Type) == kind && p.Accelerators[0].Count == count
}

// reservations are those of a zone that are of such machines, those with most room first.
// Those that are shared by other projects are not listed.
func (a *account) reservations(ctx context.Context, o cloud.Offer) (fit []reservation, err error) {
	err = pages(ctx, a.compute, a.on("/zones/%s/reservations", o.Zone), url.Values{}, func(page struct {
		Items []reservation `json:"items"`
		Next  string        `json:"nextPageToken"`
	}) string {
		for _, r := range page.Items {
			if r.fits(o) {
				fit = append(fit, r)
			}
		}
		return page.Next
	})
	slices.SortStableFunc(fit, func(a, b reservation) int {
		return cmp.Or(cmp.Compare(b.free(), a.free()), strings.Compare(a.Name, b.Name))
	})
	return fit, err
}

// shares decides which machines are asked for in which of the named reservations: those
// with most room first. The rest is rented without one, if the quota holds it.
func (d driver) shares(ctx context.Context, a *account, l *vm.Launch, ranks []int) ([]share, error) {
	s, o := d.settings(l.Spec), l.Spec.Offer
	var out []share
	if len(s.Reservations) > 0 && !o.Spot {
		all, err := a.reservations(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			i := slices.IndexFunc(s.Reservations, func(name string) bool { return name == r.Name || strings.HasSuffix(r.Link, "/"+name) })
			n := min(r.free(), len(ranks))
			if i < 0 || n == 0 {
				continue
			}
			out = append(out, share{ranks: ranks[:n], in: r.Name, dense: r.Deployment == "DENSE"})
			ranks = ranks[n:]
		}
	}
	if len(ranks) == 0 {
		return out, nil
	}
	if err := d.enough(ctx, a, l.Spec, len(ranks)); err != nil {
		return nil, err
	}
	return append(out, share{ranks: ranks}), nil
}

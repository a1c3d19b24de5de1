package gcp

import (
	"cmp"
	"context"
	"fmt"
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
	Zone       string `json:"zone"`
	Status     string `json:"status"`
	Deployment string `json:"deploymentType"`
	Required   bool   `json:"specificReservationRequired"` // it must be named
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
	one := r.listed()
	one.Place = cloud.Place{Cloud: o.Cloud}
	return one.Covers(&o)
}

// named reports whether the settings name a reservation.
func (s Settings) named(r reservation) bool {
	return slices.ContainsFunc(s.Reservations, func(name string) bool { return name == r.Name || strings.HasSuffix(r.Link, "/"+name) })
}

// ListReservations asks the project for those of all zones.
//
// https://cloud.google.com/compute/docs/reference/rest/v1/reservations/aggregatedList
func (p *Provider) ListReservations(ctx context.Context, section map[string]any, regions []string) ([]cloud.Reservation, error) {
	s := ReadSettings(section)
	if !s.Prioritize && len(s.Reservations) == 0 {
		return nil, nil
	}
	at := cloud.Place{Cloud: Name}
	a, err := p.api(ctx)
	if err != nil {
		return nil, p.Refused(ctx, at, err)
	}
	var out []cloud.Reservation
	var dark []string // zones that cannot be seen
	err = pages(ctx, a.compute, a.on("/aggregated/reservations"), url.Values{"maxResults": {"500"}, "returnPartialSuccess": {"true"}}, func(page struct {
		Items map[string]struct {
			Reservations []reservation `json:"reservations"`
			Warning      struct {
				Code string `json:"code"`
			} `json:"warning"`
		} `json:"items"`
		Unreachable []string `json:"unreachables"`
		Next        string   `json:"nextPageToken"`
	}) string {
		dark = append(dark, page.Unreachable...)
		for scope, in := range page.Items {
			if in.Warning.Code == "UNREACHABLE" {
				dark = append(dark, scope)
			}
			for _, r := range in.Reservations {
				if one := r.listed(); one.Free > 0 && (regions == nil || slices.Contains(regions, one.Place.Region)) && s.takes(r, one) {
					out = append(out, one)
				}
			}
		}
		return page.Next
	})
	if err != nil {
		return nil, p.Refused(ctx, at, err)
	}
	slices.SortFunc(out, func(a, b cloud.Reservation) int {
		return cmp.Or(strings.Compare(a.Place.Zone, b.Place.Zone), strings.Compare(a.InstanceType, b.InstanceType), cmp.Compare(b.Free, a.Free))
	})
	if len(dark) > 0 {
		slices.Sort(dark)
		return out, fmt.Errorf("%s cannot be reached", strings.Join(slices.Compact(dark), ", "))
	}
	return out, nil
}

// listed is a reservation in the words of package cloud.
func (r reservation) listed() cloud.Reservation {
	zone := path.Base(r.Zone)
	one := cloud.Reservation{Place: cloud.Place{Cloud: Name, Region: region(zone), Zone: zone}, InstanceType: path.Base(r.Specific.Properties.Type), Free: r.free()}
	if strings.HasPrefix(one.InstanceType, "n1-") {
		one.Accelerators = map[string]float64{}
		for _, x := range r.Specific.Properties.Accelerators {
			one.Accelerators[strings.ToUpper(strings.TrimPrefix(path.Base(x.Type), "nvidia-tesla-"))] = float64(x.Count)
		}
	}
	return one
}

// takes reports whether launches put machines into a reservation: into those that are named, and
// Google by itself into those that need not be. Managed instance groups, which make machines
// with GPUs (in the series A and G, or attached), use none.
func (s Settings) takes(r reservation, one cloud.Reservation) bool {
	gpus := len(one.Accelerators) > 0 || strings.HasPrefix(one.InstanceType, "a") || strings.HasPrefix(one.InstanceType, "g")
	return (s.named(r) || s.Prioritize && !r.Required) && !(s.RunSeconds != 0 && gpus)
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
			n := min(r.free(), len(ranks))
			if !s.named(r) || n == 0 {
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

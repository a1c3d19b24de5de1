package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// compact reports whether machines are to be near each other.
func (s settings) compact() bool { return s.text("placement_policy") == "compact" }

// placement is the path of the proximity placement group of a cluster; "": it has none.
func (s settings) placement(a *account, id cloud.ClusterID, group string) string {
	if !s.compact() {
		return ""
	}
	return in(a.groupPath(group), placements, shared(id, group, "ppg"))
}

// ensurePlacement makes the proximity placement group, if the machines are to be near each other.
//
// https://learn.microsoft.com/rest/api/compute/proximity-placement-groups/create-or-update
func (d driver) ensurePlacement(ctx context.Context, a *account, spec cloud.LaunchSpec, group string) error {
	s := d.settings(spec)
	path := s.placement(a, spec.ID, group)
	if path == "" {
		return nil
	}
	if _, err := get[resource](ctx, a, path, apiCompute); err == nil || d.Kind(err) != vm.Missing {
		return err
	}
	return a.put(ctx, path, apiCompute, map[string]any{
		"location": spec.Offer.Region, "tags": s.tags(spec, -1), "properties": map[string]any{"proximityPlacementGroupType": "Standard"},
	})
}

// reserved is capacity that the user pays for already: the reservation of a size in a
// capacity reservation group.
//
// https://learn.microsoft.com/rest/api/compute/capacity-reservations/list-by-capacity-reservation-group
type reserved struct {
	Location string   `json:"location"`
	Zones    []string `json:"zones"`
	SKU      struct {
		Name     string `json:"name"`
		Capacity int    `json:"capacity"`
	} `json:"sku"`
	Properties struct {
		State    string      `json:"provisioningState"`
		Machines []reference `json:"virtualMachinesAssociated"`
	} `json:"properties"`
}

// listed is the reservation in the words of package cloud. Zones are not chosen, so that
// those of a zone are for others.
func (r reserved) listed() cloud.Reservation {
	one := cloud.Reservation{Place: cloud.Place{Cloud: Name, Region: strings.ToLower(strings.ReplaceAll(r.Location, " ", ""))}, InstanceType: r.SKU.Name}
	if (r.Properties.State == "Succeeded" || r.Properties.State == "") && len(r.Zones) == 0 {
		one.Free = max(0, r.SKU.Capacity-len(r.Properties.Machines))
	}
	return one
}

// group is a capacity reservation group: its id, and what it reserves where there is room.
type group struct {
	id   string
	free []cloud.Reservation
}

// reservationGroups are those that the settings name.
func (d driver) reservationGroups(ctx context.Context, a *account, s settings) ([]group, error) {
	names := vm.Texts(s["specific_reservations"])
	var groups []group
	var all []resource
	if slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "/") }) {
		var err error
		if all, err = list[resource](ctx, a, in("/subscriptions/"+a.subscription, reservationGroups), apiCompute); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		id := name
		if !strings.HasPrefix(name, "/") {
			i := slices.IndexFunc(all, func(r resource) bool { return strings.EqualFold(r.Name, name) })
			if i < 0 {
				return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("the subscription has no capacity reservation group %q (azure.specific_reservations)", name)}
			}
			id = all[i].ID
		}
		held, err := list[reserved](ctx, a, id+"/capacityReservations", apiCompute)
		if err != nil {
			return nil, fmt.Errorf("azure.specific_reservations: %w", err)
		}
		g := group{id: id}
		for _, r := range held {
			if one := r.listed(); one.Free > 0 {
				g.free = append(g.free, one)
			}
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// ListReservations asks for what the named capacity reservation groups hold.
func (p *Provider) ListReservations(ctx context.Context, section map[string]any, regions []string) ([]cloud.Reservation, error) {
	s := settings(section)
	if len(vm.Texts(s["specific_reservations"])) == 0 {
		return nil, nil
	}
	a, err := p.account(ctx)
	var groups []group
	if err == nil {
		groups, err = driver{p, refusals}.reservationGroups(ctx, a, s)
	}
	if err != nil {
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	var out []cloud.Reservation
	for _, g := range groups {
		out = append(out, g.free...)
	}
	return slices.DeleteFunc(out, func(r cloud.Reservation) bool { return regions != nil && !slices.Contains(regions, r.Place.Region) }), nil
}

// reservations are the ids of the capacity reservation groups that so many machines of an
// offer are put into, one for each machine that finds room: those with most room first.
func (d driver) reservations(ctx context.Context, a *account, s settings, o cloud.Offer, machines int) ([]string, error) {
	if len(vm.Texts(s["specific_reservations"])) == 0 || o.Spot {
		return nil, nil
	}
	groups, err := d.reservationGroups(ctx, a, s)
	if err != nil {
		return nil, err
	}
	type place struct {
		id   string
		free int
	}
	var places []place
	for _, g := range groups {
		for _, r := range g.free {
			if r.Covers(&o) {
				places = append(places, place{g.id, r.Free})
			}
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return b.free - a.free })
	var out []string
	for _, p := range places {
		for range min(p.free, machines-len(out)) {
			out = append(out, p.id)
		}
	}
	return out, nil
}

// roomBeside is [driver.room] for the machines that no reservation has room for.
func (d driver) roomBeside(ctx context.Context, a *account, s settings, o cloud.Offer, machines int) (in []string, err error) {
	if in, err = d.reservations(ctx, a, s, o, machines); err != nil || len(in) == machines {
		return in, err
	}
	return in, d.room(ctx, a, o, machines-len(in))
}

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

// free is how many machines of an offer fit into it. Zones are not chosen, so those of a
// zone are for others.
func (r reserved) free(o cloud.Offer) int {
	switch {
	case r.Properties.State != "Succeeded" && r.Properties.State != "", len(r.Zones) > 0,
		!strings.EqualFold(r.SKU.Name, o.InstanceType), !strings.EqualFold(strings.ReplaceAll(r.Location, " ", ""), o.Region):
		return 0
	}
	return max(0, r.SKU.Capacity-len(r.Properties.Machines))
}

// reservations are the ids of the capacity reservation groups that so many machines of an
// offer are put into, one for each machine that finds room: those with most room first.
func (d driver) reservations(ctx context.Context, a *account, s settings, o cloud.Offer, machines int) ([]string, error) {
	names := vm.Texts(s["specific_reservations"])
	if len(names) == 0 || o.Spot {
		return nil, nil
	}
	var all []resource
	if slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "/") }) {
		var err error
		if all, err = list[resource](ctx, a, in("/subscriptions/"+a.subscription, reservationGroups), apiCompute); err != nil {
			return nil, err
		}
	}
	type place struct {
		id   string
		free int
	}
	var places []place
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
		for _, r := range held {
			if n := r.free(o); n > 0 {
				places = append(places, place{id, n})
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

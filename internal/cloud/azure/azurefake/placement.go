package azurefake

import (
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// Where machines are put: https://learn.microsoft.com/rest/api/compute/proximity-placement-groups,
// https://learn.microsoft.com/rest/api/compute/capacity-reservation-groups and …/capacity-reservations.

func checkPlacement(f *Fake, id string, in, old dict) error {
	if kind := in["properties"].(dict)["proximityPlacementGroupType"]; kind != nil && kind != "Standard" && kind != "Ultra" {
		return badParameter("proximityPlacementGroupType", "The value '%v' of parameter 'proximityPlacementGroupType' is invalid.", kind)
	}
	return nil
}

// machinesWith are the machines that refer to an id by a property, as ids.
func (f *Fake) machinesWith(id string, property ...string) (all []any) {
	for _, key := range sorted(f.vms) {
		at := any(f.items[key]["properties"])
		for _, name := range property {
			d, _ := at.(dict)
			at = d[name]
		}
		ref, _ := at.(dict)
		if to, _ := ref["id"].(string); strings.EqualFold(to, id) {
			all = append(all, dict{"id": f.items[key]["id"]})
		}
	}
	return all
}

func placementUsers(f *Fake, id string) error {
	if users := f.machinesWith(id, "proximityPlacementGroup"); len(users) > 0 {
		return refuse(409, "OperationNotAllowed", "Proximity Placement Group '%s' cannot be deleted. Before deleting a Proximity Placement Group please ensure that it does not contain any resource, such as %v.", f.items[id]["id"], users[0].(dict)["id"])
	}
	return nil
}

func checkReservation(f *Fake, id string, in, old dict) error {
	sku, _ := in["sku"].(dict)
	name, _ := sku["name"].(string)
	size, _, ok := sizeNamed(name)
	switch n, whole := sku["capacity"].(float64); {
	case name == "":
		return badParameter("sku.name", "Required parameter 'sku.name' is missing (null).")
	case !ok:
		return badParameter("sku.name", "The value %s provided for the VM size is not valid.", name)
	case !whole || n < 0:
		return badParameter("sku.capacity", "The value of parameter 'sku.capacity' is invalid.")
	}
	sku["name"] = size
	return nil
}

// groupOfReservation is the group of a reservation, as ids.
func groupOfReservation(id string) string {
	return id[:strings.LastIndex(id, "/capacityreservations/")]
}

// inReservation are the machines in a reservation: those of its group that have its size.
func (f *Fake) inReservation(id string) []any {
	name := f.items[id]["sku"].(dict)["name"]
	return slices.DeleteFunc(f.machinesWith(groupOfReservation(id), "capacityReservation", "capacityReservationGroup"), func(x any) bool {
		return f.vms[strings.ToLower(x.(dict)["id"].(string))].size != name
	})
}

func reservationUsers(f *Fake, id string) error {
	if in := f.inReservation(id); len(in) > 0 {
		return refuse(409, "OperationNotAllowed", "Capacity Reservation '%s' cannot be deleted because virtual machines are associated with it, such as %v.", f.items[id]["id"], in[0].(dict)["id"])
	}
	return nil
}

func reservationTold(f *Fake, key string, o dict) dict {
	out, p := maps.Clone(o), maps.Clone(o["properties"].(dict))
	if in := f.inReservation(key); len(in) > 0 {
		p["virtualMachinesAssociated"] = in
	}
	out["properties"] = p
	return out
}

// checkPlace reads where a machine is to be: near others, or in capacity that is reserved,
// which must be of its size in its region, and have room.
func (f *Fake) checkPlace(key string, p dict, v *vm) error {
	if near := p["proximityPlacementGroup"]; near != nil {
		if err := f.refers(near, "proximityplacementgroups", key); err != nil {
			return err
		}
		if at := f.items[strings.ToLower(near.(dict)["id"].(string))]["location"]; at != v.region {
			return refuse(409, "OperationNotAllowed", "The proximity placement group is in the location '%v', and the virtual machine in '%s'.", at, v.region)
		}
	}
	held, _ := p["capacityReservation"].(dict)
	if held == nil {
		return nil
	}
	group := held["capacityReservationGroup"]
	if err := f.refers(group, "capacityreservationgroups", key); err != nil {
		return err
	}
	if v.spot {
		return refuse(409, "OperationNotAllowed", "Spot virtual machines cannot use capacity reservations.")
	}
	at := strings.ToLower(group.(dict)["id"].(string))
	for id, o := range f.items {
		if strings.HasPrefix(id, at+"/capacityreservations/") && o["sku"].(dict)["name"] == v.size && o["location"] == v.region && len(fakehttp.Items(o["zones"])) == 0 {
			return nil
		}
	}
	return refuse(409, "OperationNotAllowed", "The capacity reservation group '%s' has no capacity reservation of the size '%s' in '%s'.", at, v.size, v.region)
}

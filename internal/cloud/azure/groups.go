package azure

import (
	"context"
	"crypto/md5"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// groupFor is the resource group of a cluster's machines in a region.
func (s settings) groupFor(id cloud.ClusterID, region string) string {
	if g := s.group(); g != "" {
		return g
	}
	return ownGroup(id, region)
}

// ownGroup is the group that a cluster has for itself: one for each incarnation.
func ownGroup(id cloud.ClusterID, region string) string {
	return id.Name + "-" + region + "-" + vm.Digest(id)
}

// machineName is that of a rank. Names are unique in a group, which makes a creation safe
// to repeat.
func machineName(id cloud.ClusterID, rank int) string {
	return fmt.Sprintf("%s-%s-%d", id.Name, vm.Digest(id), rank)
}

// shared is the name of what all machines of a cluster in a group have, as its network.
func shared(id cloud.ClusterID, group, kind string) string {
	sum := md5.Sum([]byte(group + vm.Digest(id)))
	return fmt.Sprintf("sky-%s-%x-%s", id.Name, sum[:4], kind)
}

// The kind under which groups are remembered that were lately made.
const groups = "group"

// groups are the resource groups in which something of the cluster may be: its own by
// their tags, one that this process made lately, the user's. With where.Sure that is also
// one that the user has named once and does not any more.
func (d driver) groups(ctx context.Context, a *account, id cloud.ClusterID, where vm.ListScope) ([]resource, error) {
	found, err := list[resource](ctx, a, "/subscriptions/"+a.subscription+"/resourcegroups", apiResources, filter(id)...)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(g resource) bool { return !id.Has(g.Tags) })
	add := func(name string) {
		if name != "" && !slices.ContainsFunc(found, func(g resource) bool { return strings.EqualFold(g.Name, name) }) {
			found = append(found, resource{Name: name})
		}
	}
	if !a.other {
		for _, name := range d.Recent().Made(id).All(groups) {
			add(name)
		}
		add(settings(d.o.Settings()).group())
	}
	if where.Exhaustive || a.other {
		all, err := list[resource](ctx, a, "/subscriptions/"+a.subscription+"/resources", apiResources, filter(id)...)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if id.Has(r.Tags) {
				add(groupOf(r.ID))
			}
		}
	}
	return found, nil
}

// own reports whether a group is the cluster's alone. Tags are not enough: users may
// copy them.
func own(id cloud.ClusterID, g resource) bool {
	return id.Has(g.Tags) && strings.HasPrefix(g.Name, id.Name+"-") && strings.HasSuffix(g.Name, "-"+vm.Digest(id))
}

// Connect makes what the machines need: the resource group, the network with its security
// group, the placement, the identity. What cannot fit is refused before anything is made.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	a, err := d.account(ctx)
	if err != nil {
		return err
	}
	s, region := d.settings(spec), spec.Offer.Region
	group := s.groupFor(spec.ID, region)
	have, err := d.groups(ctx, a, spec.ID, vm.ListScope{})
	if err != nil {
		return err
	}
	if len(have) == 0 { // nothing of it exists
		_, err = d.roomBeside(ctx, a, s, spec.Offer, spec.Nodes)
	} else {
		err = d.dropFailed(ctx, spec.ID)
	}
	if err != nil {
		return err
	}
	if s.group() == "" {
		if err := d.ensureGroup(ctx, a, group, region, s.tags(spec, -1)); err != nil {
			return err
		}
		d.Recent().Add(spec.ID, region, vm.Thing{Kind: groups, Name: group})
	}
	if err := d.ensureSecurity(ctx, a, spec, group); err != nil {
		return err
	}
	if _, err := d.subnet(ctx, a, spec, group, true); err != nil {
		return err
	}
	if err := d.ensurePlacement(ctx, a, spec, group); err != nil {
		return err
	}
	_, err = d.identity(ctx, a, spec, group, true)
	return err
}

// dropFailed removes machines that an earlier launch was refused after they were
// accepted: they would stay as they are, and hold the names of their ranks.
func (d driver) dropFailed(ctx context.Context, id cloud.ClusterID) error {
	list, err := d.List(ctx, id, vm.ListScope{})
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(m vm.Machine) bool { return m.Failure == nil })
	if err := d.Delete(ctx, id, list); err != nil && d.Kind(err) != vm.Missing {
		return err
	}
	return nil
}

// beingDeleted is how long a group of the same name is waited for that is on its way out.
const beingDeleted = 8 * time.Minute

func (d driver) ensureGroup(ctx context.Context, a *account, name, region string, tags map[string]string) error {
	for began := time.Now(); ; {
		_, err := a.change(ctx, "PUT", a.groupPath(name), apiResources, map[string]any{"location": region, "tags": tags})
		if err == nil || d.Kind(err) != vm.Busy || time.Since(began) > beingDeleted {
			return err
		}
		cloud.ReportWait(ctx, "the resource group "+name+", which Azure is still removing")
		if err := pause(ctx, mostPause); err != nil {
			return err
		}
	}
}

// Disconnect removes the cluster's own groups with all that is in them, and what is the
// cluster's in groups of the user's, in all subscriptions where the cluster was.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	a, err := d.account(ctx)
	if err != nil {
		return nil, err
	}
	for _, in := range d.accounts(a, id) {
		more, err := d.disconnect(ctx, in, id)
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	return left, nil
}

// disconnect is Disconnect in one subscription.
func (d driver) disconnect(ctx context.Context, a *account, id cloud.ClusterID) (left []string, err error) {
	all, err := d.groups(ctx, a, id, vm.ListScope{Exhaustive: true})
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		seen, err := get[resource](ctx, a, a.groupPath(g.Name), apiResources)
		if err != nil && d.Kind(err) == vm.Missing {
			d.Recent().Remove(id, vm.Thing{Kind: groups, Name: g.Name})
			continue
		}
		if err != nil {
			return nil, err
		}
		name := "the resource group " + g.Name
		switch {
		case seen.Properties.State == "Deleting":
			left = append(left, name)
		case own(id, seen):
			_, err := a.change(ctx, "DELETE", a.groupPath(g.Name), apiResources, nil, "forceDeletionTypes", machines)
			if err != nil && d.Kind(err) != vm.Busy && d.Kind(err) != vm.Missing {
				return nil, err
			}
			left = append(left, name)
		default:
			more, err := d.clear(ctx, a, id, g.Name)
			if err != nil {
				return nil, err
			}
			left = append(left, more...)
		}
	}
	return left, nil
}

// clear removes what is the cluster's in a group of the user's, in the order in which one
// thing needs another.
func (d driver) clear(ctx context.Context, a *account, id cloud.ClusterID, group string) (left []string, err error) {
	scope := a.groupPath(group)
	for _, kind := range []struct{ path, version, name string }{
		{interfaces, apiNetwork, "the network interface "}, {addresses, apiNetwork, "the address "}, {disks, apiDisks, "the disk "},
		{placements, apiCompute, "the proximity placement group "}, {networks, apiNetwork, "the network "}, {securityGroups, apiNetwork, "the security group "}, {identities, apiIdentity, "the identity "},
	} {
		all, err := list[resource](ctx, a, in(scope, kind.path), kind.version)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(r resource) bool { return !id.Has(r.Tags) })
		if kind.path == identities && len(all) > 0 {
			if err := d.dropRole(ctx, a, id, group); err != nil {
				return nil, err
			}
		}
		more, err := vm.Remove(d, all, func(r resource) string { return kind.name + r.Name }, func(r resource) error {
			op, err := a.change(ctx, "DELETE", in(scope, kind.path, r.Name), kind.version, nil)
			if err != nil {
				return err
			}
			return a.wait(ctx, op, kind.version)
		})
		if err != nil || len(more) > 0 {
			return more, err
		}
	}
	return nil, nil
}

package nebius

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/nebius/nebiusapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

const (
	perRule  = 8    // ports
	mostOpen = 1024 // ports of a cluster, which are written one by one
	allPorts = "1-65535"
)

func groupName(id cloud.ClusterID) string { return "sky-sg-" + names.Cluster(id) }

// subnet is where the machines of a launch are: what the settings say, or the project's first.
func (d driver) subnet(ctx context.Context, spec cloud.LaunchSpec, project string) (nebiusapi.Subnet, error) {
	c, _, err := d.client(nebiusapi.Network)
	if err != nil {
		return nebiusapi.Subnet{}, err
	}
	if id := vm.Setting(spec.Settings, "subnet_id"); id != "" {
		return nebiusapi.Get[nebiusapi.Subnet](ctx, c, nebiusapi.Subnets, id)
	}
	all, err := nebiusapi.List[nebiusapi.Subnet](ctx, c, nebiusapi.Subnets, project)
	if err == nil && len(all) == 0 {
		err = &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("the project %s has no subnet; make one at https://console.nebius.com", project)}
	}
	return append(all, nebiusapi.Subnet{})[0], err
}

// Connect makes the cluster's security group, and its GPU cluster where one is wanted.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	project, err := d.project(ctx, spec)
	if err != nil {
		return err
	}
	net, err := d.subnet(ctx, spec, project)
	if err != nil {
		return err
	}
	if vm.ByCluster(spec.Settings["security_group_name"], spec.ID.Name) == "" {
		c, _, err := d.client(nebiusapi.Network)
		if err != nil {
			return err
		}
		id, err := d.ensure(ctx, c, nebiusapi.Groups, project, groupName(spec.ID), nebiusapi.InNetwork{Network: net.Spec.Network})
		if err == nil {
			err = d.allow(ctx, c, id, append([]string{"22", "10022"}, spec.Ports...))
		}
		if err != nil {
			return err
		}
	} else if len(spec.Ports) > 0 {
		cloud.Note(ctx, "Ports are not opened in the security group that nebius.security_group_name names; open them there.")
	}
	fabric := d.fabric(ctx, spec)
	if fabric == "" {
		return nil
	}
	c, _, err := d.client(nebiusapi.Compute)
	if err == nil {
		_, err = d.ensure(ctx, c, nebiusapi.GpuGroup, project, names.Cluster(spec.ID), nebiusapi.FabricSpec{Fabric: fabric})
	}
	return err
}

// make makes a thing below a parent, and waits until it is there.
func (d driver) make(ctx context.Context, c *rest.Client, service, parent, name string, spec any) (nebiusapi.Operation, error) {
	o, err := nebiusapi.Create(ctx, c, service, nebiusapi.Metadata{Parent: parent, Name: name}, spec)
	return nebiusapi.Wait(ctx, c, d.tuning.Poll, o, err)
}

// remove deletes a thing, and waits until it is gone.
func (d driver) remove(ctx context.Context, c *rest.Client, service, id string) error {
	o, err := nebiusapi.Do(ctx, c, service, "Delete", id)
	_, err = nebiusapi.Wait(ctx, c, d.tuning.Poll, o, err)
	return err
}

// ensure is the id of the thing with a name, which is made if it is missing.
func (d driver) ensure(ctx context.Context, c *rest.Client, service, project, name string, spec any) (string, error) {
	have, err := nebiusapi.Find[nebiusapi.Named](ctx, c, service, project, name)
	if err == nil || d.Kind(err) != vm.Missing {
		return have.Metadata.ID, err
	}
	var o nebiusapi.Operation
	err = cloud.Settled(ctx, func(ctx context.Context) error {
		o, err = d.make(ctx, c, service, project, name, spec)
		return err
	})
	if err != nil && d.Kind(err) == vm.Changed { // another was faster
		have, err = nebiusapi.Find[nebiusapi.Named](ctx, c, service, project, name)
		return have.Metadata.ID, err
	}
	return o.Resource, err
}

// allow adds the rules that a group lacks. Their names say what they are for.
func (d driver) allow(ctx context.Context, c *rest.Client, group string, ports []string) error {
	have, err := nebiusapi.List[nebiusapi.Rule](ctx, c, nebiusapi.Rules, group)
	if err != nil {
		return err
	}
	wanted, err := wanted(group, have, ports)
	if err != nil {
		return err
	}
	for _, r := range wanted {
		if _, err := d.make(ctx, c, nebiusapi.Rules, group, r.Metadata.Name, r.Spec); err != nil && d.Kind(err) != vm.Changed {
			return err
		}
	}
	return nil
}

// rule is one that allows what comes in, or what goes out.
func rule(name string, protocol int32, in, out *nebiusapi.Traffic) nebiusapi.Rule {
	return nebiusapi.Rule{Metadata: nebiusapi.Metadata{Name: name}, Spec: nebiusapi.RuleSpec{Access: nebiusapi.Allow, Protocol: protocol, Ingress: in, Egress: out}}
}

// wanted are the rules that are missing.
func wanted(group string, have []nebiusapi.Rule, ports []string) ([]nebiusapi.Rule, error) {
	all := []nebiusapi.Rule{
		rule("self", nebiusapi.Anything, &nebiusapi.Traffic{Group: group}, nil),
		rule("out", nebiusapi.Anything, nil, &nebiusapi.Traffic{}),
	}
	open := map[int32]bool{}
	for _, r := range have {
		if in := r.Spec.Ingress; in != nil && in.Group == "" && len(in.CIDRs) == 0 {
			for _, port := range in.Ports {
				open[port] = true
			}
		}
	}
	var lacks []int32
	for _, p := range ports {
		from, to, err := cloud.PortRange(p)
		switch {
		case err == nil && p == allPorts:
			all = append(all, rule("all-ports", nebiusapi.TCP, &nebiusapi.Traffic{}, nil))
			continue
		case err == nil && to-from >= mostOpen:
			err = fmt.Errorf("Nebius opens ports one by one, up to %d here, and not %s; %s opens all", mostOpen, p, allPorts)
		}
		if err != nil {
			return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
		}
		for port := from; port <= to; port++ {
			if !open[int32(port)] {
				open[int32(port)] = true
				lacks = append(lacks, int32(port))
			}
		}
	}
	for some := range slices.Chunk(lacks, perRule) {
		all = append(all, rule(fmt.Sprintf("ports-%d-%d", some[0], len(some)), nebiusapi.TCP, &nebiusapi.Traffic{Ports: some}, nil))
	}
	return slices.DeleteFunc(all, func(r nebiusapi.Rule) bool {
		return slices.ContainsFunc(have, func(h nebiusapi.Rule) bool { return h.Metadata.Name == r.Metadata.Name })
	}), nil
}

// fabrics are those that connect machines with 8 GPUs, by platform and region.
var fabrics = map[string]map[string][]string{
	"gpu-h100-sxm": {"eu-north1": {"fabric-2", "fabric-3", "fabric-4", "fabric-6"}},
	"gpu-h200-sxm": {"eu-north1": {"fabric-7"}, "eu-west1": {"fabric-5"}, "us-central1": {"us-central1-a"}},
}

// clusters reports that machines of a type may be in a GPU cluster.
func clusters(instanceType string) bool {
	platform, preset, _ := parseType(instanceType)
	return fabrics[platform] != nil && preset == "8gpu-128vcpu-1600gb"
}

// fabric is the one of a launch whose machines are to be in a GPU cluster: the settings', or
// that with most room.
func (d driver) fabric(ctx context.Context, spec cloud.LaunchSpec) string {
	set := vm.Setting(spec.Settings, "fabric")
	if !clusters(spec.Offer.InstanceType) || set == "" && spec.NetworkTier != "best" {
		return ""
	} else if set != "" {
		return set
	}
	platform, _, _ := parseType(spec.Offer.InstanceType)
	best := append(fabrics[platform][spec.Offer.Region], "")[0]
	found, _ := d.room(ctx, spec.Offer) // a hint
	for _, f := range fabrics[platform][spec.Offer.Region] {
		if found[f].Available > found[best].Available {
			best = f
		}
	}
	return best
}

// prepared is what a launch needs, of which Connect has made what was missing.
func (d driver) prepared(ctx context.Context, spec cloud.LaunchSpec) (r ready, err error) {
	if r.project, err = d.project(ctx, spec); err != nil {
		return r, err
	}
	net, err := d.subnet(ctx, spec, r.project)
	if err != nil {
		return r, err
	}
	r.subnet = net.Metadata.ID
	c, _, err := d.client(nebiusapi.Network)
	if err != nil {
		return r, err
	}
	name := vm.ByCluster(spec.Settings["security_group_name"], spec.ID.Name)
	if name == "" {
		name = groupName(spec.ID)
	}
	group, err := nebiusapi.Find[nebiusapi.Named](ctx, c, nebiusapi.Groups, r.project, name)
	if err != nil {
		return r, err
	}
	r.group = group.Metadata.ID
	if !clusters(spec.Offer.InstanceType) || vm.Setting(spec.Settings, "fabric") == "" && spec.NetworkTier != "best" {
		return r, nil
	}
	if c, _, err = d.client(nebiusapi.Compute); err == nil {
		var of nebiusapi.Named
		of, err = nebiusapi.Find[nebiusapi.Named](ctx, c, nebiusapi.GpuGroup, r.project, names.Cluster(spec.ID))
		r.cluster = of.Metadata.ID
	}
	return r, err
}

// OpenPorts adds ports to the cluster's security group.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	d := driver{p, refusals()}
	return p.Change(ctx, id, func() error {
		c, _, err := p.client(nebiusapi.Network)
		if err != nil {
			return err
		}
		all, err := d.owned(ctx, c, nebiusapi.Groups, groupName(id))
		if err == nil && len(all) == 0 {
			err = &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no security group of a cluster %s; what nebius.security_group_name names is its owner's to change", id.Name)}
		}
		for _, g := range all {
			err = errors.Join(err, d.allow(ctx, c, g.Metadata.ID, ports))
		}
		return err
	})
}

// owned are the things with a name, in all projects.
func (d driver) owned(ctx context.Context, c *rest.Client, service, name string) ([]nebiusapi.Named, error) {
	return d.everywhere(ctx, func(ctx context.Context, project string) ([]nebiusapi.Named, error) {
		have, err := nebiusapi.Find[nebiusapi.Named](ctx, c, service, project, name)
		if err != nil && d.Kind(err) == vm.Missing {
			return nil, nil
		}
		return []nebiusapi.Named{have}, err
	})
}

// everywhere asks all projects of the regions that let us in.
func (d driver) everywhere(ctx context.Context, ask func(ctx context.Context, project string) ([]nebiusapi.Named, error)) ([]nebiusapi.Named, error) {
	_, found, err := vm.Everywhere(ctx, &d.regions, func(ctx context.Context, region string) (all []nebiusapi.Named, err error) {
		projects, err := d.in(ctx, region)
		for i := 0; err == nil && i < len(projects); i++ {
			var some []nebiusapi.Named
			some, err = ask(ctx, projects[i])
			all = append(all, some...)
		}
		return all, err
	})
	return slices.Concat(found...), err
}

// Disconnect removes the cluster's boot disks, its GPU cluster and its security group.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	c, _, err := d.client(nebiusapi.Compute)
	if err != nil {
		return nil, err
	}
	vpc, _, err := d.client(nebiusapi.Network)
	if err != nil {
		return nil, err
	}
	boot, err := d.everywhere(ctx, func(ctx context.Context, project string) (found []nebiusapi.Named, err error) {
		all, err := nebiusapi.List[nebiusapi.Disk](ctx, c, nebiusapi.Disks, project)
		for _, v := range all {
			if _, ours := names.Tags(id, v.Metadata.Name); ours {
				found = append(found, nebiusapi.Named{Metadata: v.Metadata})
			}
		}
		return found, err
	})
	if err != nil {
		return nil, err
	}
	for _, kind := range []struct {
		what, service string
		of            *rest.Client
		name          string
	}{{"the disk ", nebiusapi.Disks, c, ""}, {"the GPU cluster ", nebiusapi.GpuGroup, c, names.Cluster(id)}, {"the security group ", nebiusapi.Groups, vpc, groupName(id)}} {
		all := boot
		if kind.name != "" {
			if all, err = d.owned(ctx, kind.of, kind.service, kind.name); err != nil {
				return nil, err
			}
		}
		some, err := vm.Remove(d, all, func(n nebiusapi.Named) string { return kind.what + n.Metadata.Name }, func(n nebiusapi.Named) error {
			if kind.service == nebiusapi.Groups { // which goes without its rules
				if err := d.empty(ctx, vpc, n.Metadata.ID); err != nil {
					return err
				}
			}
			return d.remove(ctx, kind.of, kind.service, n.Metadata.ID)
		})
		if err != nil {
			return nil, err
		}
		left = append(left, some...)
	}
	return left, nil
}

// empty removes the rules of a group.
func (d driver) empty(ctx context.Context, c *rest.Client, group string) error {
	all, err := nebiusapi.List[nebiusapi.Rule](ctx, c, nebiusapi.Rules, group)
	if err != nil {
		return err
	}
	_, err = vm.Remove(d, all, func(r nebiusapi.Rule) string { return r.Metadata.Name }, func(r nebiusapi.Rule) error {
		return d.remove(ctx, c, nebiusapi.Rules, r.Metadata.ID)
	})
	return err
}

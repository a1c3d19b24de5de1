package nebius

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/grpc"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Messages of nebius.vpc.v1, and of GPU clusters.
type (
	subnet struct {
		Metadata metadata  `pb:"1"`
		Spec     inNetwork `pb:"2"`
	}
	inNetwork struct {
		Network string `pb:"1"`
	}
	named struct {
		Metadata metadata `pb:"1"`
	}
	rule struct {
		Metadata metadata `pb:"1"`
		Spec     ruleSpec `pb:"2"`
	}
	ruleSpec struct {
		Access   int32    `pb:"1"`
		Protocol int32    `pb:"3"`
		Ingress  *traffic `pb:"4"`
		Egress   *traffic `pb:"5"`
	}
	traffic struct {
		Group string   `pb:"1"`
		CIDRs []string `pb:"2"`
		Ports []int32  `pb:"3"`
	}
	fabricSpec struct {
		Fabric string `pb:"1"`
	}
)

const (
	allow    = 1    // RuleAccessAction
	anything = 1    // RuleProtocol
	tcp      = 2    //
	perRule  = 8    // ports
	mostOpen = 1024 // ports of a cluster, which are written one by one
	allPorts = "1-65535"
)

// The services of networks and GPU clusters.
const (
	subnets  = "nebius.vpc.v1.SubnetService"
	groups   = "nebius.vpc.v1.SecurityGroupService"
	rules    = "nebius.vpc.v1.SecurityRuleService"
	gpuGroup = "nebius.compute.v1.GpuClusterService"
)

func groupName(id cloud.ClusterID) string { return "sky-sg-" + names.Cluster(id) }

// subnet is where the machines of a launch are: what the settings say, or the project's first.
func (d driver) subnet(ctx context.Context, spec cloud.LaunchSpec, project string) (subnet, error) {
	c, _, err := d.client(network)
	if err != nil {
		return subnet{}, err
	}
	if id := setting(spec, "subnet_id"); id != "" {
		return grpc.Call[subnet](ctx, c, subnets+"/Get", "", byID{id})
	}
	all, err := list[subnet](ctx, c, subnets, project)
	if err == nil && len(all) == 0 {
		err = &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("the project %s has no subnet; make one at https://console.nebius.com", project)}
	}
	return append(all, subnet{})[0], err
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
		c, _, err := d.client(network)
		if err != nil {
			return err
		}
		id, err := d.ensure(ctx, c, groups, project, groupName(spec.ID), inNetwork{net.Spec.Network})
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
	c, _, err := d.client(compute)
	if err == nil {
		_, err = d.ensure(ctx, c, gpuGroup, project, names.Cluster(spec.ID), fabricSpec{fabric})
	}
	return err
}

// ensure is the id of the thing with a name, which is made if it is missing.
func (d driver) ensure(ctx context.Context, c *rest.Client, service, project, name string, spec any) (string, error) {
	have, err := grpc.Call[named](ctx, c, service+"/GetByName", "", byName{project, name})
	if err == nil || d.Kind(err) != vm.Missing {
		return have.Metadata.ID, err
	}
	var o operation
	err = cloud.Settled(ctx, func(ctx context.Context) error {
		o, err = d.do(ctx, c, service+"/Create", struct {
			Metadata metadata `pb:"1"`
			Spec     any      `pb:"2"`
		}{metadata{Parent: project, Name: name}, spec})
		return err
	})
	if err != nil && d.Kind(err) == vm.Changed { // another was faster
		have, err = grpc.Call[named](ctx, c, service+"/GetByName", "", byName{project, name})
		return have.Metadata.ID, err
	}
	return o.Resource, err
}

// allow adds the rules that a group lacks. Their names say what they are for.
func (d driver) allow(ctx context.Context, c *rest.Client, group string, ports []string) error {
	have, err := list[rule](ctx, c, rules, group)
	if err != nil {
		return err
	}
	wanted, err := wanted(group, have, ports)
	if err != nil {
		return err
	}
	for _, r := range wanted {
		r.Metadata.Parent = group
		if _, err := d.do(ctx, c, rules+"/Create", r); err != nil && d.Kind(err) != vm.Changed {
			return err
		}
	}
	return nil
}

// wanted are the rules that are missing.
func wanted(group string, have []rule, ports []string) ([]rule, error) {
	all := []rule{
		{metadata{Name: "self"}, ruleSpec{allow, anything, &traffic{Group: group}, nil}},
		{metadata{Name: "out"}, ruleSpec{allow, anything, nil, &traffic{}}},
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
			all = append(all, rule{metadata{Name: "all-ports"}, ruleSpec{allow, tcp, &traffic{}, nil}})
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
		all = append(all, rule{metadata{Name: "ports-" + strconv.Itoa(int(some[0])) + "-" + strconv.Itoa(len(some))}, ruleSpec{allow, tcp, &traffic{Ports: some}, nil}})
	}
	return slices.DeleteFunc(all, func(r rule) bool {
		return slices.ContainsFunc(have, func(h rule) bool { return h.Metadata.Name == r.Metadata.Name })
	}), nil
}

// fabrics are those that connect machines with 8 GPUs, by platform and region.
var fabrics = map[string]map[string][]string{
	"gpu-h100-sxm": {"eu-north1": {"fabric-2", "fabric-3", "fabric-4", "fabric-6"}},
	"gpu-h200-sxm": {"eu-north1": {"fabric-7"}, "eu-west1": {"fabric-5"}, "us-central1": {"us-central1-a"}},
}

// clusters tells that machines of a type may be in a GPU cluster.
func clusters(instanceType string) bool {
	platform, preset, _ := parseType(instanceType)
	return fabrics[platform] != nil && preset == "8gpu-128vcpu-1600gb"
}

// fabric is the one of a launch whose machines are to be in a GPU cluster: the settings', or
// that with most room.
func (d driver) fabric(ctx context.Context, spec cloud.LaunchSpec) string {
	set := setting(spec, "fabric")
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
	c, _, err := d.client(network)
	if err != nil {
		return r, err
	}
	name := vm.ByCluster(spec.Settings["security_group_name"], spec.ID.Name)
	if name == "" {
		name = groupName(spec.ID)
	}
	group, err := grpc.Call[named](ctx, c, groups+"/GetByName", "", byName{r.project, name})
	if err != nil {
		return r, err
	}
	r.group = group.Metadata.ID
	if !clusters(spec.Offer.InstanceType) || setting(spec, "fabric") == "" && spec.NetworkTier != "best" {
		return r, nil
	}
	if c, _, err = d.client(compute); err == nil {
		var of named
		of, err = grpc.Call[named](ctx, c, gpuGroup+"/GetByName", "", byName{r.project, names.Cluster(spec.ID)})
		r.cluster = of.Metadata.ID
	}
	return r, err
}

// OpenPorts adds ports to the cluster's security group.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	d := driver{p, refusals()}
	return p.Change(ctx, id, func() error {
		c, _, err := p.client(network)
		if err != nil {
			return err
		}
		all, err := d.owned(ctx, c, groups, groupName(id))
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
func (d driver) owned(ctx context.Context, c *rest.Client, service, name string) ([]named, error) {
	return d.everywhere(ctx, func(ctx context.Context, project string) ([]named, error) {
		have, err := grpc.Call[named](ctx, c, service+"/GetByName", "", byName{project, name})
		if err != nil && d.Kind(err) == vm.Missing {
			return nil, nil
		}
		return []named{have}, err
	})
}

// everywhere asks all projects of the regions that let us in.
func (d driver) everywhere(ctx context.Context, ask func(ctx context.Context, project string) ([]named, error)) ([]named, error) {
	_, found, err := vm.Everywhere(ctx, &d.regions, func(ctx context.Context, region string) (all []named, err error) {
		projects, err := d.in(ctx, region)
		for i := 0; err == nil && i < len(projects); i++ {
			var some []named
			some, err = ask(ctx, projects[i])
			all = append(all, some...)
		}
		return all, err
	})
	return slices.Concat(found...), err
}

// Disconnect removes the cluster's boot disks, its GPU cluster and its security group.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	c, _, err := d.client(compute)
	if err != nil {
		return nil, err
	}
	vpc, _, err := d.client(network)
	if err != nil {
		return nil, err
	}
	boot, err := d.everywhere(ctx, func(ctx context.Context, project string) (found []named, err error) {
		all, err := list[disk](ctx, c, disks, project)
		for _, v := range all {
			if _, ours := names.Tags(id, v.Metadata.Name); ours {
				found = append(found, named{v.Metadata})
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
	}{{"the disk ", disks, c, ""}, {"the GPU cluster ", gpuGroup, c, names.Cluster(id)}, {"the security group ", groups, vpc, groupName(id)}} {
		all := boot
		if kind.name != "" {
			if all, err = d.owned(ctx, kind.of, kind.service, kind.name); err != nil {
				return nil, err
			}
		}
		some, err := vm.Remove(d, all, func(n named) string { return kind.what + n.Metadata.Name }, func(n named) error {
			if kind.service == groups { // which goes without its rules
				if err := d.empty(ctx, vpc, n.Metadata.ID); err != nil {
					return err
				}
			}
			_, err := d.do(ctx, kind.of, kind.service+"/Delete", byID{n.Metadata.ID})
			return err
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
	all, err := list[rule](ctx, c, rules, group)
	if err != nil {
		return err
	}
	_, err = vm.Remove(d, all, func(r rule) string { return r.Metadata.Name }, func(r rule) error {
		_, err := d.do(ctx, c, rules+"/Delete", byID{r.Metadata.ID})
		return err
	})
	return err
}

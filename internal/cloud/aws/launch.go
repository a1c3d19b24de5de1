package aws

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Connect makes what the machines need: the role, the security group. It also
// refuses what can be known to fail: a quota of nothing, a missing network.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	p := d.Provider
	if err := p.checkAgentsAllowed(ctx); err != nil {
		return err
	}
	if err := p.knows(ctx, spec.Offer.Region, spec.ID); err != nil {
		return err
	}
	s := p.settings(spec)
	if err := p.sameAccount(s); err != nil {
		return err
	}
	if s.throughSSM(spec.Offer.Region) && !s.WithoutAgents {
		if err := ssmTools(spec.Offer.Region); err != nil {
			return err
		}
	}
	if err := p.checkQuota(ctx, spec, s); err != nil {
		return err
	}
	net, err := p.network(ctx, spec.Offer.Place, s)
	if err != nil {
		return err
	}
	if _, err := p.profileOf(ctx, s, spec.ID.Name); err != nil {
		return err
	}
	g := groupOf(s, spec.ID, spec.Ports)
	if _, err := p.ensureGroup(ctx, spec.Offer.Place, net.vpc, spec.ID, g, spec.Ports); err != nil || !g.ours {
		return err
	}
	// Its machines end in that of the installation: see leaveGroup.
	_, err = p.ensureGroup(ctx, spec.Offer.Place, net.vpc, spec.ID, groupOf(s, spec.ID, nil), nil)
	return err
}

// sameAccount refuses a launch whose settings name another profile than the
// installation's: it would be paid by the wrong account.
func (p *Provider) sameAccount(s Settings) error {
	if have := p.o.Settings().Profile; s.Profile != have {
		return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("aws.profile is %q here and %q for the installation, and one server uses one account at a time; "+
			"set aws.profile in the server's configuration, or run a server of its own for the other account", s.Profile, have)}
	}
	return nil
}

// checkAgentsAllowed refuses to rent real machines that nothing could be brought onto.
func (p *Provider) checkAgentsAllowed(ctx context.Context) error {
	if !p.o.Settings().WithoutAgents {
		return nil
	}
	c, err := p.load(ctx)
	if err != nil {
		return err
	}
	if e, err := url.Parse(sdk.ToString(c.BaseEndpoint)); err == nil && e.Hostname() != "" && !strings.HasSuffix(e.Hostname(), ".amazonaws.com") {
		return nil
	}
	return &cloud.InvalidError{Place: cloud.Place{Cloud: Name},
		Err: errors.New("aws.without_agents is set in the configuration, which is for emulators of EC2 only: real machines would cost money and do nothing. Take it out, or point AWS_ENDPOINT_URL at the emulator")}
}

// checkQuota refuses machines that the quota is known not to allow, whatever else of
// it is in use. A quota service that does not answer proves nothing. Reserved
// capacity may be had beside it.
func (p *Provider) checkQuota(ctx context.Context, spec cloud.LaunchSpec, s Settings) error {
	o := spec.Offer
	code := p.o.QuotaCode(ctx, o.InstanceType, o.Spot)
	if code == "" || !o.Spot && (s.Prioritize || len(s.Reservations) > 0) {
		return nil
	}
	limit, err := p.quota(ctx, o.Region, code)
	if err != nil {
		var auth *cloud.AuthError
		if errors.As(err, &auth) || ctx.Err() != nil {
			return err
		}
		return nil
	}
	need := max(int(o.CPUs)*spec.Nodes, 1)
	if limit >= need {
		return nil
	}
	return &cloud.QuotaError{Place: cloud.Place{Cloud: Name, Region: o.Region},
		Err: fmt.Errorf("the quota %s of EC2, which counts the vCPUs of %s, is %d, and this takes %d; ask for more in the console under Service Quotas", code, o.InstanceType, limit, need)}
}

// Launch makes every rank run.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := errors.Join(p.sameAccount(p.settings(spec)), p.checkAgentsAllowed(ctx)); err != nil {
		return nil, err
	}
	if err := p.knows(ctx, spec.Offer.Region, spec.ID); err != nil {
		return nil, err
	}
	nodes, err := p.StopProvider.Launch(ctx, spec)
	if lost := (*cloud.UnreachableError)(nil); !errors.As(err, &lost) { // else it is called again
		p.plans.Delete(spec.Token)
	}
	return nodes, err
}

// launch is what the driver knows of one call of Launch.
type launch struct {
	p     *Provider
	spec  cloud.LaunchSpec
	input *ec2.RunInstancesInput
	net   network
	plan  map[int]*reservation // by rank; absent: on demand
	zone  string               // where the cluster has machines; "": nowhere yet
	// mismatches are calls that a token was refused since it was used otherwise.
	mismatches int
}

// Create asks for instances of the ranks.
func (d driver) Create(ctx context.Context, of *vm.Launch, ranks []int) ([]string, error) {
	d.regions.Learn(of.Spec.ID, of.Spec.Offer.Region)
	client, err := d.ec2(ctx, of.Spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	l, ok := of.Memory.(*launch)
	if !ok {
		l = &launch{p: d.Provider, spec: of.Spec}
		of.Memory = l
	}
	l.zone = ""
	if len(of.Machines) > 0 {
		l.zone = of.Machines[0].Zone
	}
	return l.create(ctx, client, ranks)
}

// WriteRank writes a rank onto an instance.
func (d driver) WriteRank(ctx context.Context, spec cloud.LaunchSpec, m vm.Machine, rank int) error {
	client, err := d.ec2(ctx, m.Region)
	if err != nil {
		return err
	}
	_, err = client.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{m.ID}, Tags: toTags(rankTags(spec.ID, rank))})
	if codeOf(err) == "InvalidInstanceID.NotFound" { // not known everywhere yet, or gone
		return nil
	}
	return err
}

// NotStarted says why an instance that was made ended before it ran.
func (driver) NotStarted(at cloud.Place, m vm.Machine, err error) error {
	region := cloud.Place{Cloud: at.Cloud, Region: at.Region}
	switch about(m).reasonCode {
	case "Client.VolumeLimitExceeded":
		return &cloud.QuotaError{Place: region, Err: err}
	case "Client.InternalError", "Client.InvalidParameterValue":
		return &cloud.InvalidError{Place: region, Err: fmt.Errorf("%w; AWS ends machines so whose disk is encrypted with a key that these credentials may not use", err)}
	case "Client.InvalidSnapshot.NotFound":
		return &cloud.InvalidError{Place: region, Err: fmt.Errorf("%w; the snapshot of its image is gone", err)}
	}
	return &cloud.CapacityError{Place: at, Err: err}
}

// rankTags are what tells a node from the others of its cluster.
func rankTags(id cloud.ClusterID, rank int) map[string]string {
	t := map[string]string{
		cloud.TagRank: strconv.Itoa(rank), cloud.TagHead: "0",
		tagRayType: "worker", tagName: "sky-" + id.Name + "-worker",
	}
	if rank == 0 {
		t[cloud.TagHead], t[tagRayType], t[tagName] = "1", "head", "sky-"+id.Name+"-head"
	}
	return t
}

// create asks for instances of the ranks, all or none of those that are had in
// the same way: on demand, or from one reservation.
func (l *launch) create(ctx context.Context, client *ec2.Client, ranks []int) (made []string, err error) {
	if err := l.prepare(ctx, ranks); err != nil {
		return nil, err
	}
	for _, b := range batches(ranks, l.plan) {
		subnets := l.net.subnets
		if len(l.plan) == 0 && l.zone != "" { // the others are to be near
			subnets = slices.DeleteFunc(slices.Clone(subnets), func(s subnet) bool { return s.zone != l.zone })
			if len(subnets) == 0 {
				return made, &cloud.InvalidError{Place: l.spec.Offer.Place, Err: fmt.Errorf("the cluster's other machines are in zone %s, where VPC %s has no subnet that fits", l.zone, l.net.vpc)}
			}
		}
		if b.in != nil {
			if subnets = b.in.within(subnets); len(subnets) == 0 {
				return made, &cloud.InvalidError{Place: l.spec.Offer.Place, Err: fmt.Errorf("the capacity reservation %s is in zone %s, where VPC %s has no subnet that fits", b.in.id, b.in.zone, l.net.vpc)}
			}
		}
		ids, err := l.createBatch(ctx, client, b, subnets)
		if made = append(made, ids...); err != nil {
			return made, err
		}
	}
	return made, nil
}

// batch is ranks that one call asks for.
type batch struct {
	in    *reservation // nil: on demand
	ranks []int
}

// batches are the ranks by where they are to be, reservations first: they are
// refused before anything costs money.
func batches(ranks []int, plan map[int]*reservation) []batch {
	var out []batch
	for _, rank := range ranks {
		in := plan[rank]
		i := slices.IndexFunc(out, func(b batch) bool { return b.in == in })
		if i < 0 {
			i = len(out)
			out = append(out, batch{in: in})
		}
		out[i].ranks = append(out[i].ranks, rank)
	}
	slices.SortStableFunc(out, func(a, b batch) int {
		switch {
		case a.in != nil && b.in == nil:
			return -1
		case a.in == nil && b.in != nil:
			return 1
		}
		return 0
	})
	return out
}

// createBatch makes the call, in one subnet after the other as long as there is
// no room, or the zone does not have such machines at all, as some zones of most
// regions. A token of this attempt may have made some that are gone by now; the
// next token follows from those.
func (l *launch) createBatch(ctx context.Context, client *ec2.Client, b batch, subnets []subnet) ([]string, error) {
	var none, unfit error     // why there is no room, why not at all
	var zones, never []string // that answered so
	for _, sub := range subnets {
		if slices.Contains(never, sub.zone) {
			continue
		}
		in := *l.input
		in.MinCount, in.MaxCount = sdk.Int32(int32(len(b.ranks))), sdk.Int32(int32(len(b.ranks)))
		in.NetworkInterfaces = slices.Clone(in.NetworkInterfaces)
		for i := range in.NetworkInterfaces {
			in.NetworkInterfaces[i].SubnetId = sdk.String(sub.id)
		}
		words := []string{l.spec.Token, l.spec.ID.Hash, fmt.Sprint(b.ranks), sub.id}
		if b.in != nil {
			b.in.use(&in)
			words = append(words, b.in.id)
		}
		if len(b.ranks) == 1 {
			tags := tagsOf(l.spec, l.p.settings(l.spec))
			for k, v := range rankTags(l.spec.ID, b.ranks[0]) {
				tags[k] = v
			}
			in.TagSpecifications = specifications(tags)
		}
		made, err := l.run(ctx, client, in, digest(words...))
		if err == nil {
			return made, nil
		}
		refusal := translate(ctx, l.spec.Offer.Place, l.p.explained(ctx, err))
		var full *cloud.CapacityError
		var invalid *cloud.InvalidError
		switch {
		case errors.As(refusal, &full):
			zones = withZone(zones, sub.zone)
			if len(zones) > 1 {
				full.Err = fmt.Errorf("nothing in %s; %w", strings.Join(zones, ", "), full.Err)
			}
			none = refusal
		case codeOf(err) == "Unsupported" && errors.As(refusal, &invalid):
			never = withZone(never, sub.zone)
			if len(never) > 1 {
				invalid.Err = fmt.Errorf("in none of %s; %w", strings.Join(never, ", "), invalid.Err)
			}
			unfit = refusal
		default:
			return nil, refusal
		}
	}
	if none != nil {
		return nil, none
	}
	return nil, unfit
}

// withZone is a list of zones with one more, sorted, each once.
func withZone(zones []string, zone string) []string {
	if !slices.Contains(zones, zone) {
		zones = append(zones, zone)
	}
	slices.Sort(zones)
	return zones
}

// run makes the call. Where its token belongs to instances that have ended, it
// is made again under a token that follows from them.
func (l *launch) run(ctx context.Context, client *ec2.Client, in ec2.RunInstancesInput, token string) ([]string, error) {
	for range maxEnds {
		in.ClientToken = sdk.String(token)
		var out *ec2.RunInstancesOutput
		err := l.p.known(ctx, "EC2 to know the role and the groups of the machines", newParts(profileName(in.IamInstanceProfile)), func() error {
			return cloud.Settled(ctx, func(ctx context.Context) (err error) {
				out, err = client.RunInstances(ctx, &in, once)
				return err
			})
		})
		switch codeOf(err) {
		case "IdempotentInstanceTerminated":
			token = digest(token, "ended")
			continue
		case "IdempotentParameterMismatch":
			// An earlier call under this token asked for something else. What it made
			// is listed in a while; if nothing is, it made nothing.
			if l.mismatches++; l.mismatches < settleTries {
				return nil, nil
			}
			l.mismatches = 0
			token = digest(token, "mismatch")
			continue
		}
		if err != nil {
			return nil, err
		}
		var ids []string
		ended := true
		for _, i := range out.Instances {
			ids = append(ids, sdk.ToString(i.InstanceId))
			if i.State != nil && i.State.Name != types.InstanceStateNameTerminated && i.State.Name != types.InstanceStateNameShuttingDown {
				ended = false
			}
		}
		if !ended || len(ids) == 0 {
			return ids, nil
		}
		token = digest(token, ids[0])
	}
	return nil, &cloud.UnreachableError{Err: fmt.Errorf("%d calls for these machines in a row have made some that have ended", maxEnds)}
}

// maxEnds is how often a cluster of one name and hash is lost and made again
// within one attempt; more is a fault.
const maxEnds = 100

func profileName(p *types.IamInstanceProfileSpecification) string {
	if p == nil {
		return ""
	}
	return sdk.ToString(p.Name)
}

// prepare finds out, once, what all instances of this launch have in common.
// These ranks are missing.
func (l *launch) prepare(ctx context.Context, missing []int) error {
	if l.input != nil {
		return nil
	}
	p, spec := l.p, l.spec
	s := p.settings(spec)
	net, err := p.network(ctx, spec.Offer.Place, s)
	if err != nil {
		return err
	}
	groupID, err := p.ensureGroup(ctx, spec.Offer.Place, net.vpc, spec.ID, groupOf(s, spec.ID, spec.Ports), spec.Ports)
	if err != nil {
		return err
	}
	profile, err := p.profileOf(ctx, s, spec.ID.Name)
	if err != nil {
		return err
	}
	adapters, err := p.adapters(ctx, spec)
	if err != nil {
		return err
	}
	img, err := p.image(ctx, spec, len(adapters) > 0)
	if err != nil {
		return err
	}
	input := runInput(spec, s, img, groupID, profile)
	plan, err := p.reservations(ctx, spec, s, missing, len(adapters) > 0 && spec.Nodes > 1)
	if err != nil {
		return err
	}
	if len(adapters) > 0 {
		input.NetworkInterfaces, err = fabric(input.NetworkInterfaces[0], spec.Offer.InstanceType, adapters, s.InternalIPs)
		if err != nil {
			return &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("%s: %w", spec.Offer.InstanceType, err)}
		}
		if groupOf(s, spec.ID, spec.Ports).managed {
			if err := p.leaveTo(ctx, spec.Offer.Place, groupID); err != nil {
				return err
			}
		}
		// A reservation says by itself where its machines are.
		if spec.Nodes > 1 && len(plan) == 0 {
			name, err := p.closeTogether(ctx, spec.Offer.Place, spec.ID)
			if err != nil {
				return err
			}
			input.Placement = &types.Placement{GroupName: sdk.String(name)}
		}
	}
	l.net, l.input, l.plan = net, input, plan
	return nil
}

// Package ibm rents machines on IBM Cloud, in virtual private clouds of the second
// generation.
//
// A machine's name says whose it is and which rank it has. Names are unique in a region, so
// that creations are safe to repeat. Machines are listed one region at a time.
//
// The API is called by package ibmapi.
package ibm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/ibmapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = ibmapi.Name

const displayName = ibmapi.DisplayName

// names are those of machines and of their addresses.
var names = vm.Names{Max: 63}

// Options change how the cloud is reached. Endpoint is of IAM.
type Options = vm.Tuning

// Provider rents on IBM Cloud.
type Provider struct {
	vm.StopProvider
	vm.Base
	regions vm.Regions
	memo    vm.Memo
	network sync.Mutex // of who looks whether there is one, and makes it
	begun   sync.Map   // ids of machines that were asked to start, and do not run yet
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{Base: vm.Base{Label: ibmapi.DisplayName, Can: features(), Account: ibmapi.Account(o)}}
	p.Refusals, p.Who = refusals(p.Fix), p.who
	d := driver{p, p.Refusals}
	p.regions = vm.Regions{Cloud: Name, Refusal: d.Refusal, All: p.available, List: d.list}
	p.memo.Changed = p.regions.Reset
	p.StopProvider = vm.NewStopping(d, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, EndingHolds: true, Limits: vm.LimitEach(o.Timeout*3/4, "pending", "starting", "restarting"), Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusals are IBM's codes. There are very many, most of which say by their status enough:
// those that say more are here.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix,
		Codes: map[string]vm.Meaning{
			"BXNIM*": vm.BadCredentials, "not_authenticated": vm.BadCredentials, "unauthenticated": vm.BadCredentials, "forbidden": vm.Forbidden, "not_found": vm.NotThere,
			"over_quota": vm.OverQuota, "quota_exceeded": vm.OverQuota, "cannot_start_capacity": vm.Full, "cannot_start_placement_group": vm.Full, "insufficient_capacity": vm.Full,
			"too_many_requests": vm.Throttled, "rate_limit_exceeded": vm.Throttled, "internal_error": vm.NoAnswer, "service_error": vm.NoAnswer, "service_unavailable": vm.NoAnswer,
			"bad_field": vm.Invalid, "missing_field": vm.InvalidAnywhere, "invalid_value": vm.Invalid, "validation_failed": vm.Invalid, "validation_unique_failed": vm.Moved, "conflict_field": vm.Moved,
			"invalid_zone": vm.Invalid, "invalid_state": vm.Moved, "instance_invalid_state": vm.Moved,
		},
		Texts: []vm.Text{{Holds: "quota", Means: vm.OverQuota}, {Holds: "capacity", Means: vm.Full}, {Holds: "already exists", Means: vm.Moved}, {Holds: "not unique", Means: vm.Moved}, {Holds: "in use", Means: vm.InUse}},
	}
}

// features says what IBM, or this provider, cannot do.
func features() cloud.Features {
	const off = "IBM goes on billing a machine that powers itself off, and not one that is stopped by a call"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutostop:  off,
			cloud.FeatureAutodown:  off,
			cloud.FeatureSpot:      "spot machines of IBM are not used yet",
			cloud.FeatureDocker:    "containers do not run on IBM's machines yet",
			cloud.FeatureDiskTier:  "machines get one kind of IBM's boot disks",
			cloud.FeatureNetTier:   "a machine of IBM has the network of its profile",
			cloud.FeatureLocalDisk: "disks inside IBM's machines are not used yet",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// available are the regions that can be used.
func (p *Provider) available(ctx context.Context) ([]string, error) {
	c, keys, err := p.In(ibmapi.First)
	if err != nil {
		return nil, err
	}
	return vm.Remember(&p.memo, p.Stamp(keys), "regions", func() ([]string, error) {
		return ibmapi.Available(ctx, c, "regions")
	})
}

// in is a client for a region, which has to be one of IBM's.
func (p *Provider) in(ctx context.Context, region string) (*rest.Client, map[string]string, error) {
	if err := p.regions.Has(ctx, region, "IBM has no region "+region+" in use"); err != nil {
		return nil, nil, err
	}
	return p.In(region)
}

// zones are those of a region that can be used.
func (p *Provider) zones(ctx context.Context, region string) ([]string, error) {
	c, keys, err := p.in(ctx, region)
	if err != nil {
		return nil, err
	}
	return vm.Remember(&p.memo, p.Stamp(keys), "zones "+region, func() ([]string, error) {
		zones, err := ibmapi.Available(ctx, c, "regions/"+url.PathEscape(region)+"/zones")
		if err == nil && len(zones) == 0 {
			err = &cloud.CapacityError{Place: cloud.Place{Cloud: Name, Region: region}, Err: errors.New("IBM has no zone there in use")}
		}
		return zones, err
	})
}

// Launch tries the zones of a region one by one, unless one is asked for or the cluster is in
// one.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if spec.Offer.Zone != "" {
		return p.StopProvider.Launch(ctx, spec)
	}
	zones, err := p.zones(ctx, spec.Offer.Region)
	if err != nil {
		return nil, p.Refused(ctx, spec.Offer.Place, err)
	}
	for {
		have, err := p.Machines(ctx, spec.ID)
		if err != nil {
			return nil, err
		}
		in := slices.IndexFunc(have, func(m vm.Machine) bool {
			return m.State != vm.Ending && m.State != vm.Ended && m.Region == spec.Offer.Region
		})
		try := spec
		if try.Offer.Zone = zones[0]; in >= 0 {
			try.Offer.Zone = have[in].Zone
		}
		nodes, err := p.StopProvider.Launch(ctx, try)
		var full *cloud.CapacityError
		if !errors.As(err, &full) {
			return nodes, err
		}
		if zones = slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return z == try.Offer.Zone }); in >= 0 || len(zones) == 0 {
			return nil, &cloud.CapacityError{Place: spec.Offer.Place, Err: fmt.Errorf("%s: %w", try.Offer.Zone, full.Err)}
		}
		cloud.Note(ctx, fmt.Sprintf("%s is full; trying %s.", try.Offer.Zone, zones[0]))
	}
}

// who asks for the regions.
func (p *Provider) who(ctx context.Context, _ *rest.Client, keys map[string]string) (cloud.Identity, error) {
	p.memo.Forget("regions")
	_, err := p.available(ctx)
	return cloud.Identity{"the resource group " + keys["resource_group_id"]}, err
}

// OpenPorts adds ports to the security group of the cluster.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	d := driver{p, p.Refusals}
	return vm.OpenIn(ctx, p.Provider, id, func() ([]belongs, error) { return d.groups(ctx, id) }, func(g belongs) error {
		c, _, err := p.In(g.region)
		if err == nil {
			err = allow(ctx, c, g.ID, ports)
		}
		return err
	})
}

func valid(spec cloud.LaunchSpec) error {
	if spec.ImageID != "" && strings.HasPrefix(spec.ImageID, "ibm-") {
		return fmt.Errorf("%q is the name of an image; write its id, as r006-…", spec.ImageID)
	}
	return vm.PlainLetter(displayName, names.MaxCluster(), spec)
}

// Package fluffycloud rents machines on FluffyCloud, the cloud that comes with
// sky: run "fluffycloud serve" and it has customers. It is also the example of
// what a provider is; docs/adding-a-cloud.md walks through it.
//
// Every instance carries the tags of package cloud from the moment it exists,
// and a name that follows from its cluster and rank. The cloud refuses a second
// instance of a name, so that whatever is repeated, at most one machine holds a
// rank.
package fluffycloud

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "fluffycloud"

// maxName is the longest name of a cluster.
const maxName = 120

// Options change how the cloud is reached. The zero value reads the user's
// credentials.
type Options struct {
	API     fluffyapi.API // nil: by the credentials
	Stamp   string        // of the API's credentials; "": they are never asked whose they are
	Poll    time.Duration // between looks at what changes; 0: half a second
	Timeout time.Duration // of machines that start or end; 0: 15 minutes
}

// Provider rents on FluffyCloud.
type Provider struct {
	vm.StopProvider
	vm.Cloner
	o       Options
	clients rest.Clients
}

var (
	_ cloud.Provider           = (*Provider)(nil)
	_ cloud.Stopper            = (*Provider)(nil)
	_ cloud.PortOpener         = (*Provider)(nil)
	_ cloud.AvailabilityProber = (*Provider)(nil)
	_ cloud.SpotNotices        = (*Provider)(nil)
	_ cloud.QuotaReader        = (*Provider)(nil)
	_ cloud.OffSwitch          = (*Provider)(nil)
	_ cloud.CredentialStamper  = (*Provider)(nil)
	_ cloud.DiskCloner         = (*Provider)(nil)
)

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	if o.Poll == 0 {
		o.Poll = 500 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Minute
	}
	p := &Provider{o: o}
	p.StopProvider = vm.NewStopping(driver{p, refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: validName, EndingHolds: true,
		Limits:  map[string]time.Duration{string(fluffyapi.Pending): o.Timeout * 2 / 3},
		Timeout: o.Timeout, Poll: o.Poll, FirstPoll: o.Poll / 8, // soon at first: some calls are through at once
	})
	p.Cloner = vm.NewCloner(p.StopProvider.Provider, driver{p, refusals})
	return p
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "FluffyCloud" }

// Pace is quick: the cloud is meant to be tried.
func (p *Provider) Pace() (perSecond float64, burst int) { return 200, 400 }

// Features says what FluffyCloud does not have.
func (p *Provider) Features() cloud.Features {
	return cloud.Features{
		MaxNameLength: maxName,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureImage:     "FluffyCloud has one image only",
			cloud.FeatureDocker:    "FluffyCloud's machines do not run containers",
			cloud.FeatureDiskTier:  "FluffyCloud has one kind of disk",
			cloud.FeatureNetTier:   "FluffyCloud has one kind of network",
			cloud.FeatureLocalDisk: "FluffyCloud has one kind of disk",
		},
	}
}

// Check asks whose account the token belongs to. Without credentials it does no
// I/O.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	api, err := p.api()
	if err != nil {
		return nil, err
	}
	a, err := api.Account(ctx)
	if err != nil {
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	return cloud.Identity{a.ID}, nil
}

// Offers is what FluffyCloud sells now, on demand and as spot.
func (p *Provider) Offers(ctx context.Context) ([]cloud.Offer, error) {
	api, err := p.api()
	if err != nil {
		return nil, err
	}
	sold, err := fluffyapi.All(ctx, fluffyapi.Query{}, api.Offers)
	if err != nil {
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	offers := make([]cloud.Offer, 0, 2*len(sold))
	for _, s := range sold {
		o := cloud.Offer{
			Place:        cloud.Place{Cloud: Name, Region: s.Region, Zone: s.Zone},
			InstanceType: s.Type, CPUs: s.CPUs, MemoryGiB: s.MemoryGiB, Accelerators: s.Accelerators, HourlyPrice: s.Price,
		}
		offers = append(offers, o)
		if s.SpotPrice > 0 {
			o.Spot, o.HourlyPrice = true, s.SpotPrice
			offers = append(offers, o)
		}
	}
	return offers, nil
}

// Available reports whether the zone has room for so many nodes.
func (p *Provider) Available(ctx context.Context, o cloud.Offer, nodes int) (cloud.Availability, error) {
	unknown := cloud.Availability{Verdict: cloud.AvailabilityUnknown, At: time.Now()}
	api, err := p.api()
	if err != nil {
		return unknown, err
	}
	n, err := api.Available(ctx, o.Zone, o.InstanceType, o.Spot)
	if err != nil {
		return unknown, p.Refused(ctx, o.Place, err)
	}
	return availability(n, nodes, o.Place, unknown.At), nil
}

// Quotas lists the account's limits in a region.
func (p *Provider) Quotas(ctx context.Context, region string) ([]cloud.Quota, error) {
	place := cloud.Place{Cloud: Name, Region: region}
	api, err := p.api()
	if err != nil {
		return nil, err
	}
	list, err := api.Quotas(ctx, region)
	if err != nil {
		return nil, p.Refused(ctx, place, err)
	}
	out := make([]cloud.Quota, len(list))
	for i, q := range list {
		out[i] = cloud.Quota{Place: place, Name: q.Name, Limit: q.Limit, Used: q.Used}
	}
	return out, nil
}

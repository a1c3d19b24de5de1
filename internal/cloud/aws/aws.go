// Package aws rents machines on Amazon EC2.
//
// A cluster is a set of instances of one region that carry its tags from the
// moment they exist. All nodes that are missing are asked for in one call, all
// or nothing, under a token that follows from the attempt, so that a call whose
// answer was lost and that is made again makes nothing twice. The instances of
// such a call are alike; which rank each has is written onto it as a tag
// afterwards, in the order of their ids, which comes out the same however often
// it is begun.
//
// EC2 is one cloud per region. A cluster does not say in which region it is, so
// that is remembered, and where it is not known all regions are asked.
package aws

import (
	"context"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "aws"

// maxName is the longest name of a cluster: 256 bytes of a tag's value less the
// words around it.
const maxName = 240

// Options say what the provider needs to know of the installation. The zero
// value reads the user's credentials and uses the account's defaults.
type Options struct {
	// Settings are the "aws" section of the configuration, read at each call;
	// nil: the defaults.
	Settings func() Settings
	// Image finds images; nil: no tags are known.
	Image cloud.Images
	// QuotaCode is the name under which the quotas of a machine are kept; nil
	// or "": unknown, nothing is checked.
	QuotaCode func(ctx context.Context, instanceType string, spot bool) string
	// Zones is told which zones the account has, from ids to names, when they
	// are learnt; nil: nobody wants to know.
	Zones   func(user string, names map[string]string)
	Poll    time.Duration // between looks at what changes; 0: two seconds
	Timeout time.Duration // of ordinary machines that start or end; 0: 10 minutes
	Retries int           // of a call that is throttled or fails on their side; 0: 4
	Backoff time.Duration // the longest pause between them; 0: 5 seconds
}

// Provider rents on EC2.
type Provider struct {
	vm.StopProvider
	vm.Cloner
	o       Options
	access  access
	regions vm.Regions
	plans   sync.Map // map[int]*reservation by the token of an attempt
	loan    loan
}

var (
	_ cloud.Provider          = (*Provider)(nil)
	_ cloud.Stopper           = (*Provider)(nil)
	_ cloud.PortOpener        = (*Provider)(nil)
	_ cloud.OffSwitch         = (*Provider)(nil)
	_ cloud.LaunchLimiter     = (*Provider)(nil)
	_ cloud.CredentialStamper = (*Provider)(nil)
	_ cloud.PermissionReader  = (*Provider)(nil)
	_ cloud.DiskCloner        = (*Provider)(nil)
	_ cloud.ReservationLister = (*Provider)(nil)
)

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	if o.Settings == nil {
		o.Settings = func() Settings { return Settings{} }
	}
	if o.Image == nil {
		o.Image = func(context.Context, string, string) (string, bool) { return "", false }
	}
	if o.QuotaCode == nil {
		o.QuotaCode = func(context.Context, string, bool) string { return "" }
	}
	if o.Poll == 0 {
		o.Poll = 2 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Retries == 0 {
		o.Retries = 4
	}
	if o.Backoff == 0 {
		o.Backoff = 5 * time.Second
	}
	p := &Provider{o: o}
	p.regions.All, p.regions.List, p.access.changed = p.allRegions, p.describe, p.regions.Reset
	p.StopProvider = vm.NewStopping(driver{p}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: p.valid, Timeout: o.Timeout, Poll: o.Poll, Patience: p.patience, SlowToEnd: slowToEnd,
	})
	p.Cloner = vm.NewCloner(p.StopProvider.Provider, driver{p})
	return p
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "AWS" }

// Features says what EC2, or this provider, cannot do.
func (p *Provider) Features() cloud.Features {
	return cloud.Features{MaxNameLength: maxName}
}

// Offers is nil: the price list knows.
func (p *Provider) Offers(context.Context) ([]cloud.Offer, error) { return nil, nil }

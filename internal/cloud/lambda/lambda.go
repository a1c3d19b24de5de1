// Package lambda rents machines on Lambda's GPU cloud.
//
// Machines carry the tags of package cloud from the moment they exist. Lambda has
// no idempotency tokens and its names are not unique, so a call whose answer was
// lost is not made again before lists can be believed. Machines cannot be off.
//
// Source: the Lambda Cloud API, version 1.10.
package lambda

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Name is what users write after "infra:".
const Name = "lambda"

// maxName is the longest name of a cluster: machines are called after it and
// their rank.
const maxName = 57

// Options change how the cloud is reached. The zero value reads the user's
// credentials.
type Options struct {
	Endpoint string        // of the API; "": Lambda's
	Home     string        // the folder with the credentials; "": the user's home
	Poll     time.Duration // between looks at what changes; 0: 10 seconds
	Timeout  time.Duration // of machines that start or end; 0: 20 minutes
	Settle   time.Duration // after which a list has what a lost call made; 0: a minute
	Paces    []rest.Pace   // nil: what Lambda allows
	Busy     int           // how often a call that was one too many is made again, as in rest.Options
}

// Provider rents on Lambda.
type Provider struct {
	*vm.Provider
	o    Options
	conn connection
}

var (
	_ cloud.Provider           = (*Provider)(nil)
	_ cloud.PortOpener         = (*Provider)(nil)
	_ cloud.AvailabilityProber = (*Provider)(nil)
	_ cloud.CredentialStamper  = (*Provider)(nil)
)

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	if o.Endpoint == "" {
		o.Endpoint = "https://cloud.lambda.ai/api/v1"
	}
	if o.Poll == 0 {
		o.Poll = 10 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 20 * time.Minute
	}
	if o.Paces == nil {
		o.Paces = []rest.Pace{{Method: "POST", Path: "/instance-operations/launch", Every: 12 * time.Second}, {Every: time.Second, Burst: 5}}
	}
	p := &Provider{o: o}
	p.Provider = vm.New(driver{p}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: valid, EndingHolds: true, NoTokens: true,
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "Lambda" }

// Features says what Lambda cannot do.
func (p *Provider) Features() cloud.Features {
	return cloud.Features{
		MaxNameLength: maxName,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop:      "Lambda's machines cannot be stopped, only given back",
			cloud.FeatureAutostop:  "Lambda's machines cannot be stopped, only given back",
			cloud.FeatureAutodown:  "Lambda's machines cannot give themselves back, and cost money when they are off; use: sky down",
			cloud.FeatureSpot:      "Lambda sells no spot machines",
			cloud.FeatureImage:     "sky starts Lambda's own image; for others use a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  "Lambda has one kind of disk",
			cloud.FeatureNetTier:   "Lambda has one kind of network",
			cloud.FeatureLocalDisk: "Lambda has one kind of disk",
			cloud.FeatureStorage:   "buckets cannot be mounted yet",
			cloud.FeatureCloneDisk: "Lambda cannot copy disks",
		},
	}
}

// Check asks whether the key is good. Lambda does not tell whose it is: accounts
// are told apart by their keys. Without credentials it does no I/O.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	c, err := p.api()
	if err != nil {
		return nil, err
	}
	if _, err := call[[]instance](ctx, c, "GET", "/instances", nil); err != nil {
		return nil, translate(ctx, cloud.Place{Cloud: Name}, err)
	}
	return cloud.Identity{"the key " + p.CredentialStamp()}, nil
}

// Offers is nil: the price list knows.
func (p *Provider) Offers(context.Context) ([]cloud.Offer, error) { return nil, nil }

// Available tells whether the region has room for such a machine. Lambda does not
// say for how many.
func (p *Provider) Available(ctx context.Context, o cloud.Offer, nodes int) (cloud.Availability, error) {
	a := cloud.Availability{Verdict: cloud.AvailabilityUnknown, At: time.Now()}
	c, err := p.api()
	if err != nil {
		return a, err
	}
	room, err := c.room(ctx, o)
	var full *cloud.CapacityError
	switch {
	case errors.As(err, &full):
		a.Verdict, a.Reason = cloud.AvailableNone, full.Err.Error()
	case err != nil:
		return a, translate(ctx, o.Place, err)
	case room && nodes == 1:
		a.Verdict = cloud.AvailableNow
	}
	return a, nil
}

var (
	nameForm  = lazyregexp.New(`^[a-z0-9-]+$`)
	labelForm = lazyregexp.New(`^[a-z][a-z0-9:-]{1,54}$`)
)

// maxLabel is the longest value of a tag.
const maxLabel = 128

func valid(spec cloud.LaunchSpec) error {
	if name := spec.ID.Name; len(name) > maxName || !nameForm.MatchString(name) {
		return fmt.Errorf("a cluster's name on Lambda has 1 to %d small letters, digits and dashes, and this one is %q", maxName, name)
	}
	for k, v := range spec.Labels {
		if len(v) > maxLabel || !labelForm.MatchString(k) || strings.HasPrefix(k, "lambda-ai-") {
			return fmt.Errorf("the label %q cannot be a tag on Lambda: a key has 2 to 55 small letters, digits, dashes and colons, begins with a letter and not with lambda-ai-, and a value has %d bytes at most", k, maxLabel)
		}
	}
	if len(strings.Fields(spec.AuthorizedKey)) < 2 {
		return errors.New("a machine on Lambda needs a public ssh key")
	}
	return nil
}

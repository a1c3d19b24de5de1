package vm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Verdict is the answer of a provider's Available. err is why there is no room at a place,
// nil: there is some; sure: the cloud said so for as many machines as were asked about.
func (p *Provider) Verdict(ctx context.Context, at cloud.Place, sure bool, err error) (cloud.Availability, error) {
	return verdict(ctx, p.refusal, at, sure, err)
}

func verdict(ctx context.Context, refusal func(context.Context, cloud.Place, error) error, at cloud.Place, sure bool, err error) (cloud.Availability, error) {
	a := cloud.Availability{Verdict: cloud.AvailabilityUnknown, At: time.Now()}
	var full *cloud.CapacityError
	var dearer *cloud.PriceError
	switch {
	case errors.As(err, &full):
		a.Verdict, a.Reason = cloud.AvailableNone, full.Err.Error()
		return a, nil
	case errors.As(err, &dearer):
		a.Price, a.Reason = dearer.Now, dearer.Err.Error()
		if sure {
			a.Verdict = cloud.AvailableNow
		}
		return a, nil
	case err == nil && sure:
		a.Verdict = cloud.AvailableNow
	}
	return a, refusal(ctx, at, err)
}

// Known is an error if there is no machine of the cluster: what providers answer that have
// no ports to open, since their machines are open to the world.
func (p *Provider) Known(ctx context.Context, id cloud.ClusterID) error {
	machines, err := p.Machines(ctx, id)
	if err == nil && len(machines) == 0 {
		err = &cloud.InvalidError{Place: p.at(""), Err: fmt.Errorf("there is no cluster %s", id.Name)}
	}
	return err
}

// Plain refuses a launch whose cluster has a name that is not plain or has more than most
// characters, or that has no ssh key.
func Plain(displayName string, most int, spec cloud.LaunchSpec) error {
	if name := spec.ID.Name; len(name) > most || !PlainName(name) || name[0] == '-' {
		return fmt.Errorf("a cluster's name on %s has 1 to %d small letters, digits and dashes, and begins with no dash, and this one is %q", displayName, most, name)
	}
	if len(strings.Fields(spec.AuthorizedKey)) < 2 {
		return errors.New("a machine on " + displayName + " needs a public ssh key")
	}
	return nil
}

// PlainLetter is [Plain] for a cloud where names begin with a letter.
func PlainLetter(displayName string, most int, spec cloud.LaunchSpec) error {
	if name := spec.ID.Name; name != "" && (name[0] < 'a' || name[0] > 'z') {
		return fmt.Errorf("a cluster's name on %s begins with a letter, and this one is %q", displayName, name)
	}
	return Plain(displayName, most, spec)
}

// Rose is a PriceError if an offer costs more now than it was planned with, or than its task
// allows; a price of 0 is not known. Price lists that are never refreshed by themselves get old.
func Rose(displayName string, o cloud.Offer, now float64) error {
	return rose(displayName, o, now, "; to plan with today's prices: sky catalog fetch "+o.Cloud)
}

// RoseLive is Rose for offers that come from no price list.
func RoseLive(displayName string, o cloud.Offer, now float64) error {
	return rose(displayName, o, now, "")
}

func rose(displayName string, o cloud.Offer, now float64, advice string) error {
	switch {
	case cloud.Dearer(o.HourlyPrice, now):
		return priceError(o, now, "the price rose: on %s %s costs $%.4g an hour now, and $%.4g was planned with%s", displayName, o.InstanceType, now, o.HourlyPrice, advice)
	case cloud.Dearer(o.MaxHourlyCost, now):
		return priceError(o, now, "on %s %s costs $%.4g an hour now", displayName, o.InstanceType, now)
	}
	return nil
}

func priceError(o cloud.Offer, now float64, format string, args ...any) error {
	return &cloud.PriceError{Place: o.Place, Planned: o.HourlyPrice, Now: now, Err: fmt.Errorf(format, args...)}
}

// Bid is what to bid for a machine that costs so much now: what is wanted, within what the
// task allows, in whole units of which one dollar has so many. It is a PriceError if the task
// allows no such price.
func Bid(displayName string, o cloud.Offer, now, wanted float64, units float64) (float64, error) {
	most := o.MaxHourlyCost
	if most == 0 || wanted <= most {
		return wanted, nil
	}
	bid := math.Floor(most*units+1e-6) / units
	if bid < now-1e-9 {
		return 0, priceError(o, now, "on %s %s costs $%.4g an hour now", displayName, o.InstanceType, now)
	}
	return bid, nil
}

// Package shadeform rents machines of many clouds through Shadeform.
//
// What there is now is asked for plans and again before a launch. Machines carry the tags
// of package cloud from the moment they exist. Shadeform has no idempotency tokens and
// its names are not unique, so a call whose answer was lost is not made again before
// lists can be believed.
//
// Source: the Shadeform API, version 1.0.0.
package shadeform

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "shadeform"

// maxName is the longest name of a cluster.
const maxName = 100

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Shadeform.
type Provider struct {
	vm.PortProvider
	vm.Probed
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.shadeform.ai/v1", Poll: 10 * time.Second, Timeout: 40 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: "Shadeform", Can: features(), Probe: "/sshkeys", Live: live,
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".shadeform/api_key", Format: keyfile.Text, Names: []string{"api_key"}, Home: o.Home,
				Fix: "make an API key at https://platform.shadeform.ai/settings/api and write it into ~/.shadeform/api_key",
			},
			Tuning: o, REST: rest.Options{Cloud: "Shadeform"},
			Authorize: func(keys map[string]string) func(*http.Request) error {
				return rest.Header("X-API-KEY", keys["api_key"])
			},
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		_, err := room(ctx, c, o)
		return nodes == 1, err
	}}}
	p.Refusals = refusals(p.Fix)
	p.Provider = vm.New(driver{Provider: p, Refusals: p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: valid, NoTokens: true, EndingHolds: true,
		Limits:     map[string]time.Duration{"creating": o.Timeout / 4, "pending_provider": o.Timeout * 3 / 4, "pending": o.Timeout * 9 / 10},
		PortsLater: "a machine keeps the ports that it was launched with; launch it anew with them",
		Timeout:    o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

const billing = "add credit at https://platform.shadeform.ai/settings/billing, then: sky check shadeform"

// refusals are statuses with texts: the reference has no codes.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: "Shadeform", Fix: fix, Fixes: map[string]string{"402": billing},
		Texts: []vm.Text{
			{Holds: "out of stock", Means: vm.Full}, {Holds: "no longer available", Means: vm.Full}, {Holds: "capacity", Means: vm.Full}, {Holds: "unavailable", Means: vm.Full},
			{Holds: "quota", Means: vm.OverQuotaAll}, {Holds: "limit of instances", Means: vm.OverQuotaAll},
		},
		Statuses: map[int]vm.Meaning{http.StatusBadRequest: vm.Invalid, http.StatusPaymentRequired: vm.BadCredentials, http.StatusUnprocessableEntity: vm.InvalidAnywhere},
	}
}

// features says what Shadeform cannot do.
func features() cloud.Features {
	const off = "machines of Shadeform cannot be stopped, only given back"
	return cloud.Features{
		MaxNameLength: maxName,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop: off, cloud.FeatureAutostop: off,
			cloud.FeatureAutodown:  "machines of Shadeform cannot give themselves back",
			cloud.FeatureMultiNode: "machines of Shadeform reach each other in some of its clouds only",
			cloud.FeatureImage:     "sky starts an image of Shadeform's own",
			cloud.FeatureDocker:    "containers do not run on Shadeform's machines yet",
			cloud.FeatureDiskTier:  "a machine of Shadeform has the disk of its type",
			cloud.FeatureNetTier:   "a machine of Shadeform has the network of its type",
			cloud.FeatureLocalDisk: "a machine of Shadeform has the disk of its type",
			cloud.FeatureCloneDisk: "Shadeform cannot copy disks",
		},
	}
}

// live are what the clouds behind Shadeform have now.
func live(ctx context.Context, c *rest.Client) ([]cloud.Offer, error) {
	all, err := types(ctx, c)
	return fetch.Offers(Name, fetch.ShadeformRows(all)), err
}

func types(ctx context.Context, c *rest.Client) ([]fetch.ShadeformType, error) {
	found, err := rest.Do[struct {
		Types []fetch.ShadeformType `json:"instance_types"`
	}](ctx, c, "GET", "/instances/types", nil)
	return found.Types, err
}

// room is the kind of machine that an offer is of. It is a CapacityError if the region
// has none, or only dearer ones than were planned with.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) (found fetch.ShadeformType, err error) {
	all, err := types(ctx, c)
	if err != nil {
		return found, err
	}
	i := slices.IndexFunc(all, func(t fetch.ShadeformType) bool { return t.Name() == o.InstanceType })
	if i < 0 {
		return found, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Shadeform has no type %q, such as hyperstack_A6000", o.InstanceType)}
	}
	price, now := all[i].Price(o.Region, o.Spot)
	switch {
	case !all[i].In(o.Region):
		return found, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Shadeform has no %s in %s", o.InstanceType, o.Region)}
	case !now:
		return found, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Shadeform has no %s there now", o.InstanceType)}
	}
	return all[i], vm.RoseLive("Shadeform", o, price)
}

func valid(spec cloud.LaunchSpec) error {
	if spec.Nodes > 1 {
		return fmt.Errorf("a cluster on Shadeform has one node")
	}
	if err := vm.Plain("Shadeform", maxName, spec); err != nil {
		return err
	}
	_, err := script(spec.Ports)
	return err
}

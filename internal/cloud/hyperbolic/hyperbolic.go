// Package hyperbolic rents GPUs of machines on Hyperbolic's market.
//
// What is free now is asked for plans and again before a launch. Hyperbolic chooses the
// cheapest machine that fits; where that is, nobody is asked. The tags of package cloud
// are in the metadata that an instance has from the moment it exists. Hyperbolic has no
// idempotency tokens, so a call whose answer was lost is not made again before lists can be
// believed.
//
// Source: docs.hyperbolic.xyz/docs/marketplace-api, and the client of its makers.
package hyperbolic

import (
	"context"
	"errors"
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
const Name = "hyperbolic"

// maxName is the longest name of a cluster.
const maxName = 100

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Hyperbolic.
type Provider struct {
	*vm.Provider
	vm.Probed
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.hyperbolic.xyz", Poll: 10 * time.Second, Timeout: 20 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: "Hyperbolic", Can: features(), Probe: "/v1/marketplace/instances", Live: live,
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".hyperbolic/api_key", Format: keyfile.Text, Names: []string{"api_key"}, Home: o.Home,
				Fix: "make an API key at https://app.hyperbolic.xyz/settings and write it into ~/.hyperbolic/api_key",
			},
			Tuning: o, REST: rest.Options{Cloud: "Hyperbolic"},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["api_key"]) },
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		_, _, err := room(ctx, c, o)
		return nodes == 1, err
	}}}
	p.Refusals = refusals(p.Fix)
	p.Provider = vm.New(driver{Provider: p, Refusals: p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: valid, NoTokens: true,
		Limits: map[string]time.Duration{
			"creating": o.Timeout / 2, "pending": o.Timeout / 2, "starting": o.Timeout * 3 / 4, "restarting": o.Timeout * 3 / 4, "unknown": o.Timeout / 2, "busy": o.Timeout / 2, "offline": o.Timeout / 2,
		},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// funds is what Hyperbolic says to those who have none.
const funds = "insufficient funds"

const billing = "add credit at https://app.hyperbolic.xyz/billing, then: sky check hyperbolic"

// refusals are statuses with texts: Hyperbolic has no codes.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: "Hyperbolic", Fix: fix, Fixes: map[string]string{"402": billing, funds: billing},
		Texts: []vm.Text{
			{Holds: "no available", Means: vm.Full}, {Holds: "not available", Means: vm.Full}, {Holds: "insufficient capacity", Means: vm.Full}, {Holds: "already reserved", Means: vm.Full},
			{Holds: "quota", Means: vm.OverQuotaAll}, {Holds: "limit", Means: vm.OverQuotaAll}, {Holds: funds, Means: vm.BadCredentials},
		},
		Statuses: map[int]vm.Meaning{http.StatusBadRequest: vm.Invalid, http.StatusPaymentRequired: vm.BadCredentials, http.StatusUnprocessableEntity: vm.InvalidAnywhere},
	}
}

// features says what Hyperbolic cannot do.
func features() cloud.Features {
	const off = "machines of Hyperbolic cannot be stopped, only given back"
	return cloud.Features{
		MaxNameLength: maxName,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop: off, cloud.FeatureAutostop: off,
			cloud.FeatureAutodown:  "machines of Hyperbolic cannot give themselves back",
			cloud.FeatureMultiNode: "machines of Hyperbolic have no network between them",
			cloud.FeatureSpot:      "Hyperbolic has no spot machines",
			cloud.FeatureImage:     "sky starts Hyperbolic's own image",
			cloud.FeatureDocker:    "containers do not run on Hyperbolic's machines yet",
			cloud.FeatureDiskTier:  "a machine of Hyperbolic has one kind of disk",
			cloud.FeatureNetTier:   "a machine of Hyperbolic has one kind of network",
			cloud.FeatureLocalDisk: "a machine of Hyperbolic has one kind of disk",
			cloud.FeaturePorts:     "Hyperbolic lets ssh in, and nothing else; use: ssh -L",
			cloud.FeatureStorage:   "it is not known whether buckets can be mounted on its machines; they can be copied (mode: COPY)",
			cloud.FeatureCloneDisk: "Hyperbolic cannot copy disks",
		},
	}
}

// live are the machines of the market that are free now.
func live(ctx context.Context, c *rest.Client) ([]cloud.Offer, error) {
	nodes, err := market(ctx, c)
	return fetch.Offers(Name, fetch.HyperbolicRows(nodes)), err
}

func market(ctx context.Context, c *rest.Client) ([]fetch.HyperbolicNode, error) {
	found, err := rest.Do[struct {
		Instances []fetch.HyperbolicNode `json:"instances"`
	}](ctx, c, "POST", "/v1/marketplace", map[string]any{"filters": map[string]any{}})
	return found.Instances, err
}

// room is how many GPUs of which model an offer is of. It is a CapacityError if no machine
// has so many, or only dearer ones than were planned with.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) (model string, count int, err error) {
	if o.Region != "" && o.Region != fetch.HyperbolicRegion {
		return "", 0, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Hyperbolic has one region, %s", fetch.HyperbolicRegion)}
	}
	nodes, err := market(ctx, c)
	if err != nil {
		return "", 0, err
	}
	for _, n := range nodes {
		for _, gpu := range n.Hardware.GPUs {
			for i := 1; i <= n.Total; i *= 2 {
				if fetch.HyperbolicType(i, gpu.Model) == o.InstanceType {
					model, count = gpu.Model, i
				}
			}
		}
	}
	if model == "" {
		return "", 0, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Hyperbolic has no type %q, such as 1x-NVIDIA-H100-80GB-HBM3", o.InstanceType)}
	}
	rows := slices.DeleteFunc(fetch.HyperbolicRows(nodes), func(r fetch.Row) bool { return r.InstanceType != o.InstanceType })
	if len(rows) == 0 {
		return "", 0, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Hyperbolic has no %s now", o.InstanceType)}
	}
	return model, count, vm.RoseLive("Hyperbolic", o, rows[0].Price)
}

func valid(spec cloud.LaunchSpec) error {
	switch {
	case spec.Nodes > 1:
		return errors.New("a cluster on Hyperbolic has one node")
	case spec.Offer.Spot:
		return errors.New("Hyperbolic has no spot machines")
	case len(spec.Ports) > 0:
		return errors.New("Hyperbolic opens no ports")
	}
	return vm.Plain("Hyperbolic", maxName, spec)
}

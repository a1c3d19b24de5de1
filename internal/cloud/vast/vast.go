// Package vast rents containers on Vast, a market of strangers' machines.
//
// An offer is one machine. What is offered now is asked for plans and again before a
// launch, and only what passes the settings counts: verified, reliable, fast enough. A
// machine that somebody else has taken meanwhile costs a call, and the next best is asked
// for.
//
// Instances have no tags, and their labels are not unique: a label says whose an
// instance is, and what was asked for without an answer is not asked for again before
// lists can be believed.
//
// Source: the Vast API, docs.vast.ai/api-reference.
package vast

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "vast"

// names are the labels of instances.
var names = vm.Names{Max: 120}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Vast.
type Provider struct {
	vm.StopPortProvider
	vm.Probed
}

const billing = "add credit at https://cloud.vast.ai/billing, then: sky check vast"

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{
		Endpoint: "https://console.vast.ai/api", Poll: 10 * time.Second, Timeout: 20 * time.Minute,
		Paces: []rest.Pace{ // of the reference, each for its own calls
			{Method: "PUT", Path: "/v0/asks/", Every: 4500 * time.Millisecond}, {Method: "POST", Path: "/v0/bundles/", Every: 6 * time.Second, Burst: 5},
			{Method: "PUT", Path: "/v0/instances/", Every: time.Second}, {Method: "DELETE", Path: "/v0/instances/", Every: 3 * time.Second},
		},
	})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: "Vast", Can: features(),
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".config/vastai/vast_api_key", Format: keyfile.Text, Names: []string{"api_key"}, Home: o.Home,
				Fix: "make an API key at https://cloud.vast.ai/manage-keys and run: vastai set api-key KEY, or write it into ~/.config/vastai/vast_api_key",
			},
			Tuning: o, REST: rest.Options{Cloud: "Vast"},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["api_key"]) },
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		_, err := room(ctx, c, cloud.LaunchSpec{Offer: o})
		return nodes == 1, err
	}}}
	p.Refusals, p.Who = refusals(p.Fix), p.who
	p.StopProvider = vm.NewStopping(driver{Provider: p, Refusals: p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: valid, NoTokens: true,
		Limits: map[string]time.Duration{
			provisioning: o.Timeout / 2, "loading": o.Timeout * 3 / 4, scheduling: o.Timeout / 10, "offline": o.Timeout / 10, "unknown": o.Timeout / 10, "frozen": o.Timeout / 10,
		},
		PortsLater: "an instance keeps the ports that it was launched with; launch it anew with them",
		Timeout:    o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusals are Vast's codes and, where those say too little, its texts.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: "Vast", Fix: fix, Fixes: map[string]string{"insufficient_credit": billing, "missing_billing": billing},
		Codes: map[string]vm.Meaning{
			"auth_error": vm.BadCredentials, "insufficient_credit": vm.BadCredentials, "missing_billing": vm.BadCredentials,
			"no_such_ask": vm.Full, "invalid_price": vm.Full, unavailable: vm.Full, // the bid is too low by now
			"no_such_instance": vm.NotThere, "not_found": vm.NotThere, "rate_limit_exceeded": vm.Throttled,
			"no_ssh_key_for_vm": vm.InvalidAnywhere, "label_too_long": vm.InvalidAnywhere, "invalid_request": vm.InvalidAnywhere,
		},
		Texts:    []vm.Text{{Holds: "no_such_ask", Means: vm.Full}, {Holds: "is not available", Means: vm.Full}, {Holds: "too frequent", Means: vm.Throttled}},
		Statuses: map[int]vm.Meaning{http.StatusBadRequest: vm.Invalid, http.StatusGone: vm.Full},
	}
}

// features says what Vast cannot do.
func features() cloud.Features {
	const alone = "a container on Vast cannot switch itself off"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(), Containers: true, PriceStays: true,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutostop: alone, cloud.FeatureAutodown: alone,
			cloud.FeatureMultiNode: "machines of Vast do not reach each other",
			cloud.FeatureImage:     "an instance starts from a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  "a machine of Vast has one kind of disk (see vast.min_disk_bandwidth)",
			cloud.FeatureNetTier:   "a machine of Vast has one network (see vast.min_bandwidth)",
			cloud.FeatureLocalDisk: "a machine of Vast has one kind of disk",
			cloud.FeatureStorage:   "containers on Vast cannot mount buckets",
			cloud.FeatureCloneDisk: "Vast cannot copy disks",
		},
	}
}

// Offers are those that pass the standard settings.
func (p *Provider) Offers(ctx context.Context) ([]cloud.Offer, error) { return p.OffersWith(ctx, nil) }

// OffersWith are the kinds of machines that pass the settings, each with the price of the
// machine that would be taken.
func (p *Provider) OffersWith(ctx context.Context, settings map[string]any) ([]cloud.Offer, error) {
	c, _, err := p.API()
	if err != nil {
		return nil, err
	}
	want := wanted(settings)
	var rows []fetch.Row
	for _, spot := range []bool{false, true} {
		asks, err := search(ctx, c, want.Query(spot, mostOffers))
		if err != nil {
			return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
		}
		rows = append(rows, fetch.VastRows(asks, spot)...)
	}
	return fetch.Offers(Name, rows), nil
}

// who asks whose the key is.
func (p *Provider) who(ctx context.Context, c *rest.Client, _ map[string]string) (cloud.Identity, error) {
	who, err := rest.Do[struct {
		ID              json.Number
		Username, Email string
	}](ctx, c, "GET", "/v0/users/current/", nil)
	return cloud.Identity{"the account " + who.ID.String(), cmp.Or(who.Email, who.Username, "the key "+p.CredentialStamp())}, err
}

func valid(spec cloud.LaunchSpec) error {
	if spec.Nodes > 1 {
		return errors.New("machines of Vast do not reach each other: a cluster has one node")
	}
	if err := vm.Plain("Vast", names.MaxCluster(), spec); err != nil {
		return err
	}
	_, err := environment(spec.Ports)
	return err
}

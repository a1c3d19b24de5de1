// Package mithril rents machines on Mithril, which was Foundry.
//
// Mithril sells by auction: a bid says what a machine may cost at most, and whoever bids
// enough pays what the highest loser would have. Each node of a cluster is a bid of its own
// for one machine, whose name says whose it is and which rank it has. There are no
// idempotency tokens, so what was asked for without an answer is not asked for again before
// lists can be believed. A bid stays open when it is outbid, and whoever
// pauses it keeps its disk.
//
// Source: the Mithril Compute API, version 2, and its documentation.
package mithril

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name, displayName = "mithril", "Mithril"

// names are those of bids.
var names = vm.Names{Max: 60}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Mithril.
type Provider struct {
	vm.StopProvider
	vm.Probed
	taken sync.Map // why the machines of bids were taken back that were cancelled for that, by bid
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.mithril.ai", Poll: 10 * time.Second, Timeout: 40 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{Label: displayName, Can: features(), Who: who, Live: live, Account: vm.Account{
		File: keyfile.File{
			Cloud: Name, Path: ".config/mithril/config.yaml", XDG: true, Format: keyfile.YAML, Names: []string{"api_key", "project_id"}, Home: o.Home,
			Profile: "current_profile", ProfileEnv: "MITHRIL_PROFILE", Env: map[string]string{"api_key": "MITHRIL_API_KEY", "project_id": "MITHRIL_PROJECT"},
			Fix: "make an API key at https://app.mithril.ai/account/apikeys and write the lines \"api_key: KEY\" and \"project_id: PROJECT\" into ~/.config/mithril/config.yaml",
		},
		Tuning: o, REST: rest.Options{Cloud: displayName, Refusal: rest.ReadDetails, Timeout: 2 * time.Minute},
		Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["api_key"]) },
	}}, Room: available}}
	p.Refusals = refusals(p.Fix)
	p.StopProvider = vm.NewStopping(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, NoTokens: true, EndingHolds: true,
		Limits: map[string]time.Duration{
			bidOpen: o.Timeout / 4, bidAllocated: o.Timeout / 2, "STATUS_NEW": o.Timeout / 2, "STATUS_CONFIRMED": o.Timeout / 2, "STATUS_INITIALIZING": o.Timeout * 3 / 4, "STATUS_STARTING": o.Timeout * 3 / 4,
		},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusals are statuses with texts: the reference has no codes.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix, Fixes: map[string]string{"402": "settle the account at https://app.mithril.ai (Billing), then: sky check mithril"},
		Texts: []vm.Text{
			{Holds: "quota", Means: vm.OverQuotaAll}, {Holds: "limit exceeded", Means: vm.OverQuotaAll},
			{Holds: "capacity", Means: vm.Full}, {Holds: "not available", Means: vm.Full}, {Holds: "minimum price", Means: vm.Full}, {Holds: "below the", Means: vm.Full},
			{Holds: "already terminated", Means: vm.NotThere}, {Holds: "already ended", Means: vm.NotThere}, {Holds: "already paused", Means: vm.Moved}, {Holds: "already used", Means: vm.Moved}, {Holds: "not paused", Means: vm.Moved},
		},
		Statuses: map[int]vm.Meaning{
			http.StatusBadRequest: vm.Invalid, http.StatusPaymentRequired: vm.BadCredentials, http.StatusUnprocessableEntity: vm.Invalid, http.StatusConflict: vm.Moved,
		},
	}
}

// features says what Mithril, or this provider, cannot do.
func features() cloud.Features {
	const off = "a machine of Mithril that switches itself off stays rented: only its bid can be paused"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutostop: off, cloud.FeatureAutodown: off,
			cloud.FeaturePorts:     "Mithril's API opens no ports",
			cloud.FeatureImage:     "sky starts Mithril's own image; for others use a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  "a machine of Mithril has the disk of its type",
			cloud.FeatureNetTier:   "a machine of Mithril has the network of its type",
			cloud.FeatureLocalDisk: "a machine of Mithril has the disk of its type",
			cloud.FeatureCloneDisk: "Mithril cannot copy disks",
		},
	}
}

// who asks whose the key is, and whether it has a part in the project.
func who(ctx context.Context, c *rest.Client, keys map[string]string) (cloud.Identity, error) {
	me, err := rest.Do[struct{ Email string }](ctx, c, "GET", "/v2/me", nil)
	if err == nil {
		_, err = sshKeys(ctx, c, keys["project_id"])
	}
	return cloud.Identity{me.Email + " in the project " + keys["project_id"]}, err
}

// live is what the auctions ask now.
func live(ctx context.Context, c *rest.Client) ([]cloud.Offer, error) {
	types, auctions, err := market(ctx, c)
	return fetch.Offers(Name, fetch.MithrilRows(types, auctions)), err
}

func market(ctx context.Context, c *rest.Client) (types []fetch.MithrilType, auctions []fetch.MithrilAuction, err error) {
	if types, err = rest.Do[[]fetch.MithrilType](ctx, c, "GET", "/v2/instance-types", nil); err == nil {
		auctions, err = rest.Do[[]fetch.MithrilAuction](ctx, c, "GET", "/v2/spot/availability", nil)
	}
	return types, auctions, err
}

// available reports whether a region has machines of a type now. Others may bid more.
func available(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
	_, err := room(ctx, c, o, nodes)
	return true, err
}

// room is the auction of an offer. It is a CapacityError if that has no machines, or only
// dearer ones than were planned with.
func room(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (found fetch.MithrilAuction, err error) {
	types, auctions, err := market(ctx, c)
	if err != nil {
		return found, err
	}
	types = slices.DeleteFunc(types, func(t fetch.MithrilType) bool { return t.Name != o.InstanceType })
	if len(types) == 0 {
		return found, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Mithril has no type %q, such as h100.80gb.sxm", o.InstanceType)}
	}
	auctions = slices.DeleteFunc(auctions, func(a fetch.MithrilAuction) bool {
		return a.Region != o.Region || !slices.ContainsFunc(types, func(t fetch.MithrilType) bool { return t.ID == a.Type })
	})
	for _, a := range auctions {
		if price, _ := a.Price(); a.Capacity >= nodes {
			return a, vm.Rose(displayName, o, price)
		}
	}
	if len(auctions) == 0 {
		return found, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Mithril sells no %s in %s", o.InstanceType, o.Region)}
	}
	return found, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Mithril has no %d of %s there now", nodes, o.InstanceType)}
}

func valid(spec cloud.LaunchSpec) error {
	if spec.Nodes > mostNodes {
		return fmt.Errorf("a cluster on Mithril has %d nodes at most", mostNodes)
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}

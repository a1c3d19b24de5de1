// Package primeintellect rents pods of many clouds through Prime Intellect.
//
// What there is now is asked for plans and again before a launch, which bounds its price. A
// pod's name says whose it is: Prime Intellect has no tags. It has no idempotency tokens
// either, so a call whose answer was lost is not made again before lists can be believed.
//
// Source: docs.primeintellect.ai/api-reference, and github.com/PrimeIntellect-ai/prime.
package primeintellect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "primeintellect"

// names are those of pods, before what says where they are.
var names = vm.Names{Max: 80}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Prime Intellect.
type Provider struct {
	*vm.Provider
	vm.Probed
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.primeintellect.ai/api/v1", Poll: 10 * time.Second, Timeout: 40 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: "PrimeIntellect", Can: features(), Live: live,
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".prime/config.json", Format: keyfile.YAML, Names: []string{"api_key", "team_id?"}, Home: o.Home, Env: map[string]string{"api_key": "PRIME_API_KEY", "team_id": "PRIME_TEAM_ID"},
				Fix: "run: prime login, or make an API key at https://app.primeintellect.ai/dashboard/tokens and run: prime config set-api-key",
			},
			Tuning: o, REST: rest.Options{Cloud: "Prime Intellect", Refusal: refusal},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["api_key"]) },
		},
	}, Stock: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (cloud.Stock, bool, error) {
		best, err := room(ctx, c, o)
		return cloud.StockOf(best.Stock), nodes == 1, err
	}}}
	p.Refusals, p.Who = refusals(p.Fix), p.who
	p.Provider = vm.New(driver{Provider: p, Refusals: p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: valid, NoTokens: true, EndingHolds: true,
		Limits: map[string]time.Duration{
			"PROVISIONING": o.Timeout / 2, "PENDING": o.Timeout * 3 / 4, "UNKNOWN": o.Timeout / 4, installing: o.Timeout * 9 / 10,
		},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

const billing = "add credit at https://app.primeintellect.ai/dashboard/billing, then: sky check primeintellect"

// refusals are statuses with texts: Prime Intellect has no codes.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: "Prime Intellect", Fix: fix, Fixes: map[string]string{"402": billing, "insufficient": billing, "balance": billing},
		Texts: []vm.Text{
			{Holds: "no available", Means: vm.Full}, {Holds: "not available", Means: vm.Full}, {Holds: "unavailable", Means: vm.Full}, {Holds: "out of stock", Means: vm.Full}, {Holds: "capacity", Means: vm.Full},
			{Holds: "maxprice", Means: vm.Full}, // it costs more by now
			{Holds: "quota", Means: vm.OverQuotaAll}, {Holds: "limit", Means: vm.OverQuotaAll}, {Holds: "insufficient", Means: vm.BadCredentials}, {Holds: "balance", Means: vm.BadCredentials},
		},
		Statuses: map[int]vm.Meaning{http.StatusBadRequest: vm.Invalid, http.StatusPaymentRequired: vm.BadCredentials, http.StatusUnprocessableEntity: vm.Invalid},
	}
}

// refusal reads {"errors": [{"param", "details"}]}, and the common forms.
func refusal(status int, header http.Header, body []byte) error {
	var said struct {
		Errors []struct{ Param, Details string }
	}
	if json.Unmarshal(body, &said) != nil || len(said.Errors) == 0 || status >= 500 {
		return rest.ReadError(status, header, body)
	}
	var all []string
	for _, e := range said.Errors {
		all = append(all, strings.TrimPrefix(e.Param+": "+e.Details, ": "))
	}
	return &rest.Error{Status: status, Message: strings.Join(all, "; ")}
}

// features says what Prime Intellect cannot do.
func features() cloud.Features {
	const off = "pods of Prime Intellect cannot be stopped, only given back"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop: off, cloud.FeatureAutostop: off,
			cloud.FeatureAutodown:  "pods of Prime Intellect cannot give themselves back",
			cloud.FeatureMultiNode: "pods of Prime Intellect have no network between them",
			cloud.FeatureImage:     "sky starts an image of Prime Intellect's own",
			cloud.FeatureDocker:    "containers do not run on Prime Intellect's pods yet",
			cloud.FeatureDiskTier:  "a pod has one kind of disk",
			cloud.FeatureNetTier:   "a pod has the network of its type",
			cloud.FeatureLocalDisk: "a pod has one kind of disk",
			cloud.FeaturePorts:     "Prime Intellect opens ssh, and does not say what else is let in; use: ssh -L",
			cloud.FeatureCloneDisk: "Prime Intellect cannot copy disks",
		},
	}
}

// who asks whether the key is good. Whose it is, it does not say: accounts are told apart
// by their keys, and by the team.
func (p *Provider) who(ctx context.Context, c *rest.Client, keys map[string]string) (cloud.Identity, error) {
	_, err := rest.Do[any](ctx, c, "GET", "/pods/", nil)
	who := cloud.Identity{"the key " + p.CredentialStamp()}
	if team := keys["team_id"]; team != "" {
		who = append(who, "team "+team)
	}
	return who, err
}

// live are what the clouds behind Prime Intellect have now.
func live(ctx context.Context, c *rest.Client) ([]cloud.Offer, error) {
	all, err := offers(ctx, c)
	return fetch.Offers(Name, fetch.PrimeIntellectRows(all)), err
}

// offers are all that are not of strangers' machines.
func offers(ctx context.Context, c *rest.Client) ([]fetch.PrimeOffer, error) {
	return fetch.PrimePages(func(number int) ([]fetch.PrimeOffer, int, error) {
		page, err := rest.Send[struct {
			Items []fetch.PrimeOffer `json:"items"`
			Total int                `json:"totalCount"`
		}](ctx, c, rest.Call{Method: "GET", Path: "/availability/gpus", Query: url.Values{"security": {"secure_cloud"}, "page_size": {"100"}, "page": {strconv.Itoa(number)}}})
		return page.Items, page.Total, err
	})
}

// room is the cheapest pod that an offer is of. It is a CapacityError if the region has
// none, or only dearer ones than were planned with.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) (best fetch.PrimeOffer, err error) {
	all, err := offers(ctx, c)
	if err != nil {
		return best, err
	}
	known, here, least := false, false, 0.0
	for _, a := range all {
		if a.Name() != o.InstanceType || a.Spot != o.Spot {
			continue
		}
		known, here = true, here || a.Place() == o.Region
		if price, ok := a.Price(0); ok && a.Place() == o.Region && a.Now() && a.Image() != "" && (least == 0 || price < least) {
			best, least = a, price
		}
	}
	switch {
	case !known:
		return best, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Prime Intellect has no type %q, such as hyperstack_1x_H100_80GB_PCIe, or has it as the other of spot and on demand only", o.InstanceType)}
	case !here:
		return best, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Prime Intellect has no %s in %s", o.InstanceType, o.Region)}
	case least == 0:
		return best, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Prime Intellect has no %s there now", o.InstanceType)}
	}
	return best, vm.RoseLive("Prime Intellect", o, least)
}

func valid(spec cloud.LaunchSpec) error {
	switch {
	case spec.Nodes > 1:
		return errors.New("a cluster on Prime Intellect has one node")
	case len(spec.Ports) > 0:
		return errors.New("sky cannot open ports on Prime Intellect")
	}
	return vm.Plain("Prime Intellect", names.MaxCluster(), spec)
}

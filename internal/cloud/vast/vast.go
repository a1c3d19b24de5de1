// Package vast rents containers on Vast, a market of strangers' machines.
//
// An offer is one machine. What is offered now is asked for plans and again before a
// launch, and only what passes the settings counts: verified, reliable, fast enough. A
// machine that somebody else has taken meanwhile costs a call, and the next best is asked
// for.
//
// Instances have no tags, and their labels are not unique: a label tells whose an
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
	"fmt"
	"net/http"
	"strings"
	"time"

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
	vm.StopProvider
	vm.Account
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
	p := &Provider{Account: vm.Account{
		File: keyfile.File{
			Cloud: Name, Path: ".config/vastai/vast_api_key", Format: keyfile.Text, Names: []string{"api_key"}, Home: o.Home,
			Fix: "make an API key at https://cloud.vast.ai/manage-keys and run: vastai set api-key KEY, or write it into ~/.config/vastai/vast_api_key",
		},
		Tuning: o, REST: rest.Options{Cloud: "Vast", Refusal: refusal},
		Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["api_key"]) },
	}}
	p.StopProvider = vm.NewStopping(driver{p, refusals(p.Fix)}, vm.Options{
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

// refusal reads {"success": false, "error": "code", "msg": "text"}.
func refusal(status int, header http.Header, body []byte) error {
	var said struct{ Error, Msg, Message, Detail string }
	if status < 500 && json.Unmarshal(body, &said) == nil && said.Error+said.Msg+said.Message+said.Detail != "" {
		return &rest.Error{Status: status, Code: said.Error, Message: cmp.Or(said.Msg, said.Message, said.Detail)}
	}
	return rest.ReadError(status, header, body)
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "Vast" }

// Features says what Vast cannot do.
func (p *Provider) Features() cloud.Features {
	const alone = "a container on Vast cannot switch itself off; use: sky stop, or sky down"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(), Containers: true,
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

// Check asks whose the key is.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	c, _, err := p.API()
	if err != nil {
		return nil, err
	}
	who, err := rest.Do[struct {
		ID              json.Number
		Username, Email string
	}](ctx, c, "GET", "/v0/users/current/", nil)
	if err != nil {
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	return cloud.Identity{"the account " + who.ID.String(), cmp.Or(who.Email, who.Username, "the key "+p.CredentialStamp())}, nil
}

// Offers are those that pass the standard settings.
func (p *Provider) Offers(ctx context.Context) ([]cloud.Offer, error) {
	return p.OffersWith(ctx, nil)
}

// OffersWith are the kinds of machines that pass the settings, each with the price of the
// machine that would be taken.
func (p *Provider) OffersWith(ctx context.Context, settings map[string]any) ([]cloud.Offer, error) {
	c, _, err := p.API()
	if err != nil {
		return nil, err
	}
	want := wishes(settings)
	all := []cloud.Offer{} // nil would say that a price list knows better
	for _, spot := range []bool{false, true} {
		asks, err := search(ctx, c, want.query(spot, defaultDiskGB, mostOffers))
		if err != nil {
			return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
		}
		all = append(all, kinds(asks, spot)...)
	}
	return all, nil
}

// Available tells whether there is such a machine now that passes the standard settings.
func (p *Provider) Available(ctx context.Context, o cloud.Offer, nodes int) (cloud.Availability, error) {
	a := cloud.Availability{Verdict: cloud.AvailabilityUnknown, At: time.Now()}
	c, _, err := p.API()
	if err != nil {
		return a, err
	}
	_, err = room(ctx, c, cloud.LaunchSpec{Offer: o})
	var full *cloud.CapacityError
	switch {
	case errors.As(err, &full):
		a.Verdict, a.Reason, err = cloud.AvailableNone, full.Err.Error(), nil
	case err == nil && nodes == 1:
		a.Verdict = cloud.AvailableNow
	}
	return a, p.Refused(ctx, o.Place, err)
}

// OpenPorts is success for ports that an instance was made with.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	return vm.PortProvider{Provider: p.Provider}.OpenPorts(ctx, id, ports)
}

// Endpoints are where the ports of the instance are reached.
func (p *Provider) Endpoints(ctx context.Context, id cloud.ClusterID, ports []int) (at map[int]string, why string, err error) {
	return vm.PortProvider{Provider: p.Provider}.Endpoints(ctx, id, ports)
}

func valid(spec cloud.LaunchSpec) error {
	switch name := spec.ID.Name; {
	case len(name) > names.MaxCluster() || !vm.PlainName(name):
		return fmt.Errorf("a cluster's name on Vast has 1 to %d small letters, digits and dashes, and this one is %q", names.MaxCluster(), name)
	case len(strings.Fields(spec.AuthorizedKey)) < 2:
		return errors.New("an instance on Vast needs a public ssh key")
	case spec.Nodes > 1:
		return errors.New("machines of Vast do not reach each other: a cluster has one node")
	}
	_, err := environment(spec.Ports)
	return err
}

// Package do rents droplets on DigitalOcean.
//
// Droplets' names are not unique, and creations have no tokens: a name says whose a
// droplet is and which rank it has, and what was asked for without an answer is not asked
// for again before lists can be believed. DigitalOcean keeps tags as things of the account
// that outlive what carries them, so only labels become tags.
//
// Source: the DigitalOcean API, version 2.
package do

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "do"

const displayName = "DigitalOcean"

// names are those of droplets.
var names = vm.Names{Max: 255}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on DigitalOcean.
type Provider struct {
	vm.StopProvider
	vm.Probed
	asked sync.Map // when droplets were first told to shut down, by id
}

// What DigitalOcean allows: 250 calls a minute, and 5000 an hour of which longBurst may
// be made at once.
const (
	callEvery = time.Minute / 250
	longBurst = 250
	longEvery = time.Hour / (5000 - longBurst)
)

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{
		Endpoint: "https://api.digitalocean.com/v2", Poll: 5 * time.Second, Timeout: 20 * time.Minute,
		Paces: []rest.Pace{{Every: callEvery}, {Every: longEvery, Burst: longBurst}},
	})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: displayName, Can: features(), Who: who,
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".config/doctl/config.yaml", XDG: true, Others: []string{"Library/Application Support/doctl/config.yaml"}, Format: keyfile.YAML,
				Names: []string{"access-token?", "auth-contexts.*?"}, OneOf: []string{"access-token", "auth-contexts.*"}, Env: map[string]string{"access-token": "DIGITALOCEAN_ACCESS_TOKEN"}, Home: o.Home,
				Fix: "make a token at https://cloud.digitalocean.com/account/api/tokens and run: doctl auth init, or write the line \"access-token: TOKEN\" into ~/.config/doctl/config.yaml",
			},
			Tuning: o, REST: rest.Options{Cloud: displayName, Refusal: refusal},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(token(keys)) },
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		_, known, err := room(ctx, c, o)
		return known && nodes == 1, err
	}}}
	p.Refusals = refusals(p.Fix)
	p.StopProvider = vm.NewStopping(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, NoTokens: true,
		Limits:  map[string]time.Duration{"new": o.Timeout / 2},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle, EachTakes: 3 * callEvery,
	})
	return p
}

// token is that of doctl's default context, else of the first of the others. The default
// is among those, too, with "true" in place of its token.
func token(keys map[string]string) string {
	all := append([]string{keys["access-token"]}, strings.Fields(keys["auth-contexts.*"])...)
	if i := slices.IndexFunc(all, func(t string) bool { return t != "" && t != "true" }); i >= 0 {
		return all[i]
	}
	return ""
}

// refusal reads DigitalOcean's form of a refusal: {"id": "forbidden", "message": "..."}.
func refusal(status int, header http.Header, body []byte) error {
	var answer struct{ ID, Message string }
	if status >= http.StatusInternalServerError || json.Unmarshal(body, &answer) != nil || answer.ID == "" {
		return rest.ReadError(status, header, body)
	}
	return &rest.Error{Status: status, Code: answer.ID, Message: answer.Message}
}

// refusals are DigitalOcean's words. Most of what is refused has the one code
// "unprocessable_entity", and only the text says why.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix,
		Fixes: map[string]string{"402": "settle the account at https://cloud.digitalocean.com/account/billing, then: sky check do"},
		Codes: map[string]vm.Meaning{
			"unauthorized": vm.BadCredentials, "forbidden": vm.Forbidden, "not_found": vm.NotThere, "too_many_requests": vm.Throttled, "conflict": vm.InUse,
			"server_error": vm.NoAnswer, "service_unavailable": vm.NoAnswer,
		},
		Texts: []vm.Text{
			{Holds: "droplet limit", Means: vm.OverQuotaAll}, {Holds: "limit exceeded", Means: vm.OverQuotaAll}, {Holds: "volume limit", Means: vm.OverQuotaAll},
			{Holds: "not available in this region", Means: vm.Full}, {Holds: "currently unavailable", Means: vm.Full}, {Holds: "is not available", Means: vm.Full},
			{Holds: "pending event", Means: vm.Moved}, {Holds: "already powered", Means: vm.Moved}, {Holds: "droplet is already", Means: vm.Moved}, {Holds: "is currently off", Means: vm.Moved},
			{Holds: "invalid region", Means: vm.InvalidInRegion}, {Holds: "invalid size", Means: vm.InvalidAnywhere}, {Holds: "invalid image", Means: vm.InvalidAnywhere},
			{Holds: "attached volume", Means: vm.InUse},
		},
		Statuses: map[int]vm.Meaning{http.StatusPaymentRequired: vm.BadCredentials, http.StatusUnprocessableEntity: vm.Invalid, http.StatusPreconditionFailed: vm.Moved},
	}
}

// features says what DigitalOcean cannot do.
func features() cloud.Features {
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutostop:  "a droplet that is off costs what one that is on does",
			cloud.FeatureAutodown:  "droplets cannot destroy themselves",
			cloud.FeatureSpot:      "DigitalOcean sells no spot machines",
			cloud.FeatureDiskTier:  "DigitalOcean has one kind of disk",
			cloud.FeatureNetTier:   "DigitalOcean has one kind of network",
			cloud.FeatureLocalDisk: "DigitalOcean has one kind of disk",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

type account struct {
	Account struct {
		UUID   string `json:"uuid"`
		Email  string `json:"email"`
		Status string `json:"status"`
		Reason string `json:"status_message"`
		Team   struct {
			UUID string `json:"uuid"`
			Name string `json:"name"`
		} `json:"team"`
	} `json:"account"`
}

// who asks whose the token is.
func who(ctx context.Context, c *rest.Client, _ map[string]string) (cloud.Identity, error) {
	answer, err := rest.Do[account](ctx, c, "GET", "/account", nil)
	switch a := answer.Account; {
	case a.Status == "locked":
		return nil, &cloud.AuthError{Cloud: Name, Fix: "unlock the account at https://cloud.digitalocean.com, then: sky check do", Err: fmt.Errorf("the account is locked: %s", a.Reason)}
	case a.Team.UUID != "":
		return cloud.Identity{"the team " + a.Team.Name + " (" + a.Team.UUID + ")"}, err
	default:
		return cloud.Identity{a.Email + " (" + a.UUID + ")"}, err
	}
}

// OpenPorts has nothing to open: droplets without a firewall are open to the world.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, _ []string) error {
	return p.Known(ctx, id)
}

// size is what the API tells of one.
type size struct {
	Slug    string   `json:"slug"`
	DiskGB  int      `json:"disk"`
	Price   float64  `json:"price_hourly"`
	Regions []string `json:"regions"` // where there are droplets of it now
}

// room is the size of an offer, and whether its region is known to have it. It returns a
// CapacityError if that has none.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) (s size, known bool, err error) {
	sizes, err := list[size](ctx, c, "sizes", "/sizes", nil)
	if err != nil {
		return s, false, err
	}
	i := slices.IndexFunc(sizes, func(s size) bool { return s.Slug == o.InstanceType })
	if i < 0 {
		return s, false, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("DigitalOcean has no size %q", o.InstanceType)}
	}
	s = sizes[i]
	slices.Sort(s.Regions)
	switch exists := slices.ContainsFunc(sizes, func(s size) bool { return slices.Contains(s.Regions, o.Region) }); {
	case slices.Contains(s.Regions, o.Region):
		return s, true, vm.Rose(displayName, o, s.Price)
	case len(s.Regions) == 0:
		return s, false, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("DigitalOcean has no %s in any region now", s.Slug)}
	case exists:
		return s, false, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("DigitalOcean has no %s there now; it has some in %s", s.Slug, strings.Join(s.Regions, ", "))}
	}
	return s, false, nil // a region that is full is in no list: the creation tells
}

func valid(spec cloud.LaunchSpec) error {
	for k, v := range spec.Labels {
		if why := facts.Of(Name).Label(k, v); why != "" {
			return fmt.Errorf("the label %q cannot be a tag on DigitalOcean: %s", k, why)
		}
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}

// Package verda rents machines on Verda, which was DataCrunch.
//
// A machine's hostname says whose it is and which rank it has. Hostnames are not unique,
// so what was asked for without an answer is not asked for again before lists can be
// believed.
//
// Source: the Verda API, version 1.
package verda

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "verda"

const displayName = "Verda"

// names are the hostnames of machines.
var names = vm.Names{Max: 61}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Verda.
type Provider struct {
	*vm.Provider
	vm.Probed
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.verda.com/v1", Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: displayName, Can: features(), Who: who,
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".verda/config.json", Format: keyfile.YAML, Names: []string{"client_id", "client_secret"}, Home: o.Home,
				Env: map[string]string{"client_id": "VERDA_CLIENT_ID", "client_secret": "VERDA_CLIENT_SECRET"},
				Fix: "make credentials at https://console.verda.com (Keys, Cloud API credentials) and write {\"client_id\": \"…\", \"client_secret\": \"…\"} into ~/.verda/config.json",
			},
			Tuning: o, REST: rest.Options{Cloud: displayName, Refusal: refusal},
			Authorize: func(keys map[string]string) func(*http.Request) error {
				endpoint, err := vm.Endpoint(Name, o.Endpoint)
				if err != nil {
					return func(*http.Request) error { return err }
				}
				c := rest.New(rest.Options{Cloud: displayName, Endpoint: endpoint, Transport: o.Transport, Paces: o.Paces, Busy: o.Busy, Refusal: refusal})
				return rest.Tokens(func(ctx context.Context) (string, time.Time, error) {
					began := time.Now()
					answer, err := rest.Do[struct {
						Token string `json:"access_token"`
						Life  int    `json:"expires_in"` // seconds
					}](ctx, c, "POST", "/oauth2/token", map[string]string{"grant_type": "client_credentials", "client_id": keys["client_id"], "client_secret": keys["client_secret"]})
					return answer.Token, began.Add(time.Duration(answer.Life) * time.Second), err
				})
			},
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		return nodes == 1, room(ctx, c, o)
	}}}
	limits := vm.LimitEach(o.Timeout*3/4, "new", "ordered", "pending", "provisioning", "validating", "restoring")
	limits["error"] = o.Timeout / 10
	p.Refusals = refusals(p.Fix)
	p.Provider = vm.New(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, EndingHolds: true, NoTokens: true, Limits: limits, Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusal also reads how Verda says that there is no room: with status 503, which would
// prove nothing elsewhere.
func refusal(status int, header http.Header, body []byte) error {
	var answer struct{ Code, Message string }
	if status == http.StatusServiceUnavailable && json.Unmarshal(body, &answer) == nil && strings.Contains(strings.ToLower(answer.Message), "not enough resources") {
		return &rest.Error{Status: status, Code: answer.Code, Message: answer.Message}
	}
	return rest.ReadError(status, header, body)
}

// refusals are Verda's codes. What is wrong with a request has the one code
// "invalid_request", and only the text says what.
func refusals(fix string) vm.Refusals {
	const funds = "add funds at https://console.verda.com, then: sky check verda"
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix,
		Fixes: map[string]string{"insufficient_funds": funds, "402": funds},
		Codes: map[string]vm.Meaning{
			"unauthorized_request": vm.BadCredentials, "insufficient_funds": vm.BadCredentials, "forbidden_action": vm.Forbidden, "not_found": vm.NotThere,
			"too_many_requests": vm.Throttled, "server_error": vm.NoAnswer,
		},
		Texts: []vm.Text{
			{Holds: "not enough resources", Means: vm.Full}, {Holds: "no capacity", Means: vm.Full}, {Holds: "quota", Means: vm.OverQuota}, {Holds: "limit", Means: vm.OverQuota},
			{Holds: "insufficient funds", Means: vm.BadCredentials}, {Holds: "invalid instance type", Means: vm.InvalidAnywhere}, {Holds: "invalid location", Means: vm.InvalidInRegion},
			{Holds: "is provisioning", Means: vm.Moved}, {Holds: "wrong state", Means: vm.Moved},
		},
		Statuses: map[int]vm.Meaning{http.StatusBadRequest: vm.Invalid, http.StatusPaymentRequired: vm.BadCredentials},
	}
}

// features says what Verda, or this provider, cannot do.
func features() cloud.Features {
	const off = "Verda goes on billing a machine that is shut down, whose hardware stays reserved; use: sky down"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop: off, cloud.FeatureAutostop: off,
			cloud.FeatureAutodown:  "machines of Verda cannot end themselves",
			cloud.FeatureDiskTier:  "machines get one kind of Verda's disks",
			cloud.FeatureNetTier:   "Verda has one kind of network",
			cloud.FeatureLocalDisk: "machines get one kind of Verda's disks",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// who asks whether the credentials are good. Verda does not say whose they are: projects
// are told apart by them.
func who(ctx context.Context, c *rest.Client, keys map[string]string) (cloud.Identity, error) {
	_, err := rest.Do[any](ctx, c, "GET", "/balance", nil)
	return cloud.Identity{"the client " + keys["client_id"]}, err
}

// OpenPorts has nothing to open: machines are open to the world.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, _ []string) error {
	return p.Known(ctx, id)
}

// amount is a number, which the API also writes as a text.
type amount float64

func (a *amount) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*a = amount(v)
	return err
}

// kind is a type of machine.
type kind struct {
	Type  string `json:"instance_type"`
	Price amount `json:"price_per_hour"`
	Spot  amount `json:"spot_price"`
}

// room is why a location has no machine of an offer.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) error {
	kinds, err := rest.Do[[]kind](ctx, c, "GET", "/instance-types", nil)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.Type == o.InstanceType })
	if i < 0 {
		return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Verda has no type %q", o.InstanceType)}
	}
	query := url.Values{"location_code": {o.Region}, "is_spot": {strconv.FormatBool(o.Spot)}}
	free, err := rest.Do[bool](ctx, c, "GET", "/instance-availability/"+url.PathEscape(o.InstanceType)+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	if free {
		price := kinds[i].Price
		if o.Spot {
			price = kinds[i].Spot
		}
		return vm.Rose(displayName, o, float64(price))
	}
	locations, err := rest.Do[[]struct {
		Code string `json:"code"`
	}](ctx, c, "GET", "/locations", nil)
	if err != nil {
		return err
	}
	for _, l := range locations {
		if l.Code == o.Region {
			return &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Verda has no %s there now", o.InstanceType)}
		}
	}
	return &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Verda has no location %q", o.Region)}
}

func valid(spec cloud.LaunchSpec) error { return vm.Plain(displayName, names.MaxCluster(), spec) }

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
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Name is what users write after "infra:".
const Name = "lambda"

// maxName is the longest name of a cluster: machines are called after it and
// their rank.
const maxName = 57

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Lambda.
type Provider struct {
	*vm.Provider
	vm.Probed
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{
		Endpoint: "https://cloud.lambda.ai/api/v1", Poll: 10 * time.Second, Timeout: 20 * time.Minute,
		Paces: []rest.Pace{{Method: "POST", Path: "/instance-operations/launch", Every: launchEvery}, {Every: callEvery}},
	})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: "Lambda", Can: features(), Probe: "/instances",
		Account: vm.Account{
			File:   keyfile.File{Cloud: Name, Path: ".lambda_cloud/lambda_keys", Names: []string{"api_key"}, Fix: fix, Home: o.Home},
			Tuning: o, REST: rest.Options{Cloud: "Lambda"},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["api_key"]) },
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		known, err := room(ctx, c, o)
		return known && nodes == 1, err
	}}}
	p.Refusals = refusals
	p.Provider = vm.New(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: valid, EndingHolds: true, NoTokens: true,
		Limits:  map[string]time.Duration{"booting": o.Timeout * 9 / 10, "unhealthy": o.Timeout / 2},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle, EachTakes: launchEvery + 3*callEvery,
	})
	return p
}

// What Lambda allows: a call in so long, and a launch.
const (
	callEvery   = time.Second
	launchEvery = 12 * time.Second
)

const (
	fixAccount = "complete the account at https://cloud.lambda.ai/settings, then: sky check lambda"
	fix        = "make an API key at https://cloud.lambda.ai/api-keys and write the line \"api_key = KEY\" into ~/.lambda_cloud/lambda_keys"
)

// refusals are Lambda's codes. Those of "provider/" are about what a quota or a lack of
// resources makes impossible.
var refusals = vm.Refusals{
	Cloud: Name, DisplayName: "Lambda", Fix: fix,
	Codes: map[string]vm.Meaning{
		"instance-operations/launch/insufficient-capacity": vm.Full, "provider/*": vm.Full,
		"global/quota-exceeded": vm.OverQuotaAll, "global/account-inactive": vm.BadCredentials, "global/invalid-address": vm.BadCredentials,
		"global/invalid-parameters": vm.InvalidInRegion, "global/object-does-not-exist": vm.NotThere, "firewall-rulesets/firewall-ruleset-in-use": vm.InUse,
	},
	Fixes: map[string]string{"global/account-inactive": fixAccount, "global/invalid-address": fixAccount},
}

// features says what Lambda cannot do.
func features() cloud.Features {
	return cloud.Features{
		MaxNameLength: maxName,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop:      "Lambda's machines cannot be stopped, only given back",
			cloud.FeatureAutostop:  "Lambda's machines cannot be stopped, only given back",
			cloud.FeatureAutodown:  "Lambda's machines cannot give themselves back, and cost money when they are off",
			cloud.FeatureSpot:      "Lambda sells no spot machines",
			cloud.FeatureImage:     "sky starts Lambda's own image; for others use a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  "Lambda has one kind of disk",
			cloud.FeatureNetTier:   "Lambda has one kind of network",
			cloud.FeatureLocalDisk: "Lambda has one kind of disk",
			cloud.FeatureCloneDisk: "Lambda cannot copy disks",
		},
	}
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
		if utf8.RuneCountInString(v) > maxLabel || !labelForm.MatchString(k) || strings.HasPrefix(k, "lambda-ai-") {
			return fmt.Errorf("the label %q cannot be a tag on Lambda: a key has 2 to 55 small letters, digits, dashes and colons, begins with a letter and not with lambda-ai-, and a value has %d characters at most", k, maxLabel)
		}
	}
	if len(strings.Fields(spec.AuthorizedKey)) < 2 {
		return errors.New("a machine on Lambda needs a public ssh key")
	}
	return nil
}

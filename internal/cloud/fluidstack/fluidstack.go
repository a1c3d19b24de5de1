// Package fluidstack rents GPU machines on FluidStack.
//
// Instances have no tags, and their names are not unique: a name says whose an instance is
// and which rank it has, and what was asked for without an answer is not asked for again
// before lists can be believed.
//
// Source: the FluidStack API, version 0.1.0.
package fluidstack

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
const Name = "fluidstack"

const displayName = "FluidStack"

// names are those of instances.
var names = vm.Names{Max: 64}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on FluidStack.
type Provider struct {
	vm.StopProvider
	vm.Probed
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://platform.fluidstack.io", Poll: 10 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: displayName, Can: features(), Probe: "/instances",
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".fluidstack/api_key", Format: keyfile.Text, Names: []string{"api_key"}, Home: o.Home,
				Fix: "make an API key at https://dashboard.fluidstack.io and run: mkdir -p ~/.fluidstack && echo KEY > ~/.fluidstack/api_key",
			},
			Tuning: o, REST: rest.Options{Cloud: displayName, Refusal: refusal},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Header("api-key", keys["api_key"]) },
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		known, err := room(ctx, c, o)
		return known && nodes == 1, err
	}}}
	p.Refusals = refusals(p.Fix)
	p.StopProvider = vm.NewStopping(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, NoTokens: true,
		Limits:  map[string]time.Duration{"pending": o.Timeout / 2, "provisioning": o.Timeout * 3 / 4, "starting": o.Timeout * 3 / 4},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusal also reads how FluidStack's server refuses a body: {"detail": [{"loc", "msg"}]}.
func refusal(status int, header http.Header, body []byte) error {
	var answer struct {
		Detail []struct {
			Loc []any  `json:"loc"`
			Msg string `json:"msg"`
		} `json:"detail"`
	}
	if status >= http.StatusInternalServerError || json.Unmarshal(body, &answer) != nil || len(answer.Detail) == 0 {
		return rest.ReadError(status, header, body)
	}
	var words []string
	for _, d := range answer.Detail {
		words = append(words, strings.Trim(fmt.Sprint(d.Loc), "[]")+": "+d.Msg)
	}
	return &rest.Error{Status: status, Message: strings.Join(words, "; ")}
}

// refusals are FluidStack's words: it has no codes, so that statuses and texts tell.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix,
		Fixes: map[string]string{"402": "add credit at https://dashboard.fluidstack.io, then: sky check fluidstack"},
		Texts: []vm.Text{
			{Holds: "rate limit", Means: vm.Throttled},
			{Holds: "out of stock", Means: vm.Full}, {Holds: "not available", Means: vm.Full}, {Holds: "capacity", Means: vm.Full}, {Holds: "unavailable", Means: vm.Full},
			{Holds: "limit", Means: vm.OverQuotaAll}, {Holds: "quota", Means: vm.OverQuotaAll}, {Holds: "balance", Means: vm.BadCredentials}, {Holds: "no configuration", Means: vm.InvalidAnywhere},
			{Holds: " is stopped", Means: vm.Moved}, {Holds: " is running", Means: vm.Moved}, {Holds: " is pending", Means: vm.Moved}, {Holds: " is terminat", Means: vm.Moved},
		},
		Statuses: map[int]vm.Meaning{http.StatusPaymentRequired: vm.BadCredentials, http.StatusUnprocessableEntity: vm.Invalid},
	}
}

// features says what FluidStack, or this provider, cannot do.
func features() cloud.Features {
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutostop:  "FluidStack does not say what an instance costs that switches itself off",
			cloud.FeatureAutodown:  "instances of FluidStack cannot end themselves",
			cloud.FeatureSpot:      "FluidStack sells no spot machines",
			cloud.FeatureImage:     "sky starts FluidStack's image of Ubuntu; for others use a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  "FluidStack has one kind of disk",
			cloud.FeatureNetTier:   "FluidStack has one kind of network",
			cloud.FeatureLocalDisk: "FluidStack has one kind of disk",
			cloud.FeatureCloneDisk: "FluidStack cannot copy disks",
		},
	}
}

// OpenPorts has nothing to open: instances are open to the world.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, _ []string) error {
	return p.Known(ctx, id)
}

// parseType reads what a type of machine is to FluidStack, as "RTX_A6000_48GB::2".
func parseType(instanceType string) (gpu string, count int, err error) {
	gpu, number, _ := strings.Cut(instanceType, "::")
	if count, err = strconv.Atoi(number); err != nil || count < 1 || gpu == "" {
		return "", 0, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("%q is no type of FluidStack's machines, such as RTX_A6000_48GB::2", instanceType)}
	}
	return gpu, count, nil
}

// place is a region's id, which is also written as an object.
type place string

func (p *place) UnmarshalJSON(text []byte) error {
	var object struct{ ID, Name string }
	if json.Unmarshal(text, (*string)(p)) == nil {
		return nil
	}
	err := json.Unmarshal(text, &object)
	*p = place(cmp.Or(object.ID, object.Name))
	return err
}

// room reports whether a region is known to have such a machine. It returns a
// CapacityError if it has none: what is in no list cannot be had now.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) (known bool, err error) {
	gpu, count, err := parseType(o.InstanceType)
	if err != nil {
		return false, err
	}
	all, err := rest.Do[[]struct {
		GPU     string      `json:"gpu_type"`
		Counts  []int       `json:"gpu_counts"`
		Price   json.Number `json:"price_per_gpu_hr"` // or as text
		Regions []place     `json:"regions"`
	}](ctx, c, "GET", "/list_available_configurations", nil)
	if err != nil {
		return false, err
	}
	region := false
	for _, t := range all {
		in := slices.Contains(t.Regions, place(o.Region))
		if region = region || in; in && t.GPU == gpu && slices.Contains(t.Counts, count) {
			price, _ := t.Price.Float64()
			return len(t.Regions) == 1, vm.Rose(displayName, o, price*float64(count)) // of several regions one may have another number of GPUs
		}
	}
	if !region { // full, or there is none of that name: the creation tells
		return false, nil
	}
	return false, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("FluidStack has no %s there now", o.InstanceType)}
}

func valid(spec cloud.LaunchSpec) error { return vm.Plain(displayName, names.MaxCluster(), spec) }

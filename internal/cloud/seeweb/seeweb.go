// Package seeweb rents cloud servers, with and without GPUs, on Seeweb.
//
// A server's notes say whose it is and which rank it has; its name is Seeweb's. Notes are
// not unique and there are no idempotency tokens, so what was asked for without an answer is
// not asked for again before lists can be believed. A list does not say that a server is off:
// each of a cluster's is asked.
//
// Source: the ECS API of Seeweb, version 2, as its clients for Go and Python have it.
package seeweb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
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
const Name = "seeweb"

const displayName = "Seeweb"

// names are the notes of servers.
var names = vm.Names{Max: 120}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Seeweb.
type Provider struct {
	vm.StopProvider
	vm.Probed
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.seeweb.it/ecs/v2", Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{Label: displayName, Can: features(), Live: live, Account: vm.Account{
		File: keyfile.File{
			Cloud: Name, Path: ".seeweb_cloud/seeweb_keys", Names: []string{"api_key"}, Home: o.Home, Env: map[string]string{"api_key": "SEEWEB_API_KEY"},
			Fix: "make an API token at https://cloudcenter.seeweb.it and write the lines \"[DEFAULT]\" and \"api_key = TOKEN\" into ~/.seeweb_cloud/seeweb_keys",
		},
		Tuning: o, REST: rest.Options{Cloud: displayName, Refusal: refusal, Timeout: time.Minute},
		Authorize: func(keys map[string]string) func(*http.Request) error {
			return rest.Header("X-APITOKEN", keys["api_key"])
		},
	}}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		_, err := room(ctx, c, o)
		return nodes == 1, err // Seeweb does not say how often a plan can be activated
	}}}
	p.Refusals, p.Who = refusals(p.Fix), p.who
	p.StopProvider = vm.NewStopping(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, NoTokens: true, EndingHolds: true,
		Limits:  map[string]time.Duration{"Booting": o.Timeout * 9 / 10},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusal reads Seeweb's forms of a refusal: {"status": "error", "error_code": 42, "message":
// "…"}, also in {"error": …}.
func refusal(status int, header http.Header, body []byte) error {
	type words struct {
		Code    json.Number `json:"error_code"`
		Message string      `json:"message"`
	}
	var answer struct {
		words
		Error words `json:"error"`
	}
	err := json.Unmarshal(body, &answer)
	said := answer.words
	if said.Message == "" {
		said = answer.Error
	}
	if status >= http.StatusInternalServerError || err != nil || said.Message == "" {
		return rest.ReadError(status, header, body)
	}
	return &rest.Error{Status: status, Code: said.Code.String(), Message: said.Message}
}

// refusals are texts and statuses: the reference says nothing of the codes.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix, Fixes: map[string]string{"402": "settle the account at https://cloudcenter.seeweb.it, then: sky check seeweb"},
		Texts: []vm.Text{
			{Holds: "not available", Means: vm.Full}, {Holds: "no capacity", Means: vm.Full}, {Holds: "lack of resources", Means: vm.Full}, {Holds: "not activatable", Means: vm.Full}, {Holds: "no host", Means: vm.Full},
			{Holds: "quota", Means: vm.OverQuotaAll}, {Holds: "limit", Means: vm.OverQuotaAll}, {Holds: "maximum number", Means: vm.OverQuotaAll},
			{Holds: "in progress", Means: vm.Moved}, {Holds: "already", Means: vm.Moved}, {Holds: "not found", Means: vm.NotThere}, {Holds: "does not exist", Means: vm.NotThere},
		},
		Statuses: map[int]vm.Meaning{
			http.StatusBadRequest: vm.Invalid, http.StatusPaymentRequired: vm.BadCredentials, http.StatusUnprocessableEntity: vm.Invalid, http.StatusConflict: vm.Moved,
		},
	}
}

// call makes a call. Some refusals have the status of an answer.
func call[T any](ctx context.Context, c *rest.Client, method, path string, body any) (T, error) {
	var out T
	text, err := rest.Do[json.RawMessage](ctx, c, method, path, body)
	if err != nil || len(text) == 0 {
		return out, err
	}
	var answer struct{ Status string }
	if json.Unmarshal(text, &answer) == nil && (answer.Status == "error" || answer.Status == "failed") {
		if err := refusal(http.StatusBadRequest, nil, text); err != nil {
			return out, err
		}
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, &rest.NoAnswerError{Cloud: displayName, Err: fmt.Errorf("the answer is not what the API promises: %w", err)}
	}
	return out, nil
}

// features says what Seeweb, or this provider, cannot do.
func features() cloud.Features {
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutodown:  "servers of Seeweb cannot delete themselves",
			cloud.FeatureMultiNode: "servers of Seeweb have no private network between them",
			cloud.FeatureSpot:      "Seeweb sells no spot servers",
			cloud.FeatureImage:     "sky starts Seeweb's own Ubuntu; for others use a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  "a server of Seeweb has the disk of its plan",
			cloud.FeatureNetTier:   "Seeweb has one kind of network",
			cloud.FeatureLocalDisk: "a server of Seeweb has the disk of its plan",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// who asks whether the token is good. Seeweb does not say whose it is: accounts are told apart by
// their tokens.
func (p *Provider) who(ctx context.Context, c *rest.Client, _ map[string]string) (cloud.Identity, error) {
	_, err := call[any](ctx, c, "GET", "/servers", nil)
	return cloud.Identity{"the token " + p.CredentialStamp()}, err
}

// live are the plans that can be activated now.
func live(ctx context.Context, c *rest.Client) ([]cloud.Offer, error) {
	all, err := plans(ctx, c, "/plans/availables")
	if err != nil {
		return nil, err
	}
	return fetch.Offers(Name, fetch.SeewebRows(all)), nil
}

// plans are those of a list: all, or those that can be activated now.
func plans(ctx context.Context, c *rest.Client, path string) ([]fetch.SeewebPlan, error) {
	found, err := call[struct {
		Plans []fetch.SeewebPlan `json:"plans"`
	}](ctx, c, "GET", path, nil)
	return found.Plans, err
}

// OpenPorts has nothing to open: servers are open to the world.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, _ []string) error {
	return p.Known(ctx, id)
}

// room is the plan of an offer. It is a CapacityError if the plan cannot be activated in the
// region now, and an InvalidError if it never can.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) (plan fetch.SeewebPlan, err error) {
	named := func(p fetch.SeewebPlan) bool { return p.Name == o.InstanceType }
	now, err := plans(ctx, c, "/plans/availables")
	if err != nil {
		return plan, err
	}
	if i := slices.IndexFunc(now, named); i >= 0 && now[i].In(o.Region) {
		return now[i], vm.Rose(displayName, o, float64(now[i].Price))
	}
	all, err := plans(ctx, c, "/plans")
	if err != nil {
		return plan, err
	}
	switch i := slices.IndexFunc(all, named); {
	case i < 0:
		return plan, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Seeweb has no plan %q", o.InstanceType)}
	case !all[i].Sold(o.Region):
		return plan, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Seeweb sells no %s in %s", o.InstanceType, o.Region)}
	}
	return plan, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Seeweb has no %s there now", o.InstanceType)}
}

// image is what a server of a plan starts from: the newest Ubuntu with NVIDIA's driver for
// GPUs, else the newest without.
func image(p fetch.SeewebPlan) string {
	newest := ""
	for _, i := range p.Images {
		release, _, _ := strings.Cut(strings.TrimPrefix(i.Name, "ubuntu-"), "-")
		if _, err := strconv.Atoi(release); err != nil || !strings.HasPrefix(i.Name, "ubuntu-") || i.Active != nil && !*i.Active {
			continue
		}
		if strings.Contains(i.Name, "nvidia") == (p.GPUs > 0) && i.Name > newest {
			newest = i.Name
		}
	}
	switch {
	case newest != "":
		return newest
	case p.Default != "":
		return p.Default
	}
	return "ubuntu-2204"
}

func valid(spec cloud.LaunchSpec) error {
	if spec.Nodes > 1 {
		return fmt.Errorf("a cluster on Seeweb has one node")
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}

// Package paperspace rents machines on Paperspace.
//
// Machines have no tags, and their names are not unique: a name says whose a machine is
// and which rank it has, and what was asked for without an answer is not asked for again
// before lists can be believed. A startup script lets the user's key in, and the machines
// of a cluster have a private network of their own.
//
// Source: the Paperspace API, version 1.
package paperspace

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Name is what users write after "infra:".
const Name = "paperspace"

const displayName = "Paperspace"

// names are those of machines and of networks.
var names = vm.Names{Max: 120}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Paperspace.
type Provider struct {
	vm.StopProvider
	vm.Probed
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.paperspace.com/v1", Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: displayName, Can: features(), Who: who,
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".paperspace/config.json", Format: keyfile.YAML, Names: []string{"apiKey"}, Home: o.Home,
				Fix: "make an API key at https://console.paperspace.com (team settings, API keys) and run: pspace login, or write {\"apiKey\": \"KEY\"} into ~/.paperspace/config.json",
			},
			Tuning: o, REST: rest.Options{Cloud: displayName},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["apiKey"]) },
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		return nodes == 1, room(ctx, c, o)
	}}}
	p.Refusals = refusals(p.Fix)
	p.StopProvider = vm.NewStopping(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, NoTokens: true, Limits: vm.LimitEach(o.Timeout*3/4, "provisioning", "serviceready", "starting", "restarting", "upgrading"),
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusals are Paperspace's words. What is wrong with a request has the one code
// "BAD_REQUEST", and only the text says what.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix,
		Fixes: map[string]string{"402": "add a payment method at https://console.paperspace.com, then: sky check paperspace"},
		Codes: map[string]vm.Meaning{
			"UNAUTHORIZED": vm.BadCredentials, "FORBIDDEN": vm.Forbidden, "NOT_FOUND": vm.NotThere, "CONFLICT": vm.InUse, "TOO_MANY_REQUESTS": vm.Throttled,
			"PRECONDITION_FAILED": vm.Moved, "TIMEOUT": vm.NoAnswer, "CLIENT_CLOSED_REQUEST": vm.NoAnswer, "INTERNAL_SERVER_ERROR": vm.NoAnswer,
			"UNPROCESSABLE_CONTENT": vm.Invalid, "PAYLOAD_TOO_LARGE": vm.Invalid,
		},
		Texts: []vm.Text{
			{Holds: "out of capacity", Means: vm.Full}, {Holds: "no capacity", Means: vm.Full}, {Holds: "reached the limit", Means: vm.OverQuotaAll}, {Holds: "quota", Means: vm.OverQuotaAll},
			{Holds: "not enabled for", Means: vm.OverQuotaAll}, {Holds: "machine is currently", Means: vm.Moved}, {Holds: "region: there is no", Means: vm.InvalidInRegion}, {Holds: "invalid region", Means: vm.InvalidInRegion},
			{Holds: "not available for the template", Means: vm.InvalidAnywhere},
		},
		Statuses: map[int]vm.Meaning{http.StatusPaymentRequired: vm.BadCredentials, http.StatusBadRequest: vm.Invalid, http.StatusPreconditionFailed: vm.Moved, http.StatusUnprocessableEntity: vm.Invalid},
	}
}

// features says what Paperspace, or this provider, cannot do.
func features() cloud.Features {
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutostop:  "Paperspace does not say what a machine costs that switches itself off",
			cloud.FeatureAutodown:  "machines of Paperspace cannot end themselves",
			cloud.FeatureSpot:      "Paperspace sells no spot machines",
			cloud.FeatureImage:     "sky starts Paperspace's own images; for others use a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  "Paperspace has one kind of disk",
			cloud.FeatureNetTier:   "Paperspace has one kind of network",
			cloud.FeatureLocalDisk: "Paperspace has one kind of disk",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// who asks whose the key is. Some have no team: then it is told apart by itself.
func who(ctx context.Context, c *rest.Client, _ map[string]string) (cloud.Identity, error) {
	var session struct {
		Team struct {
			ID        string `json:"id"`
			Namespace string `json:"namespace"`
		} `json:"team"`
	}
	if err := get(ctx, c, "/auth/session", &session); err != nil || session.Team.ID == "" {
		return nil, err
	}
	return cloud.Identity{"the team " + session.Team.Namespace + " (" + session.Team.ID + ")"}, nil
}

// get decodes an answer into what v points to.
func get[T any](ctx context.Context, c *rest.Client, path string, v *T) (err error) {
	*v, err = rest.Do[T](ctx, c, "GET", path, nil)
	return err
}

// OpenPorts has nothing to open: machines are open to the world.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, _ []string) error {
	return p.Known(ctx, id)
}

// regions are Paperspace's words for places, and those of price lists.
var regions = map[string]string{"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}

// code is a region as the API calls it.
func code(region string) string {
	for c, name := range regions {
		if strings.EqualFold(name, region) {
			return c
		}
	}
	return region
}

// listed is a region as price lists call it.
func listed(code string) string {
	if name, ok := regions[strings.ToLower(code)]; ok {
		return name
	}
	return code
}

// templates are what machines start from, by their types.
var templates = []struct {
	types *lazyregexp.Regexp
	id    string
}{
	{lazyregexp.New(`^C[0-9]+$`), "t0nspur5"},
	{lazyregexp.New(`^H100x8$`), "t7vp562h"},
	{lazyregexp.New(`^H100$`), "tilqt47t"},
	{lazyregexp.New(`^A100-80Gx8$`), "tvimtol9"},
	{lazyregexp.New(`^A100(-80G)?$`), "tqqsxr6b"},
	{lazyregexp.New(`^(GPU\+|(V100(-32G)?|P4000|P5000|P6000|A4000|A5000|A6000|RTX4000|RTX5000)(x[248])?)$`), "twnlo3zj"},
}

func template(machineType string) (string, error) {
	for _, t := range templates {
		if t.types.MatchString(machineType) {
			return t.id, nil
		}
	}
	return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Paperspace has no machine type %q", machineType)}
}

// nvlink are the types whose GPUs are to be connected.
var nvlink = map[string]bool{"H100x8": true, "A100-80Gx8": true}

// sizes are those that disks have.
var sizes = []int{100, 250, 500, 1000, 2000}

const defaultDiskGB = 250

// disk is the smallest disk that has so many GB; 0: there is none.
func disk(gb int) int {
	if gb == 0 {
		gb = defaultDiskGB
	}
	for _, size := range sizes {
		if size >= gb {
			return size
		}
	}
	return 0
}

// room is why a region has no machine of an offer.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) error {
	if _, err := template(o.InstanceType); err != nil {
		return err
	}
	var answer struct {
		Available bool `json:"available"`
	}
	query := url.Values{"machineType": {o.InstanceType}, "region": {code(o.Region)}}
	if err := get(ctx, c, "/machine-availability?"+query.Encode(), &answer); err != nil {
		return err
	}
	if !answer.Available {
		return &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Paperspace has no %s there now", o.InstanceType)}
	}
	return nil
}

func valid(spec cloud.LaunchSpec) error {
	if disk(spec.DiskGB) == 0 {
		return fmt.Errorf("a disk on Paperspace has up to %d GB, not %d", sizes[len(sizes)-1], spec.DiskGB)
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}

// Package nebius rents machines on Nebius AI Cloud.
//
// A machine's name says whose it is and which rank it has. Names are unique in a project,
// of which each region has its own, so that creations are safe to repeat. Boot disks are
// things of their own, and have the names of their machines.
//
// Source: the descriptions of the API in protobuf, github.com/nebius/api.
package nebius

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/nebius/nebiusapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "nebius"

const displayName = "Nebius"

// names are those of machines, their disks and GPU clusters.
var names = vm.Names{Max: 63}

// Options change how the cloud is reached. Endpoint is the domain of the API.
type Options struct {
	vm.Tuning
	// Settings are the "nebius" section of the configuration as it is written, read at each
	// call; nil: the section is empty.
	Settings func() map[string]any
}

// Provider rents on Nebius.
type Provider struct {
	vm.StopProvider
	token, key, tenant keyfile.File
	tuning             vm.Tuning
	settings           func() map[string]any
	transport          http.RoundTripper
	clients            rest.Clients
	regions            vm.Regions
	memo               vm.Memo
	begun              sync.Map // operations that create or start machines, by the machine's id

	mu        sync.Mutex
	tokensOf  string // the stamp of the credentials that authorize is for
	authorize func(*http.Request) error
}

const keyFix = "sign in and run: nebius iam get-access-token > ~/.nebius/NEBIUS_IAM_TOKEN.txt, or for a service account: nebius iam auth-public-key generate --service-account-id ID --output ~/.nebius/credentials.json"

// New returns the provider. It does no I/O.
func New(options Options) *Provider {
	o := options.Or(vm.Tuning{Endpoint: cmp.Or(os.Getenv("NEBIUS_DOMAIN"), "api.nebius.cloud:443"), Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{
		tuning: o, settings: options.Settings, transport: nebiusapi.Transport(o.Transport),
		token: keyfile.File{Cloud: Name, Path: ".nebius/NEBIUS_IAM_TOKEN.txt", Format: keyfile.Text, Names: []string{"token"}, Home: o.Home, Fix: keyFix},
		key: keyfile.File{
			Cloud: Name, Path: ".nebius/credentials.json", Format: keyfile.YAML, Home: o.Home, Fix: keyFix,
			Names: []string{"subject-credentials.private-key", "subject-credentials.kid", "subject-credentials.sub?", "subject-credentials.iss?"}, OneOf: []string{"subject-credentials.sub", "subject-credentials.iss"},
		},
		tenant: keyfile.File{
			Cloud: Name, Path: ".nebius/NEBIUS_TENANT_ID.txt", Format: keyfile.Text, Names: []string{"tenant"}, Home: o.Home,
			Fix: "write the tenant's id, which nebius iam tenant list knows, into ~/.nebius/NEBIUS_TENANT_ID.txt",
		},
	}
	if p.settings == nil {
		p.settings = func() map[string]any { return nil }
	}
	d := driver{p, refusals()}
	p.regions = vm.Regions{
		Cloud: Name, Refusal: d.Refusal, List: d.list,
		All: func(ctx context.Context) ([]string, error) {
			all, err := p.projects(ctx)
			var regions []string
			for _, project := range all {
				regions = append(regions, project.Region())
			}
			slices.Sort(regions)
			return slices.Compact(regions), err
		},
	}
	p.memo.Changed = p.regions.Reset
	p.StopProvider = vm.NewStopping(d, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, EndingHolds: true, Limits: vm.LimitEach(o.Timeout*3/4, "CREATING", "STARTING", "UPDATING", reconciling),
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusals are the codes of gRPC, and what Nebius says more exactly in details.
func refusals() vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: keyFix,
		Codes: map[string]vm.Meaning{
			"UNAUTHENTICATED": vm.BadCredentials, "PERMISSION_DENIED": vm.Forbidden, "NOT_FOUND": vm.NotThere, "ALREADY_EXISTS": vm.Moved, "ABORTED": vm.Moved, "FAILED_PRECONDITION": vm.InUse,
			"INVALID_ARGUMENT": vm.Invalid, "OUT_OF_RANGE": vm.Invalid, "UNAVAILABLE": vm.NoAnswer, "DEADLINE_EXCEEDED": vm.NoAnswer,
			"BadRequest": vm.Invalid, "BadResourceState": vm.InUse, "ResourceNotFound": vm.NotThere, "ResourceAlreadyExists": vm.Moved, "OutOfRange": vm.Invalid, "PermissionDenied": vm.Forbidden,
			"ResourceConflict": vm.Moved, "OperationAborted": vm.Moved, "TooManyRequests": vm.Throttled, "QuotaFailure": vm.OverQuota, "NotEnoughResources": vm.Full,
		},
		Texts: []vm.Text{{Holds: "quota", Means: vm.OverQuota}, {Holds: "not enough resources", Means: vm.Full}}, // of RESOURCE_EXHAUSTED, which is also a call too many
	}
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return displayName }

// Features says what Nebius, or this provider, cannot do.
func (p *Provider) Features() cloud.Features {
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutodown:  "machines of Nebius cannot delete themselves",
			cloud.FeatureLocalDisk: "disks inside Nebius's machines are not used yet",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// projects are those of the tenant.
func (p *Provider) projects(ctx context.Context) ([]nebiusapi.Project, error) {
	c, a, err := p.client(nebiusapi.IAM)
	if err != nil {
		return nil, err
	}
	return vm.Remember(&p.memo, a.stamp, "projects", func() ([]nebiusapi.Project, error) {
		all, err := nebiusapi.List[nebiusapi.Project](ctx, c, "nebius.iam.v1.ProjectService", a.tenant)
		return slices.DeleteFunc(all, func(p nebiusapi.Project) bool { return p.Region() == "" }), err
	})
}

// Check asks for the tenant's projects.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	p.memo.Forget("projects")
	all, err := p.projects(ctx)
	a, _ := p.read()
	switch {
	case err != nil:
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	case len(all) == 0:
		return nil, &cloud.AuthError{Cloud: Name, Fix: "make a project at https://console.nebius.com, then: sky check nebius", Err: fmt.Errorf("the tenant %s has no project that the credentials can see", a.tenant)}
	}
	return cloud.Identity{"the tenant " + a.tenant}, nil
}

// Offers is nil: the price list knows.
func (p *Provider) Offers(context.Context) ([]cloud.Offer, error) { return nil, nil }

// room is how many machines of an offer there is room for, by fabric; none: nobody knows.
func (p *Provider) room(ctx context.Context, o cloud.Offer) (map[string]nebiusapi.Room, error) {
	platform, preset, err := parseType(o.InstanceType)
	if err != nil {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	c, a, err := p.client(nebiusapi.Capacity)
	if err != nil {
		return nil, err
	}
	all, err := nebiusapi.List[nebiusapi.Advice](ctx, c, "nebius.capacity.v1.ResourceAdviceService", a.tenant)
	found := map[string]nebiusapi.Room{}
	for _, i := range all {
		r := i.Status.OnDemand
		if o.Spot {
			r = i.Status.Preemptible
		}
		if i.Spec.Region == o.Region && i.Spec.Machine.Platform == platform && i.Spec.Machine.Preset.Name == preset && r.State == nebiusapi.Fresh {
			found[i.Spec.Fabric] = r
		}
	}
	return found, err
}

// Available reports whether there is room for an offer, within the quota.
func (p *Provider) Available(ctx context.Context, o cloud.Offer, nodes int) (cloud.Availability, error) {
	found, err := p.room(ctx, o)
	if err == nil {
		err = enough(o, found, nodes)
	}
	if err == nil {
		err = p.rose(ctx, o)
	}
	return p.Verdict(ctx, o.Place, len(found) > 0, err)
}

func enough(o cloud.Offer, found map[string]nebiusapi.Room, nodes int) error {
	sum, limit := 0, uint32(0)
	for _, r := range found {
		sum, limit = sum+int(r.Available), max(limit, r.Limit)
	}
	if len(found) > 0 && sum < nodes {
		return &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Nebius has room for %d of %s there now, within a quota of %d", sum, o.InstanceType, limit)}
	}
	return nil
}

// rose is a PriceError if an offer costs the tenant more now than it was planned with. What is
// not known stops nobody.
func (p *Provider) rose(ctx context.Context, o cloud.Offer) error {
	if o.HourlyPrice == 0 && o.MaxHourlyCost == 0 {
		return nil
	}
	all, err := p.projects(ctx)
	i := slices.IndexFunc(all, func(p nebiusapi.Project) bool { return p.Region() == o.Region })
	if err != nil || i < 0 {
		return nil
	}
	c, _, err := p.client(nebiusapi.Prices)
	if err != nil {
		return nil
	}
	platform, preset, _ := parseType(o.InstanceType)
	now, err := fetch.NebiusPrice(ctx, c, all[i].Metadata.ID, platform, preset, o.Spot)
	if err != nil {
		return nil
	}
	return vm.Rose(displayName, o, now)
}

// project is where a cluster is launched.
func (p *Provider) project(ctx context.Context, spec cloud.LaunchSpec) (string, error) {
	if a, err := p.read(); err == nil {
		if set := vm.Setting(spec.Settings, "tenant_id"); set != "" && set != a.tenant {
			return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("nebius.tenant_id is %s, and the credentials are used with the tenant %s; write the one to be used into ~/.nebius/NEBIUS_TENANT_ID.txt", set, a.tenant)}
		}
	}
	if set := vm.Setting(spec.Settings, "domain"); set != "" && set != p.tuning.Endpoint {
		return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("nebius.domain is %s, and the API is reached at %s; set NEBIUS_DOMAIN in the environment of the API server", set, p.tuning.Endpoint)}
	}
	if set := vm.Setting(spec.Settings, "credentials_file_path"); set != "" && set != "~/"+p.key.Path {
		return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("nebius.credentials_file_path is %s, and the API server uses ~/%s in all workspaces; put the credentials there", set, p.key.Path)}
	}
	all, err := p.projects(ctx)
	if err != nil {
		return "", err
	}
	set, region := vm.Setting(spec.Settings, "project_id"), spec.Offer.Region
	i := slices.IndexFunc(all, func(p nebiusapi.Project) bool { return p.Region() == region && (set == "" || p.Metadata.ID == set) })
	switch {
	case i >= 0:
		return all[i].Metadata.ID, nil
	case set != "":
		p.memo.Forget("projects") // it may be new
		return "", &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("nebius.region_configs: the tenant has no project %s in %s", set, region)}
	}
	return "", &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("the tenant has no project in %s; make one at https://console.nebius.com", region)}
}

// parseType reads gpu-h100-sxm_8gpu-128vcpu-1600gb.
func parseType(name string) (platform, preset string, err error) {
	platform, preset, _ = strings.Cut(name, "_")
	if platform == "" || preset == "" {
		err = fmt.Errorf("%q is no type of Nebius's, such as gpu-h100-sxm_1gpu-16vcpu-200gb", name)
	}
	return platform, preset, err
}

func valid(spec cloud.LaunchSpec) error {
	if _, _, err := parseType(spec.Offer.InstanceType); err != nil {
		return err
	}
	if spec.DiskTier == "ultra" {
		return errors.New("Nebius's disks have no tier ultra")
	}
	if spec.NetworkTier == "best" && !clusters(spec.Offer.InstanceType) {
		return fmt.Errorf("only machines of Nebius with 8 H100 or H200 have the fast network that network_tier: best asks for, and %s does not", spec.Offer.InstanceType)
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}

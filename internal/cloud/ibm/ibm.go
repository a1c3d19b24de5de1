// Package ibm rents machines on IBM Cloud, in virtual private clouds of the second
// generation.
//
// A machine's name says whose it is and which rank it has. Names are unique in a region, so
// that creations are safe to repeat. Machines are listed one region at a time.
//
// Source: IBM's references of the VPC API, version 2024-11-12, and of IAM's tokens.
package ibm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "ibm"

const displayName = "IBM"

// names are those of machines and of their addresses.
var names = vm.Names{Max: 63}

// Options change how the cloud is reached. Endpoint is of IAM.
type Options = vm.Tuning

// Provider rents on IBM Cloud.
type Provider struct {
	vm.StopProvider
	vm.Account
	regions vm.Regions
	memo    vm.Memo
	network sync.Mutex // of who looks whether there is one, and makes it
	begun   sync.Map   // ids of machines that were asked to start, and do not run yet
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://iam.cloud.ibm.com", Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{}
	p.Account = vm.Account{
		File: keyfile.File{
			Cloud: Name, Path: ".ibm/credentials.yaml", Format: keyfile.YAML, Home: o.Home, Names: []string{"iam_api_key", "resource_group_id"},
			Fix: "make a key at https://cloud.ibm.com/iam/apikeys, look up the resource group at https://cloud.ibm.com/account/resource-groups, and write into ~/.ibm/credentials.yaml:\n      iam_api_key: …\n      resource_group_id: …",
		},
		Tuning: o, REST: rest.Options{Cloud: displayName, Refusal: refusal}, Authorize: p.tokens,
		Region: func(region string) string { return url.PathEscape(region) + ".iaas.cloud.ibm.com" }, Prefix: "/v1",
	}
	d := driver{p, refusals(p.Fix)}
	p.regions = vm.Regions{Cloud: Name, Refusal: d.Refusal, All: p.available, List: d.list}
	p.memo.Changed = p.regions.Reset
	limits := map[string]time.Duration{}
	for _, status := range []string{"pending", "starting", "restarting"} {
		limits[status] = o.Timeout * 3 / 4
	}
	p.StopProvider = vm.NewStopping(d, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, EndingHolds: true, Limits: limits, Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// version is that of the API which is spoken.
const version = "2024-11-12"

// first is the region that is asked which others there are.
const first = "us-south"

// tokens authorizes calls with tokens of IAM, which a key is good for. All regions share them.
func (p *Provider) tokens(keys map[string]string) func(*http.Request) error {
	endpoint, err := vm.Endpoint(Name, p.Tuning.Endpoint)
	if err != nil {
		return func(*http.Request) error { return err }
	}
	c := rest.New(rest.Options{Cloud: displayName, Endpoint: endpoint, Host: strings.TrimPrefix(p.Tuning.Endpoint, "https://"), Transport: p.Tuning.Transport, Paces: p.Tuning.Paces, Busy: p.Tuning.Busy, Refusal: refusal})
	return rest.Tokens(func(ctx context.Context) (string, time.Time, error) {
		began := time.Now()
		answer, err := rest.Do[struct {
			Token string `json:"access_token"`
			Life  int    `json:"expires_in"` // seconds
		}](ctx, c, "POST", "/identity/token", url.Values{"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "apikey": {keys["iam_api_key"]}})
		return answer.Token, began.Add(time.Duration(answer.Life) * time.Second), err
	})
}

// refusal reads both how the VPC API and how IAM refuse.
func refusal(status int, header http.Header, body []byte) error {
	var answer struct {
		Errors []struct{ Code, Message string }
		Code   string `json:"errorCode"` // IAM's, as BXNIM0415E
		Why    string `json:"errorMessage"`
	}
	if json.Unmarshal(body, &answer) == nil && status < 500 {
		if len(answer.Errors) > 0 {
			return &rest.Error{Status: status, Code: answer.Errors[0].Code, Message: answer.Errors[0].Message}
		} else if answer.Code != "" {
			return &rest.Error{Status: status, Code: answer.Code, Message: answer.Why}
		}
	}
	return rest.ReadError(status, header, body)
}

// refusals are IBM's codes. There are very many, most of which say by their status enough:
// those that say more are here.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: displayName, Fix: fix,
		Codes: map[string]vm.Meaning{
			"BXNIM*": vm.BadCredentials, "not_authenticated": vm.BadCredentials, "unauthenticated": vm.BadCredentials, "forbidden": vm.Forbidden, "not_found": vm.NotThere,
			"over_quota": vm.OverQuota, "quota_exceeded": vm.OverQuota, "cannot_start_capacity": vm.Full, "cannot_start_placement_group": vm.Full, "insufficient_capacity": vm.Full,
			"too_many_requests": vm.Throttled, "rate_limit_exceeded": vm.Throttled, "internal_error": vm.NoAnswer, "service_error": vm.NoAnswer, "service_unavailable": vm.NoAnswer,
			"bad_field": vm.Invalid, "missing_field": vm.InvalidAnywhere, "invalid_value": vm.Invalid, "validation_failed": vm.Invalid, "validation_unique_failed": vm.Moved, "conflict_field": vm.Moved,
			"invalid_zone": vm.Invalid, "invalid_state": vm.Moved, "instance_invalid_state": vm.Moved,
		},
		Texts: []vm.Text{{Holds: "quota", Means: vm.OverQuota}, {Holds: "capacity", Means: vm.Full}, {Holds: "already exists", Means: vm.Moved}, {Holds: "not unique", Means: vm.Moved}, {Holds: "in use", Means: vm.InUse}},
	}
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return displayName }

// Features says what IBM, or this provider, cannot do.
func (p *Provider) Features() cloud.Features {
	const off = "IBM goes on billing a machine that powers itself off, and not one that is stopped by a call; "
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutostop:  off + "use: sky stop",
			cloud.FeatureAutodown:  off + "use: sky down",
			cloud.FeatureSpot:      "spot machines of IBM are not used yet",
			cloud.FeatureDocker:    "containers do not run on IBM's machines yet",
			cloud.FeatureDiskTier:  "machines get one kind of IBM's boot disks",
			cloud.FeatureNetTier:   "a machine of IBM has the network of its profile",
			cloud.FeatureLocalDisk: "disks inside IBM's machines are not used yet",
			cloud.FeatureStorage:   "buckets cannot be mounted yet",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// list are all things of a kind in a region.
func list[T any](ctx context.Context, c *rest.Client, kind string, query url.Values) ([]T, error) {
	return rest.All(ctx, func(ctx context.Context, start string) (items []T, next string, err error) {
		q := with(query)
		q.Set("limit", "100")
		if start != "" {
			q.Set("start", start)
		}
		answer, err := rest.Send[map[string]json.RawMessage](ctx, c, rest.Call{Method: "GET", Path: "/" + kind, Query: q})
		if err == nil {
			err = json.Unmarshal(answer[kind], &items)
		}
		var page struct{ Href string }
		if n := answer["next"]; err == nil && n != nil {
			err = json.Unmarshal(n, &page)
		}
		if at, err := url.Parse(page.Href); err == nil {
			next = at.Query().Get("start")
		}
		if err != nil {
			if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
				err = &rest.NoAnswerError{Cloud: displayName, Err: err}
			}
		}
		return items, next, err
	})
}

// with is a query with what every call has.
func with(query url.Values) url.Values {
	q := url.Values{"version": {version}, "generation": {"2"}}
	for name, values := range query {
		q[name] = values
	}
	return q
}

// do calls something about one thing.
func do[T any](ctx context.Context, c *rest.Client, method, path string, body any) (T, error) {
	return rest.Send[T](ctx, c, rest.Call{Method: method, Path: path, Query: with(nil), Body: body})
}

// named is what most things have.
type named struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Status  string    `json:"status"`
	Created time.Time `json:"created_at"`
}

// available are the regions that can be used.
func (p *Provider) available(ctx context.Context) ([]string, error) {
	c, keys, err := p.In(first)
	if err != nil {
		return nil, err
	}
	return vm.Remember(&p.memo, p.Stamp(keys), "regions", func() ([]string, error) {
		all, err := list[named](ctx, c, "regions", nil)
		var regions []string
		for _, r := range all {
			if r.Status == "available" {
				regions = append(regions, r.Name)
			}
		}
		return regions, err
	})
}

// in is a client for a region, which has to be one of IBM's.
func (p *Provider) in(ctx context.Context, region string) (*rest.Client, map[string]string, error) {
	all, err := p.available(ctx)
	if err == nil && !slices.Contains(all, region) {
		err = &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: region}, Err: fmt.Errorf("IBM has no region %q in use, but %s", region, strings.Join(all, ", "))}
	}
	if err != nil {
		return nil, nil, err
	}
	return p.In(region)
}

// zones are those of a region that can be used.
func (p *Provider) zones(ctx context.Context, region string) ([]string, error) {
	c, keys, err := p.in(ctx, region)
	if err != nil {
		return nil, err
	}
	return vm.Remember(&p.memo, p.Stamp(keys), "zones "+region, func() ([]string, error) {
		answer, err := do[struct{ Zones []named }](ctx, c, "GET", "/regions/"+url.PathEscape(region)+"/zones", nil)
		var zones []string
		for _, z := range answer.Zones {
			if z.Status == "available" {
				zones = append(zones, z.Name)
			}
		}
		if err == nil && len(zones) == 0 {
			err = &cloud.CapacityError{Place: cloud.Place{Cloud: Name, Region: region}, Err: errors.New("IBM has no zone there in use")}
		}
		return zones, err
	})
}

// Launch tries the zones of a region one by one, unless one is asked for or the cluster is in
// one.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if spec.Offer.Zone != "" {
		return p.StopProvider.Launch(ctx, spec)
	}
	zones, err := p.zones(ctx, spec.Offer.Region)
	if err != nil {
		return nil, p.Refused(ctx, spec.Offer.Place, err)
	}
	for {
		have, err := p.Machines(ctx, spec.ID)
		if err != nil {
			return nil, err
		}
		in := slices.IndexFunc(have, func(m vm.Machine) bool {
			return m.State != vm.Ending && m.State != vm.Ended && m.Region == spec.Offer.Region
		})
		try := spec
		if try.Offer.Zone = zones[0]; in >= 0 {
			try.Offer.Zone = have[in].Zone
		}
		nodes, err := p.StopProvider.Launch(ctx, try)
		var full *cloud.CapacityError
		if !errors.As(err, &full) {
			return nodes, err
		}
		if zones = slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return z == try.Offer.Zone }); in >= 0 || len(zones) == 0 {
			return nil, &cloud.CapacityError{Place: spec.Offer.Place, Err: fmt.Errorf("%s: %w", try.Offer.Zone, full.Err)}
		}
		cloud.Note(ctx, fmt.Sprintf("%s is full; trying %s.", try.Offer.Zone, zones[0]))
	}
}

// Check asks for the regions.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	p.memo.Forget("regions")
	_, err := p.available(ctx)
	var keys map[string]string
	if err == nil {
		keys, err = p.Read()
	}
	if err != nil {
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	return cloud.Identity{"the resource group " + keys["resource_group_id"]}, nil
}

// Offers is nil: the price list knows.
func (p *Provider) Offers(context.Context) ([]cloud.Offer, error) { return nil, nil }

// OpenPorts adds ports to the security group of the cluster.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	d := driver{p, refusals(p.Fix)}
	return vm.OpenIn(ctx, p.Provider, id, func() ([]belongs, error) { return d.groups(ctx, id) }, func(g belongs) error {
		c, _, err := p.In(g.region)
		if err == nil {
			err = allow(ctx, c, g.ID, ports)
		}
		return err
	})
}

func valid(spec cloud.LaunchSpec) error {
	if spec.ImageID != "" && strings.HasPrefix(spec.ImageID, "ibm-") {
		return fmt.Errorf("%q is the name of an image; write its id, as r006-…", spec.ImageID)
	}
	if name := spec.ID.Name; name != "" && (name[0] < 'a' || name[0] > 'z') {
		return fmt.Errorf("a cluster's name on IBM begins with a letter, and this one is %q", name)
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}

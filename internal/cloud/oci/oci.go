// Package oci rents machines on Oracle Cloud.
//
// Instances carry the tags of package cloud, as freeform tags, from the moment they exist,
// and launches are safe to repeat by retry tokens. Instances are listed a region and a
// compartment at a time.
//
// Source: Oracle's API reference, "Core Services" and "Identity and Access Management",
// version 20160918.
package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
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
const Name = "oci"

// maxName is the longest name of a cluster: that of its security group has more.
const maxName = 200

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Oracle Cloud.
type Provider struct {
	vm.StopProvider
	vm.Probed
	regions vm.Regions
	network sync.Mutex // of who looks whether there is one, and makes it
	places  vm.Memo
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	profile := cmp.Or(os.Getenv("OCI_CLI_PROFILE"), "DEFAULT")
	p := &Provider{}
	p.Probed = vm.Probed{Base: vm.Base{Label: "OCI", Can: features(), Who: who, Account: vm.Account{
		File: keyfile.File{
			Cloud: Name, Path: ".oci/config", Format: keyfile.Lines, Section: profile, Names: []string{"user", "fingerprint", "tenancy", "region", "key_file", "pass_phrase?"}, Home: o.Home,
			Fix: "run: oci setup config, which writes ~/.oci/config and a key, and upload the key at https://cloud.oracle.com/identity/domains/my-profile/api-keys",
		},
		Tuning: o, REST: rest.Options{Cloud: "OCI", TokenHeader: "opc-retry-token", Refusal: refusal}, Authorize: p.authorize,
		Host: func(keys map[string]string) string { return host(identity, keys["region"]) }, Region: func(region string) string { return host(compute, region) }, Prefix: "/20160918",
	}}, Room: p.room}
	p.Refusals = refusals(p.Fix)
	d := driver{p, p.Refusals}
	p.regions = vm.Regions{Cloud: Name, Refusal: d.Refusal, All: p.subscribed, List: p.list}
	p.places.Changed = p.regions.Reset
	p.StopProvider = vm.NewStopping(d, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: valid, EndingHolds: true,
		Limits:  vm.LimitEach(o.Timeout*3/4, "PROVISIONING", "STARTING"),
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// refusals are Oracle's codes.
func refusals(fix string) vm.Refusals {
	return vm.Refusals{
		Cloud: Name, DisplayName: "OCI", Fix: fix, Fixes: map[string]string{"SignUpRequired": "complete the account at https://cloud.oracle.com, then: sky check oci"},
		Codes: map[string]vm.Meaning{
			"NotAuthenticated": vm.BadCredentials, "SignUpRequired": vm.BadCredentials, "NotAuthorized": vm.Forbidden, "NotAuthorizedOrNotFound": vm.NotThere, "NotFound": vm.NotThere,
			"RelatedResourceNotAuthorizedOrNotFound": vm.NotThere, "InvalidParameter": vm.Invalid, "InvalidParameters": vm.Invalid, "MissingParameter": vm.InvalidAnywhere, "CannotParseRequest": vm.InvalidAnywhere,
			"LimitExceeded": vm.OverQuota, "QuotaExceeded": vm.OverQuota, "TooManyRequests": vm.Throttled, "IncorrectState": vm.Moved, "Conflict": vm.InUse, "ExternalServerIncorrectState": vm.Moved,
			"NotAuthorizedOrResourceAlreadyExists": vm.InUse, "OutOfHostCapacity": vm.Full, "OutOfCapacity": vm.Full, tokenReused: vm.Unclear, "RequestTooLarge": vm.InvalidAnywhere,
			"InternalServerError": vm.NoAnswer, "ServiceUnavailable": vm.NoAnswer,
		},
		Texts: []vm.Text{{Holds: outOfHosts, Means: vm.Full}, {Holds: "out of capacity", Means: vm.Full}}, // of InternalError
	}
}

const (
	outOfHosts  = "out of host capacity"
	tokenReused = "InvalidatedRetryToken"
)

// refusal is an answer that had no effect. That a place has no hosts left is status 500.
func refusal(status int, header http.Header, body []byte) error {
	if status >= 500 && strings.Contains(strings.ToLower(string(body)), "out of ") && strings.Contains(strings.ToLower(string(body)), "capacity") {
		return rest.ReadError(http.StatusConflict, header, body)
	}
	return rest.ReadError(status, header, body)
}

// features says what OCI, or this provider, cannot do.
func features() cloud.Features {
	const off = "an instance of OCI that switches itself off goes on costing money"
	return cloud.Features{
		MaxNameLength: maxName,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutostop:  off,
			cloud.FeatureAutodown:  off,
			cloud.FeatureDocker:    "containers do not run on OCI's instances yet",
			cloud.FeatureNetTier:   "an instance of OCI has the network of its shape",
			cloud.FeatureLocalDisk: "disks inside OCI's machines are not used yet",
			cloud.FeatureCloneDisk: "disks of OCI cannot be copied yet",
		},
	}
}

// who asks who the user is.
func who(ctx context.Context, c *rest.Client, keys map[string]string) (cloud.Identity, error) {
	user, err := rest.Do[struct{ Name string }](ctx, c, "GET", "/users/"+url.PathEscape(keys["user"]), nil)
	return cloud.Identity{cmp.Or(user.Name, keys["user"]), keys["tenancy"]}, err
}

// room reports whether there is room for so many machines. It is a CapacityError if there is
// none.
func (p *Provider) room(ctx context.Context, _ *rest.Client, o cloud.Offer, nodes int) (sure bool, err error) {
	shape, size, err := parseType(o.InstanceType)
	if err != nil {
		return false, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	c, keys, err := p.in(ctx, o.Region)
	if err != nil {
		return false, err
	}
	domain, err := p.domain(ctx, o.Place)
	if err != nil {
		return false, err
	}
	ask := map[string]any{"instanceShape": shape}
	if size != nil {
		ask["instanceShapeConfig"] = size
	}
	report, err := rest.Do[struct {
		Shapes []struct {
			Status string `json:"availabilityStatus"`
			Count  *int   `json:"availableCount"`
		} `json:"shapeAvailabilities"`
	}](ctx, c, "POST", "/computeCapacityReports", map[string]any{"compartmentId": keys["tenancy"], "availabilityDomain": domain, "shapeAvailabilities": []any{ask}})
	switch {
	case err != nil || len(report.Shapes) == 0:
		return false, err
	case report.Shapes[0].Status == "OUT_OF_HOST_CAPACITY", report.Shapes[0].Count != nil && *report.Shapes[0].Count < nodes:
		return false, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("OCI has too few hosts for %s there now", o.InstanceType)}
	case report.Shapes[0].Status == "HARDWARE_NOT_SUPPORTED":
		return false, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("OCI has no %s there", o.InstanceType)}
	}
	return report.Shapes[0].Status == "AVAILABLE" && (nodes == 1 || report.Shapes[0].Count != nil), nil
}

// subscribed are the regions that the tenancy uses.
func (p *Provider) subscribed(ctx context.Context) ([]string, error) {
	c, keys, err := p.API()
	if err != nil {
		return nil, err
	}
	type region struct {
		Name   string `json:"regionName"`
		Status string `json:"status"`
	}
	ready, err := remembered(ctx, p, c, "regions", "/tenancies/"+url.PathEscape(keys["tenancy"])+"/regionSubscriptions", nil, func(r region) bool { return r.Status == "READY" })
	var all []string
	for _, r := range ready {
		all = append(all, r.Name)
	}
	return all, err
}

// in is a client for instances in a region, which has to be one that the tenancy uses.
func (p *Provider) in(ctx context.Context, region string) (*rest.Client, map[string]string, error) {
	if err := p.regions.Has(ctx, region, "the tenancy is not subscribed to the region "+region+"; add it at https://cloud.oracle.com/regions"); err != nil {
		return nil, nil, err
	}
	return p.In(region)
}

// compartment is a part of the tenancy that instances may be in.
type compartment struct {
	ID, Name string
	State    string `json:"lifecycleState"`
}

// compartments are those that are active. The tenancy itself, which has no name, is the first.
func (p *Provider) compartments(ctx context.Context) ([]compartment, error) {
	c, keys, err := p.API()
	if err != nil {
		return nil, err
	}
	query := url.Values{"compartmentId": {keys["tenancy"]}, "compartmentIdInSubtree": {"true"}, "accessLevel": {"ACCESSIBLE"}}
	all, err := remembered(ctx, p, c, "compartments", "/compartments", query, func(c compartment) bool { return c.State == "ACTIVE" })
	return append([]compartment{{ID: keys["tenancy"]}}, all...), err
}

// compartment is the one to launch in.
func (p *Provider) compartment(ctx context.Context, spec cloud.LaunchSpec) (string, error) {
	all, err := p.compartments(ctx)
	if err != nil {
		return "", err
	}
	set := vm.Setting(spec.Settings, "compartment_ocid")
	i := slices.IndexFunc(all, func(c compartment) bool { return c.ID == set || set == "" && c.Name == "skypilot_compartment" })
	if i < 0 && set != "" {
		p.places.Forget("compartments") // it may be new
		return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("oci.region_configs: there is no active compartment %s that OCI's user can see", set)}
	}
	return all[max(i, 0)].ID, nil
}

// domain is the full name of a zone, which price lists have without the tenancy's prefix.
func (p *Provider) domain(ctx context.Context, at cloud.Place) (string, error) {
	c, keys, err := p.At(host(identity, at.Region))
	if err != nil {
		return "", err
	}
	type domain struct{ Name string }
	all, err := remembered(ctx, p, c, "domains "+at.Region, "/availabilityDomains", url.Values{"compartmentId": {keys["tenancy"]}}, func(domain) bool { return true })
	if err != nil {
		return "", err
	}
	var names []string
	for _, d := range all {
		if names = append(names, d.Name); at.Zone == "" || strings.EqualFold(d.Name, at.Zone) || strings.EqualFold(zone(d.Name), at.Zone) {
			return d.Name, nil
		}
	}
	return "", &cloud.InvalidError{Place: at, Err: fmt.Errorf("OCI has no availability domain %s in %s, but %s", at.Zone, at.Region, strings.Join(names, ", "))}
}

// zone is a domain's name without the tenancy's prefix.
func zone(domain string) string {
	if _, name, ok := strings.Cut(domain, ":"); ok {
		return name
	}
	return domain
}

func valid(spec cloud.LaunchSpec) error {
	if _, _, err := parseType(spec.Offer.InstanceType); err != nil {
		return err
	}
	if spec.DiskTier == "ultra" {
		return errors.New("OCI's boot disks have no tier ultra")
	}
	return vm.Plain("OCI", maxName, spec)
}

// Package azure rents machines of Microsoft Azure, by plain calls of Azure Resource
// Manager.
//
// A cluster has a resource group of its own, unless the user names one: network, addresses
// and machines are in it, and it is removed as a whole. All names follow from the cluster,
// and names are unique within a group, so that every creation is safe to repeat and what a
// process that died has begun is found by name.
//
// The addresses of operations (Azure-AsyncOperation, Location) are asked while the process that
// began them lives, at the pace of Retry-After, and are not stored: a process can die before it
// has one, and what an operation does is told by the provisioningState of the resource, whose
// name is known before the call. Operations cannot be cancelled; what comes of one whose launch
// was cancelled is removed.
//
// Source: the REST reference of Azure, https://learn.microsoft.com/rest/api/azure/, and the
// specifications behind it.
package azure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/azureauth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "azure"

const (
	displayName = "Azure"
	maxName     = 42 // of a cluster
	user        = "azureuser"
	mostTags    = 50 // of a resource
	ownTags     = 14 // that sky may add to the user's labels
)

// Options say what the provider needs to know of the installation. The zero value reads
// the user's credentials and uses the defaults.
type Options struct {
	Tuning vm.Tuning
	// Settings are the "azure" section of the configuration, read at each call; nil: the
	// defaults.
	Settings func() map[string]any
	// Image finds images; nil: no tags are known.
	Image cloud.Images
	// Auth says where credentials are looked for, besides Tuning.
	Auth azureauth.Options
}

// Provider rents on Azure.
type Provider struct {
	vm.StopProvider
	vm.Cloner
	o       Options
	clients rest.Clients

	spread vm.Accounts // subscriptions besides the one in use

	mu    sync.Mutex
	known *login                // the last one
	sizes map[string]regionSKUs // by subscription and region
}

var (
	_ cloud.Provider           = (*Provider)(nil)
	_ cloud.Stopper            = (*Provider)(nil)
	_ cloud.PortOpener         = (*Provider)(nil)
	_ cloud.OffSwitch          = (*Provider)(nil)
	_ cloud.AvailabilityProber = (*Provider)(nil)
	_ cloud.QuotaReader        = (*Provider)(nil)
	_ cloud.CredentialStamper  = (*Provider)(nil)
	_ cloud.CredentialCarrier  = (*Provider)(nil)
	_ cloud.PermissionReader   = (*Provider)(nil)
	_ cloud.DiskCloner         = (*Provider)(nil)
	_ cloud.AccountLister      = (*Provider)(nil)
	_ cloud.ReservationLister  = (*Provider)(nil)
)

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	// A subscription may make 250 reads, 200 writes and 200 deletions at once, and 25, 10
	// and 10 a second then:
	// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
	o.Tuning = o.Tuning.Or(vm.Tuning{Poll: 5 * time.Second, Timeout: 15 * time.Minute, Paces: []rest.Pace{
		{Method: "GET", Every: time.Second / 25, Burst: 250}, {Method: "PUT", Every: time.Second / 10, Burst: 200},
		{Method: "POST", Every: time.Second / 10, Burst: 200}, {Method: "DELETE", Every: time.Second / 10, Burst: 200},
	}})
	if o.Settings == nil {
		o.Settings = func() map[string]any { return nil }
	}
	if o.Image == nil {
		o.Image = func(context.Context, string, string) (string, bool) { return "", false }
	}
	p := &Provider{o: o, sizes: map[string]regionSKUs{}}
	p.StopProvider = vm.NewStopping(driver{p, refusals}, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: p.valid, EndingHolds: true, SlowToEnd: 2,
		Limits:  map[string]time.Duration{"Creating": o.Tuning.Timeout*4/5 - answersWithin},
		Timeout: o.Tuning.Timeout, Poll: o.Tuning.Poll, Settle: o.Tuning.Settle,
	})
	p.Cloner = vm.NewCloner(p.StopProvider.Provider, driver{p, refusals})
	return p
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return displayName }

// Features says what Azure, or this provider, cannot do.
func (p *Provider) Features() cloud.Features {
	return cloud.Features{
		MaxNameLength: maxName,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureNetTier:   "Azure's fast networks cannot be chosen yet",
			cloud.FeatureLocalDisk: "disks inside Azure's machines cannot be chosen yet",
		},
	}
}

// Offers is nil: the price list knows.
func (p *Provider) Offers(context.Context) ([]cloud.Offer, error) { return nil, nil }

// Check asks whether the credentials are good and the subscription is open. Without
// credentials it does no I/O.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	a, err := p.account(ctx)
	if err != nil {
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	s, err := get[subscription](ctx, a, "/subscriptions/"+a.subscription, apiSubscriptions)
	if err == nil {
		err = s.open()
	}
	if err != nil {
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	who, err := a.login.who(ctx)
	if err != nil {
		return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	return cloud.Identity{fmt.Sprintf("%s [subscription_id=%s]", who, a.subscription)}, nil
}

// subscription is one of those that the credentials see.
type subscription struct {
	ID    string `json:"subscriptionId"`
	Name  string `json:"displayName"`
	State string `json:"state"`
}

// open is why nothing can be made in the subscription; nil: it can. Past due ones go on
// working for a while.
func (s subscription) open() error {
	switch s.State {
	case "Enabled", "Warned", "PastDue", "":
		return nil
	}
	return &cloud.AuthError{Cloud: Name, Fix: fixSubscription, Err: fmt.Errorf("the subscription %s (%s) is %s", s.Name, s.ID, strings.ToLower(s.State))}
}

const fixSubscription = "enable the subscription at https://portal.azure.com (Subscriptions), or choose another one with: az account set --subscription ID  (or AZURE_SUBSCRIPTION_ID)"

// settings are those of a launch, else the installation's.
func (p *Provider) settings(spec cloud.LaunchSpec) settings {
	if spec.Settings != nil {
		return settings(spec.Settings)
	}
	return settings(p.o.Settings())
}

// settings are the section "azure" of the configuration, which was checked when it was
// loaded.
type settings map[string]any

func (s settings) text(key string) string { v, _ := s[key].(string); return v }

// group is the user's resource group; "": each cluster has its own.
func (s settings) group() string  { return s.text("resource_group_vm") }
func (s settings) internal() bool { v, _ := s["use_internal_ips"].(bool); return v }

// identity is what "remote_identity" says for a cluster.
func (s settings) identity(cluster string) string { return vm.ByCluster(s["remote_identity"], cluster) }

func (s settings) proxy(region string) string {
	return vm.ByRegion(s["ssh_proxy_command"], region)
}

// labels are the installation's and the task's, which count more.
func (s settings) labels(spec cloud.LaunchSpec) map[string]string {
	all := vm.Labels(s["labels"])
	for k, v := range spec.Labels {
		all[k] = v
	}
	return all
}

// tags are those of what belongs to a rank; -1: to the whole cluster.
func (s settings) tags(spec cloud.LaunchSpec, rank int) map[string]string {
	spec.Labels = s.labels(spec)
	all := spec.AllTags(max(rank, 0))
	if rank < 0 {
		delete(all, cloud.TagRank)
		delete(all, cloud.TagHead)
	}
	for k, v := range all {
		if r := []rune(v); len(r) > facts.AzureLabelValue {
			all[k] = string(r[:facts.AzureLabelValue])
		}
	}
	return all
}

func (p *Provider) valid(spec cloud.LaunchSpec) error {
	if name := spec.ID.Name; len(name) > maxName || !vm.PlainName(name) || strings.HasPrefix(name, "-") {
		return fmt.Errorf("a cluster's name on Azure has 1 to %d small letters, digits and dashes, and this one is %q", maxName, name)
	}
	s := p.settings(spec)
	if policy := s.text("placement_policy"); policy != "" && policy != "compact" {
		return fmt.Errorf("azure.placement_policy is %q, and there is: compact", policy)
	}
	labels := s.labels(spec)
	if len(labels) > mostTags-ownTags {
		return fmt.Errorf("%d labels are more than the %d that fit into the tags of Azure", len(labels), mostTags-ownTags)
	}
	for k, v := range labels {
		if why := facts.Of(Name).Label(k, v); why != "" {
			return fmt.Errorf("the label %q cannot be a tag on Azure: %s", k, why)
		}
	}
	for _, ports := range spec.Ports {
		if _, _, err := cloud.PortRange(ports); err != nil {
			return err
		}
	}
	if len(strings.Fields(spec.AuthorizedKey)) < 2 {
		return errors.New("a machine on Azure needs a public ssh key")
	}
	return nil
}

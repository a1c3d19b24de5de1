// Package gcp rents machines on Google Cloud: instances of Compute Engine, and TPU
// slices with the machines that come with them.
//
// The names of machines follow from the cluster and the rank, and are unique in a
// project, so that a call whose answer was lost can be made again without making
// anything twice: what exists is refused. All machines that are missing are asked for in
// one call, all or nothing, by their names. Their labels are the tags of package cloud,
// except for the rank, which is in the name.
//
// Operations are waited for with the service's own waiting calls, and their ids are not stored:
// a process can die before it has one. What it began has a name that was known before the call
// and is found by that: instances in lists, and before they are listed in the operations about
// their names; queued resources and requests to resize a managed instance group, which may wait
// for hours, in lists. A launch that is cancelled deletes queued resources and cancels requests
// to resize; other operations cannot be cancelled, and the machines that come of them are deleted.
//
// One call lists a project's instances in all zones, and one its TPUs. A sweep does that in
// every project that the credentials see.
//
// Source: the discovery documents of the Compute Engine API v1, the Cloud TPU API v2, the
// Cloud Resource Manager API v1, the IAM API v1 and the Service Usage API v1.
package gcp

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "gcp"

// maxCluster is the longest name of a cluster: what is called after it has prefixes, and
// 63 characters at most.
const maxCluster = 38

// names are those of machines and of what belongs to a cluster.
var names = vm.Names{Max: 63}

// user is whom machines let in.
const user = "gcpuser"

// Options say what the provider needs to know of the installation. The zero value reads
// the user's credentials and uses the project's defaults.
type Options struct {
	// Settings are the "gcp" section of the configuration, read at each call; nil: the
	// defaults.
	Settings func() Settings
	// Projects are those of all workspaces of the configuration; nil: none.
	Projects func() []string
	// Image finds images; nil: no tags are known.
	Image cloud.Images
	// Quota is the metric under which the quota of an accelerator is kept; nil or "": it
	// follows from the name.
	Quota func(ctx context.Context, accelerator string, spot bool) string
	// Endpoint is another server in place of googleapis.com, unless the environment names one.
	Endpoint  string
	Transport http.RoundTripper // that makes calls; nil: the usual one
	Poll      time.Duration     // between looks at what changes; 0: two seconds
	Timeout   time.Duration     // of machines that start or end; 0: 15 minutes
	Settle    time.Duration     // after what time lists are believed; 0: a minute
	Paces     []rest.Pace       // nil: what Compute Engine allows
	Busy      int               // as in rest.Options
}

// Provider rents on Google Cloud.
type Provider struct {
	vm.StopProvider
	vm.Cloner
	o       Options
	mu      sync.Mutex
	account *account
	others  map[string]*account // by their projects, which have the credentials of account
	known   memory
	spread  vm.Accounts // projects besides the one in use
}

var (
	_ cloud.Provider          = (*Provider)(nil)
	_ cloud.Stopper           = (*Provider)(nil)
	_ cloud.PortOpener        = (*Provider)(nil)
	_ cloud.OffSwitch         = (*Provider)(nil)
	_ cloud.QuotaReader       = (*Provider)(nil)
	_ cloud.PermissionReader  = (*Provider)(nil)
	_ cloud.CredentialStamper = (*Provider)(nil)
	_ cloud.CredentialCarrier = (*Provider)(nil)
	_ cloud.DiskCloner        = (*Provider)(nil)
	_ cloud.AccountLister     = (*Provider)(nil)
	_ cloud.ReservationLister = (*Provider)(nil)
)

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	if o.Settings == nil {
		o.Settings = func() Settings { return Settings{} }
	}
	if o.Projects == nil {
		o.Projects = func() []string { return nil }
	}
	if o.Image == nil {
		o.Image = func(context.Context, string, string) (string, bool) { return "", false }
	}
	if o.Quota == nil {
		o.Quota = func(context.Context, string, bool) string { return "" }
	}
	if o.Poll == 0 {
		o.Poll = 2 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Minute
	}
	if o.Paces == nil {
		o.Paces = paces
	}
	p := &Provider{o: o}
	p.StopProvider = vm.NewStopping(driver{p, refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: p.valid, EndingHolds: true, Settle: o.Settle, Queues: p.inQueue,
		Limits:  map[string]time.Duration{"PROVISIONING": o.Timeout * 3 / 4, "STAGING": o.Timeout * 3 / 4, "CREATING": o.Timeout * 9 / 10, "REPAIRING": o.Timeout / 2},
		Timeout: o.Timeout, Poll: o.Poll, SlowToEnd: 2,
	})
	p.Cloner = vm.NewCloner(p.StopProvider.Provider, driver{p, refusals})
	return p
}

// paces are what Compute Engine allows by default: 1500 calls of a kind a minute.
//
// https://cloud.google.com/compute/api-quota
var paces = []rest.Pace{{Every: 50 * time.Millisecond, Burst: 50}}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "GCP" }

// Features says what Google Cloud, or this provider, cannot do.
func (p *Provider) Features() cloud.Features {
	return cloud.Features{
		MaxNameLength: maxCluster,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureLocalDisk: "local SSDs come with the machine types that have them built in; others cannot be asked for",
		},
	}
}

// Offers is nil: the price list knows.
func (p *Provider) Offers(context.Context) ([]cloud.Offer, error) { return nil, nil }

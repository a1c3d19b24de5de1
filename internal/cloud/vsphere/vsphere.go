// Package vsphere makes machines of VM templates on VMware vSphere.
//
// A region is a vCenter, a zone one of its clusters. A VM's name says whose it is and which
// rank it has; names are unique in the folder where VMs are made, so that creations are safe
// to repeat. Package vcenter is the client.
package vsphere

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vcenter"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name, displayName = vcenter.Name, vcenter.DisplayName

// names are those of VMs.
var names = vm.Names{Max: 80}

// Options change how vCenters are reached. Endpoint replaces the address of each.
type Options = vm.Tuning

// Provider makes VMs on vSphere.
type Provider struct {
	vm.StopProvider
	keyfile.File
	tuning  Options
	regions vm.Regions
	memo    vm.Memo

	mu       sync.Mutex
	stamp    string // of the credentials that vcenters are for
	vcenters []*vcenter.VCenter
	halting  sync.Map // since when guests were asked to shut down, by the name of their VM
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{tuning: o, File: vcenter.Credentials(o.Home)}
	d := driver{Provider: p, Refusals: refusalsOf(p.Fix)}
	p.regions = vm.Regions{
		Cloud: Name, Refusal: d.Refusal, List: d.list,
		All: func(context.Context) ([]string, error) {
			all, err := p.all()
			var regions []string
			for _, v := range all {
				regions = append(regions, v.Name)
			}
			return regions, err
		},
	}
	p.memo.Changed = p.regions.Reset
	p.StopProvider = vm.NewStopping(d, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, EndingHolds: true, Limits: map[string]time.Duration{silent: o.Timeout * 3 / 4},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// all are the vCenters of the credentials.
func (p *Provider) all() ([]*vcenter.VCenter, error) {
	accounts, stamp, err := vcenter.Accounts(p.File)
	if err != nil {
		return nil, err
	}
	endpoint, err := vm.Endpoint(Name, p.tuning.Endpoint)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if stamp += endpoint; p.stamp != stamp { // sessions of others end by themselves
		p.stamp, p.vcenters = stamp, nil
		for _, a := range accounts {
			p.vcenters = append(p.vcenters, vcenter.New(a, rest.Options{Endpoint: endpoint, Transport: p.tuning.Transport, Paces: p.tuning.Paces, Busy: p.tuning.Busy}))
		}
	}
	return p.vcenters, nil
}

// in is the vCenter that a region is.
func (p *Provider) in(region string) (*vcenter.VCenter, error) {
	all, err := p.all()
	if err != nil {
		return nil, err
	}
	var known []string
	for _, v := range all {
		if v.Name == region {
			return v, nil
		}
		known = append(known, v.Name)
	}
	return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: region}, Err: fmt.Errorf("~/%s has no vCenter %q, but %s", vcenter.Path, region, strings.Join(known, ", "))}
}

// known is the inventory of a vCenter as it was in the last minutes.
func (p *Provider) known(ctx context.Context, v *vcenter.VCenter) (vcenter.Inventory, error) {
	return vm.Remember(&p.memo, p.CredentialStamp(), v.Name, func() (vcenter.Inventory, error) { return v.Look(ctx) })
}

// refusalsOf are the faults of the API. There are very many: those that say more than that a
// place did not work are here.
func refusalsOf(fix string) vm.Refusals {
	meanings := map[vm.Meaning]string{
		vm.Full: "NoCompatibleHost* Insufficient* NoDiskSpace OutOfBounds NoHost NoActiveHostInCluster InvalidHostState InvalidHostConnectionState HostNotConnected HostNotReachable HostConnectFault DatastoreNotWritableOnHost " +
			"InaccessibleDatastore InvalidDatastore* NoAvailableIp",
		vm.OverQuota:       "VmLimitLicense NotEnoughLicenses LicenseExpired Expired* LicenseServerUnavailable InvalidLicense InvalidEdition LicenseRestricted",
		vm.BadCredentials:  "InvalidLogin NotAuthenticated PasswordExpired",
		vm.ForbiddenHere:   "NoPermission* RestrictedByAdministrator RestrictedVersion SecurityError",
		vm.InvalidAnywhere: "InvalidName",
		vm.Invalid: "InvalidArgument InvalidRequest InvalidProperty InvalidType InvalidDeviceSpec InvalidDeviceBacking InvalidVmConfig NotSupported UnsupportedVmxLocation CannotAccess* DeviceNotSupported DeviceBackingNotSupported DatacenterMismatch " +
			"InvalidFolder InvalidController MemorySizeNotSupported* NumVirtualCpusNotSupported NumVirtualCpusIncompatible NotEnoughCpus NotEnoughLogicalCpus TooManyDevices VirtualHardwareVersionNotSupported VirtualHardwareCompatibilityIssue RuleViolation " +
			"MethodNotFound MethodDisabled",
		vm.Throttled: "TooManyConcurrentNativeClients", vm.NoAnswer: "Timedout RequestCanceled HostCommunication",
		vm.NotThere: "ManagedObjectNotFound NotFound", vm.Moved: "DuplicateName AlreadyExists InvalidPowerState InvalidState TaskInProgress VAppTaskInProgress ConcurrentAccess", vm.InUse: "ResourceInUse FileLocked",
	}
	codes := map[string]vm.Meaning{}
	for m, all := range meanings {
		for _, name := range strings.Fields(all) {
			codes[name] = m
		}
	}
	return vm.Refusals{Cloud: Name, DisplayName: displayName, Fix: fix, Codes: codes}
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return displayName }

// Features says what vSphere, or this provider, cannot do.
func (p *Provider) Features() cloud.Features {
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureAutodown:  "a VM on vSphere that powers itself off is not deleted",
			cloud.FeatureSpot:      "vSphere has no spot machines",
			cloud.FeatureDocker:    "containers do not run on VMs of vSphere yet",
			cloud.FeatureDiskTier:  "a VM on vSphere has the kind of disk of its template",
			cloud.FeatureNetTier:   "a VM on vSphere has the network of its template",
			cloud.FeatureLocalDisk: "disks inside vSphere's hosts are not used yet",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// Check logs in to each vCenter. One that lets nobody in is told about, if another does.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	all, err := p.all()
	if err != nil {
		return nil, err
	}
	var who cloud.Identity
	for _, v := range all {
		refused := v.Check(ctx)
		if refused == nil {
			who = append(who, v.User+" on "+v.Name)
			continue
		}
		refused = p.Refused(ctx, cloud.Place{Cloud: Name, Region: v.Name}, refused)
		cloud.Note(ctx, fmt.Sprintf("%s is not used: %v", v.Name, refused))
		err = errors.Join(err, refused)
	}
	if len(who) > 0 {
		return who, nil
	}
	return nil, err
}

// Offers are the sizes that the hosts of each cluster can hold. What somebody owns has no
// price.
func (p *Provider) Offers(ctx context.Context) ([]cloud.Offer, error) {
	all, err := p.all()
	if err != nil {
		return nil, err
	}
	var offers []cloud.Offer
	answered := false
	for _, v := range all {
		in, refused := v.Look(ctx)
		if refused != nil {
			err = errors.Join(err, p.Refused(ctx, cloud.Place{Cloud: Name, Region: v.Name}, refused))
			continue
		}
		answered = true
		for _, z := range in.Zones {
			for _, s := range z.Sizes(in.Version) {
				o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: v.Name, Zone: z.Name}, InstanceType: s.String(), CPUs: float64(s.CPUs), MemoryGiB: float64(s.GiB)}
				if s.GPUs > 0 {
					o.Accelerators = map[string]float64{s.GPU: float64(s.GPUs)}
				}
				offers = append(offers, o)
			}
		}
	}
	if answered {
		return offers, nil
	}
	return nil, err
}

// Available reports whether the hosts of a cluster have so much left.
func (p *Provider) Available(ctx context.Context, o cloud.Offer, nodes int) (cloud.Availability, error) {
	d := driver{Provider: p, Refusals: refusalsOf(p.Fix)}
	_, _, _, err := d.room(ctx, o, nodes)
	return p.Verdict(ctx, o.Place, true, err)
}

// OpenPorts has nothing to open: nothing of vSphere's own is between VMs and their network.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, _ []string) error {
	return p.Known(ctx, id)
}

func valid(spec cloud.LaunchSpec) error {
	if _, err := vcenter.ParseSize(spec.Offer.InstanceType); err != nil {
		return err
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}

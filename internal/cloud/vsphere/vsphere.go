// Package vsphere makes machines of VM templates on VMware vSphere.
//
// A region is a vCenter, a zone one of its clusters. A VM's name tells whose it is and which
// rank it has; names are unique in the folder where VMs are made, so that creations are safe
// to repeat. vCenter is called by its SOAP API, of which a client for these few calls is here:
// VMware's own is larger than the rest of the program allows.
//
// Source: Broadcom's reference of the vSphere Web Services API, versions 6.7 to 8.0.
package vsphere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Name is what users write after "infra:".
const Name = "vsphere"

const displayName = "vSphere"

// path of the credentials, below the home folder.
const path = ".vsphere/credential.yaml"

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
	vcenters []*vcenter
	halting  sync.Map // since when guests were asked to shut down, by the name of their VM
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Poll: 5 * time.Second, Timeout: 30 * time.Minute})
	p := &Provider{tuning: o, File: keyfile.File{
		Cloud: Name, Path: path, Format: keyfile.Text, Home: o.Home, Names: []string{"vcenters"},
		Fix: "write the vCenters and a user of each into ~/" + path + ":\n      vcenters:\n      - name: vcenter.example.com\n        username: sky@vsphere.local\n        password: …",
	}}
	d := driver{Provider: p, Refusals: refusalsOf(p.Fix)}
	p.regions = vm.Regions{
		All: func(context.Context) ([]string, error) {
			all, err := p.all()
			var regions []string
			for _, v := range all {
				regions = append(regions, v.Name)
			}
			return regions, err
		},
		List: func(ctx context.Context, region string, id cloud.ClusterID) ([]vm.Machine, error) {
			list, err := d.list(ctx, region, id)
			return list, d.said(ctx, region, err)
		},
	}
	p.memo.Changed = p.regions.Reset
	p.StopProvider = vm.NewStopping(d, vm.Options{
		Cloud: Name, DisplayName: displayName, Valid: valid, EndingHolds: true, Limits: map[string]time.Duration{silent: o.Timeout * 3 / 4},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// named is a cluster in the file of credentials.
type named struct {
	Name string `json:"name"`
}

// account is a vCenter in the file of credentials.
type account struct {
	Name     string  `json:"name"`
	User     string  `json:"username"`
	Password string  `json:"password"`
	Skip     bool    `json:"skip_verification"`
	Clusters []named `json:"clusters"` // none: all
}

// all are the vCenters of the credentials.
func (p *Provider) all() ([]*vcenter, error) {
	keys, err := p.Read()
	if err != nil {
		return nil, err
	}
	var file struct{ Vcenters []account }
	err = (&yaml11.Source{Text: keys["vcenters"]}).Unmarshal(&file)
	switch {
	case err != nil: // which may quote a secret
		err = errors.New("it is not the YAML that it should be")
	case len(file.Vcenters) == 0:
		err = errors.New("it has no vcenters")
	case slices.ContainsFunc(file.Vcenters, func(a account) bool { return a.Name == "" || a.User == "" || a.Password == "" }):
		err = errors.New("a vCenter lacks its name, username or password")
	}
	if err != nil {
		return nil, &cloud.AuthError{Cloud: Name, Fix: p.Fix, Err: fmt.Errorf("~/%s: %w", path, err)}
	}
	endpoint, err := vm.Endpoint(Name, p.tuning.Endpoint)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if stamp := p.Stamp(keys) + endpoint; p.stamp != stamp { // sessions of others end by themselves
		p.stamp, p.vcenters = stamp, nil
		for _, a := range file.Vcenters {
			p.vcenters = append(p.vcenters, &vcenter{account: a, turn: make(chan struct{}, 1), api: rest.New(rest.Options{
				Cloud: "vCenter " + a.Name, Endpoint: cmp.Or(endpoint, "https://"+a.Name), Refusal: refusal, Unverified: a.Skip, Timeout: time.Minute,
				Transport: p.tuning.Transport, Paces: p.tuning.Paces, Busy: p.tuning.Busy,
			})})
		}
	}
	return p.vcenters, nil
}

// in is the vCenter that a region is.
func (p *Provider) in(region string) (*vcenter, error) {
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
	return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: region}, Err: fmt.Errorf("~/%s has no vCenter %q, but %s", path, region, strings.Join(known, ", "))}
}

// known is the inventory of a vCenter as it was in the last minutes.
func (p *Provider) known(ctx context.Context, v *vcenter) (inventory, error) {
	return vm.Remember(&p.memo, p.CredentialStamp(), v.Name, func() (inventory, error) { return v.look(ctx) })
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
			cloud.FeatureAutodown:  "a VM on vSphere that powers itself off is not deleted; use autostop or: sky down",
			cloud.FeatureSpot:      "vSphere has no spot machines",
			cloud.FeatureDocker:    "containers do not run on VMs of vSphere yet",
			cloud.FeatureDiskTier:  "a VM on vSphere has the kind of disk of its template",
			cloud.FeatureNetTier:   "a VM on vSphere has the network of its template",
			cloud.FeatureLocalDisk: "disks inside vSphere's hosts are not used yet",
			cloud.FeatureStorage:   "buckets cannot be mounted yet",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// Check logs in to each vCenter. One that lets nobody in is told of, if another does.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	all, err := p.all()
	if err != nil {
		return nil, err
	}
	var who cloud.Identity
	for _, v := range all {
		refused := v.check(ctx)
		if refused == nil {
			who = append(who, v.User+" on "+v.Name)
			continue
		}
		refused = driver{Provider: p, Refusals: refusalsOf(p.Fix)}.said(ctx, v.Name, refused)
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
		in, refused := v.look(ctx)
		if refused != nil {
			err = errors.Join(err, driver{Provider: p, Refusals: refusalsOf(p.Fix)}.said(ctx, v.Name, refused))
			continue
		}
		answered = true
		for _, z := range in.zones {
			for _, s := range z.sizes(in.version) {
				o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: v.Name, Zone: z.name}, InstanceType: s.String(), CPUs: float64(s.cpus), MemoryGiB: float64(s.gib)}
				if s.gpus > 0 {
					o.Accelerators = map[string]float64{s.gpu: float64(s.gpus)}
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

// Available tells whether the hosts of a cluster have so much left.
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
	if _, err := parseSize(spec.Offer.InstanceType); err != nil {
		return err
	}
	return vm.Plain(displayName, names.MaxCluster(), spec)
}

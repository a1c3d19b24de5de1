// Package cudo rents machines on CUDO Compute.
//
// A machine's id is the caller's choice, and no two have the same: it says whose the
// machine is and which rank it has, so that whatever is repeated, at most one machine
// holds a rank.
//
// Source: the CUDO Compute API, version 1.
package cudo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Name is what users write after "infra:".
const Name = "cudo"

// names are the ids of machines.
var names = vm.Names{Max: 60}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on Cudo.
type Provider struct {
	*vm.Provider
	vm.Probed
}

// notNow is what Cudo says of a machine that is in no state for what is asked.
const notNow = "FAILED_PRECONDITION"

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://rest.compute.cudo.org/v1", Poll: 5 * time.Second, Timeout: 20 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: "Cudo", Can: features(), Who: who,
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".config/cudo/cudo.yml", Format: keyfile.YAML, Names: []string{"key", "project"}, Home: o.Home,
				Fix: "run: cudoctl init, or write the lines \"key: KEY\" and \"project: PROJECT\" into ~/.config/cudo/cudo.yml",
			},
			Tuning: o, REST: rest.Options{Cloud: "Cudo"},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["key"]) },
		},
	}, Room: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (bool, error) {
		return true, room(ctx, c, o, nodes)
	}}}
	p.Refusals = vm.Refusals{
		Cloud: Name, DisplayName: "Cudo", Fix: p.Fix,
		Codes: map[string]vm.Meaning{
			"UNAUTHENTICATED": vm.BadCredentials, "PERMISSION_DENIED": vm.Forbidden, "INVALID_ARGUMENT": vm.Invalid, "NOT_FOUND": vm.NotThere,
			"ALREADY_EXISTS": vm.Moved, notNow: vm.Unclear, "UNAVAILABLE": vm.NoAnswer, "INTERNAL": vm.NoAnswer,
		},
		Texts: []vm.Text{{Holds: "quota", Means: vm.OverQuota}, {Holds: "capacity", Means: vm.Full}, {Holds: "not available", Means: vm.Full}}, // of RESOURCE_EXHAUSTED
	}
	p.Provider = vm.New(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), Valid: valid, EndingHolds: true,
		Limits:  map[string]time.Duration{"init": o.Timeout / 2, "pend": o.Timeout / 2, "prol": o.Timeout * 3 / 4, "boot": o.Timeout * 3 / 4},
		Timeout: o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	return p
}

// features says what Cudo, or this provider, cannot do.
func features() cloud.Features {
	const off = "machines of Cudo that are off cost what those cost that are on"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(),
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop: off, cloud.FeatureAutostop: off,
			cloud.FeatureAutodown:  "machines of Cudo cannot end themselves",
			cloud.FeatureSpot:      "Cudo has no spot machines",
			cloud.FeatureImage:     "sky starts an image of Cudo's own",
			cloud.FeatureDocker:    "containers do not run on Cudo's machines yet",
			cloud.FeatureDiskTier:  "machines get one kind of Cudo's disks",
			cloud.FeatureNetTier:   "Cudo has one kind of network",
			cloud.FeatureLocalDisk: "machines get one kind of Cudo's disks",
			cloud.FeatureCloneDisk: "disks cannot be copied yet",
		},
	}
}

// api is the client, and what the paths of the account's project begin with.
func (p *Provider) api() (c *rest.Client, project string, err error) {
	c, keys, err := p.API()
	return c, "/projects/" + url.PathEscape(keys["project"]), err
}

// who asks whether the key is good for the project, which is the account.
func who(ctx context.Context, c *rest.Client, keys map[string]string) (cloud.Identity, error) {
	_, err := rest.Do[any](ctx, c, "GET", "/projects/"+url.PathEscape(keys["project"])+"/vms?pageSize=1", nil)
	return cloud.Identity{"the project " + keys["project"]}, err
}

// OpenPorts has nothing to open: machines without a security group are open to the
// world.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, _ []string) error {
	return p.Known(ctx, id)
}

// size is what a type of machine asks for, as "epyc-milan-rtx-a5000_2x8v16gb".
type size struct {
	machine            string
	gpus, cpus, memory int
}

var sizeForm = lazyregexp.New(`^(.+)_([0-9]+)x([0-9]+)v([0-9]+)gb$`)

func sizeOf(instanceType string) (s size, err error) {
	part := sizeForm.FindStringSubmatch(instanceType)
	if part == nil {
		return s, fmt.Errorf("%q is no type of Cudo's machines, such as epyc-milan-rtx-a5000_2x8v16gb", instanceType)
	}
	var errs [3]error
	s.machine = part[1]
	s.gpus, errs[0] = strconv.Atoi(part[2])
	s.cpus, errs[1] = strconv.Atoi(part[3])
	s.memory, errs[2] = strconv.Atoi(part[4])
	return s, errors.Join(errs[:]...)
}

// room is why a data center has none for so many machines of an offer.
func room(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) error {
	s, err := sizeOf(o.InstanceType)
	if err != nil {
		return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	all, err := rest.Do[struct {
		MachineTypes []struct {
			DataCenter  string `json:"dataCenterId"`
			MachineType string `json:"machineType"`
			CPUs        int    `json:"totalVcpuFree"`
			Memory      int    `json:"totalMemoryGibFree"`
			GPUs        int    `json:"totalGpuFree"`
			CPUPrice    money  `json:"vcpuPriceHr"`
			MemoryPrice money  `json:"memoryGibPriceHr"`
			GPUPrice    money  `json:"gpuPriceHr"`
		} `json:"machineTypes"`
	}](ctx, c, "GET", "/vms/machine-types-2", nil)
	if err != nil {
		return err
	}
	free, there, price := 0, false, 0.0
	for _, t := range all.MachineTypes {
		if t.DataCenter != o.Region || t.MachineType != s.machine {
			continue
		}
		there = true
		n := min(t.CPUs/max(s.cpus, 1), t.Memory/max(s.memory, 1))
		if s.gpus > 0 {
			n = min(n, t.GPUs/s.gpus)
		}
		free += n
		if n > 0 { // which it will be is not known: at most
			price = max(price, t.CPUPrice.of(s.cpus)+t.MemoryPrice.of(s.memory)+t.GPUPrice.of(s.gpus))
		}
	}
	switch {
	case !there:
		return &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Cudo has no %s in %s", s.machine, o.Region)}
	case free < nodes:
		return &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Cudo has room for %d %s there now, not %d", free, o.InstanceType, nodes)}
	}
	return vm.Rose("Cudo", o, price)
}

// money is what one of something costs, in dollars.
type money struct {
	Value string `json:"value"`
}

// of is what n cost.
func (m money) of(n int) float64 {
	x, _ := strconv.ParseFloat(m.Value, 64)
	return x * float64(n)
}

func valid(spec cloud.LaunchSpec) error { return vm.Plain("Cudo", names.MaxCluster(), spec) }

// Package runpod rents pods on RunPod: containers of a task's image with GPUs, reached
// at mapped ports.
//
// Pods have no tags, and their names are not unique: a name says whose a pod is, and
// what was asked for without an answer is not asked for again before lists can be
// believed.
//
// Source: the RunPod REST API, version 2.0.0.
package runpod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Name is what users write after "infra:".
const Name = "runpod"

// names are those of pods, of which RunPod takes so many characters.
var names = vm.Names{Max: 120}

// Options change how the cloud is reached.
type Options = vm.Tuning

// Provider rents on RunPod.
type Provider struct {
	vm.PortProvider
	vm.Probed
	*vm.Volumes
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	o = o.Or(Options{Endpoint: "https://api.runpod.io/v2", Poll: 5 * time.Second, Timeout: 20 * time.Minute})
	p := &Provider{Probed: vm.Probed{Base: vm.Base{
		Label: "RunPod", Can: features(), Probe: "/pods",
		Account: vm.Account{
			File: keyfile.File{
				Cloud: Name, Path: ".runpod/config.toml", Section: "default", Names: []string{"api_key"}, Home: o.Home,
				Fix: "make an API key at https://console.runpod.io/user/settings and write it into ~/.runpod/config.toml: [default] and api_key = \"KEY\"",
			},
			Tuning: o, REST: rest.Options{Cloud: "RunPod"},
			Authorize: func(keys map[string]string) func(*http.Request) error { return rest.Bearer(keys["api_key"]) },
		},
	}, Stock: func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (cloud.Stock, bool, error) {
		stock, err := room(ctx, c, o)
		return stock, nodes == 1, err
	}}}
	p.Refusals = vm.Refusals{
		Cloud: Name, DisplayName: "RunPod", Fix: p.Fix,
		Fixes: map[string]string{"402": "add credit at https://console.runpod.io/user/billing, then: sky check runpod"},
		// 400 is a lack of room, or a rule that the request breaks: nothing reports which.
		Statuses: map[int]vm.Meaning{
			http.StatusBadRequest: vm.Full, http.StatusPaymentRequired: vm.BadCredentials,
			http.StatusForbidden: vm.ForbiddenHere, http.StatusUnprocessableEntity: vm.InvalidAnywhere,
		},
	}
	p.Provider = vm.New(driver{p, p.Refusals}, vm.Options{
		Cloud: Name, DisplayName: p.DisplayName(), NoTokens: true,
		Valid:      func(spec cloud.LaunchSpec) error { return cmp.Or(valid(spec), p.CheckMounts(spec.Volumes)) },
		Limits:     map[string]time.Duration{"PROVISIONING": o.Timeout / 2, "STARTING": o.Timeout * 3 / 4, "ERROR": o.Timeout / 10},
		PortsLater: "a pod keeps the ports that it was launched with; launch it anew with them",
		Timeout:    o.Timeout, Poll: o.Poll, Settle: o.Settle,
	})
	p.Volumes = vm.NewVolumes(p.Provider, vm.VolumeOptions{Type: "runpod-network-volume", LeastGB: 10, MostGB: 4096, Region: region, Calls: p.volumes()})
	return p
}

// features says what RunPod cannot do.
func features() cloud.Features {
	const gone, oneKind = "a pod that is stopped loses its disk, and may lose its GPU", "RunPod has one kind of disks and of networks"
	return cloud.Features{
		MaxNameLength: names.MaxCluster(), Containers: true,
		Lacks: map[cloud.Feature]string{
			cloud.FeatureStop: gone, cloud.FeatureAutostop: gone,
			cloud.FeatureAutodown:  "a pod cannot give itself back",
			cloud.FeatureMultiNode: "pods of RunPod do not reach each other",
			cloud.FeatureSpot:      "the API of RunPod has no spot pods",
			cloud.FeatureImage:     "a pod starts from a container image (image_id: docker:…)",
			cloud.FeatureDiskTier:  oneKind, cloud.FeatureNetTier: oneKind, cloud.FeatureLocalDisk: oneKind,
			cloud.FeatureStorage:   "pods of RunPod have no /dev/fuse, so buckets are copied (mode: COPY), and cannot be mounted",
			cloud.FeatureCloneDisk: "RunPod cannot copy disks",
		},
	}
}

// room is how much a data center has of an offer, and why it has no pod, or none at the price
// that was planned with; nil if it has, or may have.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) (cloud.Stock, error) {
	gpu, _, err := compute(o.InstanceType)
	if err != nil {
		return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	all, err := rest.Do[struct {
		DataCenters []struct {
			ID   string `json:"id"`
			GPUs []struct {
				ID           string `json:"id"`
				Availability string `json:"availability"`
			} `json:"gpuAvailability"`
		} `json:"dataCenters"`
	}](ctx, c, "GET", "/catalog/datacenters?include=GPU_AVAILABILITY", nil)
	if err != nil {
		return "", err
	}
	for _, d := range all.DataCenters {
		if d.ID != o.Zone {
			continue
		}
		if gpu == "" {
			return "", nil // of CPUs it tells nothing
		}
		for _, g := range d.GPUs {
			if g.ID == gpu && g.Availability != "NONE" {
				return cloud.StockOf(g.Availability), rose(ctx, c, o)
			}
		}
		return "", &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("RunPod has no %s in %s now", gpu, o.Zone)}
	}
	return "", &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("RunPod has no data center %q", o.Zone)}
}

// rose is a PriceError if a pod with GPUs costs more now than was planned with.
func rose(ctx context.Context, c *rest.Client, o cloud.Offer) error {
	id, count, tier, err := gpuOf(o.InstanceType)
	if err != nil || o.HourlyPrice == 0 && o.MaxHourlyCost == 0 {
		return err
	}
	all, err := rest.Do[struct {
		GPUs []struct {
			ID    string             `json:"id"`
			Price map[string]float64 `json:"price"` // of one, an hour, by tier
		} `json:"gpus"`
	}](ctx, c, "GET", "/catalog/gpus", nil)
	for _, g := range all.GPUs {
		if g.ID == id {
			return vm.Rose("RunPod", o, g.Price[strings.ToLower(tier)]*float64(count))
		}
	}
	return err
}

func valid(spec cloud.LaunchSpec) error {
	if spec.Nodes > 1 {
		return errors.New("pods of RunPod do not reach each other: a cluster has one node")
	}
	_, err := podPorts(spec.Ports)
	return cmp.Or(vm.Plain("RunPod", names.MaxCluster(), spec), err)
}

package oci

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is OCI for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// size is that of an instance of a flexible shape.
type size struct {
	OCPUs  float64 `json:"ocpus"`
	Memory float64 `json:"memoryInGBs"`
}

// parseType reads VM.Standard.E4.Flex$_8_32, which has 8 virtual CPUs and 32 GB. Shapes
// that are not flexible are types themselves.
func parseType(name string) (shape string, s *size, err error) {
	shape, of, ok := strings.Cut(name, "$_")
	if !ok {
		if strings.HasSuffix(shape, ".Flex") {
			return "", nil, fmt.Errorf("the type %s lacks a size, such as %s$_4_16", name, name)
		}
		return shape, nil, nil
	}
	cpus, memory, _ := strings.Cut(of, "_")
	n, err := strconv.ParseFloat(cpus, 64)
	m, err2 := strconv.ParseFloat(memory, 64)
	if err != nil || err2 != nil || n <= 0 || m <= 0 {
		return "", nil, fmt.Errorf("%q is no type of OCI's, such as VM.Standard.E4.Flex$_4_16", name)
	}
	if !strings.HasPrefix(shape, "VM.Standard.A") { // a core of others has two virtual CPUs
		n /= 2
	}
	return shape, &size{max(1, n), m}, nil
}

// instance is a machine as the API has it.
type instance struct {
	ID          string            `json:"id"`
	Domain      string            `json:"availabilityDomain"`
	Compartment string            `json:"compartmentId"`
	Shape       string            `json:"shape"`
	Size        *size             `json:"shapeConfig"`
	State       string            `json:"lifecycleState"`
	Created     time.Time         `json:"timeCreated"`
	Tags        map[string]string `json:"freeformTags"`
	Preemptible any               `json:"preemptibleInstanceConfig"`
}

// states are Oracle's words for what an instance does.
var states = map[string]vm.State{
	"PROVISIONING": vm.Pending, "STARTING": vm.Pending, "CREATING_IMAGE": vm.Pending, "RUNNING": vm.Running, "MOVING": vm.Running,
	"STOPPING": vm.Stopping, "STOPPED": vm.Stopped, "TERMINATING": vm.Ending, "TERMINATED": vm.Ended,
}

// Tags of an instance beside those of package cloud.
const (
	tagUser = "sky-login" // who logs in to its image
	tagType = "sky-type"  // what it was launched as: sizes of fixed shapes are told as well
)

// List looks in the regions where the cluster may be.
func (d driver) List(ctx context.Context, id cloud.ClusterID, where vm.ListScope) ([]vm.Machine, error) {
	return d.regions.Find(ctx, id, where)
}

// list are the instances in a region, of all compartments.
func (p *Provider) list(ctx context.Context, region string, id cloud.ClusterID) (list []vm.Machine, err error) {
	c, _, err := p.in(ctx, region)
	if err != nil {
		return nil, err
	}
	places, err := p.compartments(ctx)
	if err != nil {
		return nil, err
	}
	for _, place := range places {
		all, err := pages[instance](ctx, c, "/instances", url.Values{"compartmentId": {place.ID}})
		if err != nil {
			return nil, err
		}
		for _, i := range all {
			if id.Has(i.Tags) {
				list = append(list, i.machine(region))
			}
		}
	}
	var g errgroup.Group
	g.SetLimit(8)
	for n := range list {
		if m := &list[n]; m.State == vm.Running {
			g.Go(func() error { return address(ctx, c, m) })
		}
	}
	return list, g.Wait()
}

func (i instance) machine(region string) vm.Machine {
	m := vm.Machine{
		ID: i.ID, Region: region, Zone: zone(i.Domain), ZoneID: i.Domain, State: states[i.State], RawState: i.State, Type: cmp.Or(i.Tags[tagType], i.Shape), Spot: i.Preemptible != nil, Tags: i.Tags,
		Created: i.Created, Reach: cloud.Reach{Method: "ssh", Port: 22, User: cmp.Or(i.Tags[tagUser], "ubuntu")}, Detail: i,
	}
	if m.Spot && (m.State == vm.Ending || m.State == vm.Ended) {
		m.Reason = "it was ended, or Oracle took it back"
	}
	return m
}

// address finds where a machine is reached: its network card knows.
func address(ctx context.Context, c *rest.Client, m *vm.Machine) error {
	attached, err := pages[struct {
		VNIC  string `json:"vnicId"`
		State string `json:"lifecycleState"`
	}](ctx, c, "/vnicAttachments", url.Values{"compartmentId": {m.Detail.(instance).Compartment}, "instanceId": {m.ID}})
	if err != nil {
		return err
	}
	for _, a := range attached {
		if a.State != "ATTACHED" || a.VNIC == "" {
			continue
		}
		vnic, err := rest.Do[struct {
			Primary bool   `json:"isPrimary"`
			Public  string `json:"publicIp"`
			Private string `json:"privateIp"`
		}](ctx, c, "GET", "/vnics/"+url.PathEscape(a.VNIC), nil)
		var gone *rest.Error
		if errors.As(err, &gone) && gone.Status == 404 {
			continue // it has just ended
		} else if err != nil {
			return err
		}
		if vnic.Primary {
			m.PublicIP, m.PrivateIP, m.Reach.Host = vnic.Public, vnic.Private, vnic.Public
		}
	}
	return nil
}

// ready is what instances of a launch are made with.
type ready struct{ compartment, domain, subnet, group, image, user string }

// Create launches an instance for each rank.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.in(ctx, l.Spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	var full *cloud.CapacityError
	if _, err := d.room(ctx, c, l.Spec.Offer, len(ranks)); errors.As(err, &full) { // what is not known stops nobody
		return nil, err
	}
	d.regions.Learn(l.Spec.ID, l.Spec.Offer.Region)
	prepare := func() (ready, error) { return d.prepared(ctx, c, l.Spec) }
	return vm.OneByOneWith(ctx, d, l, ranks, prepare, func(ctx context.Context, r ready, rank int) (string, error) { return launch(ctx, c, l.Spec, r, rank) })
}

// launch asks for the instance of a rank. A token may have made one that is gone by now:
// the next is taken then.
func launch(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec, r ready, rank int) (string, error) {
	body, err := body(spec, r, rank)
	if err != nil {
		return "", err
	}
	var made instance
	for n := range 50 { // so many instances of a rank may have come and gone in one attempt
		token := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", spec.Token, vm.Digest(spec.ID), rank, n)))[:60]
		made, err = rest.Send[instance](ctx, c, rest.Call{Method: "POST", Path: "/instances", Body: body, Token: token})
		var said *rest.Error
		reused := errors.As(err, &said) && said.Code == tokenReused
		if gone := err == nil && (states[made.State] == vm.Ending || states[made.State] == vm.Ended); !reused && !gone {
			break
		}
	}
	return made.ID, err
}

// smallest is the size in GB of the smallest boot disk.
const smallest = 50

// opened lets what the network lets through reach the machine: Oracle's Ubuntu has rules of
// its own, against everything but ssh.
const opened = `#!/bin/sh
for chain in INPUT FORWARD; do iptables -D $chain -j REJECT --reject-with icmp-host-prohibited; done
if command -v netfilter-persistent; then netfilter-persistent save; fi
if command -v firewall-cmd; then systemctl disable --now firewalld; fi
exit 0
`

func body(spec cloud.LaunchSpec, r ready, rank int) (map[string]any, error) {
	shape, s, err := parseType(spec.Offer.InstanceType)
	if err != nil {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	tags := spec.AllTags(rank)
	tags[tagUser], tags[tagType] = r.user, spec.Offer.InstanceType
	source := map[string]any{"sourceType": "image", "imageId": r.image, "bootVolumeVpusPerGB": performance(spec)}
	if spec.DiskGB > 0 {
		source["bootVolumeSizeInGBs"] = max(spec.DiskGB, smallest)
	}
	body := map[string]any{
		"availabilityDomain": r.domain, "compartmentId": r.compartment, "shape": shape, "displayName": spec.ID.Name + "-" + strconv.Itoa(rank), "freeformTags": tags, "sourceDetails": source,
		"createVnicDetails": map[string]any{"subnetId": r.subnet, "assignPublicIp": true, "nsgIds": []string{r.group}},
		"metadata":          map[string]string{"ssh_authorized_keys": strings.TrimSpace(spec.AuthorizedKey), "user_data": base64.StdEncoding.EncodeToString([]byte(opened))},
	}
	if s != nil {
		body["shapeConfig"] = s
	}
	if spec.Offer.Spot {
		body["preemptibleInstanceConfig"] = map[string]any{"preemptionAction": map[string]any{"type": "TERMINATE", "preserveBootVolume": false}}
	}
	return body, nil
}

// performance is how fast a boot disk is, in Oracle's units. Small machines cannot make use
// of fast ones.
func performance(spec cloud.LaunchSpec) int {
	units := map[string]int{"medium": 30, "high": 100, "best": 100}[spec.DiskTier]
	most := 100
	if cpus := spec.Offer.CPUs; cpus > 0 && cpus <= 2 {
		most = 10
	} else if cpus > 0 && cpus < 8 {
		most = 30
	}
	return min(max(units, 10), most)
}

// Start switches instances on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "POST", "/instances/%s?action=START", nil)
}

// Stop switches instances off. Some shapes go on costing money.
func (d driver) Stop(ctx context.Context, id cloud.ClusterID, machines []vm.Machine) error {
	for _, m := range machines {
		if m.Spot {
			return &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: m.Region}, Err: fmt.Errorf("preemptible instances of OCI cannot be stopped; use: sky down %s", id.Name)}
		}
	}
	if len(machines) > 0 && (strings.Contains(machines[0].Type, "GPU") || strings.Contains(machines[0].Type, "DenseIO") || strings.Contains(machines[0].Type, "HPC")) {
		cloud.Note(ctx, "OCI goes on charging for "+machines[0].Type+" while it is stopped. To end that: sky down "+id.Name)
	}
	return d.Each(ctx, d, machines, "POST", "/instances/%s?action=SOFTSTOP", nil)
}

// Delete begins to end instances, and their boot disks.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "DELETE", "/instances/%s?preserveBootVolume=false", nil)
}

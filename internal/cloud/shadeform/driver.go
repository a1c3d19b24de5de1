package shadeform

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Shadeform for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
	vm.Unconnected // a machine brings its key and its ports
}

// instance is a machine as the API has it.
type instance struct {
	ID      string    `json:"id"`
	Cloud   string    `json:"cloud"`
	Region  string    `json:"region"`
	Shade   string    `json:"shade_instance_type"`
	IP      string    `json:"ip"`
	User    string    `json:"ssh_user"`
	Port    int       `json:"ssh_port"`
	Status  string    `json:"status"`
	Details string    `json:"status_details"`
	Created time.Time `json:"created_at"`
	Tags    []string  `json:"tags"`
	Rental  struct {
		Type string `json:"rental_type"`
	} `json:"rental_terms"`
	Mapped []struct {
		Internal int `json:"internal_port"`
		External int `json:"external_port"`
	} `json:"port_mappings"`
}

// states are Shadeform's words for what a machine does.
var states = map[string]vm.State{
	"creating": vm.Pending, "pending_provider": vm.Pending, "pending": vm.Pending, "error": vm.Pending, "active": vm.Running, "deleting": vm.Ending, "deleted": vm.Ended,
}

// tagPorts are the ports that a machine was launched with.
const tagPorts = "sky-ports"

// List reads the list of all machines, which is one page.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := rest.Do[struct{ Instances []instance }](ctx, c, "GET", "/instances", nil)
	if err != nil {
		return nil, err
	}
	var list []vm.Machine
	for _, i := range all.Instances {
		if m := i.machine(); id.Has(m.Tags) {
			list = append(list, m)
		}
	}
	return list, nil
}

func (i instance) machine() vm.Machine {
	m := vm.Machine{
		ID: i.ID, Region: i.Region, State: states[i.Status], RawState: i.Status, Type: i.Cloud + "_" + i.Shade, Spot: i.Rental.Type == "spot", Tags: map[string]string{},
		PublicIP: i.IP, Created: i.Created, Ports: map[int]string{}, Reach: cloud.Reach{Method: "ssh", Host: i.IP, Port: max(i.Port, 22), User: i.User},
	}
	for _, t := range i.Tags {
		if k, v, ok := strings.Cut(t, "="); ok {
			m.Tags[k] = v
		}
	}
	switch {
	case i.Status == "error":
		m.Failure = &cloud.CapacityError{Place: cloud.Place{Cloud: Name, Region: i.Region}, Err: fmt.Errorf("Shadeform says that %s failed: %s", i.ID, i.Details)}
	case i.Details == "preempted":
		m.Reason, m.Reclaimed = "Shadeform took it back", true
		if m.State == vm.Ending { // it is gone for its user
			m.State = vm.Ended
		}
	}
	for _, ports := range strings.Split(m.Tags[tagPorts], "+") {
		from, to, err := cloud.PortRange(ports)
		for port := from; port <= to && err == nil && i.IP != ""; port++ {
			m.Ports[port] = net.JoinHostPort(i.IP, strconv.Itoa(port))
		}
	}
	for _, p := range i.Mapped {
		if m.Ports[p.Internal] != "" {
			m.Ports[p.Internal] = net.JoinHostPort(i.IP, strconv.Itoa(p.External))
		}
	}
	return m
}

// script opens ports in the firewall of a machine that has one.
func script(ports []string) (string, error) {
	lines := "#!/bin/sh\n"
	for _, p := range ports {
		from, to, err := cloud.PortRange(p)
		if err != nil {
			return "", err
		}
		lines += fmt.Sprintf("command -v ufw >/dev/null && sudo ufw allow %d:%d/tcp\n", from, to)
	}
	return lines, nil
}

// system is the image to start: Shadeform's own with a driver, and the newest Ubuntu.
func system(options []string) string {
	options = slices.Sorted(slices.Values(options))
	for _, fits := range []func(string) bool{
		func(o string) bool {
			return strings.HasPrefix(o, "ubuntu22.04_cuda") && strings.HasSuffix(o, "_shade_os")
		},
		func(o string) bool { return strings.HasPrefix(o, "ubuntu") && strings.HasSuffix(o, "_shade_os") },
		func(o string) bool { return strings.HasPrefix(o, "ubuntu") },
	} {
		if fit := slices.DeleteFunc(slices.Clone(options), func(o string) bool { return !fits(o) }); len(fit) > 0 {
			return fit[len(fit)-1]
		}
	}
	return ""
}

// Create makes a machine, once it is clear that there is one.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	kind, err := room(ctx, c, l.Spec.Offer)
	if err != nil {
		return nil, err
	}
	key, err := d.EnsureKey(ctx, l.Spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) ([]vm.Key, error) {
			all, err := rest.Do[struct {
				Keys []vm.Key `json:"ssh_keys"`
			}](ctx, c, "GET", "/sshkeys", nil)
			return all.Keys, err
		},
		Make: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "POST", "/sshkeys/add", k)
			return err
		},
		Delete: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "POST", "/sshkeys/"+url.PathEscape(k.ID)+"/delete", nil)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		body, err := body(l.Spec, rank, kind, key.ID)
		if err != nil {
			return "", err
		}
		made, err := rest.Do[struct{ ID string }](ctx, c, "POST", "/instances/create", body)
		return made.ID, err
	})
}

func body(spec cloud.LaunchSpec, rank int, kind fetch.ShadeformType, key string) (map[string]any, error) {
	all := spec.AllTags(rank)
	if len(spec.Ports) > 0 {
		all[tagPorts] = strings.Join(spec.Ports, "+")
	}
	tags := []string{}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		tags = append(tags, k+"="+all[k])
	}
	opened, err := script(spec.Ports)
	if err != nil {
		return nil, err
	}
	body := map[string]any{
		"cloud": kind.Cloud, "region": spec.Offer.Region, "shade_instance_type": kind.Shade, "shade_cloud": true, "name": spec.ID.Name, "ssh_key_id": key, "tags": tags, "rental_type": "on_demand",
	}
	if spec.Offer.Spot {
		body["rental_type"] = "spot"
	}
	if os := system(kind.Configuration.OS); os != "" {
		body["os"] = os
	}
	if len(spec.Ports) > 0 {
		body["launch_configuration"] = map[string]any{"type": "script", "script_configuration": map[string]string{"base64_script": base64.StdEncoding.EncodeToString([]byte(opened))}}
	}
	return body, nil
}

// Delete begins to end machines.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "POST", "/instances/%s/delete", nil)
}

package yotta

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// driver is Yotta for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// pod is what the API tells of one.
type pod struct {
	ID      json.Number `json:"id"`
	Name    string      `json:"name"`
	Status  string      `json:"status"`
	GPU     string      `json:"gpuType"`
	GPUs    int         `json:"gpuCount"`
	Created int64       `json:"createdAt"` // milliseconds
	SSH     string      `json:"sshCmd"`
	Exposed []struct {
		Port  int    `json:"port"`
		Host  string `json:"host"`
		Proxy int    `json:"proxyPort"`
	} `json:"expose"`
}

// states are Yotta's words for what a pod does, in both versions of its API. One that failed
// was never deployed, or is no longer, and costs nothing.
var states = map[string]vm.State{
	"INITIALIZE": vm.Pending, "INITIALIZING": vm.Pending, "RUNNING": vm.Running, "PAUSING": vm.Stopping, "STOPPING": vm.Stopping, "PAUSED": vm.Stopped, "STOPPED": vm.Stopped,
	"TERMINATING": vm.Ending, "TERMINATED": vm.Ended, "FAILED": vm.Ended,
}

// List reads the list of all pods.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := call[[]pod](ctx, c, rest.Call{Method: "GET", Path: "/v2/pods"})
	if err != nil {
		return nil, err
	}
	var found []vm.Machine
	for _, p := range all {
		region, name, _ := strings.Cut(p.Name, ".")
		if tags, ours := names.Tags(id, name); ours {
			found = append(found, p.machine(region, tags))
		}
	}
	return found, nil
}

// sshForm is how a pod is reached: "ssh root@HOST -p PORT", with options.
var sshForm = lazyregexp.New(`^ssh .*?([A-Za-z_][A-Za-z0-9_-]*)@([^ ]+)(?: .*)?$`)

var portForm = lazyregexp.New(` -p +([0-9]+)`)

func (p pod) machine(region string, tags map[string]string) vm.Machine {
	m := vm.Machine{
		ID: p.ID.String(), Region: region, State: states[p.Status], RawState: p.Status, Type: strconv.Itoa(p.GPUs) + "x_" + p.GPU + "_SECURE", Tags: tags, Created: time.UnixMilli(p.Created), Ports: map[int]string{},
		Reach: cloud.Reach{Method: "ssh", Port: 22, User: "root"},
	}
	if p.Status == "FAILED" {
		m.Reclaimed, m.Reason = true, "Yotta could not deploy it: there was no room, or the image is wrong"
	}
	for _, e := range p.Exposed {
		if e.Host != "" && e.Proxy > 0 {
			m.MapPort(e.Port, e.Host, e.Proxy)
		}
	}
	if part := sshForm.FindStringSubmatch(p.SSH); part != nil {
		m.Reach.User, m.Reach.Host = part[1], part[2]
		if port := portForm.FindStringSubmatch(p.SSH); port != nil {
			m.Reach.Port, _ = strconv.Atoi(port[1])
		}
	}
	m.PublicIP = m.Reach.Host
	return m
}

const (
	defaultImage  = "yottalabsai/pytorch:2.9.0-py3.11-cuda12.8.1-cudnn-devel-ubuntu22.04"
	defaultDiskGB = 100
)

// exposed are the ports of a pod, that of ssh first.
func exposed(ports []string) ([]map[string]any, error) {
	out := []map[string]any{{"port": 22, "protocol": "SSH"}}
	all, err := cloud.EachPort(ports)
	for _, port := range all {
		out = append(out, map[string]any{"port": port, "protocol": "TCP"})
	}
	return out, err
}

// Create makes a pod.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	body, err := body(l.Spec)
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		body := maps.Clone(body)
		body["name"] = l.Spec.Offer.Region + "." + names.Of(l.Spec.ID, rank)
		made, err := call[pod](ctx, c, rest.Call{Method: "POST", Path: "/v2/pods", Body: body})
		return made.ID.String(), err
	})
}

func body(spec cloud.LaunchSpec) (map[string]any, error) {
	body, err := compute(spec.Offer.InstanceType)
	if err != nil {
		return nil, err
	}
	expose, err := exposed(spec.Ports)
	if err != nil {
		return nil, err
	}
	script, err := vm.StartScript(spec.AuthorizedKey, true, 0)
	if err != nil {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	maps.Copy(body, map[string]any{
		"regions": []string{spec.Offer.Region}, "image": vm.Container(spec, defaultImage), "imagePublicType": "PUBLIC", "containerVolumeInGb": cmp.Or(spec.DiskGB, defaultDiskGB),
		"initializationCommand": vm.Command(script), "expose": expose,
	})
	if spec.Login != nil {
		body["imagePublicType"], body["imageRegistryUsername"], body["imageRegistryPassword"] = "PRIVATE", spec.Login.Username, spec.Login.Password
	}
	return body, nil
}

// Delete begins to end pods.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := call[any](ctx, c, rest.Call{Method: "DELETE", Path: "/v2/pods/" + url.PathEscape(m.ID)})
		return err
	})
}

// Connect has nothing to do: a pod brings its key and its ports.
func (d driver) Connect(context.Context, cloud.LaunchSpec) error { return nil }

func (d driver) Disconnect(context.Context, cloud.ClusterID, bool) ([]string, error) { return nil, nil }

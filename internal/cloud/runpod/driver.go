package runpod

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is RunPod for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// pod is what the API tells of one.
type pod struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Status     string `json:"status"`
	DataCenter string `json:"dataCenterId"`
	GPU        struct {
		ID    string `json:"id"`
		Count int    `json:"count"`
	} `json:"gpu"`
	Runtime struct {
		Ports []struct {
			Private int    `json:"private"`
			Public  int    `json:"public"`
			Type    string `json:"type"`
			IP      string `json:"ip"`
		} `json:"ports"`
	} `json:"runtime"`
	Mounts struct {
		Network []mount `json:"network"`
	} `json:"mounts"`
	Created time.Time `json:"createdAt"`
}

// states are RunPod's words for what a pod does. A broken one may come to itself.
var states = map[string]vm.State{
	"PROVISIONING": vm.Pending, "STARTING": vm.Pending, "ERROR": vm.Pending, "RUNNING": vm.Running, "EXITED": vm.Stopped, "TERMINATED": vm.Ended,
}

// List reads the list of all pods. Ports are mapped anew whenever a
// pod starts.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := list[pod](ctx, c, "pods", "pods")
	if err != nil {
		return nil, err
	}
	var found []vm.Machine
	for _, p := range all {
		tags, ours := names.Tags(id, p.Name)
		if !ours {
			continue
		}
		m := vm.Machine{
			ID: p.ID, Region: region(p.DataCenter), Zone: p.DataCenter, State: states[p.Status], RawState: p.Status, Type: fmt.Sprintf("%dx %s", p.GPU.Count, p.GPU.ID),
			Tags: tags, Created: p.Created, Reach: cloud.Reach{Method: "ssh", User: "root"},
		}
		for _, at := range p.Runtime.Ports {
			if at.Type == "tcp" && at.IP != "" {
				m.MapPort(at.Private, at.IP, at.Public)
			}
		}
		found = append(found, m)
	}
	return found, nil
}

// list reads all pages of a list, which are behind a field of that name.
func list[T any](ctx context.Context, c *rest.Client, path, kind string) ([]T, error) {
	return rest.FieldPages[T](ctx, c, "/"+path, kind, "pagination.nextCursor", "cursor", url.Values{})
}

const (
	defaultImage  = "runpod/base:1.0.2-ubuntu2204"
	defaultDiskGB = 50
	mostArgs      = 8 << 10 // bytes of a pod's arguments that are sure to be taken
)

// podPorts are the ports of a pod, that of ssh first.
func podPorts(ports []string) ([]string, error) {
	out := []string{"22/tcp"}
	all, err := vm.EachPort("RunPod", 10, ports)
	for _, port := range all {
		out = append(out, strconv.Itoa(port)+"/tcp")
	}
	return out, err
}

// Create makes a pod, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	spec := l.Spec
	if _, err := room(ctx, c, spec.Offer); err != nil {
		return nil, err
	}
	_, body, err := compute(spec.Offer.InstanceType)
	if err != nil {
		return nil, err
	}
	ports, err := podPorts(spec.Ports)
	if err != nil {
		return nil, err
	}
	script, err := vm.StartScript(spec.AuthorizedKey, true, mostArgs/2) // it is sent in base64
	if err != nil {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	maps.Copy(body, map[string]any{
		"image": vm.Container(spec, defaultImage), "args": vm.Command(script), "dataCenterIds": []string{spec.Offer.Zone},
		"disk": cmp.Or(spec.DiskGB, defaultDiskGB), "ports": ports,
	})
	logins, err := registries(ctx, c, spec.ID)
	if err != nil {
		return nil, err
	}
	for _, r := range logins {
		body["registry"] = r.ID
	}
	for _, m := range spec.Volumes { // one at most
		v, err := d.Find(ctx, m.Volume, spec.Offer.Place)
		if err != nil {
			return nil, err
		}
		body["mounts"] = map[string]any{"network": []mount{{v.ID, m.Path}}}
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		body["name"] = names.Of(spec.ID, rank) // there is one
		made, err := rest.Do[pod](ctx, c, "POST", "/pods", body)
		return made.ID, err
	})
}

// Delete ends pods.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "DELETE", "/pods/%s", nil)
}

// login is a registry's that RunPod keeps.
type login struct {
	ID       string `json:"id,omitempty"`
	Name     string `json:"name"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// registries are the cluster's logins, by the name that only it has.
func registries(ctx context.Context, c *rest.Client, id cloud.ClusterID) ([]login, error) {
	all, err := list[login](ctx, c, "registries", "registries")
	return slices.DeleteFunc(all, func(r login) bool { return r.Name != names.Cluster(id) }), err
}

// Connect keeps the login to the image's registry, which goes when the cluster does.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	if !spec.Login.Complete() {
		return nil
	}
	c, _, err := d.API()
	if err != nil {
		return err
	}
	have, err := registries(ctx, c, spec.ID)
	if err != nil || len(have) > 0 {
		return err
	}
	return cloud.Settled(ctx, func(ctx context.Context) error {
		_, err := rest.Do[any](ctx, c, "POST", "/registries", login{Name: names.Cluster(spec.ID), Username: spec.Login.Username, Password: spec.Login.Password})
		return err
	})
}

// Disconnect removes that login.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	own, err := registries(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return vm.Drop(ctx, &d.Account, d, own, func(r login) (what, path, region string) {
		return "the login to the registry", "/registries/" + url.PathEscape(r.ID), ""
	})
}

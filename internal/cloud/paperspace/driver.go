package paperspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Paperspace for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// states are Paperspace's words for what a machine does.
var states = map[string]vm.State{
	"provisioning": vm.Pending, "serviceready": vm.Pending, "starting": vm.Pending, "restarting": vm.Pending, "upgrading": vm.Pending,
	"ready": vm.Running, "running": vm.Running, "stopping": vm.Stopping, "off": vm.Stopped,
}

// machine is one as the API has it.
type machine struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Type      string    `json:"machineType"`
	Region    string    `json:"region"`
	PrivateIP string    `json:"privateIp"`
	PublicIP  string    `json:"publicIp"`
	Created   time.Time `json:"dtCreated"`
}

// list reads all pages of a list.
func list[T any](ctx context.Context, c *rest.Client, path string) ([]T, error) {
	return rest.All(ctx, func(ctx context.Context, after string) (items []T, next string, err error) {
		query := url.Values{"limit": {"100"}}
		if after != "" {
			query.Set("after", after)
		}
		var page struct {
			Items []T    `json:"items"`
			More  bool   `json:"hasMore"`
			Next  string `json:"nextPage"`
		}
		if err := get(ctx, c, path+"?"+query.Encode(), &page); err != nil || !page.More {
			return page.Items, "", err
		}
		return page.Items, page.Next, nil
	})
}

// List reads the list of all machines.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := list[machine](ctx, c, "/machines")
	if err != nil {
		return nil, err
	}
	var found []vm.Machine
	for _, m := range all {
		if tags, ours := names.Tags(id, m.Name); ours {
			found = append(found, vm.Machine{
				ID: m.ID, Region: listed(m.Region), State: states[m.State], RawState: m.State, Type: m.Type, Tags: tags, Created: m.Created, PrivateIP: m.PrivateIP, PublicIP: m.PublicIP,
				Reach: cloud.Reach{Method: "ssh", Host: m.PublicIP, Port: 22, User: "paperspace"},
			})
		}
	}
	return found, nil
}

// named is a thing that is known by its name.
type named struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Region string `json:"region"`
}

// docker installs Docker, which Paperspace's templates lack.
const docker = `command -v docker >/dev/null || curl -fsSL --max-time 120 https://get.docker.com | timeout 600 sh
usermod -aG docker paperspace
`

// script is the account's startup script that lets a key in, by a name that only it has.
// It is made if it is missing, and stays: all clusters share it.
func (d driver) script(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec) (id string, err error) {
	done, err := d.Take(ctx, cloud.ClusterID{Installation: "\x00scripts"})
	if err != nil {
		return "", err
	}
	defer done()
	text, err := vm.UserData(spec.AuthorizedKey, "paperspace", 0)
	if err != nil {
		return "", &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	shebang, letIn, _ := strings.Cut(text, "\n")
	if _, container := spec.ImagesAt(spec.Offer.Place); container != "" { // who gets in finds Docker
		text = shebang + "\nsystemctl stop ssh\n" + docker + letIn + "systemctl start ssh\n"
	} else {
		text = shebang + "\n" + letIn + docker
	}
	name := fmt.Sprintf("sky-add-key-%x", sha256.Sum256([]byte(text)))[:28]
	all, err := list[named](ctx, c, "/startup-scripts")
	if err != nil {
		return "", err
	}
	for _, s := range all {
		if s.Name == name {
			return s.ID, nil
		}
	}
	made, err := rest.Do[named](ctx, c, "POST", "/startup-scripts", map[string]any{"name": name, "script": text, "description": "made by sky", "isEnabled": true, "isRunOnce": true})
	if err == nil && made.ID == "" {
		err = &rest.NoAnswerError{Cloud: displayName, Err: errors.New("a new startup script has no id")}
	}
	return made.ID, err
}

// networks are the cluster's own in a region (everywhere for ""), by the name that only it
// has.
func networks(ctx context.Context, c *rest.Client, id cloud.ClusterID, region string) (own []named, err error) {
	all, err := list[named](ctx, c, "/private-networks")
	for _, n := range all {
		if n.Name == names.Cluster(id) && (region == "" || n.Region == "" || code(n.Region) == code(region)) {
			own = append(own, n)
		}
	}
	return own, err
}

// Connect makes the cluster's private network.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	cloud.Note(ctx, "Machines of Paperspace are open to the world, at all ports.")
	have, err := networks(ctx, c, spec.ID, spec.Offer.Region)
	if err != nil || len(have) > 0 {
		return err
	}
	return cloud.Settled(ctx, func(ctx context.Context) error {
		_, err := rest.Do[any](ctx, c, "POST", "/private-networks", map[string]any{"name": names.Cluster(spec.ID), "region": code(spec.Offer.Region)})
		return err
	})
}

// Disconnect removes the cluster's private networks.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	own, err := networks(ctx, c, id, "")
	if err != nil {
		return nil, err
	}
	return vm.Drop(ctx, &d.Account, d, own, func(n named) (what, path, region string) {
		return "the private network " + n.Name, "/private-networks/" + url.PathEscape(n.ID), ""
	})
}

// Create makes a machine of each rank, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	spec := l.Spec
	if err := room(ctx, c, spec.Offer); err != nil {
		return nil, err
	}
	template, err := template(spec.Offer.InstanceType)
	if err != nil {
		return nil, err
	}
	script, err := d.script(ctx, c, spec)
	if err != nil {
		return nil, err
	}
	own, err := networks(ctx, c, spec.ID, spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		body := map[string]any{
			"name": names.Of(spec.ID, rank), "machineType": spec.Offer.InstanceType, "templateId": template, "diskSize": disk(spec.DiskGB), "region": code(spec.Offer.Region),
			"startupScriptId": script, "publicIpType": "dynamic", "startOnCreate": true, "autoSnapshotEnabled": false, "autoShutdownEnabled": false, "takeInitialSnapshot": false, "emailPassword": false,
		}
		if nvlink[spec.Offer.InstanceType] {
			body["enableNvlink"] = true
		}
		if len(own) > 0 {
			body["networkId"] = own[0].ID
		}
		made, err := rest.Do[struct {
			Data machine `json:"data"`
		}](ctx, c, "POST", "/machines", body)
		return made.Data.ID, err
	})
}

// Start switches machines on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "PATCH", "/machines/%s/start", nil)
}

// Stop switches machines off.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "PATCH", "/machines/%s/stop", nil)
}

// Delete ends machines.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "DELETE", "/machines/%s", nil)
}

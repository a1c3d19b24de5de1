package do

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is DigitalOcean for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// droplet is one as the API has it.
type droplet struct {
	ID       json.Number `json:"id"`
	Name     string      `json:"name"`
	Status   string      `json:"status"`
	Locked   bool        `json:"locked"` // something is being done to it
	Created  time.Time   `json:"created_at"`
	Size     string      `json:"size_slug"`
	Tags     []string    `json:"tags"`
	Region   struct{ Slug string }
	Networks struct {
		V4 []struct {
			IP   string `json:"ip_address"`
			Type string `json:"type"`
		} `json:"v4"`
	} `json:"networks"`
}

// states are DigitalOcean's words for what a droplet does, which has no words for being
// switched on or off: it is locked meanwhile.
var states = map[string]vm.State{"new": vm.Pending, "active": vm.Running, "off": vm.Stopped, "archive": vm.Stopped}

func (d droplet) state() vm.State {
	switch state := states[d.Status]; {
	case d.Locked && state == vm.Running:
		return vm.Stopping
	case d.Locked && state == vm.Stopped:
		return vm.Pending
	default:
		return state
	}
}

// list reads all pages of a list.
func list[T any](ctx context.Context, c *rest.Client, kind, path string, query url.Values) ([]T, error) {
	q := url.Values{"per_page": {"200"}}
	maps.Copy(q, query)
	return rest.FieldPages[T](ctx, c, path, kind, "links.pages.next", "page", q)
}

// List reads the list of all droplets.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := list[droplet](ctx, c, "droplets", "/droplets", nil)
	if err != nil {
		return nil, err
	}
	var found []vm.Machine
	for _, i := range all {
		tags, ours := names.Tags(id, i.Name)
		if !ours {
			continue
		}
		m := vm.Machine{ID: i.ID.String(), Region: i.Region.Slug, State: i.state(), RawState: i.Status, Type: i.Size, Tags: tags, Created: i.Created}
		for _, n := range i.Networks.V4 {
			if n.Type == "public" {
				m.PublicIP = n.IP
			} else if n.Type == "private" {
				m.PrivateIP = n.IP
			}
		}
		m.Reach = cloud.Reach{Method: "ssh", Host: m.PublicIP, Port: 22, User: "root"}
		found = append(found, m)
	}
	return found, nil
}

// image is what a droplet starts from: DigitalOcean's images with drivers for GPUs, which
// have Docker, too.
func image(spec cloud.LaunchSpec) any {
	size := spec.Offer.InstanceType
	switch {
	case spec.ImageID != "":
		if n, err := strconv.Atoi(spec.ImageID); err == nil {
			return n
		}
		return spec.ImageID
	case strings.HasPrefix(size, "gpu-mi"):
		return "gpu-amd-base"
	case strings.HasPrefix(size, "gpu-") && strings.Contains(size, "x8-"):
		return "gpu-h100x8-base"
	}
	return "gpu-h100x1-base"
}

// Create makes a droplet of each rank, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	spec := l.Spec
	size, _, err := room(ctx, c, spec.Offer)
	if err != nil {
		return nil, err
	}
	key, err := d.EnsureKey(ctx, spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) ([]vm.Key, error) {
			type key struct {
				ID     json.Number
				Name   string
				Public string `json:"public_key"`
			}
			all, err := list[key](ctx, c, "ssh_keys", "/account/keys", nil)
			keys := []vm.Key{}
			for _, k := range all {
				keys = append(keys, vm.Key{ID: k.ID.String(), Name: k.Name, Public: k.Public})
			}
			return keys, err
		},
		Make: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "POST", "/account/keys", k)
			return err
		},
		Delete: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "DELETE", "/account/keys/"+k.ID, nil)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, k := range slices.Sorted(maps.Keys(spec.Labels)) {
		tags = append(tags, k+":"+spec.Labels[k])
	}
	body := map[string]any{"region": spec.Offer.Region, "size": spec.Offer.InstanceType, "image": image(spec), "ssh_keys": []json.Number{json.Number(key.ID)}, "tags": tags}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		body := maps.Clone(body)
		body["name"] = names.Of(spec.ID, rank)
		if spec.DiskGB > size.DiskGB {
			v, err := d.volume(ctx, c, spec, rank)
			if err != nil {
				return "", err
			}
			body["volumes"], body["user_data"] = []string{v.ID}, mount(v.Name)
		}
		made, err := rest.Do[struct{ Droplet droplet }](ctx, c, "POST", "/droplets", body)
		return made.Droplet.ID.String(), err
	})
}

// volume is a block volume as the API has it. Its name is not longer than 64 characters.
type volume struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	Droplets []json.Number `json:"droplet_ids"`
}

func volumeName(id cloud.ClusterID) string { return "sky-" + vm.Digest(id) + "-" }

// volume is the one of a rank whose own disk is smaller than asked for.
func (d driver) volume(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec, rank int) (volume, error) {
	name := volumeName(spec.ID) + strconv.Itoa(rank)
	query := url.Values{"name": {name}, "region": {spec.Offer.Region}}
	have, err := list[volume](ctx, c, "volumes", "/volumes", query)
	if err != nil || len(have) > 0 {
		return append(have, volume{})[0], err
	}
	cloud.Note(ctx, fmt.Sprintf("The disks of %s have less than %d GB: each node has a volume of that size at /mnt/disk.", spec.Offer.InstanceType, spec.DiskGB))
	made, err := rest.Do[struct{ Volume volume }](ctx, c, "POST", "/volumes", map[string]any{
		"name": name, "region": spec.Offer.Region, "size_gigabytes": spec.DiskGB, "filesystem_type": "ext4", "description": "of the cluster " + spec.ID.Name,
	})
	return made.Volume, err
}

// mount is what a droplet runs once, so that its volume is there, also after it was off.
func mount(volume string) string {
	return "#!/bin/sh\ndisk=/dev/disk/by-id/scsi-0DO_Volume_" + volume + `
n=0
while [ ! -e "$disk" ] && [ $n -lt 120 ]; do sleep 1; n=$((n+1)); done
mkdir -p /mnt/disk
echo "$disk /mnt/disk ext4 defaults,nofail,discard 0 2" >> /etc/fstab
mount /mnt/disk
`
}

// act begins something that takes a droplet its time.
func (d driver) act(ctx context.Context, machines []vm.Machine, kind func(vm.Machine) string) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := rest.Do[any](ctx, c, "POST", "/droplets/"+url.PathEscape(m.ID)+"/actions", map[string]string{"type": kind(m)})
		return err
	})
}

// Start switches droplets on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.act(ctx, machines, func(m vm.Machine) string { d.asked.Delete(m.ID); return "power_on" })
}

// patience is how long a droplet may take to shut down before it is switched off.
const patience = 2 * time.Minute

// Stop shuts droplets down, and switches off those that do not.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.act(ctx, machines, func(m vm.Machine) string {
		at, again := d.asked.LoadOrStore(m.ID, time.Now())
		if again && time.Since(at.(time.Time)) > patience {
			return "power_off"
		} else if !again {
			cloud.Note(ctx, "DigitalOcean bills droplets that are off like those that are on. What ends the costs is: sky down")
		}
		return "shutdown"
	})
}

// Delete destroys droplets.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		d.asked.Delete(m.ID)
		_, err := rest.Do[any](ctx, c, "DELETE", "/droplets/"+url.PathEscape(m.ID), nil)
		return err
	})
}

// Connect has nothing to do: droplets bring their key, and are open to the world.
func (d driver) Connect(ctx context.Context, _ cloud.LaunchSpec) error {
	cloud.Note(ctx, "Droplets without a firewall are open to the world, at all ports.")
	return nil
}

// Disconnect removes the cluster's volumes.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) (left []string, err error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := list[volume](ctx, c, "volumes", "/volumes", nil)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v volume) bool { return !strings.HasPrefix(v.Name, volumeName(id)) })
	return vm.Drop(ctx, &d.Account, d, all, func(v volume) (what, path, region string) {
		return "the volume " + v.Name, "/volumes/" + url.PathEscape(v.ID), ""
	})
}

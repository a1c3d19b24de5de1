package verda

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Verda for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// instance is one as the API has it.
type instance struct {
	ID        string    `json:"id"`
	Hostname  string    `json:"hostname"`
	Status    string    `json:"status"`
	Location  string    `json:"location"`
	Type      string    `json:"instance_type"`
	IP        string    `json:"ip"`
	PrivateIP string    `json:"private_ip"`
	Spot      bool      `json:"is_spot"`
	Created   time.Time `json:"created_at"`
}

// states are Verda's words for what a machine does. One that has an error may get over it.
var states = map[string]vm.State{
	"new": vm.Pending, "ordered": vm.Pending, "pending": vm.Pending, "provisioning": vm.Pending, "validating": vm.Pending, "restoring": vm.Pending, "error": vm.Pending, "no_capacity": vm.Pending,
	"running": vm.Running, "starting_hibernation": vm.Stopping, "hibernating": vm.Stopped, "offline": vm.Stopped, "deleting": vm.Ending, "discontinued": vm.Ended, "notfound": vm.Ended,
}

// List reads the list of all machines, which is one page.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := rest.Do[[]instance](ctx, c, "GET", "/instances", nil)
	if err != nil {
		return nil, err
	}
	var found []vm.Machine
	for _, i := range all {
		tags, ours := names.Tags(id, i.Hostname)
		if !ours {
			continue
		}
		m := vm.Machine{
			ID: i.ID, Region: i.Location, State: states[i.Status], RawState: i.Status, Type: i.Type, Spot: i.Spot, Tags: tags, Created: i.Created, PrivateIP: i.PrivateIP, PublicIP: i.IP,
			Reach: cloud.Reach{Method: "ssh", Host: i.IP, Port: 22, User: "root"},
		}
		switch {
		case i.Status == "no_capacity":
			m.Failure = &cloud.CapacityError{Place: cloud.Place{Cloud: Name, Region: i.Location}, Err: fmt.Errorf("Verda says that there is no capacity for %s", i.ID)}
		case i.Status == "discontinued" && i.Spot:
			m.Reclaimed, m.Reason = true, "Verda took it back"
		}
		found = append(found, m)
	}
	return found, nil
}

const (
	image         = "ubuntu-24.04-cuda-12.8-open-docker"
	defaultDiskGB = 100
)

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
	key, err := d.EnsureKey(ctx, spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) ([]vm.Key, error) {
			all, err := rest.Do[[]struct{ ID, Name, Key string }](ctx, c, "GET", "/ssh-keys", nil)
			keys := []vm.Key{}
			for _, k := range all {
				keys = append(keys, vm.Key{ID: k.ID, Name: k.Name, Public: k.Key})
			}
			return keys, err
		},
		Make: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[rest.Text](ctx, c, "POST", "/ssh-keys", map[string]string{"name": k.Name, "key": k.Public})
			return err
		},
		Delete: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[rest.Text](ctx, c, "DELETE", "/ssh-keys/"+url.PathEscape(k.ID), nil)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		name := names.Of(spec.ID, rank)
		volume := map[string]any{"name": name, "size": cmp.Or(spec.DiskGB, defaultDiskGB)}
		body := map[string]any{
			"instance_type": spec.Offer.InstanceType, "image": cmp.Or(spec.ImageID, image), "hostname": name, "description": "made by sky for " + cmp.Or(spec.DisplayName, spec.ID.Name),
			"ssh_key_ids": []string{key.ID}, "location_code": spec.Offer.Region, "os_volume": volume, "contract": "PAY_AS_YOU_GO",
		}
		if spec.Offer.Spot { // whose disk goes with it, since it costs on its own
			body["is_spot"], body["contract"], volume["on_spot_discontinue"] = true, "SPOT", "delete_permanently"
		}
		answer, err := rest.Do[rest.Text](ctx, c, "POST", "/instances", body)
		return strings.Trim(strings.TrimSpace(string(answer)), `"`), err
	})
}

// Delete ends machines with their disks.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		answer, err := rest.Do[rest.Text](ctx, c, "PUT", "/instances", map[string]any{"action": "delete", "id": []string{m.ID}, "delete_permanently": true})
		if err == nil && strings.Contains(string(answer), `"status":"error"`) { // of a call about several, of which this is one
			err = &rest.Error{Status: http.StatusBadRequest, Message: string(answer)}
		}
		return err
	})
}

// Connect has nothing to do: machines bring their key, and are open to the world.
func (d driver) Connect(ctx context.Context, _ cloud.LaunchSpec) error {
	cloud.Note(ctx, "Machines of Verda are open to the world, at all ports.")
	return nil
}

func (d driver) Disconnect(context.Context, cloud.ClusterID, bool) ([]string, error) { return nil, nil }

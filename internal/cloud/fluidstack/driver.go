package fluidstack

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is FluidStack for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// instance is one as the API has it.
type instance struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Status        string    `json:"status"`
	User          string    `json:"username"`
	Port          string    `json:"ssh_port"`
	IP            string    `json:"ip_address"`
	Created       time.Time `json:"created_at"`
	Configuration struct {
		GPU struct {
			Name string `json:"name"`
		} `json:"gpu_model"`
		Count  int   `json:"gpu_count"`
		Region place `json:"region"`
	} `json:"configuration"`
}

// states are FluidStack's words for what an instance does. One that failed never ran.
var states = map[string]vm.State{
	"pending": vm.Pending, "provisioning": vm.Pending, "starting": vm.Pending, "running": vm.Running, "stopping": vm.Stopping, "stopped": vm.Stopped,
	"failed": vm.Ended, "terminated": vm.Ended,
}

// mostPages bounds a list.
const mostPages = 1000

// instances reads all pages of the list, which ends with an empty one, or with one that was
// there before.
func instances(ctx context.Context, c *rest.Client) ([]instance, error) {
	var all []instance
	for page := 1; page <= mostPages; page++ {
		part, err := rest.Do[[]instance](ctx, c, "GET", "/instances?include_failed_instances=true&page="+strconv.Itoa(page), nil)
		if err != nil {
			return nil, err
		}
		if len(part) == 0 || slices.ContainsFunc(all, func(i instance) bool { return i.ID == part[0].ID }) {
			return all, nil
		}
		all = append(all, part...)
	}
	return nil, &bounded.TooMuchError{What: "the list of instances", Most: mostPages, Unit: "pages"}
}

// List reads the list of all instances.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := instances(ctx, c)
	if err != nil {
		return nil, err
	}
	var found []vm.Machine
	for _, i := range all {
		tags, ours := names.Tags(id, i.Name)
		if !ours {
			continue
		}
		m := vm.Machine{
			ID: i.ID, Region: string(i.Configuration.Region), State: states[i.Status], RawState: i.Status, Type: i.Configuration.GPU.Name + "::" + strconv.Itoa(i.Configuration.Count),
			Tags: tags, Created: i.Created, PublicIP: i.IP, Reach: cloud.Reach{Method: "ssh", Host: i.IP, Port: 22, User: "ubuntu"},
		}
		if n, err := strconv.Atoi(i.Port); err == nil && n > 0 {
			m.Reach.Port = n
		}
		if i.User != "" {
			m.Reach.User = i.User
		}
		if i.Status == "failed" {
			m.Reclaimed, m.Reason = true, "FluidStack says that it failed"
		}
		found = append(found, m)
	}
	return found, nil
}

const image = "ubuntu_22_04_lts_nvidia"

// Create makes an instance of each rank, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	spec := l.Spec
	if _, err := room(ctx, c, spec.Offer); err != nil {
		return nil, err
	}
	gpu, count, err := parseType(spec.Offer.InstanceType)
	if err != nil {
		return nil, err
	}
	key, err := d.EnsureKey(ctx, spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) ([]vm.Key, error) { return rest.Do[[]vm.Key](ctx, c, "GET", "/ssh_keys", nil) },
		Make: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "POST", "/ssh_keys", k)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		made, err := rest.Do[instance](ctx, c, "POST", "/instances", map[string]any{
			"name": names.Of(spec.ID, rank), "gpu_type": gpu, "gpu_count": count, "region": spec.Offer.Region, "ssh_key": key.Name, "operating_system_label": image,
		})
		return made.ID, err
	})
}

// Start switches instances on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "PUT", "/instances/%s/start", nil)
}

// Stop switches off the instances that run; others are looked at again.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	on := slices.DeleteFunc(slices.Clone(machines), func(m vm.Machine) bool { return m.RawState != "running" })
	return d.Each(ctx, d, on, "PUT", "/instances/%s/stop", nil)
}

// Delete ends instances.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "DELETE", "/instances/%s", nil)
}

// Connect has nothing to do: instances bring their key, and are open to the world.
func (d driver) Connect(ctx context.Context, _ cloud.LaunchSpec) error {
	cloud.Note(ctx, "Machines of FluidStack are open to the world, at all ports.")
	return nil
}

func (d driver) Disconnect(context.Context, cloud.ClusterID, bool) ([]string, error) { return nil, nil }

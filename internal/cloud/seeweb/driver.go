package seeweb

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Seeweb for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// server is one as the API has it.
type server struct {
	Name     string     `json:"name"`
	IPv4     string     `json:"ipv4"`
	Plan     string     `json:"plan"`
	Location string     `json:"location"`
	Notes    string     `json:"notes"`
	Status   string     `json:"status"`
	Created  time.Time  `json:"creation_date"`
	Deleted  *time.Time `json:"deletion_date"`
}

// states are Seeweb's words for what a server does, of lists and of servers that are asked,
// which write them in different ways.
var states = map[string]vm.State{
	"booting": vm.Pending, "poweringon": vm.Pending, "booted": vm.Running, "running": vm.Running, "poweringoff": vm.Stopping, "off": vm.Stopped, "stopped": vm.Stopped, "shutoff": vm.Stopped,
	"deleting": vm.Ending, "deleted": vm.Ended, "terminated": vm.Ended,
}

// List reads the list of all servers, which is one page, and asks those of the cluster that
// are said to be on whether they are.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := call[struct{ Server []server }](ctx, c, "GET", "/servers", nil)
	if err != nil {
		return nil, err
	}
	var found []vm.Machine
	for _, s := range all.Server {
		tags, ours := names.Tags(id, s.Notes)
		if !ours {
			continue
		}
		m := s.machine(tags)
		if m.State == vm.Running {
			now, err := call[struct {
				Server struct {
					Current string `json:"current_status"`
				}
			}](ctx, c, "GET", "/servers/"+url.PathEscape(s.Name)+"/status", nil)
			switch {
			case err != nil && d.Refusals.Means(err) == vm.NotThere: // it went meanwhile
				m.State = vm.Ended
			case err != nil:
				return nil, err
			default:
				m.State, m.RawState = states[strings.ToLower(now.Server.Current)], now.Server.Current
			}
		}
		found = append(found, m)
	}
	return found, nil
}

func (s server) machine(tags map[string]string) vm.Machine {
	m := vm.Machine{
		ID: s.Name, Region: s.Location, State: states[strings.ToLower(s.Status)], RawState: s.Status, Type: s.Plan, Tags: tags, Created: s.Created, PublicIP: s.IPv4,
		Reach: cloud.Reach{Method: "ssh", Host: s.IPv4, Port: 22, User: "ecuser", Machine: cloud.MachinePowerOff},
	}
	if s.Deleted != nil {
		m.State = vm.Ended
	}
	return m
}

// Create makes a server, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	spec := l.Spec
	plan, err := room(ctx, c, spec.Offer)
	if err != nil {
		return nil, err
	}
	key, err := d.EnsureKey(ctx, spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) ([]vm.Key, error) {
			all, err := call[struct {
				Keys []struct{ Label, Key string } `json:"pubkeys"`
			}](ctx, c, "GET", "/sshkeys", nil)
			keys := []vm.Key{}
			for _, k := range all.Keys {
				keys = append(keys, vm.Key{Name: k.Label, Public: k.Key})
			}
			return keys, err
		},
		Make: func(ctx context.Context, k vm.Key) error {
			_, err := call[any](ctx, c, "POST", "/sshkeys", map[string]string{"label": k.Name, "key": k.Public})
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		made, err := call[struct{ Server server }](ctx, c, "POST", "/servers", map[string]string{
			"plan": spec.Offer.InstanceType, "location": spec.Offer.Region, "image": image(plan), "notes": names.Of(spec.ID, rank), "ssh_key": key.Name,
		})
		if err == nil && made.Server.Name == "" {
			err = &rest.NoAnswerError{Cloud: displayName, Err: errors.New("a new server has no name")}
		}
		return made.Server.Name, err
	})
}

// act begins something that takes a server its time.
func (d driver) act(ctx context.Context, machines []vm.Machine, kind string) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := call[any](ctx, c, "POST", "/servers/"+url.PathEscape(m.ID)+"/actions", map[string]string{"type": kind})
		return err
	})
}

// Start switches servers on.
func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.act(ctx, machines, "power_on")
}

// Stop switches servers off. Their disks stay.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.act(ctx, machines, "power_off")
}

// Delete begins to delete servers.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := call[any](ctx, c, "DELETE", "/servers/"+url.PathEscape(m.ID), nil)
		return err
	})
}

// Connect has nothing to do: servers bring their key, and are open to the world.
func (d driver) Connect(ctx context.Context, _ cloud.LaunchSpec) error {
	cloud.Note(ctx, "Servers of Seeweb are open to the world, at all ports.")
	return nil
}

func (d driver) Disconnect(context.Context, cloud.ClusterID, bool) ([]string, error) { return nil, nil }

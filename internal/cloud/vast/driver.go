package vast

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Vast for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
	vm.Unconnected // an instance brings its key and its ports
}

// instance is what the API tells of one.
type instance struct {
	fetch.VastOffer             // its machine
	ID              json.Number `json:"id"`
	Label           string      `json:"label"`
	Status          string      `json:"actual_status"`
	Contract        string      `json:"cur_state"`
	Intended        string      `json:"intended_status"`
	Message         string      `json:"status_msg"`
	Bid             bool        `json:"is_bid"`
	Public          string      `json:"public_ipaddr"`
	Local           string      `json:"local_ipaddrs"`
	Started         float64     `json:"start_date"`
	Ports           map[string][]struct {
		HostPort string
	} `json:"ports"`
}

// Words for what Vast has none for.
const (
	provisioning = "provisioning" // no status yet
	scheduling   = "scheduling"   // to start as soon as its GPUs are free
	unavailable  = "resources_unavailable"
)

// states are Vast's words for what a container does. Hosts that are gone come back, or do
// not.
var states = map[string]vm.State{
	provisioning: vm.Pending, "loading": vm.Pending, "rebooting": vm.Pending, "created": vm.Pending, "unknown": vm.Pending, "offline": vm.Pending, "frozen": vm.Pending,
	"running": vm.Running, "stopped": vm.Stopped, "exited": vm.Stopped, scheduling: vm.Pending,
}

// state is what an instance does, Vast's word for that, and why.
func (i instance) state() (state vm.State, said, why string) {
	said = cmp.Or(i.Status, provisioning)
	state = states[said]
	off := state == vm.Stopped || said == provisioning && i.Contract == "stopped"
	switch {
	case i.Contract == "unloaded":
		return vm.Ended, "unloaded", i.Message
	case off && i.Intended == "running" && i.Contract == "stopped" && i.Bid:
		return vm.Stopped, said, "somebody pays more for its machine"
	case off && i.Intended == "running" && i.Contract == "stopped":
		return vm.Pending, scheduling, i.Message
	case off && i.Intended == "running":
		return state, said, "its container ended: " + i.Message
	case (state == vm.Running || state == vm.Pending) && i.Intended == "stopped" && said != provisioning:
		return vm.Stopping, said, ""
	}
	return state, said, ""
}

// List reads the list of all instances. Ports are mapped anew whenever one starts.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := rest.FieldPages[instance](ctx, c, "/v1/instances/", "instances", "next_token", "after_token", url.Values{"limit": {"25"}})
	if err != nil {
		return nil, err
	}
	var found []vm.Machine
	for _, i := range all {
		if tags, ours := names.Tags(id, i.Label); ours {
			found = append(found, i.machine(tags))
		}
	}
	return found, nil
}

func (i instance) machine(tags map[string]string) vm.Machine {
	m := vm.Machine{
		ID: i.ID.String(), Region: i.Country(), Type: i.Type(), Spot: i.Bid, Tags: tags,
		Created: time.UnixMilli(int64(i.Started * 1000)), Reach: cloud.Reach{Method: "ssh", User: "root"},
	}
	m.State, m.RawState, m.Reason = i.state()
	if m.State == vm.Pending && strings.HasPrefix(i.Message, "Error") { // of a host that cannot start it
		m.Failure = &cloud.CapacityError{Place: cloud.Place{Cloud: Name, Region: m.Region}, Err: fmt.Errorf("the machine cannot start %s: %s", m.ID, i.Message)}
	}
	for port, at := range i.Ports {
		number, tcp := strings.CutSuffix(port, "/tcp")
		inside, err := strconv.Atoi(number)
		if !tcp || err != nil || len(at) == 0 || i.Public == "" {
			continue
		}
		if outside, err := strconv.Atoi(at[0].HostPort); err == nil {
			m.MapPort(inside, i.Public, outside)
		}
	}
	return m
}

const (
	defaultImage = "vastai/base:0.0.2"
	mostScript   = 4096
	mostTries    = 8 // of machines that somebody else has by now
)

// environment are the variables of a container, and its ports, which Vast has among them.
func environment(ports []string) (map[string]string, error) {
	env := map[string]string{"__SOURCE": "skypilot"}
	all, err := vm.EachPort("Vast", 63, ports)
	for _, port := range all {
		env[fmt.Sprintf("-p %d:%d", port, port)] = "1"
	}
	return env, err
}

// Create takes the best machine. One that is gone by now costs a call.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	spec := l.Spec
	asks, err := room(ctx, c, spec)
	if err != nil {
		return nil, err
	}
	body, err := body(spec)
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (id string, err error) {
		body["label"] = names.Of(spec.ID, rank) // there is one
		_, own := body["price"]                 // the user's bid
		wanted := vm.Number(body, "price", 0)
		if own && wanted <= 0 {
			return "", &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("a bid is a number of dollars an hour, and bid_price in vast.create_instance_kwargs is %v", body["price"])}
		}
		for _, a := range asks[:min(len(asks), mostTries)] {
			if spec.Offer.Spot || own {
				now, _ := a.Price(spec.Offer.Spot)
				if !own {
					wanted = now
				}
				if body["price"], err = vm.Bid("Vast", spec.Offer, now, wanted, 1e6); err != nil {
					continue
				}
			}
			id, err = put(ctx, c, fmt.Sprintf("/v0/asks/%d/", a.ID), body)
			var gone *rest.Error
			if !errors.As(err, &gone) || d.Refusals.Means(err) != vm.Full {
				return id, err
			}
		}
		return "", err
	})
}

// put asks for a change. Some refusals have status 200.
func put(ctx context.Context, c *rest.Client, path string, body any) (made string, err error) {
	answer, err := rest.Do[struct {
		Success *bool
		Error   string
		Msg     string
		ID      json.Number `json:"new_contract"`
	}](ctx, c, "PUT", path, body)
	if err == nil && answer.Success != nil && !*answer.Success {
		err = &rest.Error{Status: http.StatusBadRequest, Code: answer.Error, Message: answer.Msg}
	}
	return answer.ID.String(), err
}

// body is what an instance is made with, over the user's own fields.
func body(spec cloud.LaunchSpec) (map[string]any, error) {
	env, err := environment(spec.Ports)
	if err != nil {
		return nil, err
	}
	script, err := vm.StartScript(spec.AuthorizedKey, false, mostScript-100)
	if err != nil {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	body := map[string]any{}
	extra, _ := spec.Settings["create_instance_kwargs"].(map[string]any)
	theirs := map[string]string{"template_hash": "template_hash_id", "bid_price": "price", "login": "image_login"} // names of Vast's command line
	for k, v := range extra {
		if k != "api_key" {
			body[cmp.Or(theirs[k], k)] = v
		}
	}
	maps.Copy(body, map[string]any{
		"image": vm.Container(spec, defaultImage), "disk": cmp.Or(spec.DiskGB, defaultDiskGB), "runtype": "ssh_direct", "target_state": "running", "cancel_unavail": true, "env": env,
		"onstart": "touch ~/.no_auto_tmux\n" + script,
	})
	switch {
	case spec.Login.Complete():
		body["image_login"] = fmt.Sprintf("-u %s -p %s %s", spec.Login.Username, spec.Login.Password, spec.Login.Server)
	case spec.Login != nil && body["image_login"] == nil:
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: errors.New("Vast keeps no logins to registries: launch the cluster anew with the task's")}
	}
	return body, nil
}

// turn switches instances on or off. A start for which there is no room is queued by
// Vast: that is taken back, since nobody waits for it.
func (d driver) turn(ctx context.Context, machines []vm.Machine, state string) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		to := func(state string) error {
			_, err := put(ctx, c, "/v0/instances/"+url.PathEscape(m.ID)+"/", map[string]string{"state": state})
			return err
		}
		err := to(state)
		var refused *rest.Error
		if errors.As(err, &refused) && refused.Code == unavailable && state == "running" {
			return errors.Join(&cloud.CapacityError{Place: cloud.Place{Cloud: Name, Region: m.Region}, Err: refused}, to("stopped"))
		}
		return err
	})
}

func (d driver) Start(ctx context.Context, _ cloud.LaunchSpec, machines []vm.Machine) error {
	return d.turn(ctx, machines, "running")
}

func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.turn(ctx, machines, "stopped")
}

// Delete destroys instances.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "DELETE", "/v0/instances/%s/", nil)
}

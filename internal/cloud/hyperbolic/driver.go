package hyperbolic

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// driver is Hyperbolic for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
	vm.Unconnected // an instance brings its key
}

// funds is what Hyperbolic says to those who have none.

// instance is rented GPUs as the API has them.
type instance struct {
	ID       string    `json:"id"`
	Created  time.Time `json:"created"`
	SSH      string    `json:"sshCommand"`
	Metadata struct {
		Sky map[string]string `json:"sky"`
	} `json:"userMetadata"`
	Instance struct {
		Status   string `json:"status"`
		GPUs     int    `json:"gpu_count"`
		Hardware struct {
			GPUs []struct {
				Model string `json:"model"`
			} `json:"gpus"`
		} `json:"hardware"`
	} `json:"instance"`
}

// states are Hyperbolic's words for what an instance does.
var states = map[string]vm.State{
	"creating": vm.Pending, "starting": vm.Pending, "pending": vm.Pending, "restarting": vm.Pending, "unknown": vm.Pending, "busy": vm.Pending, "offline": vm.Pending,
	"failed": vm.Pending, "error": vm.Pending, "online": vm.Running, "running": vm.Running, "stopping": vm.Ending, "terminating": vm.Ending, "terminated": vm.Ended,
}

// login is the command that a customer is asked to log in with.
var login = lazyregexp.New(`^ssh (?:-\S+ )*([a-z_][\w-]*)@([\w.:-]+)(?: -p (\d+))?`)

// List reads the list of all instances, which is one page.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := rest.Do[struct{ Instances []instance }](ctx, c, "GET", "/v1/marketplace/instances", nil)
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
	status := strings.ToLower(i.Instance.Status)
	m := vm.Machine{ID: i.ID, Region: fetch.HyperbolicRegion, State: states[status], RawState: status, Tags: i.Metadata.Sky, Created: i.Created, Reach: cloud.Reach{Method: "ssh"}}
	if gpus := i.Instance.Hardware.GPUs; len(gpus) > 0 {
		m.Type = fetch.HyperbolicType(i.Instance.GPUs, gpus[0].Model)
	}
	if at := login.FindStringSubmatch(i.SSH); at != nil {
		port, _ := strconv.Atoi(at[3])
		m.PublicIP, m.Reach = at[2], cloud.Reach{Method: "ssh", Host: at[2], Port: port, User: at[1]}
		if port == 0 {
			m.Reach.Port = 22
		}
	}
	if status == "failed" || status == "error" {
		m.Failure = &cloud.CapacityError{Place: cloud.Place{Cloud: Name, Region: m.Region}, Err: fmt.Errorf("Hyperbolic says that %s failed", i.ID)}
	}
	return m
}

// Create rents GPUs, once it is clear that there are some.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	model, count, err := room(ctx, c, l.Spec.Offer)
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		made, err := rest.Do[struct {
			ID string `json:"instanceName"`
		}](ctx, c, "POST", "/v2/marketplace/instances/create-cheapest", map[string]any{
			"gpuModel": model, "gpuCount": strconv.Itoa(count), "publicKey": strings.TrimSpace(l.Spec.AuthorizedKey), "userMetadata": map[string]any{"sky": l.Spec.AllTags(rank)},
		})
		if err == nil && made.ID == "" {
			err = &rest.NoAnswerError{Cloud: "Hyperbolic", Err: errors.New("a new instance has no name")}
		}
		return made.ID, err
	})
}

// Delete ends instances.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := rest.Do[any](ctx, c, "POST", "/v1/marketplace/instances/terminate", map[string]string{"id": m.ID})
		return err
	})
}

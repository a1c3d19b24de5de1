package primeintellect

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// driver is Prime Intellect for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
	vm.Unconnected // a pod brings its key
}

// firstOf is a text, or the first of a list of them.
type firstOf string

func (f *firstOf) UnmarshalJSON(body []byte) error {
	var one *string
	if json.Unmarshal(body, &one) == nil {
		if *f = ""; one != nil {
			*f = firstOf(*one)
		}
		return nil
	}
	var list []*string
	err := json.Unmarshal(body, &list)
	if err == nil && len(list) > 0 && list[0] != nil {
		*f = firstOf(*list[0])
	}
	return err
}

// pod is a pod as the API has it. It does not say where it is.
type pod struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Provider string    `json:"providerType"`
	Status   string    `json:"status"`
	Failure  string    `json:"installationFailure"`
	Created  time.Time `json:"createdAt"`
	GPU      string    `json:"gpuName"`
	GPUs     int       `json:"gpuCount"`
	Socket   string    `json:"socket"`
	SSH      firstOf   `json:"sshConnection"`
	Spot     bool      `json:"isSpot"`
}

// states are Prime Intellect's words for what a pod does.
var states = map[string]vm.State{
	"PROVISIONING": vm.Pending, "PENDING": vm.Pending, "UNKNOWN": vm.Pending, "ERROR": vm.Pending, "ACTIVE": vm.Running, "STOPPED": vm.Stopped, "DELETING": vm.Ending, "TERMINATED": vm.Ended,
}

// installing is our word for a pod that runs and cannot be logged in to.
const installing = "ACTIVE, but without a login"

// login is how a pod is logged in to.
var login = lazyregexp.New(`^(?:ssh )?([a-z_][\w-]*)@([\w.:-]+?)(?: -p (\d+))?$`)

// podName is the name of a pod. It tells the place too, which pods do not.
func podName(spec cloud.LaunchSpec, rank int) string {
	name := names.Of(spec.ID, rank) + at
	if region := spec.Offer.Region; placeForm.MatchString(region) {
		name += region
	}
	return name
}

// parse is what podName was made of. The place is "" if the name does not tell.
func parse(name string) (machine, region string) {
	if i := strings.LastIndex(name, at); i > 0 {
		return name[:i], name[i+len(at):]
	}
	return name, ""
}

const at = "--at-"

var placeForm = lazyregexp.New(`^[A-Za-z0-9_-]{1,30}$`)

// List reads the list of all pods.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := pages[pod](ctx, c, "/pods/")
	if err != nil {
		return nil, err
	}
	var list []vm.Machine
	for _, p := range all {
		name, region := parse(p.Name)
		if tags, ours := names.Tags(id, name); ours {
			m := p.machine(tags)
			m.Region = region
			list = append(list, m)
		}
	}
	return list, nil
}

// pages are all things of a list.
func pages[T any](ctx context.Context, c *rest.Client, path string) ([]T, error) {
	const limit = 100
	return rest.All(ctx, func(ctx context.Context, token string) ([]T, string, error) {
		offset, _ := strconv.Atoi(token)
		page, err := rest.Send[struct{ Data []T }](ctx, c, rest.Call{Method: "GET", Path: path, Query: url.Values{"offset": {strconv.Itoa(offset)}, "limit": {strconv.Itoa(limit)}}})
		if len(page.Data) < limit {
			return page.Data, "", err
		}
		return page.Data, strconv.Itoa(offset + limit), err
	})
}

func (p pod) machine(tags map[string]string) vm.Machine {
	kind := fetch.PrimeOffer{Provider: p.Provider, GPU: p.GPU, GPUs: p.GPUs, Socket: p.Socket}
	m := vm.Machine{ID: p.ID, State: states[p.Status], RawState: p.Status, Type: kind.Name(), Spot: p.Spot, Tags: tags, Created: p.Created, Reach: cloud.Reach{Method: "ssh"}}
	if to := login.FindStringSubmatch(string(p.SSH)); to != nil {
		m.PublicIP, m.Reach = to[2], cloud.Reach{Method: "ssh", Host: to[2], Port: 22, User: to[1]}
		if port, err := strconv.Atoi(to[3]); err == nil {
			m.Reach.Port = port
		}
	} else if m.State == vm.Running {
		m.State, m.RawState = vm.Pending, installing
	}
	if p.Status == "ERROR" || p.Failure != "" && m.State == vm.Pending {
		m.Failure = &cloud.CapacityError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Prime Intellect says that %s failed: %s", p.ID, p.Failure)}
	}
	return m
}

// sshKey is a key as the API has it.
type sshKey struct {
	ID     string `json:"id,omitempty"`
	Name   string `json:"name"`
	Public string `json:"publicKey"`
}

// Create makes a pod, once it is clear that there is one.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, keys, err := d.API()
	if err != nil {
		return nil, err
	}
	kind, err := room(ctx, c, l.Spec.Offer)
	if err != nil {
		return nil, err
	}
	key, err := d.EnsureKey(ctx, l.Spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) (list []vm.Key, err error) {
			all, err := pages[sshKey](ctx, c, "/ssh_keys/")
			for _, k := range all {
				list = append(list, vm.Key(k))
			}
			return list, err
		},
		Make: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "POST", "/ssh_keys/", sshKey(k))
			return err
		},
		Delete: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "DELETE", "/ssh_keys/"+url.PathEscape(k.ID), nil)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		body, err := body(l.Spec, rank, kind, key.ID, keys["team_id"])
		if err != nil {
			return "", err
		}
		made, err := rest.Do[struct{ ID string }](ctx, c, "POST", "/pods/", body)
		return made.ID, err
	})
}

func body(spec cloud.LaunchSpec, rank int, kind fetch.PrimeOffer, key, team string) (map[string]any, error) {
	disk, _, fits := kind.Disk.Size(spec.DiskGB)
	price, _ := kind.Price(spec.DiskGB)
	if !fits {
		return nil, &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("a disk of %s has up to %d GB, and %d were asked for", kind.Name(), *kind.Disk.Max, spec.DiskGB)}
	}
	cpus, _, _ := kind.CPUs.Size(0)
	memory, _, _ := kind.Memory.Size(0)
	pod := map[string]any{
		"name": podName(spec, rank), "cloudId": kind.CloudID, "gpuType": kind.GPU, "socket": kind.Socket, "gpuCount": kind.GPUs, "image": kind.Image(), "security": kind.Security, "sshKeyId": key,
		"maxPrice": math.Ceil(price*10000) / 10000,
	}
	for field, n := range map[string]int{"diskSize": disk, "vcpus": cpus, "memory": memory} {
		if n > 0 {
			pod[field] = n
		}
	}
	for field, where := range map[string]string{"dataCenterId": kind.DataCenter, "country": kind.Country} {
		if where != "" {
			pod[field] = where
		}
	}
	body := map[string]any{"pod": pod, "provider": map[string]string{"type": kind.Provider}}
	if team != "" {
		body["team"] = map[string]string{"teamId": team}
	}
	return body, nil
}

// Delete begins to end pods.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.Each(ctx, d, machines, "DELETE", "/pods/%s", nil)
}

package lambda

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Lambda for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

type named struct {
	Name string `json:"name"`
}

type tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// instance is a machine as the API has it.
type instance struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	IP        string `json:"ip"`
	PrivateIP string `json:"private_ip"`
	Status    string `json:"status"`
	Region    named  `json:"region"`
	Type      named  `json:"instance_type"`
	Tags      []tag  `json:"tags"`
}

// states are Lambda's words for what a machine does. An unhealthy one is reached
// by nobody, and may get well.
var states = map[string]vm.State{
	"booting": vm.Pending, "unhealthy": vm.Pending, "active": vm.Running,
	"terminating": vm.Ending, "terminated": vm.Ended, "preempted": vm.Ended,
}

// call makes a call and takes the answer out of its envelope.
func call[T any](ctx context.Context, c *rest.Client, method, path string, body any) (T, error) {
	answer, err := rest.Do[struct {
		Data T `json:"data"`
	}](ctx, c, method, path, body)
	return answer.Data, err
}

// List reads the list of all machines, which is one page.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	all, err := call[[]instance](ctx, c, "GET", "/instances", nil)
	if err != nil {
		return nil, err
	}
	var list []vm.Machine
	for _, i := range all {
		m := vm.Machine{
			ID: i.ID, Region: i.Region.Name, State: states[i.Status], RawState: i.Status, Reclaimed: i.Status == "preempted",
			Type: i.Type.Name, Tags: map[string]string{}, PrivateIP: i.PrivateIP, PublicIP: i.IP,
			Reach: cloud.Reach{Method: "ssh", Host: i.IP, Port: 22, User: "ubuntu"},
		}
		for _, t := range i.Tags {
			m.Tags[t.Key] = t.Value
		}
		if m.Reclaimed {
			m.Reason = "Lambda took it back"
		}
		if created, err := time.Parse(time.RFC3339, m.Tags[tagCreated]); err == nil {
			m.Created = created
		}
		if id.Has(m.Tags) {
			list = append(list, m)
		}
	}
	return list, nil
}

// tagCreated is when a machine was asked for, which Lambda does not tell.
const tagCreated = "sky-created"

// Create makes a machine of each rank, once it is clear that the region has room:
// launches are few a minute.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, _, err := d.API()
	if err != nil {
		return nil, err
	}
	if _, err := room(ctx, c, l.Spec.Offer); err != nil {
		return nil, err
	}
	key, err := d.EnsureKey(ctx, l.Spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) ([]vm.Key, error) { return call[[]vm.Key](ctx, c, "GET", "/ssh-keys", nil) },
		Make: func(ctx context.Context, k vm.Key) error {
			_, err := call[any](ctx, c, "POST", "/ssh-keys", k)
			return err
		},
		Delete: func(ctx context.Context, k vm.Key) error {
			_, err := call[any](ctx, c, "DELETE", "/ssh-keys/"+url.PathEscape(k.ID), nil)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	have, err := rulesets(ctx, c, l.Spec.ID, l.Spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	rules := []map[string]string{}
	for _, r := range have {
		rules = append(rules, map[string]string{"id": r.ID})
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		made, err := call[struct {
			IDs []string `json:"instance_ids"`
		}](ctx, c, "POST", "/instance-operations/launch", body(l.Spec, rank, key.Name, rules))
		if err == nil && len(made.IDs) != 1 {
			err = &rest.NoAnswerError{Cloud: "Lambda", Err: fmt.Errorf("a launch of one machine made %d", len(made.IDs))}
		}
		return strings.Join(made.IDs, ""), err
	})
}

func body(spec cloud.LaunchSpec, rank int, key string, rules []map[string]string) map[string]any {
	all := spec.AllTags(rank)
	all[tagCreated] = time.Now().UTC().Format(time.RFC3339)
	var tags []tag
	for _, k := range slices.Sorted(maps.Keys(all)) {
		value := []rune(all[k])
		tags = append(tags, tag{k, string(value[:min(len(value), maxLabel)])})
	}
	name := spec.ID.Name + map[bool]string{true: "-head", false: "-worker"}[rank == 0]
	return map[string]any{
		"region_name": spec.Offer.Region, "instance_type_name": spec.Offer.InstanceType,
		"ssh_key_names": []string{key}, "name": name, "tags": tags, "firewall_rulesets": rules,
	}
}

// room reports whether the region has room for such a machine; false: Lambda does
// not tell. It returns a CapacityError if there is none, or only at a higher price than was
// planned with.
func room(ctx context.Context, c *rest.Client, o cloud.Offer) (bool, error) {
	types, err := call[map[string]struct {
		Type struct {
			Cents float64 `json:"price_cents_per_hour"`
		} `json:"instance_type"`
		Regions []named `json:"regions_with_capacity_available"`
	}](ctx, c, "GET", "/instance-types", nil)
	if err != nil {
		return false, err
	}
	of, ok := types[o.InstanceType]
	if !ok {
		return false, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("Lambda has no type %q", o.InstanceType)}
	}
	here := named{o.Region}
	if slices.Contains(of.Regions, here) {
		return true, vm.Rose("Lambda", o, of.Type.Cents/100)
	}
	exists := false // as far as can be seen: a region that is full is in no list
	for _, t := range types {
		exists = exists || slices.Contains(t.Regions, here)
	}
	var elsewhere []string
	for _, r := range of.Regions {
		elsewhere = append(elsewhere, r.Name)
	}
	slices.Sort(elsewhere)
	switch {
	case len(elsewhere) == 0:
		return false, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Lambda has no %s in any region now", o.InstanceType)}
	case exists:
		return false, &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Lambda has no %s there now; it has some in %s", o.InstanceType, strings.Join(elsewhere, ", "))}
	}
	return false, nil
}

// Delete begins to end machines.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	var ids []string
	for _, m := range machines {
		ids = append(ids, m.ID)
	}
	_, err = call[any](ctx, c, "POST", "/instance-operations/terminate", map[string]any{"instance_ids": ids})
	return err
}

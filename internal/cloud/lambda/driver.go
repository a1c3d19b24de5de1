package lambda

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Lambda for the shared provider of machines.
type driver struct{ *Provider }

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
func call[T any](ctx context.Context, c *client, method, path string, body any) (T, error) {
	answer, err := rest.Do[struct {
		Data T `json:"data"`
	}](ctx, c.Client, method, path, body)
	return answer.Data, err
}

// List reads the list of all machines, which is one page.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.Where) ([]vm.Machine, error) {
	c, err := d.api()
	if err != nil {
		return nil, err
	}
	all, err := call[[]instance](ctx, c, "GET", "/instances", nil)
	if err != nil {
		return nil, err
	}
	want := id.Tags()
	var list []vm.Machine
	for _, i := range all {
		m := vm.Machine{
			ID: i.ID, Region: i.Region.Name, State: states[i.Status], Said: i.Status, Unasked: i.Status == "preempted",
			Type: i.Type.Name, Tags: map[string]string{}, PrivateIP: i.PrivateIP, PublicIP: i.IP,
			Reach: cloud.Reach{Method: "ssh", Host: i.IP, Port: 22, User: "ubuntu"},
		}
		for _, t := range i.Tags {
			m.Tags[t.Key] = t.Value
		}
		if m.State == vm.Running && i.IP == "" { // its address comes late
			m.State = vm.Pending
		}
		if m.Unasked {
			m.Reason = "Lambda took it back"
		}
		if created, err := time.Parse(time.RFC3339, m.Tags[tagCreated]); err == nil {
			m.Created = created
		}
		if within(want, m.Tags) {
			list = append(list, m)
		}
	}
	return list, nil
}

// tagCreated is when a machine was asked for, which Lambda does not tell.
const tagCreated = "sky-created"

// within reports whether tags hold all that are wanted.
func within(want, tags map[string]string) bool {
	for k, v := range want {
		if tags[k] != v {
			return false
		}
	}
	return true
}

// Create makes a machine of each rank, once it is clear that the region has room:
// launches are few a minute.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, err := d.api()
	if err != nil {
		return nil, err
	}
	if _, err := c.room(ctx, l.Spec.Offer); err != nil {
		return nil, err
	}
	key, err := c.ensureKey(ctx, l.Spec.AuthorizedKey)
	if err != nil {
		return nil, err
	}
	var rules []map[string]string
	if len(l.Spec.Ports) > 0 {
		have, err := c.rulesets(ctx, l.Spec.ID)
		if err != nil {
			return nil, err
		}
		for _, r := range have {
			rules = append(rules, map[string]string{"id": r.ID})
		}
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		return c.launch(ctx, l.Spec, rank, key, rules)
	})
}

func (c *client) launch(ctx context.Context, spec cloud.LaunchSpec, rank int, key string, rules []map[string]string) (string, error) {
	all := spec.RecordTags()
	maps.Copy(all, spec.NodeTags(rank))
	all[tagCreated] = time.Now().UTC().Format(time.RFC3339)
	var tags []tag
	for _, k := range slices.Sorted(maps.Keys(all)) {
		tags = append(tags, tag{k, strings.ToValidUTF8(all[k][:min(len(all[k]), maxLabel)], "")})
	}
	name := spec.ID.Name + "-head"
	if rank > 0 {
		name = spec.ID.Name + "-worker"
	}
	body := map[string]any{
		"region_name": spec.Offer.Region, "instance_type_name": spec.Offer.InstanceType,
		"ssh_key_names": []string{key}, "name": name, "tags": tags,
	}
	if len(rules) > 0 {
		body["firewall_rulesets"] = rules
	}
	made, err := call[struct {
		IDs []string `json:"instance_ids"`
	}](ctx, c, "POST", "/instance-operations/launch", body)
	if err != nil {
		return "", err
	}
	if len(made.IDs) != 1 {
		return "", &rest.NoAnswerError{Cloud: "Lambda", Err: fmt.Errorf("a launch of one machine made %d", len(made.IDs))}
	}
	return made.IDs[0], nil
}

// room reports whether the region has room for such a machine; false: Lambda does
// not tell. It returns a CapacityError if there is none.
func (c *client) room(ctx context.Context, o cloud.Offer) (bool, error) {
	types, err := call[map[string]struct {
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
		return true, nil
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
	c, err := d.api()
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

package cudo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Cudo for the shared provider of machines.
type driver struct {
	*Provider
	vm.Refusals
}

// states are Cudo's words for what a machine does. One that failed is in a state, too.
var states = map[string]vm.State{
	"init": vm.Pending, "pend": vm.Pending, "prol": vm.Pending, "boot": vm.Pending, "fail": vm.Pending, "runn": vm.Running,
	"stop": vm.Stopped, "susp": vm.Stopped, "poff": vm.Stopped, "epil": vm.Ending, "unde": vm.Ending, "done": vm.Ended,
}

const pageSize = 1000

// List reads the list of all machines of the project.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, project, err := d.api()
	if err != nil {
		return nil, err
	}
	all, err := rest.Do[struct {
		Total    int `json:"totalCount"`
		Machines []struct {
			ID         string            `json:"id"`
			State      string            `json:"shortState"`
			DataCenter string            `json:"datacenterId"`
			Type       string            `json:"machineType"`
			Internal   string            `json:"internalIpAddress"`
			External   string            `json:"externalIpAddress"`
			Created    time.Time         `json:"createTime"`
			Metadata   map[string]string `json:"metadata"`
		} `json:"vms"`
	}](ctx, c, "GET", fmt.Sprintf("%s/vms?pageSize=%d", project, pageSize), nil)
	if err != nil {
		return nil, err
	}
	if all.Total > len(all.Machines) {
		return nil, &bounded.TooMuchError{What: "the list of a project's machines", Most: pageSize, Unit: "machines"}
	}
	var list []vm.Machine
	for _, i := range all.Machines {
		tags, ours := names.Tags(id, i.ID)
		if !ours {
			continue
		}
		about := maps.Clone(i.Metadata)
		if about == nil {
			about = map[string]string{}
		}
		maps.Copy(about, tags)
		m := vm.Machine{
			ID: i.ID, Region: i.DataCenter, State: states[i.State], RawState: i.State, Type: i.Type, Tags: about, Created: i.Created, PrivateIP: i.Internal, PublicIP: i.External,
			Reach: cloud.Reach{Method: "ssh", Host: i.External, Port: 22, User: "root"},
		}
		if i.State == "fail" {
			m.Failure = &cloud.CapacityError{Place: cloud.Place{Cloud: Name, Region: i.DataCenter}, Err: fmt.Errorf("Cudo says that %s failed", i.ID)}
		}
		list = append(list, m)
	}
	return list, nil
}

const (
	image         = "ubuntu-2204-nvidia-535-docker-v20240214"
	defaultDiskGB = 100
)

// Create makes a machine of each rank, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, project, err := d.api()
	if err != nil {
		return nil, err
	}
	spec := l.Spec
	if err := room(ctx, c, spec.Offer, 1); err != nil { // of several it says too little: data centers have several hosts
		return nil, err
	}
	s, err := sizeOf(spec.Offer.InstanceType)
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		id := names.Of(spec.ID, rank)
		_, err := rest.Do[any](ctx, c, "POST", project+"/vm", map[string]any{
			"vmId": id, "dataCenterId": spec.Offer.Region, "machineType": s.machine, "vcpus": s.cpus, "memoryGib": s.memory, "gpus": s.gpus,
			"bootDiskImageId": image, "bootDisk": map[string]any{"storageClass": "STORAGE_CLASS_NETWORK", "sizeGib": cmp.Or(spec.DiskGB, defaultDiskGB)},
			"sshKeySource": "SSH_KEY_SOURCE_NONE", "customSshKeys": []string{spec.AuthorizedKey}, "metadata": spec.RecordTags(),
		})
		return id, err
	})
}

// Delete begins to end machines. One that is in no state for that is asked again as long
// as it is listed.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	c, project, err := d.api()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := rest.Do[any](ctx, c, "POST", project+"/vms/"+url.PathEscape(m.ID)+"/terminate", nil)
		var refused *rest.Error
		if errors.As(err, &refused) && refused.Code == notNow {
			return nil
		}
		return err
	})
}

// Connect has nothing to do: a machine brings its key, and is open to the world.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	cloud.Note(ctx, "Machines of Cudo without a security group are open to the world, at all ports.")
	return nil
}

func (d driver) Disconnect(context.Context, cloud.ClusterID, bool) ([]string, error) { return nil, nil }

package azure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// The image of a disk is a snapshot in the group of the machine whose disk it is. Machines
// do not start from a snapshot but from disks that are copies of it.

// snapshotStates are Azure's words for what becomes of a snapshot.
var snapshotStates = map[string]vm.State{"Creating": vm.Pending, "Updating": vm.Pending, "Succeeded": vm.Running, "Failed": vm.Ended, "Canceled": vm.Ended, "Deleting": vm.Ending}

// ListImages lists the snapshots of the subscription with the tags of id.
func (d driver) ListImages(ctx context.Context, id cloud.ClusterID, _ string) ([]vm.Image, error) {
	a, err := d.account(ctx)
	if err != nil {
		return nil, err
	}
	found, err := list[struct {
		ID         string            `json:"id"`
		Location   string            `json:"location"`
		Tags       map[string]string `json:"tags"`
		Properties struct {
			State   string    `json:"provisioningState"`
			Size    int       `json:"diskSizeGB"`
			Created time.Time `json:"timeCreated"`
		} `json:"properties"`
	}](ctx, a, in("/subscriptions/"+a.subscription, snapshots), apiDisks)
	if err != nil {
		return nil, err
	}
	var all []vm.Image
	for _, s := range found {
		if id.Has(s.Tags) {
			all = append(all, vm.Image{
				ID: s.ID, Region: s.Location, State: snapshotStates[s.Properties.State], Reason: "Azure says that the snapshot is " + s.Properties.State,
				SizeGB: s.Properties.Size, Tags: s.Tags, Created: s.Properties.Created,
			})
		}
	}
	return all, nil
}

// BeginImage asks for a snapshot of a machine's disk.
func (d driver) BeginImage(ctx context.Context, i cloud.DiskImage, name string, m vm.Machine) error {
	a, err := d.account(ctx)
	if err != nil {
		return err
	}
	of, _ := m.Detail.(detail)
	seen, err := get[struct {
		Properties struct {
			Storage struct {
				Disk struct {
					Managed reference `json:"managedDisk"`
				} `json:"osDisk"`
			} `json:"storageProfile"`
		} `json:"properties"`
	}](ctx, a, in(a.groupPath(of.group), machines, m.ID), apiCompute)
	if err != nil {
		return err
	}
	op, err := a.change(ctx, "PUT", in(a.groupPath(of.group), snapshots, name), apiDisks, map[string]any{
		"location": m.Region, "tags": i.Tags(), "sku": map[string]string{"name": "Standard_LRS"},
		"properties": map[string]any{"creationData": map[string]string{"createOption": "Copy", "sourceResourceId": seen.Properties.Storage.Disk.Managed.ID}},
	})
	if err != nil {
		return err
	}
	return a.wait(ctx, op, apiDisks)
}

// DropImage deletes a snapshot.
func (d driver) DropImage(ctx context.Context, i vm.Image) error {
	a, err := d.account(ctx)
	if err != nil {
		return err
	}
	op, err := a.change(ctx, "DELETE", i.ID, apiDisks, nil)
	if err != nil {
		return err
	}
	return a.wait(ctx, op, apiDisks)
}

// Unfit refuses other regions and processors than the disk's.
func (driver) Unfit(i cloud.DiskImage, o cloud.Offer) string {
	arm := facts.Of(Name).Prices.Arm
	switch {
	case !strings.EqualFold(o.Region, i.Place.Region):
		return fmt.Sprintf("snapshots of disks are in one region on Azure, and this one is in %s", i.Place.Region)
	case arm.MatchString(o.InstanceType) != arm.MatchString(i.InstanceType):
		return fmt.Sprintf("%s has other processors than %s, for which the disk is", o.InstanceType, i.InstanceType)
	}
	return ""
}

// sameOff refuses a group of another kind than the source's: the script on the disk by which
// a machine gives itself back removes the whole group if it was the source's alone.
func (l *launch) sameOff(i cloud.DiskImage) error {
	source := groupOf(i.ID)
	if alone := strings.HasSuffix(source, "-"+vm.Digest(i.Of)); alone != (l.settings.group() == "") {
		return &cloud.InvalidError{Place: l.spec.Offer.Place, Err: fmt.Errorf("the machine of cluster %s is in the resource group %s, and azure.resource_group_vm is another setting now; launch with the one that it was launched with", i.From, source)}
	}
	return nil
}

// copied is a disk that a machine is to start from.
type copied struct {
	ID         string            `json:"id"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		State    string `json:"provisioningState"`
		Security struct {
			Type string `json:"securityType"`
		} `json:"securityProfile"`
		Plan map[string]string `json:"purchasePlan"`
	} `json:"properties"`
}

// copyDisk makes the disk of a rank, unless it is there.
func (d driver) copyDisk(ctx context.Context, a *account, l *launch, rank int) (*copied, error) {
	path := in(a.groupPath(l.group), disks, machineName(l.spec.ID, rank)+"-disk")
	seen, err := get[copied](ctx, a, path, apiDisks)
	if err == nil && l.spec.ID.Has(seen.Tags) && seen.Properties.State == "Succeeded" {
		return &seen, nil
	}
	if err != nil && d.Kind(err) != vm.Missing {
		return nil, err
	}
	kind, _ := diskOf(l.spec.Offer.InstanceType, l.spec.DiskTier)
	properties := map[string]any{"creationData": map[string]string{"createOption": "Copy", "sourceResourceId": l.spec.Clone.ID}}
	if l.spec.DiskGB > 0 {
		properties["diskSizeGB"] = max(l.spec.DiskGB, l.spec.Clone.SizeGB)
	}
	tags := l.settings.tags(l.spec, rank)
	op, err := a.change(ctx, "PUT", path, apiDisks, map[string]any{"location": l.spec.Offer.Region, "tags": tags, "sku": map[string]string{"name": kind}, "properties": properties})
	if err != nil {
		return nil, err
	}
	if err := a.wait(ctx, op, apiDisks); err != nil {
		return nil, err
	}
	seen, err = get[copied](ctx, a, path, apiDisks)
	return &seen, err
}

package fluffycloud

import (
	"context"
	"fmt"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// ListImages asks for the images with the tags of id. All regions are one list.
func (d driver) ListImages(ctx context.Context, id cloud.ClusterID, _ string) ([]vm.Image, error) {
	api, err := d.api()
	if err != nil {
		return nil, err
	}
	all, err := fluffyapi.All(ctx, fluffyapi.Query{Tags: id.Tags()}, api.Images)
	if err != nil {
		return nil, err
	}
	list := make([]vm.Image, len(all))
	for n, i := range all {
		list[n] = vm.Image{ID: i.ID, Region: i.Region, State: states[i.State], SizeGB: i.DiskGB, Tags: i.Tags, Created: i.Created}
	}
	return list, nil
}

// BeginImage asks for an image of an instance's disk.
func (d driver) BeginImage(ctx context.Context, i cloud.DiskImage, name string, m vm.Machine) error {
	api, err := d.api()
	if err != nil {
		return err
	}
	_, err = api.CreateImage(ctx, fluffyapi.CreateImage{Name: name, Instance: m.ID, Tags: i.Tags()})
	return err
}

// DropImage deletes an image.
func (d driver) DropImage(ctx context.Context, i vm.Image) error {
	api, err := d.api()
	if err != nil {
		return err
	}
	return api.DeleteImage(ctx, i.ID)
}

// Unfit refuses other regions than the image's.
func (driver) Unfit(i cloud.DiskImage, o cloud.Offer) string {
	if o.Region != i.Place.Region {
		return fmt.Sprintf("images of disks are in one region on FluffyCloud, and this one is in %s", i.Place.Region)
	}
	return ""
}

package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// imageStates are EC2's words for what becomes of an image, and of a snapshot.
var imageStates = map[string]vm.State{
	"pending": vm.Pending, "transient": vm.Pending, "available": vm.Running, "completed": vm.Running,
	"failed": vm.Ended, "error": vm.Ended, "invalid": vm.Ended, "deregistered": vm.Ending,
}

// ListImages lists the images with the tags of id, and the snapshots of images that are no
// more.
func (d driver) ListImages(ctx context.Context, id cloud.ClusterID, region string) ([]vm.Image, error) {
	regions := []string{region}
	if region == "" {
		var err error
		if regions, err = d.regions.Open(ctx); err != nil {
			return nil, err
		}
	}
	// Nothing was made in regions that a policy of the organization denies.
	found, errs := inRegions(regions, func(region string) ([]vm.Image, error) { return d.imagesIn(ctx, id, region) })
	return found, errors.Join(errs...)
}

func (d driver) imagesIn(ctx context.Context, id cloud.ClusterID, region string) (all []vm.Image, err error) {
	at := cloud.Place{Cloud: Name, Region: region}
	client, err := d.ec2(ctx, region)
	if err != nil {
		return nil, err
	}
	images, err := listImages(ctx, client, at, &ec2.DescribeImagesInput{Owners: []string{"self"}, Filters: filters(id)})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, i := range images {
		for _, b := range i.BlockDeviceMappings {
			if b.Ebs != nil {
				used[sdk.ToString(b.Ebs.SnapshotId)] = true
			}
		}
		made, _ := time.Parse(time.RFC3339, sdk.ToString(i.CreationDate))
		image := vm.Image{ID: sdk.ToString(i.ImageId), Region: region, State: imageStates[string(i.State)], SizeGB: readImage(i).size, Tags: fromTags(i.Tags), Created: made}
		if i.StateReason != nil {
			image.Reason = sdk.ToString(i.StateReason.Message)
		}
		all = append(all, image)
	}
	for pages := ec2.NewDescribeSnapshotsPaginator(client, &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: filters(id)}); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, at, err)
		}
		for _, s := range page.Snapshots {
			if !used[sdk.ToString(s.SnapshotId)] {
				all = append(all, vm.Image{ID: sdk.ToString(s.SnapshotId), Part: true, Region: region, State: imageStates[string(s.State)], Tags: fromTags(s.Tags), Created: sdk.ToTime(s.StartTime)})
			}
		}
	}
	return all, nil
}

func fromTags(tags []types.Tag) map[string]string {
	out := map[string]string{}
	for _, t := range tags {
		out[sdk.ToString(t.Key)] = sdk.ToString(t.Value)
	}
	return out
}

// BeginImage asks for an image of an instance that is off. Names of images are unique in an
// account and region.
func (d driver) BeginImage(ctx context.Context, i cloud.DiskImage, name string, m vm.Machine) error {
	client, err := d.ec2(ctx, m.Region)
	if err != nil {
		return err
	}
	tags := i.Tags()
	tags[tagName] = name
	_, err = client.CreateImage(ctx, &ec2.CreateImageInput{
		InstanceId: sdk.String(m.ID), Name: sdk.String(name), Description: sdk.String("Disk of the cluster " + i.From + ", while another one starts from it"),
		TagSpecifications: []types.TagSpecification{
			{ResourceType: types.ResourceTypeImage, Tags: toTags(tags)}, {ResourceType: types.ResourceTypeSnapshot, Tags: toTags(tags)},
		},
	})
	return err
}

// DropImage removes an image, or a snapshot that is left of one. What an image was made of
// is listed by itself once the image is gone.
func (d driver) DropImage(ctx context.Context, i vm.Image) error {
	client, err := d.ec2(ctx, i.Region)
	if err != nil {
		return err
	}
	if strings.HasPrefix(i.ID, "snap-") {
		_, err = client.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: sdk.String(i.ID)})
	} else {
		_, err = client.DeregisterImage(ctx, &ec2.DeregisterImageInput{ImageId: sdk.String(i.ID)})
	}
	switch codeOf(err) {
	case "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidSnapshot.NotFound", "InvalidSnapshot.InUse":
		return nil // it is listed again if there is more to do
	}
	return err
}

// Unfit refuses other regions and processors than the image's.
func (driver) Unfit(i cloud.DiskImage, o cloud.Offer) string {
	switch {
	case o.Region != i.Place.Region:
		return fmt.Sprintf("images of disks are in one region on AWS, and this one is in %s", i.Place.Region)
	case arm64.MatchString(o.InstanceType) != arm64.MatchString(i.InstanceType):
		return fmt.Sprintf("%s has other processors than %s, for which the disk is", o.InstanceType, i.InstanceType)
	}
	return ""
}

package gcp

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// imageStates are Compute Engine's words for what becomes of an image.
//
// https://cloud.google.com/compute/docs/reference/rest/v1/images
var imageStates = map[string]vm.State{"PENDING": vm.Pending, "READY": vm.Running, "FAILED": vm.Ended, "DELETING": vm.Ending}

// ListImages lists the images of the project with the labels of id. They are in no region.
func (d driver) ListImages(ctx context.Context, id cloud.ClusterID, _ string) (all []vm.Image, err error) {
	a, err := d.api(ctx)
	if err != nil {
		return nil, err
	}
	query := url.Values{"filter": {filter(id)}, "maxResults": {"500"}}
	err = pages(ctx, a.compute, a.on("/global/images"), query, func(page struct {
		Items []struct {
			Name    string            `json:"name"`
			Status  string            `json:"status"`
			Size    string            `json:"diskSizeGb"`
			Labels  map[string]string `json:"labels"`
			Created time.Time         `json:"creationTimestamp"`
		} `json:"items"`
		Next string `json:"nextPageToken"`
	}) string {
		for _, i := range page.Items {
			gb, _ := strconv.Atoi(i.Size)
			all = append(all, vm.Image{
				ID: "projects/" + a.project + "/global/images/" + i.Name, State: imageStates[i.Status], SizeGB: gb, Tags: i.Labels, Created: i.Created,
				Reason: "Compute Engine says that it is " + i.Status,
			})
		}
		return page.Next
	})
	return all, err
}

// BeginImage makes an image of a machine's boot disk and waits until the service has it. The
// names of images are unique in a project.
func (d driver) BeginImage(ctx context.Context, i cloud.DiskImage, name string, m vm.Machine) error {
	a, err := d.api(ctx)
	if err != nil {
		return err
	}
	if about, _ := m.Detail.(about); about.tpu {
		return &cloud.InvalidError{Place: i.Place, Err: fmt.Errorf("the disks of TPUs cannot be copied")}
	}
	of, err := rest.Do[struct {
		Disks []struct {
			Boot   bool   `json:"boot"`
			Source string `json:"source"`
		} `json:"disks"`
	}](ctx, a.compute, "GET", a.on("/zones/%s/instances/%s", m.Zone, m.ID), nil)
	if err != nil {
		return err
	}
	for _, disk := range of.Disks {
		if disk.Boot {
			return a.finish(ctx, a.project, "POST", a.on("/global/images"), map[string]any{"name": name, "sourceDisk": disk.Source, "labels": i.Tags()})
		}
	}
	return &cloud.InvalidError{Place: i.Place, Err: fmt.Errorf("%s has no boot disk", m.ID)}
}

// DropImage deletes an image.
func (d driver) DropImage(ctx context.Context, i vm.Image) error {
	a, err := d.api(ctx)
	if err != nil {
		return err
	}
	return a.finish(ctx, a.project, "DELETE", a.on("/global/images/%s", i.ID[strings.LastIndex(i.ID, "/")+1:]), nil)
}

// Unfit refuses other processors than the image's, and TPUs.
func (driver) Unfit(i cloud.DiskImage, o cloud.Offer) string {
	switch {
	case tpuName(o) != "":
		return "TPUs start with a runtime version of Google's"
	case arm(o) != arm(cloud.Offer{InstanceType: i.InstanceType}):
		return fmt.Sprintf("%s has other processors than %s, for which the disk is", o.InstanceType, i.InstanceType)
	}
	return ""
}

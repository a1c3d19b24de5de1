package azure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// image is what machines start from.
type image struct {
	reference map[string]string
	plan      map[string]string // of the marketplace; nil: it has none
	trusted   bool              // it starts as a trusted launch only
}

// Public images without a plan, for when no image has the tag: the first are Ubuntu
// without drivers, then those with drivers for GPUs.
//
// https://github.com/Azure/azhpc-images
const (
	plainImage = "Canonical:ubuntu-24_04-lts:server:latest"
	plainGen1  = "Canonical:ubuntu-24_04-lts:server-gen1:latest"
	plainARM   = "Canonical:ubuntu-24_04-lts:server-arm64:latest"
	gpuImage   = "microsoft-dsvm:ubuntu-hpc:2204:latest"      // A100 and newer, T4: NVIDIA's open kernel modules
	voltaImage = "microsoft-dsvm:ubuntu-hpc:2204-v100:latest" // the proprietary ones
	rocmImage  = "microsoft-dsvm:ubuntu-hpc:2204-rocm:latest" // AMD's

	gpuTag = "skypilot:gpu-ubuntu-2204"
)

// communityRegions are those that images of the tags' community gallery are in.
var communityRegions = []string{"centralus", "eastus", "eastus2", "northcentralus", "southcentralus", "westcentralus", "westus", "westus2", "westus3"}

// defaultTag names the image for a machine when the task names none.
func defaultTag(o cloud.Offer, size sku) string {
	gpu := slices.Sorted(maps.Keys(o.Accelerators))
	switch {
	case len(gpu) == 0:
		return "skypilot:custom-cpu-ubuntu-v2"
	case gpu[0] == "K80":
		return "skypilot:k80-ubuntu-2004"
	case gpu[0] == "A10":
		return "skypilot:custom-gpu-ubuntu-v2-grid"
	case size.capability("HyperVGenerations") == "V1":
		return "skypilot:custom-gpu-ubuntu-v1"
	}
	return "skypilot:custom-gpu-ubuntu-v2"
}

// image resolves what a launch starts from: PUBLISHER:OFFER:SKU:VERSION, an image of a
// community gallery, the id of one of the user's own, a tag, or nothing.
func (d driver) image(ctx context.Context, a *account, spec cloud.LaunchSpec) (image, error) {
	o := spec.Offer
	size, err := d.size(ctx, a, o)
	if err != nil {
		return image{}, err
	}
	id := spec.ImageID
	if strings.HasPrefix(id, "skypilot:") {
		found, ok := d.o.Image(ctx, id, o.Region)
		if !ok {
			return image{}, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: o.Region}, Err: fmt.Errorf("no image has the tag %s in %s; PUBLISHER:OFFER:SKU:VERSION or an image's id can be given instead", id, o.Region)}
		}
		id = found
	}
	if id != "" {
		return d.look(ctx, a, o.Region, id)
	}
	if size.arm() {
		return refer(plainARM), nil
	}
	tags := []string{defaultTag(o, size)}
	if len(o.Accelerators) > 0 {
		tags = append(tags, gpuTag)
	}
	for _, tag := range tags {
		found, ok := d.o.Image(ctx, tag, o.Region)
		if !ok || strings.HasPrefix(found, "/") && !slices.Contains(communityRegions, o.Region) {
			continue
		}
		got, err := d.look(ctx, a, o.Region, found)
		if err == nil || d.Kind(err) != vm.Missing { // galleries of others may be gone
			return got, err
		}
	}
	switch {
	case len(o.Accelerators) > 0:
		id, why := publicGPU(slices.Sorted(maps.Keys(o.Accelerators))[0], size)
		if id == "" {
			return image{}, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("no image of the list (%s) is in %s, and no public one has a driver for its GPU: %s; fetch the list with: sky catalog refresh azure, "+
				"or give image_id: the id of an image of yours, as one of Canonical's Ubuntu on which the extension NvidiaGpuDriverLinux has installed the driver", strings.Join(tags, ", "), o.Region, why)}
		}
		return refer(id), nil
	case size.capability("HyperVGenerations") == "V1":
		return refer(plainGen1), nil
	}
	return refer(plainImage), nil
}

// publicGPU is the public image with a driver for a GPU; "": there is none, and why.
//
// https://learn.microsoft.com/azure/virtual-machines/linux/n-series-driver-setup
func publicGPU(gpu string, size sku) (id, why string) {
	switch {
	case gpu == "A10":
		return "", "parts of an A10 need NVIDIA's GRID driver of Azure's"
	case strings.Contains(gpu, "MI25"):
		return "", "MI25 needs a driver of AMD's that Azure publishes for Windows only"
	case slices.Contains([]string{"K80", "M60", "P40", "P100"}, gpu):
		return "", "drivers for " + gpu + " end before those of the images of today"
	case size.capability("HyperVGenerations") == "V1":
		return "", "they are for machines of the second generation, and " + size.Name + " is of the first"
	case strings.HasPrefix(gpu, "MI"):
		return rocmImage, ""
	case strings.HasPrefix(gpu, "V100"):
		return voltaImage, ""
	}
	return gpuImage, ""
}

// refer is an image by its name or id alone.
func refer(id string) image {
	part := strings.Split(id, ":")
	lower := strings.ToLower(id)
	switch {
	case len(part) == 4:
		return image{reference: map[string]string{"publisher": part[0], "offer": part[1], "sku": part[2], "version": part[3]}}
	case strings.HasPrefix(lower, "/communitygalleries/"):
		return image{reference: map[string]string{"communityGalleryImageId": id}}
	case strings.HasPrefix(lower, "/sharedgalleries/"):
		return image{reference: map[string]string{"sharedGalleryImageId": id}}
	case strings.HasPrefix(lower, "/subscriptions/"):
		return image{reference: map[string]string{"id": id}}
	}
	return image{}
}

// look is an image with what Azure says of it: whether it has a plan, and how it starts.
func (d driver) look(ctx context.Context, a *account, region, id string) (image, error) {
	i := refer(id)
	part := strings.Split(id, ":")
	type feature struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	type about struct {
		Properties struct {
			Plan     map[string]string `json:"plan"`
			Features []feature         `json:"features"`
			Purchase map[string]string `json:"purchasePlan"`
		} `json:"properties"`
	}
	scope := "/subscriptions/" + a.subscription + "/providers/Microsoft.Compute/locations/" + region
	path, version := "", apiCompute
	segments := strings.Split(id, "/")
	switch {
	case i.reference == nil:
		return i, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("%q is no image of Azure; give PUBLISHER:OFFER:SKU:VERSION, /CommunityGalleries/GALLERY/Images/IMAGE, or the id of an image of yours", id)}
	case len(part) == 4:
		path = scope + "/publishers/" + part[0] + "/artifacttypes/vmimage/offers/" + part[1] + "/skus/" + part[2] + "/versions"
		v := part[3]
		if v == "latest" {
			newest, err := get[[]resource](ctx, a, path, version, "$top", "1", "$orderby", "name desc")
			if err != nil {
				return i, err
			}
			if len(newest) == 0 {
				return i, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: region}, Err: fmt.Errorf("the image %s has no version in %s", id, region)}
			}
			v = newest[0].Name
		}
		path += "/" + v
	case i.reference["communityGalleryImageId"] != "" && len(segments) >= 5:
		path, version = scope+"/communityGalleries/"+segments[2]+"/images/"+segments[4], apiGalleries
	case i.reference["id"] != "" && strings.Contains(strings.ToLower(id), "/galleries/"):
		path, version = id, apiGalleries
		if at := strings.Index(strings.ToLower(id), "/versions/"); at > 0 {
			path = id[:at]
		}
	default:
		return i, nil
	}
	seen, err := get[about](ctx, a, path, version)
	if err != nil {
		return i, err
	}
	for _, f := range seen.Properties.Features {
		if f.Name == "SecurityType" && f.Value == "TrustedLaunch" {
			i.trusted = true
		}
	}
	for _, p := range []map[string]string{seen.Properties.Plan, seen.Properties.Purchase} {
		if p["name"] != "" {
			i.plan = map[string]string{"name": p["name"], "publisher": p["publisher"], "product": p["product"]}
		}
	}
	return i, nil
}

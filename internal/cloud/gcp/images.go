package gcp

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// image is what machines start from.
type image struct {
	url  string // partial: projects/P/global/images/...
	size int    // GB that it needs at least; 0: unknown
}

// oldGPUs need drivers that newer images no longer have.
var oldGPUs = []string{"P100", "P4", "V100", "M60"}

// defaultTag names the image for a machine when the task names none.
func defaultTag(o cloud.Offer) string {
	gpu := slices.Sorted(maps.Keys(o.Accelerators))
	switch {
	case len(gpu) == 0:
		return "skypilot:custom-cpu-ubuntu-2204"
	case gpu[0] == "K80":
		return "skypilot:k80-debian-10"
	case slices.Contains(oldGPUs, gpu[0]):
		return "skypilot:custom-gpu-ubuntu-2204"
	}
	return "skypilot:custom-gpu-ubuntu-2204-cuda13"
}

// plain are the images that their makers publish, for when that of the tag is not there, the
// best first; none: there is none that would do. Ubuntu's drivers have the open kernel modules
// alone, which begin with Turing; for older GPUs there are Deep Learning VMs with driver 550,
// the second of which installs it when it first boots.
//
// https://cloud.google.com/compute/docs/images/os-details#ubuntu_lts,
// https://cloud.google.com/ai-hypercomputer/docs/software-stack#ubuntu-accelerator,
// https://cloud.google.com/deep-learning-vm/docs/images
func plain(o cloud.Offer) []string {
	gpu := slices.Sorted(maps.Keys(o.Accelerators))
	family := func(project string, names ...string) (all []string) {
		for _, n := range names {
			all = append(all, "projects/"+project+"/global/images/family/"+n)
		}
		return all
	}
	arm := arm(o)
	switch {
	case len(gpu) == 0 && arm:
		return family("ubuntu-os-cloud", "ubuntu-2204-lts-arm64")
	case len(gpu) == 0:
		return family("ubuntu-os-cloud", "ubuntu-2204-lts")
	case gpu[0] == "K80": // whose last driver is 470
		return nil
	case slices.Contains(oldGPUs, gpu[0]):
		return family("deeplearning-platform-release", "common-cu124-ubuntu-2204-nvidia-550", "common-cu124-ubuntu-2204-py310")
	case arm:
		return family("ubuntu-os-accelerator-images", "ubuntu-accelerator-2404-arm64-with-nvidia-580")
	}
	return family("ubuntu-os-accelerator-images", "ubuntu-accelerator-2204-amd64-with-nvidia-580")
}

// lastDriver says which drivers know the GPUs of an offer, for people.
func lastDriver(o cloud.Offer) string {
	switch gpu := slices.Sorted(maps.Keys(o.Accelerators))[0]; {
	case gpu == "K80":
		return "470 is the last"
	case slices.Contains(oldGPUs, gpu):
		return "580 is the last, with the proprietary kernel modules"
	}
	return "580 or newer"
}

// arm reports whether a machine has ARM processors.
func arm(o cloud.Offer) bool {
	return facts.Of(Name).Prices.Arm.MatchString(o.InstanceType) || strings.HasPrefix(o.InstanceType, "a4x-")
}

// image resolves what a launch starts from: an image, an image family or a machine image
// by its (partial) URL, a tag, or nothing.
func (d driver) image(ctx context.Context, a *account, spec cloud.LaunchSpec) (image, error) {
	o := spec.Offer
	invalid := func(format string, v ...any) (image, error) {
		return image{}, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf(format, v...)}
	}
	id := spec.ImageID
	switch {
	case strings.HasPrefix(id, "skypilot:"):
		found, ok := d.o.Image(ctx, id, o.Region)
		if !ok {
			return invalid("no image has the tag %s; one can be given as projects/PROJECT/global/images/NAME instead", id)
		}
		id = found
	case id != "":
	default:
		if !arm(o) {
			if found, ok := d.o.Image(ctx, defaultTag(o), o.Region); ok {
				i, err := a.lookUp(ctx, found)
				if !missing(err) && !hidden(err) {
					return i, err
				}
			}
		}
		for _, public := range plain(o) {
			i, err := a.lookUp(ctx, public)
			if hidden(err) { // who may not look may still use it
				err = nil
			}
			if !missing(err) {
				return i, err
			}
		}
		if len(o.Accelerators) > 0 {
			return invalid("neither the list of images (%s) nor the public images that sky knows have one with a driver for %s; fetch the list with: sky catalog refresh gcp, or give image_id: projects/PROJECT/global/images/NAME, "+
				"an image with a driver of NVIDIA's for it (%s)", defaultTag(o), slices.Sorted(maps.Keys(o.Accelerators))[0], lastDriver(o))
		}
		return invalid("neither the image of the list (%s) nor Ubuntu's public one exists; give image_id: projects/PROJECT/global/images/NAME", defaultTag(o))
	}
	i, err := a.lookUp(ctx, id)
	switch {
	case missing(err):
		return image{}, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no image %s: %w", id, err)}
	case hidden(err): // who may not look may still use it
		err = nil
	}
	return i, err
}

// hidden reports whether the account may not look at something.
func hidden(err error) bool { return said(err, "forbidden", "PERMISSION_DENIED") }

// lookUp asks for an image.
func (a *account) lookUp(ctx context.Context, id string) (image, error) {
	partial := id
	if _, rest, ok := strings.Cut(id, "/projects/"); ok {
		partial = "projects/" + rest
	}
	part := strings.Split(partial, "/")
	family := len(part) == 6 && part[4] == "family"
	if len(part) != 5 && !family || part[0] != "projects" || part[2] != "global" || part[3] != "images" && (part[3] != "machineImages" || family) {
		return image{}, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("%q is no image: they are written projects/PROJECT/global/images/NAME, …/images/family/NAME or …/machineImages/NAME", id)}
	}
	for i := range part {
		part[i] = url.PathEscape(part[i])
	}
	found, err := rest.Do[struct {
		Size string `json:"diskSizeGb"`
	}](ctx, a.compute, "GET", "/"+strings.Join(part, "/"), nil)
	size, _ := strconv.Atoi(found.Size)
	return image{partial, size}, err
}

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

// plain is the image that its maker publishes, for when that of the tag is not there; "":
// there is none that would do.
//
// https://cloud.google.com/compute/docs/images/os-details#ubuntu_lts,
// https://cloud.google.com/ai-hypercomputer/docs/software-stack#ubuntu-accelerator
func plain(o cloud.Offer) string {
	gpu := slices.Sorted(maps.Keys(o.Accelerators))
	arm := arm(o)
	switch {
	case len(gpu) == 0 && arm:
		return "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts-arm64"
	case len(gpu) == 0:
		return "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
	case gpu[0] == "K80", slices.Contains(oldGPUs, gpu[0]): // the drivers of those images begin with Turing
		return ""
	case arm:
		return "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-arm64-with-nvidia-580"
	}
	return "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2204-amd64-with-nvidia-580"
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
		if id = plain(o); id == "" {
			return invalid("the list of images has none for %s that exists, and the public ones have no driver for such a GPU; fetch the list with: sky catalog refresh gcp, or give image_id: projects/PROJECT/global/images/NAME", defaultTag(o))
		}
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

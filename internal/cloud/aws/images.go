package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// image is what machines start from.
type image struct {
	id   string
	root string   // the device of the first disk
	size int      // GB that it needs at least; 0: unknown
	more []string // devices of further disks that it brings
}

// The root device and size of the images behind sky's tags.
const (
	defaultRoot = "/dev/sda1"
	defaultSize = 45
)

// arm64 matches the types with ARM processors: a generation followed by "g", and
// those with NVIDIA's own.
var arm64 = lazyregexp.New(`^(a1|[a-z]+\d+g[a-z]*|p6e-gb200|p6e-gb300)(-[a-z0-9]+)?\.`)

// oldGPUs need drivers that newer images no longer have.
var oldGPUs = []string{"M60", "P100", "P4", "V100", "V100-32GB"}

// defaultTag names the image for a machine when the task names none.
func defaultTag(o cloud.Offer) string {
	arm := arm64.MatchString(o.InstanceType)
	gpu := slices.Sorted(maps.Keys(o.Accelerators))
	switch {
	case len(gpu) == 0 && arm:
		return "skypilot:custom-cpu-ubuntu-arm64"
	case len(gpu) == 0:
		return "skypilot:custom-cpu-ubuntu"
	case gpu[0] == "K80":
		return "skypilot:k80-ubuntu-2004"
	case strings.HasPrefix(gpu[0], "Trainium"), strings.HasPrefix(gpu[0], "Inferentia"):
		return "skypilot:neuron-ubuntu-2204"
	case slices.Contains(oldGPUs, gpu[0]) && arm:
		return "skypilot:custom-gpu-ubuntu-arm64"
	case slices.Contains(oldGPUs, gpu[0]):
		return "skypilot:custom-gpu-ubuntu"
	case arm:
		return "skypilot:custom-gpu-ubuntu-arm64-cuda13"
	}
	return "skypilot:custom-gpu-ubuntu-cuda13"
}

// olderTags are what a price list may have in place of a tag that is newer than
// it, best first.
var olderTags = map[string][]string{
	"skypilot:custom-cpu-ubuntu":        {"skypilot:cpu-ubuntu-2204", "skypilot:cpu-ubuntu-2004"},
	"skypilot:custom-gpu-ubuntu-cuda13": {"skypilot:custom-gpu-ubuntu", "skypilot:gpu-ubuntu-2204", "skypilot:gpu-ubuntu-2004"},
	"skypilot:custom-gpu-ubuntu":        {"skypilot:gpu-ubuntu-2004"},
}

// image resolves what a launch starts from: an id (ami-...), a parameter of Systems
// Manager (ssm:NAME) that holds one, a tag, or nothing.
// With fast, one that has the drivers of the fast network if the user named
// none.
func (p *Provider) image(ctx context.Context, spec cloud.LaunchSpec, fast bool) (image, error) {
	o := spec.Offer
	invalid := func(err error) error { return &cloud.InvalidError{Place: o.Place, Err: err} }
	id := spec.ImageID
	if name, ok := parameterOf(id); ok {
		return p.parameterImage(ctx, o.Place, name)
	}
	switch {
	case strings.HasPrefix(id, "ami-"):
		return p.ownImage(ctx, o.Place, id)
	case id != "":
		found, ok := p.o.Image(ctx, id, o.Region)
		if !ok {
			return image{}, invalid(fmt.Errorf("no image has the tag %s in %s; an id (ami-...) can be given instead", id, o.Region))
		}
		return image{id: found, root: defaultRoot, size: defaultSize}, nil
	}
	if fast {
		if found, ok, err := p.efaImage(ctx, o.Place); err != nil || ok {
			return found, err
		}
	}
	tag := defaultTag(o)
	for _, t := range append([]string{tag}, olderTags[tag]...) {
		if found, ok := p.o.Image(ctx, t, o.Region); ok {
			return image{id: found, root: defaultRoot, size: defaultSize}, nil
		}
	}
	name := publicParameter(o)
	if name == "" {
		return image{}, invalid(fmt.Errorf("the list of images has none for %s in %s, and the newest that AWS publishes has no driver for such a GPU; fetch the list with: sky catalog refresh aws, or give image_id: ami-...", tag, o.Region))
	}
	found, err := p.parameterImage(ctx, o.Place, name)
	if e := (*cloud.InvalidError)(nil); errors.As(err, &e) {
		return image{}, invalid(fmt.Errorf("the list of images has none for %s in %s, and %w; fetch the list with: sky catalog refresh aws, or give image_id: ami-...", tag, o.Region, e.Err))
	}
	return found, err
}

// ownImage looks a user's image up.
func (p *Provider) ownImage(ctx context.Context, at cloud.Place, id string) (image, error) {
	client, err := p.ec2(ctx, at.Region)
	if err != nil {
		return image{}, err
	}
	images, err := listImages(ctx, client, at, &ec2.DescribeImagesInput{ImageIds: []string{id}})
	if err != nil {
		return image{}, err
	}
	if len(images) == 0 {
		return image{}, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: at.Region}, Err: fmt.Errorf("there is no image %s in %s", id, at.Region)}
	}
	return readImage(images[0]), nil
}

func listImages(ctx context.Context, client *ec2.Client, at cloud.Place, in *ec2.DescribeImagesInput) ([]types.Image, error) {
	var out []types.Image
	for pages := ec2.NewDescribeImagesPaginator(client, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, at, err)
		}
		out = append(out, page.Images...)
	}
	return out, nil
}

func readImage(i types.Image) image {
	got := image{id: sdk.ToString(i.ImageId), root: sdk.ToString(i.RootDeviceName)}
	for _, d := range i.BlockDeviceMappings {
		switch name := sdk.ToString(d.DeviceName); {
		case d.Ebs == nil:
		case name == got.root:
			got.size = int(sdk.ToInt32(d.Ebs.VolumeSize))
		default:
			got.more = append(got.more, name)
		}
	}
	return got
}

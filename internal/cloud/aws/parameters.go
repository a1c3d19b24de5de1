package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// parameterPrefixes begin images that are named by a parameter of Systems
// Manager; the longer one is how EC2 itself writes it.
var parameterPrefixes = []string{"resolve:ssm:", "ssm:"}

// parameterOf is the parameter that an image_id names.
func parameterOf(id string) (name string, ok bool) {
	for _, prefix := range parameterPrefixes {
		if name, ok = strings.CutPrefix(id, prefix); ok {
			return name, true
		}
	}
	return "", false
}

// publicParameter names the newest image for a machine that its maker publishes
// in every region, for when the list of images has none there; "" if the newest
// would not do: its drivers are NVIDIA's open ones, which begin with Turing.
func publicParameter(o cloud.Offer) string {
	arch, deep := "amd64", "x86_64"
	if arm64.MatchString(o.InstanceType) {
		arch, deep = "arm64", "arm64"
	}
	gpu := slices.Sorted(maps.Keys(o.Accelerators))
	switch {
	case len(gpu) == 0:
		return "/aws/service/canonical/ubuntu/server/22.04/stable/current/" + arch + "/hvm/ebs-gp2/ami-id"
	case strings.HasPrefix(gpu[0], "Trainium"), strings.HasPrefix(gpu[0], "Inferentia"):
		return "/aws/service/neuron/dlami/multi-framework/ubuntu-22.04/latest/image_id"
	case gpu[0] == "K80", slices.Contains(oldGPUs, gpu[0]):
		return ""
	}
	return "/aws/service/deeplearning/ami/" + deep + "/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
}

// parameterImage resolves a parameter in a region. One that is not there is a
// [*cloud.InvalidError].
func (p *Provider) parameterImage(ctx context.Context, at cloud.Place, name string) (image, error) {
	var out struct{ Parameter struct{ Value string } }
	err := p.jsonCall(ctx, at.Region, systemsManager, "GetParameter", map[string]string{"Name": name}, &out)
	if codeOf(err) == "ParameterNotFound" {
		return image{}, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: at.Region}, Err: fmt.Errorf("there is no parameter %s in %s", name, at.Region)}
	}
	if err != nil {
		return image{}, translate(ctx, cloud.Place{Cloud: Name, Region: at.Region}, err)
	}
	id := out.Parameter.Value
	if !strings.HasPrefix(id, "ami-") {
		return image{}, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: at.Region}, Err: fmt.Errorf("the parameter %s in %s is %q and no image", name, at.Region, id)}
	}
	return p.ownImage(ctx, at, id)
}

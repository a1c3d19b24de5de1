package aws

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
)

func TestWhatMachinesStartFrom(t *testing.T) {
	fake := awsfake.New()
	s := httptest.NewServer(fake)
	t.Cleanup(s.Close)
	for k, v := range map[string]string{"AWS_ENDPOINT_URL": s.URL, "AWS_ACCESS_KEY_ID": awsfake.AccessKey, "AWS_SECRET_ACCESS_KEY": awsfake.SecretKey,
		"AWS_EC2_METADATA_DISABLED": "true", "HOME": t.TempDir()} {
		t.Setenv(k, v)
	}
	const canonical, deep = "/aws/service/canonical/ubuntu/server/22.04/stable/current/", "/aws/service/deeplearning/ami/"
	fake.SetParameter("us-east-1", "/team/image", "ami-team")
	fake.SetParameter("us-east-1", "/team/text", "hello")
	fake.SetParameter("eu-central-1", canonical+"amd64/hvm/ebs-gp2/ami-id", "ami-ubuntu")
	fake.SetParameter("eu-central-1", canonical+"arm64/hvm/ebs-gp2/ami-id", "ami-ubuntu-arm")
	fake.SetParameter("eu-central-1", deep+"x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id", "ami-deep")
	fake.SetParameter("eu-central-1", "/aws/service/neuron/dlami/multi-framework/ubuntu-22.04/latest/image_id", "ami-neuron")
	tags := map[string]string{"us-east-1 skypilot:custom-cpu-ubuntu": "ami-cpu", "us-east-1 skypilot:gpu-ubuntu-2204": "ami-gpu", "us-east-1 skypilot:mine": "ami-mine"}
	p := New(Options{Image: func(_ context.Context, tag, region string) (string, bool) {
		id, ok := tags[region+" "+tag]
		return id, ok
	}})
	for _, tt := range []struct {
		region, machine, gpu, id string
		want, says               string
	}{
		{"us-east-1", "m6i.large", "", "", "ami-cpu", ""},
		{"us-east-1", "p5.48xlarge", "H100", "", "ami-gpu", ""},
		{"us-east-1", "m6i.large", "", "skypilot:mine", "ami-mine", ""},
		{"us-west-2", "m6i.large", "", "skypilot:mine", "", "no image has the tag skypilot:mine in us-west-2"},
		{"us-west-2", "m6i.large", "", "ami-own", "ami-own", ""},
		{"us-west-2", "m6i.large", "", "ami-missing", "", "InvalidAMIID.NotFound"},
		{"us-east-1", "m6i.large", "", "ssm:/team/image", "ami-team", ""},
		{"us-east-1", "m6i.large", "", "resolve:ssm:/team/image", "ami-team", ""},
		{"us-west-2", "m6i.large", "", "ssm:/team/image", "", "there is no parameter /team/image in us-west-2"},
		{"us-east-1", "m6i.large", "", "ssm:/team/text", "", `is "hello" and no image`},
		// A region that the list of images does not have yet.
		{"eu-central-1", "m6i.large", "", "", "ami-ubuntu", ""},
		{"eu-central-1", "m7g.large", "", "", "ami-ubuntu-arm", ""},
		{"eu-central-1", "p5.48xlarge", "H100", "", "ami-deep", ""},
		{"eu-central-1", "trn1.2xlarge", "Trainium", "", "ami-neuron", ""},
		{"us-west-2", "m6i.large", "", "", "", "sky catalog refresh aws"},
		{"eu-central-1", "p3.2xlarge", "V100", "", "", "has no driver for such a GPU"},
	} {
		spec := cloud.LaunchSpec{ImageID: tt.id, Offer: cloud.Offer{Place: cloud.Place{Cloud: Name, Region: tt.region}, InstanceType: tt.machine}}
		if tt.gpu != "" {
			spec.Offer.Accelerators = map[string]float64{tt.gpu: 1}
		}
		got, err := p.image(t.Context(), spec, false)
		if tt.says == "" {
			if err != nil || got.id != tt.want {
				t.Errorf("%s %s %q: %q, %v", tt.region, tt.machine, tt.id, got.id, err)
			}
			continue
		}
		if e := (*cloud.InvalidError)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), tt.says) || e.Place.Region != tt.region {
			t.Errorf("%s %s %q: %v", tt.region, tt.machine, tt.id, err)
		}
	}
}

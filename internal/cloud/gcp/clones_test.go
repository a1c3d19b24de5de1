package gcp

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestWhatCannotStartFromAnImage(t *testing.T) {
	i := cloud.DiskImage{Place: cloud.Place{Cloud: Name, Region: "us-central1"}, InstanceType: "n2-standard-4"}
	for _, tt := range []struct {
		region, machine string
		accelerators    map[string]float64
		ok              bool
	}{
		{"us-central1", "g2-standard-4", nil, true}, {"europe-west4", "n2-standard-4", nil, true}, {"us-central1", "t2a-standard-4", nil, false},
		{"us-central1", "TPU-VM", map[string]float64{"tpu-v5litepod-8": 1}, false},
	} {
		if why := (driver{}).Unfit(i, cloud.Offer{Place: cloud.Place{Cloud: Name, Region: tt.region}, InstanceType: tt.machine, Accelerators: tt.accelerators}); (why == "") != tt.ok {
			t.Errorf("%s in %s: %q", tt.machine, tt.region, why)
		}
	}
}

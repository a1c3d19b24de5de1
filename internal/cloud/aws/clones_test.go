package aws

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestWhatCannotStartFromAnImage(t *testing.T) {
	i := cloud.DiskImage{Place: cloud.Place{Cloud: Name, Region: "us-east-1", Zone: "us-east-1a"}, InstanceType: "m6i.large"}
	for _, tt := range []struct {
		region, machine string
		ok              bool
	}{{"us-east-1", "g5.xlarge", true}, {"us-west-2", "m6i.large", false}, {"us-east-1", "m7g.large", false}} {
		if why := (driver{}).Unfit(i, cloud.Offer{Place: cloud.Place{Cloud: Name, Region: tt.region}, InstanceType: tt.machine}); (why == "") != tt.ok {
			t.Errorf("%s in %s: %q", tt.machine, tt.region, why)
		}
	}
}

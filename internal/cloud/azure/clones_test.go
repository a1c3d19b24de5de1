package azure

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// The script on a disk by which a machine gives itself back removes the group of the machine
// if it was the old cluster's own: a copy must not be in a group of the user's.
func TestACopyIsInTheSameKindOfGroup(t *testing.T) {
	of := cloud.ClusterID{Installation: "i", Name: "old", Hash: "h"}
	own, users := "old-eastus-"+vm.Digest(of), "mine"
	for _, tt := range []struct {
		group, setting string
		ok             bool
	}{{own, "", true}, {users, "mine", true}, {own, "mine", false}, {users, "", false}} {
		l := &launch{settings: settings{"resource_group_vm": tt.setting}}
		err := l.sameOff(cloud.DiskImage{Of: of, ID: "/subscriptions/s/resourceGroups/" + tt.group + "/providers/Microsoft.Compute/snapshots/x"})
		if (err == nil) != tt.ok {
			t.Errorf("a disk in %s, now %q: %v", tt.group, tt.setting, err)
		}
	}
}

func TestWhatCannotStartFromASnapshot(t *testing.T) {
	i := cloud.DiskImage{Place: cloud.Place{Cloud: Name, Region: "eastus"}, InstanceType: "Standard_D4s_v5"}
	for _, tt := range []struct {
		region, size string
		ok           bool
	}{{"eastus", "Standard_D8s_v5", true}, {"westus", "Standard_D4s_v5", false}, {"eastus", "Standard_D4ps_v5", false}} {
		if why := (driver{}).Unfit(i, cloud.Offer{Place: cloud.Place{Cloud: Name, Region: tt.region}, InstanceType: tt.size}); (why == "") != tt.ok {
			t.Errorf("%s in %s: %q", tt.size, tt.region, why)
		}
	}
}

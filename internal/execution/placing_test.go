package execution

import (
	"reflect"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// What a request says of its machines besides their size stands in the record, and
// nothing stands there that it does not say.
func TestWhatARequestSaysOfItsMachinesIsRemembered(t *testing.T) {
	for _, tt := range []struct {
		r    task.Resources
		want cloud.MachineSpec
	}{
		{task.Resources{}, cloud.MachineSpec{}},
		{task.Resources{DiskSize: 50}, cloud.MachineSpec{DiskGB: 50}},
		{task.Resources{DiskTier: "high"}, cloud.MachineSpec{DiskTier: "high"}},
		{task.Resources{NetworkTier: "best"}, cloud.MachineSpec{NetworkTier: "best"}},
		{task.Resources{LocalDisk: "nvme:100+"}, cloud.MachineSpec{LocalDisk: "nvme:100+"}},
		{task.Resources{Volumes: []map[string]any{{"path": "/data", "name": "d", "size": 50, "disk_tier": "LOW", "attach_mode": "read_only", "auto_delete": true}, {"path": "/fast", "storage_type": "instance", "size": 10.0}}},
			cloud.MachineSpec{Disks: []cloud.Disk{{Path: "/data", Name: "d", GB: 50, Tier: "low", ReadOnly: true, Goes: true}, {Path: "/fast", GB: 10, Tier: "best"}}}},
		{task.Resources{EphemeralStorage: 1}, cloud.MachineSpec{EphemeralGB: 1}},
		{task.Resources{PriorityClass: "urgent"}, cloud.MachineSpec{PriorityClass: "urgent"}},
	} {
		if got := machineSpec([]task.Resources{tt.r}); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
}

func TestOnlyAllowedPoolsTakePart(t *testing.T) {
	offers := []cloud.Offer{{Place: cloud.Place{Cloud: "ssh", Region: "ssh-lab"}}, {Place: cloud.Place{Cloud: "ssh", Region: "ssh-attic"}}}
	for _, tt := range []struct {
		name    string
		cloud   string
		section map[string]any
		want    string // pools, or why there are none
	}{
		{"not set", "ssh", nil, "ssh-lab ssh-attic"},
		{"one", "ssh", map[string]any{"allowed_node_pools": []any{"attic", "cellar"}}, "ssh-attic"},
		{"none of them", "ssh", map[string]any{"allowed_node_pools": []any{"cellar"}}, "lists none of the pools that there are ([cellar])"},
		{"nothing", "ssh", map[string]any{"allowed_node_pools": []any{}}, "lists none"},
		{"another cloud", "docker", map[string]any{"allowed_node_pools": []any{"attic"}}, "ssh-lab ssh-attic"},
	} {
		got, why := inAllowedPools(offers, tt.cloud, tt.section)
		var names []string
		for _, o := range got {
			names = append(names, o.Region)
		}
		if said := strings.Join(append(names, why), " "); !strings.Contains(said, tt.want) || (why == "") != (len(got) > 0) {
			t.Errorf("%s: %q, want %q", tt.name, said, tt.want)
		}
	}
	if len(offers) != 2 || offers[0].Region != "ssh-lab" {
		t.Error("the list that was given was changed")
	}
}

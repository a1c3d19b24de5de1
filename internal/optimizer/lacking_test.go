package optimizer

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// Where buckets cannot be mounted, the reason offers what works, once.
func TestWhereNothingIsMountedCopyIsOffered(t *testing.T) {
	for reason, want := range map[string]string{
		"pods mount nothing":            "pods mount nothing; mode: COPY works",
		"":                              "it cannot do " + string(cloud.FeatureStorage) + "; mode: COPY works",
		"no mounts (mode: COPY, maybe)": "no mounts (mode: COPY, maybe)",
	} {
		s := OffersSource("x", "X", nil, map[cloud.Feature]string{cloud.FeatureStorage: reason})
		for mode, want := range map[string]string{"MOUNT": want, "MOUNT_CACHED": want, "COPY": ""} {
			f := &finder{problem: &Problem{}, task: &task.Task{StorageMounts: map[string]task.StorageMount{"/x": {Mode: mode}}}}
			if got := f.lacking(s, &task.Resources{}); strings.TrimSpace(got) != want {
				t.Errorf("%s, %q: %q", mode, reason, got)
			}
		}
	}
}

// Machines that cannot switch themselves off are stopped, or given back, by the server.
func TestWhereIdleMachinesCanBeStopped(t *testing.T) {
	on, self := map[cloud.Feature]string{cloud.FeatureStop: "it stays", cloud.FeatureAutostop: "it stays on", cloud.FeatureAutodown: "it stays"}, map[cloud.Feature]string{cloud.FeatureAutostop: "not by itself", cloud.FeatureAutodown: "not by itself"}
	for _, tt := range []struct {
		lacks map[cloud.Feature]string
		down  bool
		want  string
	}{{nil, false, ""}, {nil, true, ""}, {on, false, "it stays on"}, {on, true, ""}, {self, false, ""}, {self, true, ""}} {
		f := &finder{problem: &Problem{}, task: &task.Task{}}
		if got := f.lacking(OffersSource("x", "X", nil, tt.lacks), &task.Resources{Autostop: &task.Autostop{Enabled: true, IdleMinutes: 5, Down: tt.down}}); got != tt.want {
			t.Errorf("%v, down %t: %q", tt.lacks, tt.down, got)
		}
	}
}

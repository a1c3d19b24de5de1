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

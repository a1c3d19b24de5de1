package kubernetes

import (
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
)

func TestVolumes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		v    cloud.Volume
	}{
		{"for one node", cloud.Volume{Type: cloud.VolumeClaim, SizeGB: 1}},
		{"shared", cloud.Volume{Type: cloud.VolumeClaim, SizeGB: 2, AccessMode: cloud.ReadWriteMany, Class: "lazy"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cloudtest.Volumes(t, func(t testing.TB) cloudtest.VolumeHarness {
				f := startFake(t)
				f.addClass("lazy", false, true, "")
				all := contexts(t, map[string]string{"here": f.server.URL}, "here")
				dir := t.TempDir()
				make := func(testing.TB) cloud.Provider {
					return New(Options{Contexts: all, Dir: dir, Sections: func() catalog.Sections { return quick }})
				}
				h := cloudtest.VolumeHarness{
					Volume:  tt.v,
					Nowhere: &cloud.Volume{Class: "none"},
					Harness: cloudtest.Harness{
						Provider: make(t), Another: make,
						Spec:      cloud.LaunchSpec{Offer: cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "here"}, InstanceType: "2CPU--2GB"}, Settings: quick("")},
						Inventory: func(testing.TB) []string { return f.inventory() },
					},
					Foreign: func(t testing.TB, name string) {
						f.put(claimsPath, obj{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": obj{"name": name, "labels": obj{"app": "theirs"}},
							"spec":   obj{"accessModes": []any{"ReadWriteOnce"}, "resources": obj{"requests": obj{"storage": "3Gi"}}, "storageClassName": "standard", "volumeName": "pv"},
							"status": obj{"phase": "Bound", "capacity": obj{"storage": "3Gi"}}})
					},
					Away: func(_ testing.TB, name string) {
						f.mu.Lock()
						defer f.mu.Unlock()
						f.drop(claimsPath, name)
					},
					Vanish: func(_ testing.TB, id cloud.ClusterID) {
						f.mu.Lock()
						defer f.mu.Unlock()
						for name, o := range f.objects[podsPath] {
							if asObj(asObj(o["metadata"])["labels"])[cloud.TagCluster] == id.Name {
								f.drop(podsPath, name)
							}
						}
					},
				}
				f.hook.troubles(&h.Harness)
				h.Lie = nil
				return h
			})
		})
	}
}

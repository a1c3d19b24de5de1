package runpod

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/runpod/runpodfake"
)

func volumeOf(name string) cloud.Volume {
	return cloud.Volume{Installation: "i", Name: name, NameOnCloud: name + "-0a0b0c0d-1234abcd", Type: "runpod-network-volume", SizeGB: 10, Place: cloud.Place{Cloud: Name, Zone: "EU-CZ-1"}}
}

func mounting(name string, v cloud.Volume) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: name, Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: key, Volumes: []cloud.VolumeMount{{Path: "/workspace", Volume: v}}}
}

// withVolumes is a test over a cloud, in virtual time.
func withVolumes(t *testing.T, do func(t *testing.T, fake *runpodfake.Fake, p *Provider)) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		do(t, fake, provider().(*Provider))
	})
}

func TestVolumeConformance(t *testing.T) {
	cloudtest.Volumes(t, func(t testing.TB) cloudtest.VolumeHarness {
		fake, provider := start(t)
		h := cloudtest.VolumeHarness{Harness: fake.Harness(provider), Volume: volumeOf(""), Plain: "network volumes have a name, a size and a data center, and a pod has one"}
		h.Spec = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}
		effects := map[cloudtest.Effect]string{cloudtest.Creating: "networkVolumes.put", cloudtest.Terminating: "networkVolumes.delete"}
		h.LoseAnswers = func(_ testing.TB, to cloudtest.Effect, times int) {
			fake.Inject(model.Fault{Kind: model.Lose, Op: effects[to], Times: times})
		}
		h.Inventory = func(testing.TB) (all []string) {
			for _, line := range fake.Inventory() {
				if name, ok := strings.CutPrefix(line, "networkVolumes "); ok {
					line = name[:strings.LastIndex(name, " ")]
				}
				all = append(all, line)
			}
			return all
		}
		h.Foreign = func(_ testing.TB, name string) {
			fake.Locked(func() {
				fake.Put("networkVolumes", map[string]any{"name": name, "size": 50.0, "dataCenter": "EU-CZ-1"})
			})
		}
		h.Away = func(testing.TB, string) {
			fake.Locked(func() {
				for _, o := range fake.Things("networkVolumes") {
					_ = fake.Drop("networkVolumes", o["id"])
				}
			})
		}
		return h
	})
}

// have are the volumes that there are.
func have(fake *runpodfake.Fake) (lines []string) {
	fake.Locked(func() {
		for _, o := range fake.Things("networkVolumes") {
			lines = append(lines, fmt.Sprint(o["name"], " ", o["size"], " ", o["dataCenter"]))
		}
	})
	return lines
}

func TestTheLifeOfAVolume(t *testing.T) {
	withVolumes(t, func(t *testing.T, fake *runpodfake.Fake, p *Provider) {
		v := volumeOf("data")
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { _, errs[i] = p.MakeVolume(t.Context(), v) })
		}
		wg.Wait()
		made, err := p.MakeVolume(t.Context(), v)
		if errors.Join(append(errs, err)...) != nil || !slices.Equal(have(fake), []string{v.NameOnCloud + " 10 EU-CZ-1"}) {
			t.Fatal(errs, err, have(fake))
		}
		if made.Place != here.Place || made.AccessMode != cloud.ReadWriteOnce || made.SizeGB != 10 {
			t.Errorf("not all is filled in: %+v", made)
		}
		spec := mounting("web", made)
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		nodes, err := p.Launch(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(fake.Asked(nodes[0].ID)["mounts"]); !strings.Contains(got, "path:/workspace volumeId:") {
			t.Error(got)
		}
		states, err := p.LookAtVolumes(t.Context(), []cloud.Volume{volumeOf("other"), made})
		if err != nil || len(states) != 2 || states[0].Exists || states[0].Reason == "" || !states[1].Exists || !states[1].Ready || len(states[1].Pods) != 1 || !strings.HasPrefix(states[1].Pods[0], "web-") {
			t.Errorf("%+v, %v", states, err)
		}
		var used *cloud.InUseError
		if err := p.DeleteVolume(t.Context(), made); !errors.As(err, &used) || len(used.By) != 1 {
			t.Error(err)
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil || len(have(fake)) != 1 {
			t.Error(err, have(fake))
		}
		for range 2 {
			if err := p.DeleteVolume(t.Context(), made); err != nil || len(have(fake)) != 0 {
				t.Error(err, have(fake))
			}
		}
		var invalid *cloud.InvalidError
		if _, err := p.Launch(t.Context(), mounting("late", made)); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "any more") {
			t.Error(err)
		}
	})
}

// A volume that was there is taken and stays.
func TestAVolumeThatExists(t *testing.T) {
	withVolumes(t, func(t *testing.T, fake *runpodfake.Fake, p *Provider) {
		v := volumeOf("mine")
		v.Existing, v.SizeGB, v.NameOnCloud = true, 0, "Data of mine"
		var invalid *cloud.InvalidError
		if _, err := p.MakeVolume(t.Context(), v); !errors.As(err, &invalid) {
			t.Error(err)
		}
		for n := range 2 {
			fake.Locked(func() {
				fake.Put("networkVolumes", map[string]any{"name": v.NameOnCloud, "size": 50.0, "dataCenter": "EU-CZ-1"})
			})
			got, err := p.MakeVolume(t.Context(), v)
			if n == 0 && (err != nil || got.SizeGB != 50) || n == 1 && !errors.As(err, &invalid) { // which of the two is meant?
				t.Errorf("%d: %+v, %v", n, got, err)
			}
		}
		if err := p.DeleteVolume(t.Context(), v); err != nil || len(have(fake)) != 2 {
			t.Error(err, have(fake))
		}
	})
}

// What got no answer is found again, and if lists showed it late, all of it goes.
func TestAVolumeWhoseAnswerIsLost(t *testing.T) {
	withVolumes(t, func(t *testing.T, fake *runpodfake.Fake, p *Provider) {
		v := volumeOf("data")
		fake.Inject(model.Fault{Kind: model.Lose, Op: "networkVolumes.put", Times: 1})
		var lost *cloud.UnreachableError
		if _, err := p.MakeVolume(t.Context(), v); !errors.As(err, &lost) {
			t.Error(err)
		}
		if _, err := p.MakeVolume(t.Context(), v); err != nil || len(have(fake)) != 1 {
			t.Error(err, have(fake))
		}
		fake.Locked(func() {
			fake.Put("networkVolumes", map[string]any{"name": v.NameOnCloud, "size": 10.0, "dataCenter": "EU-CZ-1"})
		})
		fake.Inject(model.Fault{Kind: model.Lose, Op: "networkVolumes.delete", Times: 1})
		if err := p.DeleteVolume(t.Context(), v); !errors.As(err, &lost) {
			t.Error(err)
		}
		if err := p.DeleteVolume(t.Context(), v); err != nil || len(have(fake)) != 0 {
			t.Error(err, have(fake))
		}
	})
}

func TestWhatCannotBeAVolume(t *testing.T) {
	_, provider := start(t)
	p := provider().(*Provider)
	for what, spoil := range map[string]func(*cloud.Volume){
		"a type that there is not":       func(v *cloud.Volume) { v.Type = "k8s-pvc" },
		"another cloud":                  func(v *cloud.Volume) { v.Place.Cloud = "vast" },
		"no data center":                 func(v *cloud.Volume) { v.Place.Zone = "" },
		"a country that it is not in":    func(v *cloud.Volume) { v.Place.Region = "US" },
		"too small":                      func(v *cloud.Volume) { v.SizeGB = 9 },
		"too large":                      func(v *cloud.Volume) { v.SizeGB = 4097 },
		"a storage class":                func(v *cloud.Volume) { v.Class = "fast" },
		"labels":                         func(v *cloud.Volume) { v.Labels = map[string]string{"a": "b"} },
		"an access mode that is not one": func(v *cloud.Volume) { v.AccessMode = "Sometimes" },
		"one of a cluster":               func(v *cloud.Volume) { v.Cluster.Name = "web" },
	} {
		v := volumeOf("data")
		spoil(&v)
		var invalid *cloud.InvalidError
		if err := p.CheckVolume(v); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := p.MakeVolume(t.Context(), v); !errors.As(err, &invalid) {
			t.Errorf("making %s: %v", what, err)
		}
		if err := p.Prepare(t.Context(), mounting("web", v)); !errors.As(err, &invalid) {
			t.Errorf("mounting %s: %v", what, err)
		}
	}
	made, err := p.MakeVolume(t.Context(), volumeOf("data"))
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*cloud.LaunchSpec){
		"two":                 func(s *cloud.LaunchSpec) { s.Volumes = append(s.Volumes, s.Volumes[0]) },
		"at the root":         func(s *cloud.LaunchSpec) { s.Volumes[0].Path = "/" },
		"in a home folder":    func(s *cloud.LaunchSpec) { s.Volumes[0].Path = "~/data" },
		"at a relative path":  func(s *cloud.LaunchSpec) { s.Volumes[0].Path = "data" },
		"at a path that ends": func(s *cloud.LaunchSpec) { s.Volumes[0].Path = "/a/../.." },
		"a part":              func(s *cloud.LaunchSpec) { s.Volumes[0].SubPath = "x" },
		"at the system":       func(s *cloud.LaunchSpec) { s.Volumes[0].Path = "/usr/" },
		"elsewhere":           func(s *cloud.LaunchSpec) { s.Offer = elsewhere },
	} {
		spec := mounting("web", made)
		spoil(&spec)
		var invalid *cloud.InvalidError
		if _, err := p.Launch(t.Context(), spec); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What is wrong is told in the words of package cloud.
func TestRefusalsAboutVolumes(t *testing.T) {
	withVolumes(t, func(t *testing.T, fake *runpodfake.Fake, p *Provider) {
		v := volumeOf("data")
		if _, err := p.MakeVolume(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		for what, tt := range map[string]struct {
			fault model.Fault
			want  func(error) bool
		}{
			"cut": {model.Fault{Kind: model.Cut}, cloudtest.Is[*cloud.UnreachableError]}, "throttled": {model.Fault{Kind: model.Throttle}, cloudtest.Is[*cloud.ThrottledError]},
			"refused": {model.Fault{Kind: model.Fail, Code: fluffyapi.Unauthorized}, cloudtest.Is[*cloud.AuthError]}, "poor": {model.Fault{Kind: model.Fail, Code: runpodfake.Poor}, cloudtest.Is[*cloud.AuthError]},
		} {
			fake.Inject(tt.fault)
			_, err := p.MakeVolume(t.Context(), v)
			_, err2 := p.LookAtVolumes(t.Context(), []cloud.Volume{v})
			if err3 := p.DeleteVolume(t.Context(), v); !tt.want(err) || !tt.want(err2) || !tt.want(err3) {
				t.Errorf("%s: %v, %v, %v", what, err, err2, err3)
			}
			fake.Restore()
		}
		fake.Forbid()
		var forbidden *cloud.PermissionError
		if _, err := p.MakeVolume(t.Context(), volumeOf("more")); !errors.As(err, &forbidden) {
			t.Error(err)
		}
		fake.Restore()
		fake.Inject(model.Fault{Kind: model.Fail, Op: "networkVolumes.delete", Code: fluffyapi.InUse, Times: 1})
		var used *cloud.InUseError
		if err := p.DeleteVolume(t.Context(), v); !errors.As(err, &used) {
			t.Error(err)
		}
		if len(have(fake)) != 1 {
			t.Error(have(fake))
		}
	})
}

package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// VolumeHarness is a provider that is a [cloud.Volumer]. Of the Harness's hooks
// Provider, Spec and Inventory must be there.
type VolumeHarness struct {
	Harness
	// Volume is the smallest that can be made. Its name is the suite's.
	Volume cloud.Volume
	// Nowhere is a volume like it of which nothing can ever come, such as one of a
	// class that does not exist.
	Nowhere *cloud.Volume
	// Foreign makes a volume of that name on the cloud which is not sky's.
	Foreign func(t testing.TB, name string)
	// Away removes it again.
	Away func(t testing.TB, name string)
	// Plain says why volumes have a name, a size and a place, and no more: then there are no
	// labels that say whose one is, none is made with a cluster, and a node mounts one, as a
	// whole. "": they have all of that.
	Plain string
	// Vanish removes the nodes of a cluster behind the provider's back.
	Vanish func(t testing.TB, id cloud.ClusterID)
}

// volumes asks a Volumer.
type volumes struct {
	*suite
	h VolumeHarness
	v cloud.Volumer
}

// Volumes asks for everything that a [cloud.Volumer] promises, each of a harness
// of its own.
func Volumes(t *testing.T, harness func(testing.TB) VolumeHarness) {
	for _, b := range volumeBehaviours {
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			h := harness(t)
			for _, need := range b.needs {
				if need == "more than plain" {
					if h.Plain != "" {
						t.Skip("not applicable: " + h.Plain)
					}
					continue
				}
				if why := (Behaviour{needs: []string{need}}).Inapplicable(h.Harness); why != "" {
					t.Skip("not applicable: " + why)
				}
			}
			v, ok := cloud.As[cloud.Volumer](h.Provider)
			if !ok {
				t.Fatal("the provider is no Volumer")
			}
			b.check(&volumes{suite: newSuite(t, h.Harness), h: h, v: v})
		})
	}
}

var volumeBehaviours = []struct {
	name  string
	needs []string
	check func(*volumes)
}{
	{"making a volume twice makes one and says where", nil, (*volumes).once},
	{"many who make a volume at once make one", nil, (*volumes).race},
	{"a volume whose answer was lost is found again", []string{"LoseAnswers"}, (*volumes).lostAnswer},
	{"a making that is cancelled can be repeated", nil, (*volumes).cancelled},
	{"what is not ours is not taken and not deleted", []string{"more than plain"}, (*volumes).foreign},
	{"what existed is taken and stays", nil, (*volumes).existing},
	{"a volume of which nothing can come is refused", nil, (*volumes).nowhere},
	{"what can never be a volume is refused", nil, (*volumes).invalid},
	{"a volume in use is not deleted", nil, (*volumes).inUse},
	{"a look tells of all volumes in their order", nil, (*volumes).look},
	{"a volume outlives clusters", nil, (*volumes).outlives},
	{"what is written to a volume is there on the next cluster", []string{"Write", "Read"}, (*volumes).content},
	{"a volume that goes with a cluster goes with it", []string{"more than plain"}, (*volumes).goes},
	{"a volume whose cluster was only prepared goes by its tags", []string{"more than plain"}, (*volumes).preparedOnly},
	{"a volume whose nodes are gone is listed and goes", []string{"more than plain"}, (*volumes).leftOver},
	{"a volume of another place is refused", nil, (*volumes).elsewhere},
	{"no answer is no proof", []string{"Cut"}, (*volumes).cut},
	{"a cloud that slows down says so", []string{"Throttle"}, (*volumes).throttled},
	{"an account that may not make volumes is told", []string{"Forbid"}, (*volumes).forbidden},
}

// volume is one of this installation's, which is deleted in the end.
func (s *volumes) volume(name string) cloud.Volume {
	s.Helper()
	v := s.h.Volume
	v.Installation = s.installation
	v.Name, v.NameOnCloud = name, fmt.Sprintf("%s-%s-%d", name, s.installation, tokens.Add(1))
	s.Cleanup(func() {
		if s.Restore != nil {
			s.Restore(s)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), patience)
		defer cancel()
		if err := s.v.DeleteVolume(ctx, v); err != nil && s.there(v.NameOnCloud) == 1 {
			s.Logf("deleting %s in the end: %v", name, err)
		}
	})
	return v
}

func (s *volumes) make(v cloud.Volume) cloud.Volume {
	s.Helper()
	got, err := s.v.MakeVolume(s.ctx(), v)
	if err != nil {
		s.Fatalf("making %s: %v", v.Name, err)
	}
	return got
}

func (s *volumes) delete(v cloud.Volume) {
	s.Helper()
	if err := s.v.DeleteVolume(s.ctx(), v); err != nil {
		s.Fatalf("deleting %s: %v", v.Name, err)
	}
}

// there is how many volumes of that name the cloud has in its own view.
func (s *volumes) there(name string) int {
	n := 0
	for _, thing := range s.inventory() {
		if thing == name || strings.HasSuffix(thing, "/"+name) {
			n++
		}
	}
	return n
}

func (s *volumes) wantThere(name string, n int) {
	s.Helper()
	if got := s.there(name); got != n {
		s.Errorf("the cloud has %d of %s, want %d: %v", got, name, n, s.inventory())
	}
}

func (s *volumes) state(v cloud.Volume) cloud.VolumeState {
	s.Helper()
	states, err := s.v.LookAtVolumes(s.ctx(), []cloud.Volume{v})
	if err != nil || len(states) != 1 || states[0].Unknown != nil {
		s.Fatalf("looking at %s: %+v %v", v.Name, states, err)
	}
	return states[0]
}

// mounting is a cluster of one node with the volume at /data.
func (s *volumes) mounting(name string, v cloud.Volume) cloud.LaunchSpec {
	spec := s.spec(s.id(name), 1)
	spec.Volumes = []cloud.VolumeMount{{Path: "/data", Volume: v}}
	return spec
}

// with is a cluster with a volume of its own.
func (s *volumes) with(name string) (cloud.LaunchSpec, cloud.Volume) {
	spec := s.spec(s.id(name), 1)
	v := s.h.Volume
	v.Installation, v.Cluster = s.installation, spec.ID
	v.Name, v.NameOnCloud = name+"-scratch", name+"-scratch-"+s.installation
	spec.Volumes = []cloud.VolumeMount{{Path: "/scratch", Volume: v}}
	return spec, v
}

func (s *volumes) once() {
	v := s.volume("once")
	if s.h.Plain == "" {
		v.Labels = map[string]string{"team": "blue"}
	}
	got := s.make(v)
	if got.Place.Region == "" || got.NameOnCloud != v.NameOnCloud || got.AccessMode == "" || v.SizeGB > 0 && got.SizeGB < v.SizeGB {
		s.Errorf("not all is filled in: %+v", got)
	}
	for _, again := range []cloud.Volume{v, got} {
		if next := s.make(again); next.NameOnCloud != got.NameOnCloud || next.Place != got.Place {
			s.Errorf("again: %+v, first %+v", next, got)
		}
	}
	s.wantThere(v.NameOnCloud, 1)
	s.eventually("the volume to be ready", func() bool { st := s.state(got); return st.Exists && st.Ready })
	s.delete(got)
	s.wantThere(v.NameOnCloud, 0)
	s.delete(got)
	if st := s.state(got); st.Exists || st.Ready || st.Reason == "" {
		s.Errorf("what is gone: %+v", st)
	}
	s.make(v) // the name is free again
	s.wantThere(v.NameOnCloud, 1)
}

func (s *volumes) race() {
	v := s.volume("race")
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.v.MakeVolume(s.ctx(), v) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
	s.wantThere(v.NameOnCloud, 1)
	for i := range errs {
		wg.Go(func() { errs[i] = s.v.DeleteVolume(s.ctx(), v) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
	s.wantThere(v.NameOnCloud, 0)
}

func (s *volumes) lostAnswer() {
	v := s.volume("lost")
	s.LoseAnswers(s, Creating, 20)
	for range 20 { // a caller repeats what got no answer
		if _, err := s.v.MakeVolume(s.ctx(), v); err == nil {
			break
		}
	}
	s.Restore(s)
	s.make(v)
	s.wantThere(v.NameOnCloud, 1)
	s.LoseAnswers(s, Terminating, 1)
	s.v.DeleteVolume(s.ctx(), v)
	s.Restore(s)
	s.delete(v)
	s.wantThere(v.NameOnCloud, 0)
}

func (s *volumes) cancelled() {
	v := s.volume("cancelled")
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		s.promptly("making a volume", after, func(ctx context.Context) error {
			_, err := s.v.MakeVolume(ctx, v)
			return err
		})
		s.promptly("deleting a volume", after, func(ctx context.Context) error { return s.v.DeleteVolume(ctx, v) })
	}
	s.make(v)
	s.wantThere(v.NameOnCloud, 1)
	s.delete(v)
	s.wantThere(v.NameOnCloud, 0)
}

func (s *volumes) foreign() {
	v := s.volume("foreign")
	s.h.Foreign(s, v.NameOnCloud)
	s.Cleanup(func() { s.h.Away(s, v.NameOnCloud) })
	_, err := s.v.MakeVolume(s.ctx(), v)
	want[*cloud.InvalidError](s.suite, err)
	want[*cloud.InvalidError](s.suite, s.v.DeleteVolume(s.ctx(), v))
	if st := s.state(v); st.Exists {
		s.Errorf("somebody else's counts as ours: %+v", st)
	}
	spec := s.spec(s.id("foreign"), 1)
	own := v
	own.Cluster = spec.ID
	spec.Volumes = []cloud.VolumeMount{{Path: "/data", Volume: own}}
	want[*cloud.InvalidError](s.suite, s.p.Prepare(s.ctx(), spec))
	s.terminate(spec.ID)
	s.wantThere(v.NameOnCloud, 1)
	// Nor is one of another installation, or of the same with another name.
	mine := s.make(s.volume("mine"))
	for _, other := range []func(*cloud.Volume){func(v *cloud.Volume) { v.Installation = "elsewhere" }, func(v *cloud.Volume) { v.Name = "yours" }} {
		theirs := mine
		other(&theirs)
		_, err := s.v.MakeVolume(s.ctx(), theirs)
		want[*cloud.InvalidError](s.suite, err)
		want[*cloud.InvalidError](s.suite, s.v.DeleteVolume(s.ctx(), theirs))
	}
	s.wantThere(mine.NameOnCloud, 1)
}

func (s *volumes) existing() {
	v := s.volume("existing")
	v.Existing, v.SizeGB = true, 0
	_, err := s.v.MakeVolume(s.ctx(), v)
	want[*cloud.InvalidError](s.suite, err)
	s.h.Foreign(s, v.NameOnCloud)
	s.Cleanup(func() { s.h.Away(s, v.NameOnCloud) })
	got := s.make(v)
	if got.SizeGB < 1 || got.AccessMode == "" || got.Place.Region == "" {
		s.Errorf("not all is filled in: %+v", got)
	}
	spec := s.mounting("existing", got)
	s.launch(spec)
	s.refusesInUse(got)
	s.terminate(spec.ID)
	s.delete(got)
	s.wantThere(v.NameOnCloud, 1)
}

// refusesInUse wants a deletion to be refused, and reports by whom the volume is
// used.
func (s *volumes) refusesInUse(v cloud.Volume) []string {
	s.Helper()
	err := s.v.DeleteVolume(s.ctx(), v)
	var e *cloud.InUseError
	if !errors.As(err, &e) || len(e.By) == 0 {
		s.Fatalf("deleting what is in use: %v", err)
	}
	return e.By
}

func (s *volumes) nowhere() {
	if s.h.Nowhere == nil {
		s.Skip("not applicable: the harness has no Nowhere")
	}
	v := s.volume("nowhere")
	v.Class = s.h.Nowhere.Class
	_, err := s.v.MakeVolume(s.ctx(), v)
	want[*cloud.InvalidError](s.suite, err)
	s.wantThere(v.NameOnCloud, 0)
	spec, own := s.with("nowhere")
	spec.Volumes[0].Volume.Class = s.h.Nowhere.Class
	want[*cloud.InvalidError](s.suite, s.p.Prepare(s.ctx(), spec))
	s.terminate(spec.ID)
	s.wantThere(own.NameOnCloud, 0)
}

func (s *volumes) invalid() {
	for what, spoil := range map[string]func(*cloud.Volume){
		"a type that there is not":         func(v *cloud.Volume) { v.Type = "floppy" },
		"a name that cannot be":            func(v *cloud.Volume) { v.NameOnCloud = "Not_A_Name" },
		"a name that is too long":          func(v *cloud.Volume) { v.NameOnCloud = strings.Repeat("a", 300) },
		"an access mode that there is not": func(v *cloud.Volume) { v.AccessMode = "Sometimes" },
		"no size":                          func(v *cloud.Volume) { v.SizeGB = 0 },
		"a place of another cloud":         func(v *cloud.Volume) { v.Place.Cloud = "elsewhere" },
		"a label that says whose it is":    func(v *cloud.Volume) { v.Labels = map[string]string{cloud.TagHash: "x"} },
		"a label that cannot be":           func(v *cloud.Volume) { v.Labels = map[string]string{"a": "not a value!"} },
		"a place where nothing of that is": func(v *cloud.Volume) { v.Place.Region = "no-such-place" },
	} {
		v := s.h.Volume
		v.Name, v.NameOnCloud, v.Installation = "bad", "bad", s.installation
		spoil(&v)
		if _, err := s.v.MakeVolume(s.ctx(), v); !errors.As(err, new(*cloud.InvalidError)) {
			s.Errorf("%s: %v", what, err)
		}
	}
	v := s.make(s.volume("good"))
	paths := []string{"", "/", "data", "~", "~/../x", "~joe/x", "/proc", "/a:b"}
	if s.h.Plain == "" {
		paths = append(paths, "/opt")
	}
	for _, path := range paths {
		spec := s.mounting("bad", v)
		spec.Volumes[0].Path = path
		if err := s.p.Prepare(s.ctx(), spec); !errors.As(err, new(*cloud.InvalidError)) {
			s.Errorf("at %q: %v", path, err)
		}
	}
	spec := s.mounting("bad", v)
	spec.Volumes[0].SubPath = "../x"
	if err := s.p.Prepare(s.ctx(), spec); !errors.As(err, new(*cloud.InvalidError)) {
		s.Errorf("a sub path that leads out: %v", err)
	}
	spec = s.mounting("bad", v)
	spec.Volumes = append(spec.Volumes, spec.Volumes[0])
	if err := s.p.Prepare(s.ctx(), spec); !errors.As(err, new(*cloud.InvalidError)) {
		s.Errorf("two at one path: %v", err)
	}
	spec = s.mounting("bad", v)
	if spec.Nodes = 2; v.AccessMode == cloud.ReadWriteOnce {
		if err := s.p.Prepare(s.ctx(), spec); !errors.As(err, new(*cloud.InvalidError)) {
			s.Errorf("for one node on two: %v", err)
		}
	}
}

func (s *volumes) inUse() {
	v := s.make(s.volume("used"))
	spec := s.mounting("user", v)
	nodes := s.launch(spec)
	for range 2 {
		if by := s.refusesInUse(v); len(by) != 1 || !strings.Contains(by[0], spec.ID.Name) {
			s.Errorf("in use by %v", by)
		}
	}
	st := s.state(v)
	if !st.Exists || !st.Ready || len(st.Pods) != 1 ||
		s.h.Plain == "" && (len(st.Nodes) != 1 || st.Nodes[0].Cluster != spec.ID.Name || st.Nodes[0].Hash != spec.ID.Hash || st.Nodes[0].ID != nodes[0].ID) {
		s.Errorf("it was to stay as it is: %+v", st)
	}
	second := s.mounting("user2", v)
	if v.AccessMode == cloud.ReadWriteMany {
		s.launch(second)
		if by := s.refusesInUse(v); len(by) != 2 {
			s.Errorf("in use by %v", by)
		}
		s.terminate(second.ID)
	}
	s.terminate(spec.ID)
	s.delete(v)
	s.wantThere(v.NameOnCloud, 0)
	// What is not there any more is not waited for.
	_, err := s.try(s.mounting("user3", v))
	want[*cloud.InvalidError](s.suite, err)
}

func (s *volumes) look() {
	if states, err := s.v.LookAtVolumes(s.ctx(), nil); err != nil || len(states) != 0 {
		s.Errorf("at none: %v %v", states, err)
	}
	var all []cloud.Volume
	for i := range 4 {
		v := s.volume(fmt.Sprintf("look%d", i))
		if i%2 == 0 {
			v = s.make(v)
		}
		all = append(all, v)
	}
	nowhere := s.volume("nowhere")
	nowhere.Place.Region = "no-such-place"
	all = append(all, nowhere)
	states, err := s.v.LookAtVolumes(s.ctx(), all)
	if err != nil || len(states) != len(all) {
		s.Fatalf("%+v %v", states, err)
	}
	for i, st := range states[:4] {
		if st.Unknown != nil || st.Exists != (i%2 == 0) || st.Asked.IsZero() || len(st.Pods)+len(st.Nodes) > 0 {
			s.Errorf("%d: %+v", i, st)
		}
	}
	if states[4].Unknown == nil {
		s.Errorf("in a place that there is not: %+v", states[4])
	}
}

func (s *volumes) outlives() {
	v := s.make(s.volume("outlives"))
	for _, name := range []string{"first", "second"} {
		spec := s.mounting(name, v)
		s.launch(spec)
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
		s.wantThere(v.NameOnCloud, 1)
	}
	if nodes := s.nodes(cloud.ClusterID{Installation: s.installation}); len(nodes) > 0 {
		s.Errorf("a volume alone is no cluster: %v", brief(nodes))
	}
	if st := s.state(v); !st.Exists || len(st.Pods) > 0 {
		s.Errorf("%+v", st)
	}
}

func (s *volumes) content() {
	v := s.make(s.volume("content"))
	spec := s.mounting("writes", v)
	s.Write(s, s.launch(spec)[0], "/data/word", "kept")
	s.terminate(spec.ID)
	spec = s.mounting("reads", v)
	spec.Volumes = append(spec.Volumes, cloud.VolumeMount{Path: "~/more/data", Volume: v}, cloud.VolumeMount{Path: "/sub", Volume: v, SubPath: "a/b"})
	n := s.launch(spec)[0]
	if got := s.Read(s, n, "/data/word"); got != "kept" {
		s.Errorf("it holds %q", got)
	}
	s.Write(s, n, "/sub/deep", "below")
	s.Write(s, n, "/data/word", "changed")
	for file, want := range map[string]string{"/data/a/b/deep": "below", "$HOME/more/data/word": "changed"} {
		if got := s.Read(s, n, file); got != want {
			s.Errorf("%s holds %q", file, got)
		}
	}
}

func (s *volumes) goes() {
	kept := s.make(s.volume("kept"))
	spec, v := s.with("owner")
	spec.Volumes = append(spec.Volumes, cloud.VolumeMount{Path: "/kept", Volume: kept})
	s.launch(spec)
	s.launch(spec)
	s.wantThere(v.NameOnCloud, 1)
	if nodes := s.nodes(cloud.ClusterID{Installation: s.installation}); len(nodes) != 1 {
		s.Errorf("besides its node: %v", brief(nodes))
	}
	s.terminate(spec.ID)
	s.nothingLeft(spec.ID)
	s.wantThere(v.NameOnCloud, 0)
	s.wantThere(kept.NameOnCloud, 1)
	// A cluster of the same name is another one.
	s.launch(spec)
	other := spec.ID
	other.Hash = "h2"
	s.terminate(other)
	s.wantThere(v.NameOnCloud, 1)
}

func (s *volumes) preparedOnly() {
	spec, v := s.with("prepared")
	for range 2 {
		if err := s.p.Prepare(s.ctx(), spec); err != nil {
			s.Fatal(err)
		}
	}
	s.wantThere(v.NameOnCloud, 1)
	p := s.p
	if s.Another != nil {
		p = s.Another(s)
	}
	if err := p.Terminate(s.ctx(), spec.ID); err != nil {
		s.Fatal(err)
	}
	s.wantThere(v.NameOnCloud, 0)
}

func (s *volumes) leftOver() {
	if s.h.Vanish == nil {
		s.Skip("not applicable: the harness has no Vanish")
	}
	spec, v := s.with("leftover")
	s.launch(spec)
	s.h.Vanish(s, spec.ID)
	// As for a cluster that has no record any more: one question, and what it tells.
	all := cloud.ClusterID{Installation: s.installation}
	found := slices.DeleteFunc(s.nodes(all), func(n cloud.Node) bool { return n.State == cloud.NodeGone })
	if len(found) != 1 || found[0].Cluster != spec.ID.Name || found[0].Hash != spec.ID.Hash || found[0].Reason == "" || found[0].Created.IsZero() {
		s.Fatalf("what is left: %v", brief(found))
	}
	if nodes := s.alive(spec.ID); len(nodes) > 0 {
		s.Errorf("the cluster itself has no nodes: %v", brief(nodes))
	}
	s.terminate(cloud.ClusterID{Installation: s.installation, Name: found[0].Cluster, Hash: found[0].Hash})
	s.wantThere(v.NameOnCloud, 0)
	if found := s.nodes(all); len(found) > 0 {
		s.Errorf("still listed: %v", brief(found))
	}
}

func (s *volumes) elsewhere() {
	v := s.make(s.volume("here"))
	for _, move := range []func(*cloud.Volume){func(v *cloud.Volume) { v.Place.Region += "-not" }, func(v *cloud.Volume) { v.Namespace = "no-such-namespace" }} {
		spec := s.mounting("there", v)
		move(&spec.Volumes[0].Volume)
		_, err := s.try(spec)
		want[*cloud.InvalidError](s.suite, err)
		s.nothingLeft(spec.ID)
	}
}

func (s *volumes) cut() {
	v := s.make(s.volume("cut"))
	s.Cut(s)
	var errs [3]error
	var wg sync.WaitGroup // providers try for a while
	wg.Go(func() { _, errs[0] = s.v.MakeVolume(s.ctx(), v) })
	wg.Go(func() { _, errs[1] = s.v.LookAtVolumes(s.ctx(), []cloud.Volume{v}) })
	wg.Go(func() { errs[2] = s.v.DeleteVolume(s.ctx(), v) })
	wg.Wait()
	for _, err := range errs {
		want[*cloud.UnreachableError](s.suite, err)
	}
	s.Restore(s)
	s.wantThere(v.NameOnCloud, 1)
}

func (s *volumes) throttled() {
	v := s.make(s.volume("slow"))
	s.Throttle(s)
	_, err := s.v.MakeVolume(s.ctx(), v)
	want[*cloud.ThrottledError](s.suite, err)
	want[*cloud.ThrottledError](s.suite, s.v.DeleteVolume(s.ctx(), v))
	s.Restore(s)
	s.wantThere(v.NameOnCloud, 1)
}

func (s *volumes) forbidden() {
	v := s.volume("forbidden")
	s.Forbid(s)
	_, err := s.v.MakeVolume(s.ctx(), v)
	want[*cloud.PermissionError](s.suite, err)
	s.Restore(s)
	s.wantThere(v.NameOnCloud, 0)
}

//go:build unix

package sshpool

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
)

func h100s(n int) size {
	s := size{cpus: 64, memoryGiB: 512}
	if n > 0 {
		s.accelerator, s.accelerators = "H100", float64(n)
	}
	for i := range n {
		s.devices = append(s.devices, i)
	}
	return s
}

func TestWhatATaskGetsOfAMachine(t *testing.T) {
	one := &sizes{[]poolSizes{{"a", []size{{cpus: 8, memoryGiB: 32}, h100s(8)}}, {"b", []size{{cpus: 16, memoryGiB: 60}}}}}
	gpus := func(name string, n float64, q catalog.Query) catalog.Query {
		q.Accelerator, q.Count = name, n
		return q
	}
	for _, tt := range []struct {
		name string
		q    catalog.Query
		want string
	}{
		{"nothing named: whole machines", catalog.Query{}, "a:8CPU--32GB a:64CPU--512GB--H100:8 b:16CPU--60GB"},
		{"CPUs, with their part of the memory", catalog.Query{CPUs: catalog.Amount{N: 4}}, "a:share-4CPU--16GB a:share-4CPU--32GB b:share-4CPU--15GB"},
		{"at least", catalog.Query{CPUs: catalog.Amount{N: 4, AtLeast: true}, Regions: []string{"ssh-b"}}, "b:share-4CPU--15GB"},
		{"memory", catalog.Query{Memory: catalog.Amount{N: 30}, Regions: []string{"ssh-b"}}, "b:share-8CPU--30GB"},
		{"memory for each CPU", catalog.Query{CPUs: catalog.Amount{N: 2}, Memory: catalog.Amount{N: 3, PerCPU: true}, Regions: []string{"ssh-b"}}, "b:share-2CPU--6GB"},
		{"accelerators", gpus("h100", 2, catalog.Query{}), "a:share-16CPU--128GB--H100:2"},
		{"a part of one", gpus("H100", 0.5, catalog.Query{}), "a:share-8CPU--64GB--H100:1"},
		{"accelerators and CPUs", gpus("H100", 1, catalog.Query{CPUs: catalog.Amount{N: 32}}), "a:share-32CPU--256GB--H100:1"},
		{"all of a machine", gpus("H100", 8, catalog.Query{}), "a:share-64CPU--512GB--H100:8"},
		{"too many", gpus("H100", 9, catalog.Query{}), ""},
		{"of another kind", gpus("A100", 1, catalog.Query{}), ""},
		{"a half CPU", catalog.Query{CPUs: catalog.Amount{N: 0.5}, Regions: []string{"ssh-b"}}, "b:share-0.5CPU--1GB"},
		{"a machine's type", catalog.Query{InstanceType: "8CPU--32GB"}, "a:8CPU--32GB"},
		{"a type that no machine is", catalog.Query{InstanceType: "4CPU--8GB"}, "a:share-4CPU--8GB b:share-4CPU--8GB"},
		{"a share's type", catalog.Query{InstanceType: "share-8CPU--32GB"}, "a:share-8CPU--32GB b:share-8CPU--32GB"},
		{"no type of ours", catalog.Query{InstanceType: "m5.large"}, ""},
		{"a zone", catalog.Query{Zones: []string{"x"}}, ""},
		{"spot", catalog.Query{Spot: true}, ""},
	} {
		var got []string
		for _, o := range one.Find(tt.q) {
			got = append(got, strings.TrimPrefix(o.Region, "ssh-")+":"+o.InstanceType)
			back, err := parseRequest(o.InstanceType)
			if err != nil || back.name() != o.InstanceType || back.cpus != o.CPUs || back.memoryGiB != o.MemoryGiB {
				t.Errorf("%s: %s is read as %+v, %v", tt.name, o.InstanceType, back, err)
			}
		}
		if fmt.Sprint(got) != "["+tt.want+"]" {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
		}
	}
	if why := one.WhyNot(gpus("A100", 1, catalog.Query{Regions: []string{"ssh-b"}})); why != "pool b has machines of 16CPU--60GB" {
		t.Error(why)
	}
}

// Whatever is claimed and given back in whatever order: no machine is promised more
// than it has, no accelerator twice, a whole machine to one alone, and what does not fit has no room.
func TestSharesNeverExceedAMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) size {
			s := h100s(rapid.IntRange(0, 4).Draw(t, "accelerators"))
			s.cpus, s.memoryGiB = float64(rapid.IntRange(1, 16).Draw(t, "cpus")), float64(rapid.IntRange(1, 64).Draw(t, "memory"))
			return s
		}), 1, 4).Draw(t, "machines")
		type node struct {
			machine int
			share   *folder.Share
		}
		var nodes []node
		taken := func(i int) []*folder.Share {
			var out []*folder.Share
			for _, n := range nodes {
				if n.machine == i {
					out = append(out, n.share)
				}
			}
			return out
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(nodes) > 0 && rapid.Bool().Draw(t, "give back") {
				i := rapid.IntRange(0, len(nodes)-1).Draw(t, "which")
				nodes = slices.Delete(nodes, i, i+1)
				continue
			}
			want := request{whole: rapid.IntRange(0, 4).Draw(t, "whole") == 0}
			want.cpus = float64(rapid.IntRange(1, 32).Draw(t, "want cpus")) / 2
			want.memoryGiB = float64(rapid.IntRange(1, 40).Draw(t, "want memory"))
			if n := rapid.IntRange(0, 3).Draw(t, "want accelerators"); n > 0 {
				want.accelerator, want.accelerators = "H100", float64(n)
			}
			var rooms []room
			for i, m := range machines {
				rooms = append(rooms, roomOf(m, taken(i)))
			}
			ranks := []int{0, 1, 2}[:rapid.IntRange(1, 3).Draw(t, "nodes")]
			plan, found, ok := assign(rooms, want, ranks)
			could := 0
			for i := range rooms {
				if _, fits := rooms[i].fit(want); fits {
					could++
				}
			}
			if found != could || ok != (could >= len(ranks)) {
				t.Fatalf("found %d of %d, %t", found, could, ok)
			}
			if !ok {
				continue
			}
			used := map[int]bool{}
			for i, a := range plan {
				if used[a.machine] || a.rank != ranks[i] || (a.share == nil) != want.whole {
					t.Fatalf("%+v", plan)
				}
				used[a.machine] = true
				nodes = append(nodes, node{a.machine, a.share})
			}
			for i, m := range machines {
				var cpus, memory float64
				devices := map[int]bool{}
				shares := taken(i)
				for _, s := range shares {
					if s == nil {
						if len(shares) > 1 {
							t.Fatalf("machine %d has a cluster of its own and others: %d", i, len(shares))
						}
						continue
					}
					cpus, memory = cpus+s.CPUs, memory+s.MemoryGiB
					for _, g := range s.GPUs {
						if devices[g] || !slices.Contains(m.devices, g) {
							t.Fatalf("accelerator %d of machine %d is given twice, or is none", g, i)
						}
						devices[g] = true
					}
				}
				if cpus > m.cpus+slack || memory > m.memoryGiB+slack {
					t.Fatalf("machine %d of %+v: %v CPUs, %v GB", i, m, cpus, memory)
				}
			}
		}
	})
}

// A share is never more than what was named, or the machine's part of it.
func TestASizedShareIsAPartOfTheMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := h100s(rapid.IntRange(0, 8).Draw(t, "accelerators"))
		m.cpus, m.memoryGiB = float64(rapid.IntRange(1, 128).Draw(t, "cpus")), float64(rapid.IntRange(1, 1024).Draw(t, "memory"))
		cpus, memory := rapid.Float64Range(0, 140).Draw(t, "want cpus"), rapid.Float64Range(0, 1100).Draw(t, "want memory")
		n := float64(rapid.IntRange(0, 9).Draw(t, "want accelerators"))
		s, ok := sized(m, cpus, memory, n, false)
		if ok != (s.cpus > 0 && cpus <= m.cpus && memory <= m.memoryGiB && n <= m.accelerators) {
			t.Fatalf("%+v of %+v: %t", s, m, ok)
		}
		if !ok {
			return
		}
		part := max(cpus/m.cpus, memory/m.memoryGiB)
		if n > 0 {
			part = max(part, n/m.accelerators)
		}
		if cpus == 0 && s.cpus > part*m.cpus+slack || memory == 0 && s.memoryGiB > part*m.memoryGiB+slack || cpus > 0 && s.cpus != cpus || memory > 0 && s.memoryGiB != memory {
			t.Fatalf("%v CPUs, %v GB, %v of %+v is %+v", cpus, memory, n, m, s)
		}
	})
}

// withGPUs lets a machine say that it has accelerators.
func withGPUs(t testing.TB, h *sshtest.Server, lines ...string) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\ncat <<E\n" + strings.Join(lines, "\n") + "\nE\n"
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Set(func(k *sshtest.Knobs) { k.Env = map[string]string{"PATH": bin + ":" + os.Getenv("PATH")} })
}

func (f *fixture) share(name string, n int, s size) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: name, Hash: "h-" + name}, Nodes: n, Offer: request{size: s}.offer("mine")}
}

func TestClustersSideBySideOnOneMachine(t *testing.T) {
	f := setup(t, 1)
	h := f.hosts[0]
	withGPUs(t, h, "NVIDIA T4, 15360", "NVIDIA H100 80GB HBM3, 81559", "NVIDIA H100 80GB HBM3, 81559", "NVIDIA H100 80GB HBM3, 81559")
	small := size{cpus: 0.1, memoryGiB: 0.1}
	one := small
	one.accelerator, one.accelerators = "H100", 1
	two := one
	two.accelerators = 2
	a, b := f.launch(f.share("a", 1, two))[0], f.launch(f.share("b", 1, one))[0]
	for _, tt := range []struct {
		n    cloud.Node
		want string
	}{{a, "[1 2]"}, {b, "[3]"}} {
		got := folder.ShareOf(filepath.Dir(tt.n.Reach.Home))
		if got == nil || fmt.Sprint(got.GPUs) != tt.want || got.CPUs != 0.1 {
			t.Errorf("%s has %+v, want GPUs %s", tt.n.Cluster, got, tt.want)
		}
	}
	if filepath.Dir(filepath.Dir(a.Reach.Home)) != filepath.Dir(filepath.Dir(b.Reach.Home)) || a.Reach.Home == b.Reach.Home || a.ID == b.ID {
		t.Errorf("%+v\n%+v", a, b)
	}
	// Asking again for what holds changes nothing.
	if again := f.launch(f.share("a", 1, two))[0]; again != a {
		t.Errorf("%+v\nwas %+v", again, a)
	}
	var full *cloud.CapacityError
	_, err := f.p.Launch(t.Context(), f.share("c", 1, one))
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "cluster a, cluster b (") || !strings.Contains(err.Error(), "0 of 3 H100 free)") {
		t.Errorf("%v", err)
	}
	if _, err := f.p.Launch(t.Context(), f.spec("w", 1)); !errors.As(err, &full) {
		t.Errorf("a machine was given as a whole that others have a share of: %v", err)
	}
	f.launch(f.share("cpus", 1, small))
	got, err := f.p.Inspect(t.Context(), "mine")
	if err != nil || len(got[0].Clusters) != 3 || !strings.Contains(got[0].Free, "0 of 3 H100 free") {
		t.Errorf("%+v, %v", got, err)
	}
	// What one leaves is free again, and the others' is untouched.
	os.WriteFile(filepath.Join(b.Reach.Home, "kept"), nil, 0o600)
	if err := f.p.Terminate(t.Context(), f.share("a", 1, two).ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(b.Reach.Home, "kept")); err != nil {
		t.Error(err)
	}
	d := f.launch(f.share("d", 1, two))[0]
	if s := folder.ShareOf(filepath.Dir(d.Reach.Home)); fmt.Sprint(s.GPUs) != "[1 2]" {
		t.Errorf("%+v", s)
	}
	all, err := f.p.Nodes(t.Context(), cloud.ClusterID{Installation: "i"})
	if err != nil || len(all) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, name := range []string{"b", "cpus", "d"} {
		if err := f.p.Terminate(t.Context(), cloud.ClusterID{Installation: "i", Name: name, Hash: "h-" + name}); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(h.Home); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	f.launch(f.spec("w", 1))
	if _, err := f.p.Launch(t.Context(), f.share("c", 1, small)); !errors.As(err, &full) {
		t.Errorf("a share of a machine that somebody has as a whole: %v", err)
	}
}

func TestSharesAreClaimedByManyAtOnce(t *testing.T) {
	f := setup(t, 2)
	for _, h := range f.hosts {
		withGPUs(t, h, "NVIDIA H100 80GB HBM3, 81559", "NVIDIA H100 80GB HBM3, 81559")
	}
	f.offer()
	type result struct {
		name string
		node cloud.Node
		err  error
	}
	results := make(chan result, 7)
	want := size{cpus: 0.1, memoryGiB: 0.1, accelerator: "H100", accelerators: 1}
	for i := range 7 {
		p := f.elsewhere(t)
		spec := f.share(fmt.Sprint("c", i), 1, want)
		spec.ID.Installation = fmt.Sprint("i", i)
		go func() {
			nodes, err := p.Launch(t.Context(), spec)
			r := result{name: spec.ID.Name, err: err}
			if err == nil {
				r.node = nodes[0]
			}
			results <- r
		}()
	}
	taken := map[string]string{}
	for range 7 {
		r := <-results
		var full *cloud.CapacityError
		if r.err != nil {
			if !errors.As(r.err, &full) {
				t.Error(r.err)
			}
			continue
		}
		key := fmt.Sprint(r.node.Reach.Port, folder.ShareOf(filepath.Dir(r.node.Reach.Home)).GPUs)
		if taken[key] != "" {
			t.Errorf("%s and %s have %s", r.name, taken[key], key)
		}
		taken[key] = r.name
	}
	if len(taken) != 4 {
		t.Errorf("%d of 4 accelerators were taken: %v", len(taken), taken)
	}
}

// A claim that was never settled, as of a process that was killed, counts for others, is
// made anew by its owner, and goes with the cluster.
func TestAClaimThatWasNeverSettled(t *testing.T) {
	f := setup(t, 1)
	withGPUs(t, f.hosts[0], "NVIDIA H100 80GB HBM3, 81559")
	want := size{cpus: 0.1, memoryGiB: 0.1, accelerator: "H100", accelerators: 1}
	spec := f.share("a", 1, want)
	home := f.launch(spec)[0].Reach.Home
	if err := os.RemoveAll(home); err != nil {
		t.Fatal(err)
	}
	claimed := f.p.look(t.Context(), all(must(f.p.pools()))[0])
	if len(claimed.held) != 1 || claimed.held[0].ready || len(claimed.room(false).devices) != 0 || len(claimed.room(true).devices) != 1 {
		t.Errorf("%+v", claimed)
	}
	home = f.launch(spec)[0].Reach.Home
	if _, err := os.Stat(home); err != nil || len(records(f.hosts[0])) != 1 {
		t.Errorf("%v, %v", err, records(f.hosts[0]))
	}
	os.RemoveAll(home)
	if err := f.p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(f.hosts[0].Home); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What an earlier version has claimed is a whole machine, and is given back as such.
func TestAMachineThatAnEarlierVersionHasClaimed(t *testing.T) {
	f := setup(t, 1)
	dir := wholeDir(f.hosts[0])
	os.MkdirAll(filepath.Join(dir, "home"), 0o700)
	os.WriteFile(filepath.Join(dir, "node.json"), []byte(`{"installation":"i","cluster":"old","cluster_hash":"h-old","rank":0,"created":"2026-01-01T00:00:00Z"}`+"\n"), 0o600)
	var full *cloud.CapacityError
	if _, err := f.p.Launch(t.Context(), f.share("new", 1, size{cpus: 0.1, memoryGiB: 0.1})); !errors.As(err, &full) || !strings.Contains(err.Error(), "has cluster old") {
		t.Errorf("%v", err)
	}
	old := f.launch(f.spec("old", 1))
	if len(old) != 1 || old[0].Reach.Home != filepath.Join(dir, "home") {
		t.Errorf("%+v", old)
	}
	if err := f.p.Terminate(t.Context(), f.spec("old", 1).ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(f.hosts[0].Home); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRoomIsSaidInFewDigits(t *testing.T) {
	r := roomOf(h100s(2), []*folder.Share{{CPUs: 0.1, MemoryGiB: 1.0 / 3, GPUs: []int{1}}})
	if got := r.free(); got != "63.9 of 64 CPUs, 511.67 of 512 GB, 1 of 2 H100 free" || math.Abs(r.cpus-63.9) > slack {
		t.Error(got)
	}
}

// What a cluster has is in the database before a machine is asked for it, where every
// server of the installation finds it, also if the pool is not in the file any more.
func TestALeaseIsStoredForEveryShare(t *testing.T) {
	f := setup(t, 2)
	for _, h := range f.hosts {
		withGPUs(t, h, "NVIDIA H100 80GB HBM3, 81559", "NVIDIA H100 80GB HBM3, 81559")
	}
	want := size{cpus: 0.1, memoryGiB: 0.1, accelerator: "H100", accelerators: 1}
	spec := f.share("a", 2, want)
	f.launch(spec)
	leases := func() map[string][]byte { return must(f.store.List(t.Context(), leasePrefix)) }
	var in intent
	for _, b := range leases() {
		if err := json.Unmarshal(b, &in); err != nil {
			t.Fatal(err)
		}
	}
	if len(in.Hosts) != 2 || in.Hosts[0].Rank+in.Hosts[1].Rank != 1 || in.Hosts[0].Share == nil || fmt.Sprint(in.Hosts[0].Share.GPUs) != "[0]" || in.Hosts[0].Share.CPUs != 0.1 {
		t.Errorf("%+v", in)
	}
	// A launch that fails on its way has a lease for what it may have left.
	refused := f.share("b", 2, want)
	f.hosts[1].Set(func(k *sshtest.Knobs) { k.Shell = "/bin/false" })
	f.hosts[1].Cut()
	if _, err := f.p.Launch(t.Context(), refused); err == nil {
		t.Error("a machine without a shell was claimed")
	}
	f.hosts[1].Set(func(k *sshtest.Knobs) { k.Shell = "" })
	// Another server of the installation gives back, without the pools' file.
	os.Remove(f.p.o.File)
	another := f.provider(t)
	if nodes, err := another.Nodes(t.Context(), spec.ID); err != nil || len(nodes) != 2 {
		t.Errorf("%v, %v", nodes, err)
	}
	for _, id := range []cloud.ClusterID{spec.ID, refused.ID} {
		if err := another.Terminate(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if left := leases(); len(left) > 0 {
		t.Errorf("leases are left: %v", left)
	}
	for _, h := range f.hosts {
		if left, _ := os.ReadDir(h.Home); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// What earlier versions noted in files is still known, and goes with the cluster.
func TestALeaseThatAnEarlierVersionHasNoted(t *testing.T) {
	f := setup(t, 1)
	spec := f.spec("c", 1)
	f.launch(spec)
	name := leasePrefix + leaseName(spec.ID)
	b := must(f.store.List(t.Context(), name))[name]
	f.store.Delete(t.Context(), name)
	os.MkdirAll(f.p.o.Dir, 0o700)
	if err := os.WriteFile(f.p.earlierFile(spec.ID), b, 0o600); err != nil {
		t.Fatal(err)
	}
	os.Remove(f.p.o.File)
	if nodes, err := f.p.Nodes(t.Context(), spec.ID); err != nil || len(nodes) != 1 {
		t.Errorf("%v, %v", nodes, err)
	}
	if err := f.p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(f.p.o.Dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Replicas of a service listen on one port: each is on a machine of its own.
func TestSharesOfOneMachineListenOnDifferentPorts(t *testing.T) {
	f := setup(t, 2)
	small := size{cpus: 0.1, memoryGiB: 0.1}
	listening := func(name string, ports ...string) cloud.LaunchSpec {
		s := f.share(name, 1, small)
		s.Listens = ports
		return s
	}
	f.offer()
	a, b := f.launch(listening("a", "8080"))[0], f.launch(listening("b", "8000-8100"))[0]
	if a.Reach.Port == b.Reach.Port {
		t.Error("two that listen on 8080 are on one machine")
	}
	var full *cloud.CapacityError
	if _, err := f.p.Launch(t.Context(), listening("c", "8080")); !errors.As(err, &full) || !strings.Contains(err.Error(), "one of them listens on port 8080") {
		t.Errorf("%v", err)
	}
	f.launch(listening("d", "9090"))
	f.launch(listening("e"))
}

package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/task"
)

func id(hash string) cloud.ClusterID {
	return cloud.ClusterID{Installation: "i", Name: "c1", Hash: hash}
}

func launch(t *testing.T, p *Provider, hash string, n int) []cloud.Node {
	t.Helper()
	nodes, err := p.Launch(t.Context(), cloud.LaunchSpec{ID: id(hash), Nodes: n, Offer: cloud.Offer{Place: cloud.Place{Cloud: Name}}})
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func nodes(t *testing.T, p *Provider, id cloud.ClusterID) []cloud.Node {
	t.Helper()
	n, err := p.Nodes(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// resident starts a process that belongs to a node.
func resident(t *testing.T, n cloud.Node) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.Env = append(os.Environ(), EnvNode+"="+filepath.Dir(n.Reach.Home))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go c.Wait()
	t.Cleanup(func() { c.Process.Kill() })
	return c
}

func TestNodesHaveAddressesAndHomesOfTheirOwn(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	ns := launch(t, p, "h1", 4)
	seen := map[string]bool{}
	for i, n := range ns {
		if n.Rank != i || n.State != cloud.NodeRunning || seen[n.InternalIP] || seen[n.Reach.Home] {
			t.Errorf("node %d: %+v", i, n)
		}
		seen[n.InternalIP], seen[n.Reach.Home] = true, true
		if _, err := os.Stat(n.Reach.Home); err != nil {
			t.Error(err)
		}
	}
}

func TestLaunchingTwiceMakesOneCluster(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	first := launch(t, p, "h1", 2)
	second := launch(t, p, "h1", 2)
	if len(nodes(t, p, cloud.ClusterID{})) != 2 || first[0].InternalIP != second[0].InternalIP {
		t.Errorf("got %+v after %+v", second, first)
	}
}

// Whose nodes a folder holds, only its records say: two clusters can have come to
// one name, and the one that is there keeps its nodes, jobs and files.
func TestClustersOfOneNameLiveBesideEachOther(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	mine := launch(t, p, "h1", 2)
	c := resident(t, mine[0])
	data := filepath.Join(mine[0].Reach.Home, "data")
	if err := os.WriteFile(data, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	theirs := launch(t, p, "h2", 3)
	again := launch(t, p, "h2", 3)
	if len(theirs) != 3 || again[0].Reach.Home != theirs[0].Reach.Home {
		t.Errorf("launched as %+v, and again as %+v", theirs, again)
	}
	other := resident(t, theirs[0])
	if err := p.Stop(t.Context(), id("h2")); err != nil {
		t.Fatal(err)
	}
	if proc.Alive(other.Process.Pid, "") || !proc.Alive(c.Process.Pid, "") {
		t.Error("stopping one cluster ended the wrong processes")
	}
	if got := nodes(t, p, id("h2")); len(got) != 3 || got[0].State != cloud.NodeStopped {
		t.Errorf("stopped: %+v", got)
	}
	if err := p.Terminate(t.Context(), id("h2")); err != nil {
		t.Fatal(err)
	}
	if got := nodes(t, p, cloud.ClusterID{}); len(got) != 2 || got[0].Hash != "h1" || got[0].State != cloud.NodeRunning {
		t.Errorf("left: %+v", got)
	}
	if _, err := os.Stat(data); err != nil || !proc.Alive(c.Process.Pid, "") {
		t.Errorf("the first cluster lost its file or its job: %v", err)
	}
	if err := p.Terminate(t.Context(), id("h1")); err != nil || len(nodes(t, p, cloud.ClusterID{})) != 0 {
		t.Errorf("the first cluster cannot be terminated: %v", err)
	}
}

// The names of these clusters differ only in what names on clouds do not have.
func TestClustersWithSimilarNamesBothLive(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	for i, name := range []string{"train-a1", "train_a1", "train.a1", "Train-A1"} {
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: task.NameOnCloud(name, "abcd1234", maxName), Hash: name}, Nodes: 1}
		if _, err := p.Launch(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if got, _ := filepath.Glob(filepath.Join(p.root, "*", "node-0", "home")); len(got) != i+1 {
			t.Errorf("after %s there are the homes %v", name, got)
		}
	}
}

func TestStopKeepsTheDiskAndEndsTheProcesses(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	n := launch(t, p, "h1", 1)[0]
	c := resident(t, n)
	os.WriteFile(filepath.Join(n.Reach.Home, "data"), []byte("x"), 0o600)
	if err := p.Stop(t.Context(), id("h1")); err != nil {
		t.Fatal(err)
	}
	if proc.Alive(c.Process.Pid, "") {
		t.Error("the node's process still runs")
	}
	if got := nodes(t, p, id("h1"))[0].State; got != cloud.NodeStopped {
		t.Errorf("state %s", got)
	}
	again := launch(t, p, "h1", 1)[0]
	if again.InternalIP != n.InternalIP || again.State != cloud.NodeRunning {
		t.Errorf("started as %+v", again)
	}
	if _, err := os.Stat(filepath.Join(again.Reach.Home, "data")); err != nil {
		t.Error("the disk was lost")
	}
}

func TestTerminateLeavesNothing(t *testing.T) {
	root := t.TempDir()
	p := New(Options{Root: root})
	ns := launch(t, p, "h1", 2)
	c := resident(t, ns[1])
	locked := filepath.Join(ns[0].Reach.Home, "locked")
	os.MkdirAll(filepath.Join(locked, "x"), 0o700)
	os.Chmod(locked, 0)
	for range 2 { // the second time is success too
		if err := p.Terminate(t.Context(), id("h1")); err != nil {
			t.Fatal(err)
		}
	}
	if proc.Alive(c.Process.Pid, "") {
		t.Error("the node's process still runs")
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".lock" {
			t.Errorf("left: %s", e.Name())
		}
	}
}

func TestARestartOfTheMachineSwitchesNodesOff(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	launch(t, p, "h1", 1)
	p.bootID = func() string { return "another boot" }
	n := nodes(t, p, id("h1"))[0]
	if n.State != cloud.NodeStopped || n.Reason == "" {
		t.Errorf("%+v", n)
	}
	if launch(t, p, "h1", 1)[0].State != cloud.NodeRunning {
		t.Error("the node cannot be started again")
	}
}

func TestHostileNamesStayBelowTheRoot(t *testing.T) {
	p := New(Options{Root: filepath.Join(t.TempDir(), "root")})
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`} {
		_, err := p.Launch(t.Context(), cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: name, Hash: "h"}, Nodes: 1})
		if err == nil {
			t.Errorf("%q was accepted", name)
		}
		if err := p.Terminate(t.Context(), cloud.ClusterID{Name: name}); err != nil {
			t.Errorf("terminating %q: %v", name, err)
		}
	}
}

func TestANodeSwitchesItselfOff(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	ns := launch(t, p, "h1", 2)
	c := resident(t, ns[0])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := NewSelf(filepath.Dir(ns[0].Reach.Home)).Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if proc.Alive(c.Process.Pid, "") {
		t.Error("the node's process still runs")
	}
	if got := nodes(t, p, id("h1")); got[0].State != cloud.NodeStopped || got[1].State != cloud.NodeRunning {
		t.Errorf("%+v", got)
	}
	for _, n := range ns {
		if err := NewSelf(filepath.Dir(n.Reach.Home)).Terminate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got := nodes(t, p, cloud.ClusterID{}); len(got) != 0 {
		t.Errorf("left: %+v", got)
	}
}

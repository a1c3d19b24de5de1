package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

// A record that cannot be read may be that of a running machine: nothing is done
// as if there were none, and the user is told which file it is.
func TestADamagedRecordIsNamedAndNothingIsRemoved(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	n := launch(t, p, "h1", 1)[0]
	dir := filepath.Dir(n.Reach.Home)
	file := filepath.Join(dir, recordFile)
	if err := os.WriteFile(file, []byte(`{"cluster":`), 0o600); err != nil {
		t.Fatal(err)
	}
	other := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c2", Hash: "h2"}, Nodes: 1}
	for what, err := range map[string]error{
		"nodes of one":              second(p.Nodes(t.Context(), id("h1"))),
		"nodes of all":              second(p.Nodes(t.Context(), cloud.ClusterID{})),
		"launch":                    second(p.Launch(t.Context(), cloud.LaunchSpec{ID: id("h1"), Nodes: 1})),
		"launch of another":         second(p.Launch(t.Context(), other)), // which must not get its address
		"stop":                      p.Stop(t.Context(), id("h1")),
		"terminate":                 p.Terminate(t.Context(), id("h1")),
		"terminate any of the name": p.Terminate(t.Context(), id("")),
		"its own stop":              NewSelf(dir).Stop(t.Context()),
		"its own end":               NewSelf(dir).Terminate(t.Context()),
	} {
		if err == nil || !strings.Contains(err.Error(), file+" is damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(n.Reach.Home); err != nil {
		t.Errorf("its disk is gone: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAFolderThatWasNeverAMachineIsNotSwitchedOff(t *testing.T) {
	dir := t.TempDir()
	for what, end := range map[string]error{
		"stop": NewSelf(dir).Stop(t.Context()), "end": NewSelf(dir).Terminate(t.Context()),
	} {
		if !errors.Is(end, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, end)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error("the folder was removed")
	}
}

func TestARootThatIsNoFolder(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := os.WriteFile(root, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := New(Options{Root: root})
	for what, err := range map[string]error{
		"launch":    second(p.Launch(t.Context(), cloud.LaunchSpec{ID: id("h1"), Nodes: 1})),
		"nodes":     second(p.Nodes(t.Context(), cloud.ClusterID{})),
		"stop":      p.Stop(t.Context(), id("h1")),
		"terminate": p.Terminate(t.Context(), id("")),
	} {
		if err == nil || !strings.Contains(err.Error(), root) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A server that died while it removed a cluster leaves a folder that is no cluster,
// and whoever removes one next takes it along.
func TestWhatARemovalLeftIsNoClusterAndGoesWithTheNext(t *testing.T) {
	root := t.TempDir()
	p := New(Options{Root: root})
	launch(t, p, "h1", 1)
	left := filepath.Join(root, trashPrefix+"old-1")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(root, "c1", "node-0"), filepath.Join(left, "node-0")); err != nil {
		t.Fatal(err)
	}
	if got := nodes(t, p, cloud.ClusterID{}); len(got) != 0 {
		t.Errorf("removed nodes are listed: %+v", got)
	}
	// The next is mostly the same one again, of which no folder is left.
	if err := p.Terminate(t.Context(), id("h1")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", left, err)
	}
}

// What is not a machine below a cluster's folder does not become one.
func TestFoldersWithoutARecordAreNoMachines(t *testing.T) {
	root := t.TempDir()
	p := New(Options{Root: root})
	launch(t, p, "h1", 2)
	for _, dir := range []string{"c1/node-7/home", "c1/other"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got := nodes(t, p, id("h1")); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
	// The next rank finds its folder half made and completes it.
	if got := launch(t, p, "h1", 8); len(got) != 8 || got[7].Rank != 7 {
		t.Errorf("got %+v", got)
	}
}

//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Callers go elsewhere after a lack of room and ask the user after a lack of rights.
func TestTroublesWithTheDiskAreToldApart(t *testing.T) {
	p := New(Options{Root: "/nodes"})
	spec := cloud.LaunchSpec{Offer: cloud.Offer{Place: cloud.Place{Cloud: Name}}}
	for _, tt := range []struct {
		err  error
		want any
	}{
		{&fs.PathError{Op: "write", Path: "/nodes/x", Err: syscall.ENOSPC}, new(*cloud.CapacityError)},
		{&fs.PathError{Op: "write", Path: "/nodes/x", Err: syscall.EDQUOT}, new(*cloud.CapacityError)},
		{&fs.PathError{Op: "mkdir", Path: "/nodes/x", Err: syscall.EACCES}, new(*cloud.PermissionError)},
		{&fs.PathError{Op: "mkdir", Path: "/nodes/x", Err: syscall.EPERM}, new(*cloud.PermissionError)},
	} {
		got := p.diskError(spec, fmt.Errorf("switching on: %w", tt.err))
		if !errors.As(got, tt.want) || !errors.Is(got, tt.err) {
			t.Errorf("%v became %T: %v", tt.err, got, got)
		}
	}
	other := errors.New("input/output error")
	if got := p.diskError(spec, other); got != other {
		t.Errorf("%v became %v", other, got)
	}
}

func TestOnlyThisMachineIsForRent(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	for _, tt := range []struct {
		name  string
		offer cloud.Offer
		fits  bool
	}{
		{"no type", cloud.Offer{}, true},
		{"its type", cloud.Offer{InstanceType: InstanceType}, true},
		{"another type", cloud.Offer{InstanceType: "m6i.large"}, false},
		{"a region", cloud.Offer{Place: cloud.Place{Region: "us-east-1"}}, false},
	} {
		_, err := p.Launch(t.Context(), cloud.LaunchSpec{ID: id("h1"), Nodes: 1, Offer: tt.offer})
		var invalid *cloud.InvalidError
		if tt.fits && err != nil || !tt.fits && !errors.As(err, &invalid) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestALaunchThatIsCancelledMakesNoMachine(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Launch(ctx, cloud.LaunchSpec{ID: id("h1"), Nodes: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if got := nodes(t, p, cloud.ClusterID{}); len(got) != 0 {
		t.Errorf("made: %+v", got)
	}
}

// The name may belong to a later cluster by now.
func TestStoppingAnEarlierIncarnationLeavesTheMachinesOn(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	launch(t, p, "h2", 1)
	if err := p.Stop(t.Context(), id("h1")); err != nil {
		t.Fatal(err)
	}
	if got := nodes(t, p, id("h2")); got[0].State != cloud.NodeRunning {
		t.Errorf("it is %s", got[0].State)
	}
}

func TestNamesThatCannotBeFoldersHaveNoMachines(t *testing.T) {
	p := New(Options{Root: t.TempDir()})
	for _, name := range []string{"..", "../x", ".removed-x", strings.Repeat("n", maxName+1)} {
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Name: name, Hash: "h"}, Nodes: 1}
		var invalid *cloud.InvalidError
		if _, err := p.Launch(t.Context(), spec); !errors.As(err, &invalid) {
			t.Errorf("launching %q: %v", name, err)
		}
		if err := p.Stop(t.Context(), spec.ID); err != nil {
			t.Errorf("stopping %q: %v", name, err)
		}
		if got := nodes(t, p, cloud.ClusterID{Name: name}); len(got) != 0 {
			t.Errorf("%q has %+v", name, got)
		}
	}
}

func TestTheIdentityIsTheMachinesName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	if got, err := New(Options{}).Check(t.Context()); err != nil || len(got) != 1 || got[0] != host {
		t.Errorf("%v, %v", got, err)
	}
}

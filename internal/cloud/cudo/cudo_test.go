package cudo

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/cudo/cudofake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

const machine = "epyc-milan-rtx-a5000"

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "gb-bournemouth-1"}, InstanceType: cudofake.Size(machine), CPUs: 4, MemoryGiB: 8, HourlyPrice: 0.4}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "no-luster-1"}, InstanceType: cudofake.Size(machine), CPUs: 4, MemoryGiB: 8, HourlyPrice: 0.4}
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

func start(t testing.TB) (*cudofake.Fake, func() cloud.Provider) {
	fake := cudofake.New()
	o := fake.Tuning(t, ".config/cudo/cudo.yml", "key: "+cudofake.Key+"\nproject: "+cudofake.Project+"\n")
	return fake, func() cloud.Provider { return New(o) }
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider)
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &elsewhere
		h.Fill = func(_ testing.TB, o cloud.Offer, left int) { fake.Fill(o.Region, machine, left) }
		return h
	})
}

// A machine that boots cannot be ended, and is all the same.
func TestAMachineThatBootsIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		fake.Slow(time.Minute)
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: key}
		launched := make(chan struct{})
		go func() { _, _ = p.Launch(t.Context(), spec); close(launched) }()
		time.Sleep(45 * time.Second) // it boots now
		other := provider()          // of another server
		if err := other.Terminate(t.Context(), spec.ID); err != nil || len(fake.Inventory()) > 0 {
			t.Errorf("%v; left: %v", err, fake.Inventory())
		}
		<-launched
	})
}

// Another project's key is refused, and what its machines are called is what the API
// takes.
func TestTheProjectIsTheAccount(t *testing.T) {
	_, provider := start(t)
	p := provider()
	who, err := p.Check(t.Context())
	if err != nil || !strings.Contains(who[0], cudofake.Project) {
		t.Errorf("%v, %v", who, err)
	}
	for name, want := range map[string]size{cudofake.Size(machine): {machine, 1, 4, 8}, "intel-broadwell_0x8v16gb": {"intel-broadwell", 0, 8, 16}, "x": {}, "x_1x2v3": {}} {
		if got, err := sizeOf(name); got != want || (err == nil) != (want.machine != "") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	a, _ := cloud.As[cloud.AvailabilityProber](p)
	far := here
	far.Region = "mars-1"
	var invalid *cloud.InvalidError
	if _, err := a.Available(t.Context(), far, 1); !errors.As(err, &invalid) {
		t.Error(err)
	}
}

// what is the type of an error; what means nothing to others is still the API's, wrapped.
func what(err error) string {
	if refused, ok := errors.Unwrap(err).(*rest.Error); ok && strings.Contains(fmt.Sprintf("%T", err), "fmt.") {
		err = refused
	}
	return fmt.Sprintf("%T", err)
}

// Each code of the API, and the texts of RESOURCE_EXHAUSTED, by what they mean.
func TestWhatStatesMean(t *testing.T) {
	fake, provider := start(t)
	cloudtest.States(t, provider(), cloudtest.Cluster(here, "web"), fake.Lie, fake.Restore, map[string]cloud.NodeState{
		"init": cloud.NodePending, "pend": cloud.NodePending, "prol": cloud.NodePending, "boot": cloud.NodePending, "fail": cloud.NodePending, "runn": cloud.NodeRunning,
		"stop": cloud.NodeStopped, "susp": cloud.NodeStopped, "poff": cloud.NodeStopped, "epil": cloud.NodeGone, "unde": cloud.NodeGone, "done": cloud.NodeGone, "odd": "", "": "",
	})
}

func TestWhatRefusalsMean(t *testing.T) {
	r := New(Options{}).Refusals
	for _, tt := range []struct {
		code, message string
		status        int
		want          error
		kind          vm.Kind
	}{
		{"UNAUTHENTICATED", "", 401, &cloud.AuthError{}, vm.Refused}, {"PERMISSION_DENIED", "", 403, &cloud.PermissionError{}, vm.Refused},
		{"INVALID_ARGUMENT", "", 400, &cloud.InvalidError{}, vm.Refused}, {"NOT_FOUND", "", 404, &cloud.InvalidError{}, vm.Missing},
		{"ALREADY_EXISTS", "", 409, &rest.Error{}, vm.Changed}, {notNow, "", 400, &rest.Error{}, vm.Refused},
		{"UNAVAILABLE", "", 503, &cloud.UnreachableError{}, vm.Lost}, {"INTERNAL", "", 500, &cloud.UnreachableError{}, vm.Lost},
		{"RESOURCE_EXHAUSTED", "Quota exceeded", 400, &cloud.QuotaError{}, vm.Refused}, {"RESOURCE_EXHAUSTED", "no capacity", 400, &cloud.CapacityError{}, vm.Refused},
		{"RESOURCE_EXHAUSTED", "the machine type is not available", 400, &cloud.CapacityError{}, vm.Refused}, {"RESOURCE_EXHAUSTED", "", 429, &cloud.ThrottledError{}, vm.Refused},
	} {
		err := &rest.Error{Status: tt.status, Code: tt.code, Message: tt.message}
		if got := r.Refusal(t.Context(), here.Place, err); what(got) != what(tt.want) || r.Kind(err) != tt.kind {
			t.Errorf("%s %q: %T (%v), %v", tt.code, tt.message, got, got, r.Kind(err))
		}
	}
}

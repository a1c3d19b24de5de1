package fluffycloud_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// verdict is a test that may fail without failing the one that it is part of.
type verdict struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (v *verdict) Fail()                 { v.mu.Lock(); defer v.mu.Unlock(); v.failed = true }
func (v *verdict) FailNow()              { v.Fail(); runtime.Goexit() }
func (v *verdict) Error(...any)          { v.Fail() }
func (v *verdict) Errorf(string, ...any) { v.Fail() }
func (v *verdict) Fatal(...any)          { v.FailNow() }
func (v *verdict) Fatalf(string, ...any) { v.FailNow() }
func (v *verdict) Skip(...any)           { runtime.Goexit() }
func (v *verdict) Log(...any)            {}
func (v *verdict) Logf(string, ...any)   {}
func (v *verdict) Cleanup(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cleanups = append(v.cleanups, f)
}

// apart runs f where it may end its goroutine.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// fails asks a harness for a behaviour and reports whether it failed.
func fails(t *testing.T, b cloudtest.Behaviour, harness func(testing.TB) cloudtest.Harness) bool {
	v := &verdict{}
	synctest.Test(t, func(t *testing.T) {
		v.TB = t
		apart(func() { b.Check(v, harness(v)) })
		for _, f := range slices.Backward(v.cleanups) {
			apart(f)
		}
		time.Sleep(time.Hour) // what a broken provider began in the background ends
	})
	return v.failed
}

// whole is a provider with all its powers, for others to break.
type whole struct{ *fluffycloud.Provider }

type (
	listsNothingOnErrors struct{ whole }
	forgetsTypes         struct{ whole }
	reverses             struct{ whole }
	mixesIncarnations    struct{ whole }
	mixesInstallations   struct{ whole }
	terminatesNothing    struct{ whole }
	doesNotWait          struct{ whole }
	terminatesOnStop     struct{ whole }
	lacksStop            struct{ whole }
	trustsEverybody      struct{ whole }
	givesNoReasons       struct{ whole }
	asksForOneNode       struct{ whole }
	paysTwice            struct{ whole }
	keepsWhatIsOff       struct{ whole }
	closesPorts          struct{ whole }
)

func (p listsNothingOnErrors) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	n, _ := p.whole.Nodes(ctx, id)
	return n, nil
}
func (p forgetsTypes) Launch(ctx context.Context, s cloud.LaunchSpec) ([]cloud.Node, error) {
	n, err := p.whole.Launch(ctx, s)
	if err != nil {
		err = errors.New(err.Error())
	}
	return n, err
}
func (p reverses) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	n, err := p.whole.Nodes(ctx, id)
	slices.Reverse(n)
	return n, err
}
func (p mixesIncarnations) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	id.Hash = ""
	return p.whole.Nodes(ctx, id)
}
func (p mixesInstallations) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	id.Installation = ""
	return p.whole.Nodes(ctx, id)
}
func (p terminatesNothing) Terminate(context.Context, cloud.ClusterID) error { return nil }
func (p doesNotWait) Terminate(ctx context.Context, id cloud.ClusterID) error {
	go p.whole.Terminate(context.WithoutCancel(ctx), id)
	return nil
}
func (p terminatesOnStop) Stop(ctx context.Context, id cloud.ClusterID) error {
	return p.Terminate(ctx, id)
}
func (p lacksStop) Features() cloud.Features {
	f := p.whole.Features()
	f.Lacks[cloud.FeatureStop] = "it is said"
	return f
}
func (p trustsEverybody) Check(context.Context) (cloud.Identity, error) {
	return cloud.Identity{"ann"}, nil
}
func (p givesNoReasons) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	nodes, err := p.whole.Nodes(ctx, id)
	for i := range nodes {
		nodes[i].Reason = ""
	}
	return nodes, err
}
func (p asksForOneNode) Launch(ctx context.Context, s cloud.LaunchSpec) ([]cloud.Node, error) {
	s.Nodes = 1
	return p.whole.Launch(ctx, s)
}
func (p paysTwice) Offers(ctx context.Context) ([]cloud.Offer, error) {
	o, err := p.whole.Offers(ctx)
	return append(o, o...), err
}
func (p keepsWhatIsOff) WhenOff(context.Context, cloud.ClusterID, bool) error    { return nil }
func (p closesPorts) OpenPorts(context.Context, cloud.ClusterID, []string) error { return nil }

// face is a cloud's API, for others to break.
type face struct{ fluffyapi.API }

type (
	firstPageOnly  struct{ face }
	newTokens      struct{ face }
	believesStates struct{ face }
	leavesThings   struct{ face }
	losesDisks     struct{ face }
)

func (f firstPageOnly) Instances(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Instance], error) {
	p, err := f.face.Instances(ctx, q)
	p.Next = ""
	return p, err
}

var fresh atomic.Int64

func (f newTokens) Create(ctx context.Context, c fluffyapi.Create) (fluffyapi.Instance, error) {
	n := fresh.Add(1)
	c.ClientToken, c.Name = fmt.Sprintf("fresh-%d", n), fmt.Sprintf("%s-fresh-%d", c.Name, n)
	return f.face.Create(ctx, c)
}
func (f believesStates) Instances(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Instance], error) {
	p, err := f.face.Instances(ctx, q)
	for i := range p.Items {
		if p.Items[i].State == "quantum" {
			p.Items[i].State = fluffyapi.Running
		}
	}
	return p, err
}
func (f leavesThings) DeleteFirewall(context.Context, string) error { return nil }
func (f losesDisks) Stop(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return f.face.Terminate(ctx, id)
}

func TestTheContractFindsBrokenProviders(t *testing.T) {
	provider := func(f func(whole) cloud.Provider) func(testing.TB) cloudtest.Harness {
		return func(t testing.TB) cloudtest.Harness {
			h := memory(t)
			h.Provider = f(whole{h.Provider.(*fluffycloud.Provider)})
			return h
		}
	}
	api := func(f func(face) fluffyapi.API) func(testing.TB) cloudtest.Harness {
		return func(t testing.TB) cloudtest.Harness {
			h, _ := memoryWith(t, func(a fluffyapi.API) fluffyapi.API { return f(face{a}) })
			return h
		}
	}
	for _, tt := range []struct {
		name   string
		broken func(testing.TB) cloudtest.Harness
		found  string // by the behaviour of this name, among others
	}{
		{"an unreachable cloud looks empty", provider(func(w whole) cloud.Provider { return listsNothingOnErrors{w} }), "an unreachable cloud is not an empty one"},
		{"errors lose their types", provider(func(w whole) cloud.Provider { return forgetsTypes{w} }), "a full zone is a capacity error that names it"},
		{"ranks are out of order", provider(func(w whole) cloud.Provider { return reverses{w} }), "many ranks are in order"},
		{"incarnations are mixed up", provider(func(w whole) cloud.Provider { return mixesIncarnations{w} }), "the hash tells incarnations apart"},
		{"installations are mixed up", provider(func(w whole) cloud.Provider { return mixesInstallations{w} }), "another installation is not listed"},
		{"machines are never given back", provider(func(w whole) cloud.Provider { return terminatesNothing{w} }), "terminating leaves nothing"},
		{"giving back is not waited for", provider(func(w whole) cloud.Provider { return doesNotWait{w} }), "terminated nodes cost nothing when Terminate returns"},
		{"stopping terminates", provider(func(w whole) cloud.Provider { return terminatesOnStop{w} }), "stopped nodes are listed as stopped"},
		{"features lie", provider(func(w whole) cloud.Provider { return lacksStop{w} }), "features tell the truth about stopping"},
		{"credentials are not tried", provider(func(w whole) cloud.Provider { return trustsEverybody{w} }), "refused credentials say how to mend them"},
		{"nobody knows why nodes are gone", provider(func(w whole) cloud.Provider { return givesNoReasons{w} }), "a node that was taken back says so"},
		{"there is one node always", provider(func(w whole) cloud.Provider { return asksForOneNode{w} }), "a launch makes the nodes asked for"},
		{"offers come twice", provider(func(w whole) cloud.Provider { return paysTwice{w} }), "offers are sane"},
		{"ports stay closed", provider(func(w whole) cloud.Provider { return closesPorts{w} }), "ports are opened besides those that are open"},
		{"switching off is never the end", provider(func(w whole) cloud.Provider { return keepsWhatIsOff{w} }), "machines that switch themselves off end if that was said"},
		{"lists end with their first page", api(func(f face) fluffyapi.API { return firstPageOnly{f} }), "hundreds of clusters are listed"},
		{"tokens are new for every call", api(func(f face) fluffyapi.API { return newTokens{f} }), "a lost answer, a list that lags and a restart make no second machine"},
		{"unknown states are good ones", api(func(f face) fluffyapi.API { return believesStates{f} }), "a state nobody knows is an error"},
		{"firewalls are left behind", api(func(f face) fluffyapi.API { return leavesThings{f} }), "terminating leaves nothing"},
		{"disks are lost", api(func(f face) fluffyapi.API { return losesDisks{f} }), "disks survive being off"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			for _, b := range cloudtest.Behaviours() {
				if b.Name != tt.found {
					continue
				}
				if !fails(t, b, tt.broken) {
					t.Errorf("%q found nothing", b.Name)
				}
				return
			}
			t.Errorf("there is no behaviour %q", tt.found)
		})
	}
}

func TestTheContractIsLongAndSaysEverythingOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range cloudtest.Behaviours() {
		if seen[b.Name] {
			t.Errorf("%q comes twice", b.Name)
		}
		seen[b.Name] = true
	}
	if len(seen) < 40 {
		t.Errorf("%d behaviours", len(seen))
	}
}

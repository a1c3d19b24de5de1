package cloudtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Death ends the process that calls a fake at one of its calls: that call has its effect,
// its answer reaches nobody, and no later call arrives. What a process remembers is lost
// with it, so a death between two calls leaves the cloud as one at the first of them does,
// and GET changes nothing: it does not count. The zero value lets every call through.
type Death struct {
	mu      sync.Mutex
	left    int           // calls until then; 0: no death is planned
	dead    func()        // to be called then
	gone    bool          // no further call arrives
	noticed chan struct{} // closed when dead has returned
}

// At plans the death at the so-manieth call from now, when dead is called.
func (d *Death) At(call int, dead func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.dead, d.gone, d.noticed = call, dead, false, make(chan struct{})
}

// Over is the start of another process.
func (d *Death) Over() { d.At(0, nil) }

// Serve answers a call, if the process lives to make it.
func (d *Death) Serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	dead, arrives, noticed := d.call(r.Method != http.MethodGet)
	switch {
	case !arrives:
		// A process that is dead does not see a call of its own fail.
		<-noticed
		panic(http.ErrAbortHandler)
	case dead == nil:
		h.ServeHTTP(w, r)
	default:
		defer close(noticed)
		defer dead() // also when the handler panics
		h.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
}

// call counts a call that may change something. Of the last one dead is not nil.
func (d *Death) call(counts bool) (dead func(), arrives bool, noticed chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone || d.left == 0 || !counts {
		return nil, !d.gone, d.noticed
	}
	if d.left--; d.left == 0 {
		d.gone = true
		return d.dead, true, d.noticed
	}
	return nil, true, nil
}

// mostCalls is more than any provider makes for the smallest cluster.
const mostCalls = 500

// deathsIn lets the process die at each call that f makes, one after the other, for a
// cluster of its own that begin may have prepared. Another process does after then, and
// ends the cluster, of which nothing may be left.
func (s *suite) deathsIn(what string, begin func(spec cloud.LaunchSpec), f func(ctx context.Context, spec cloud.LaunchSpec) error, after func(spec cloud.LaunchSpec)) {
	s.Helper()
	var before []string
	for n := 1; ; n++ {
		if n > mostCalls {
			s.Fatalf("%s makes more than %d calls", what, mostCalls)
		}
		spec := s.spec(s.id(numbered("web", n)), s.some(2))
		if _, lacks := s.p.Features().Lacks[cloud.FeaturePorts]; !lacks {
			spec.Ports = []string{"8080"}
		}
		s.p = s.Another(s)
		begin(spec)
		ctx, cancel := context.WithCancel(s.ctx())
		var dead atomic.Bool
		s.Die(s, n, func() { dead.Store(true); cancel() })
		err := f(ctx, spec)
		cancel()
		s.Restore(s)
		if !dead.Load() && err != nil {
			s.Fatalf("%s: %v", what, err)
		}
		s.p = s.Another(s)
		after(spec)
		s.terminate(spec.ID)
		s.nothing(spec.ID)
		// Where machines that are ending cost nothing, nobody waits for them.
		s.eventually("nothing is left of "+spec.ID.Name, func() bool {
			return !slices.ContainsFunc(s.inventory(), func(thing string) bool { return strings.Contains(thing, spec.ID.Name) })
		})
		if n == 1 {
			before = s.inventory() // with what all clusters share
		}
		s.same("the cloud has", s.inventory(), before)
		if s.Failed() {
			s.Fatalf("after a death at call %d of %s", n, what)
		}
		if !dead.Load() {
			if n == 1 {
				s.Fatalf("%s makes no calls that the fake counts", what)
			}
			return
		}
	}
}

func (s *suite) launchAs(ctx context.Context, spec cloud.LaunchSpec) error {
	_, err := tryWith(ctx, s.p, spec)
	return err
}

func nothing(cloud.LaunchSpec) {}

// crashes are what is left when the process dies, whose record of the cluster is all that
// the next one has.
var crashes = []Behaviour{
	{"whatever call of a launch the process dies at, an end leaves nothing", []string{"Die", "Another", "Restore", "Inventory"}, func(s *suite) {
		s.deathsIn("a launch", nothing, s.launchAs, nothing)
	}},
	{"whatever call of a launch the process dies at, the next one makes one cluster", []string{"Die", "Another", "Restore", "Inventory"}, func(s *suite) {
		s.deathsIn("a launch", nothing, s.launchAs, func(spec cloud.LaunchSpec) {
			spec.Resumed = true
			s.launch(spec)
			s.complete(s.alive(spec.ID), spec.Nodes)
		})
	}},
	{"whatever call of an end the process dies at, the next one leaves nothing", []string{"Die", "Another", "Restore", "Inventory"}, func(s *suite) {
		s.deathsIn("an end", func(spec cloud.LaunchSpec) { s.launch(spec) }, func(ctx context.Context, spec cloud.LaunchSpec) error {
			return s.p.Terminate(ctx, spec.ID)
		}, nothing)
	}},
	{"a lost answer, lists that lack the machine for 50 seconds and a restart make no second one", []string{"HideFor", "LoseAnswers", "Another", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		s.HideFor(s, 50*time.Second)
		s.LoseAnswers(s, Creating, 1)
		ctx, die := context.WithCancel(s.ctx())
		if _, err := tryWith(ctx, s.p, spec); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		die()
		s.p = s.Another(s)
		spec.Resumed = true // by the same attempt, as its record says
		nodes := s.launch(spec)
		s.Restore(s)
		s.complete(s.alive(spec.ID), spec.Nodes)
		s.same("there are", ids(s.alive(spec.ID)), ids(nodes))
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
}

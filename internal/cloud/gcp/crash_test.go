package gcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

// process is the network of a server that dies at a call: the call has its effect or not, and
// no answer comes back.
type process struct {
	fake   *gcpfake.Fake
	at     int64 // the number of the call; 0: none
	effect bool
	dies   context.CancelFunc
	calls  atomic.Int64
	last   atomic.Pointer[string]
}

func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	n := p.calls.Add(1)
	switch {
	case p.at == 0 || n < p.at:
		return p.fake.RoundTrip(r)
	case n == p.at:
		call := r.Method + " " + r.URL.Path
		p.last.Store(&call)
		if p.effect {
			_, _ = p.fake.RoundTrip(r)
		}
		p.dies()
	}
	return nil, errDead
}

// crashing are the ways to get machines, each with operations of its own.
var crashing = map[string]func(*cloud.LaunchSpec){
	"machines": func(s *cloud.LaunchSpec) {
		s.Ports, s.Settings = []string{"80"}, map[string]any{"placement_policy": "compact"}
	},
	"machines with disks": func(s *cloud.LaunchSpec) {
		s.Nodes, s.ImageID, s.Disks = 1, plain(here)[0], []cloud.Disk{{Path: "/data", Name: "data", GB: 20, Goes: true}}
	},
	"slices": func(s *cloud.LaunchSpec) {
		s.Offer.InstanceType, s.Offer.Hosts, s.Offer.Accelerators = tpuMachine, 4, map[string]float64{"tpu-v5litepod-16": 1}
	},
	"queued slices": func(s *cloud.LaunchSpec) {
		s.Offer.InstanceType, s.Offer.Hosts, s.Offer.Accelerators, s.TPUQueued = tpuMachine, 4, map[string]float64{"tpu-v5litepod-16": 1}, true
	},
	"a group": func(s *cloud.LaunchSpec) {
		s.Offer.InstanceType, s.Offer.Accelerators, s.ImageID = "g2-standard-4", map[string]float64{"L4": 1}, plain(here)[0]
		s.Settings = map[string]any{"managed_instance_group": map[string]any{"run_duration": 7200, "provision_timeout": 60}}
	},
}

// Whatever call of a launch a server dies at, before or after the call had its effect, the next
// server finds what it began, and waits for it or gives it back: all is known by a name that
// follows from the cluster, so no operation's id has to be remembered.
func TestServersThatDieAtAnyCall(t *testing.T) {
	home(t, t.Setenv)
	kills := 0
	for name, set := range crashing {
		t.Run(name, func(t *testing.T) {
			spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 2, Token: "t", AuthorizedKey: key}
			set(&spec)
			whole := max(spec.Offer.Hosts, 1) * spec.Nodes
			launch := func(ctx context.Context, net *process, spec cloud.LaunchSpec) ([]cloud.Node, *Provider, error) {
				o := quick
				o.Transport = net
				p := New(o)
				err := p.Prepare(ctx, spec)
				if err != nil {
					return nil, p, err
				}
				nodes, err := p.Launch(ctx, spec)
				return nodes, p, err
			}
			var calls int64
			synctest.Test(t, func(t *testing.T) {
				net := &process{fake: gcpfake.New()}
				if nodes, _, err := launch(t.Context(), net, spec); err != nil || len(nodes) != whole {
					t.Fatalf("%d nodes, %v", len(nodes), err)
				}
				calls = net.calls.Load()
			})
			if calls < 10 {
				t.Fatalf("a launch takes %d calls", calls)
			}
			for at := int64(1); at <= calls; at++ {
				for _, how := range []struct{ effect, goesOn bool }{{false, true}, {true, true}, {true, false}, {false, false}} {
					synctest.Test(t, func(t *testing.T) {
						fake := gcpfake.New()
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						dying := &process{fake: fake, at: at, effect: how.effect, dies: cancel}
						_, _, err := launch(ctx, dying, spec)
						if dying.last.Load() == nil {
							return // lists were fewer this time
						}
						kills++
						about := fmt.Sprintf("dead at call %d, %s, with its effect: %v", at, *dying.last.Load(), how.effect)
						if err == nil {
							t.Errorf("%s: the launch succeeded", about)
						}
						ctx, end := context.WithTimeout(t.Context(), time.Hour)
						defer end()
						net, again := &process{fake: fake}, spec
						again.Resumed = true
						o := quick
						o.Transport = net
						p := New(o)
						if how.goesOn {
							var nodes []cloud.Node
							if nodes, p, err = launch(ctx, net, again); err != nil || len(nodes) != whole {
								t.Errorf("%s: going on: %d nodes, %v", about, len(nodes), err)
							}
						}
						if err := p.Terminate(ctx, spec.ID); err != nil {
							t.Errorf("%s: ending: %v", about, err)
						}
						left := slices.DeleteFunc(fake.Inventory(), func(line string) bool {
							return slices.ContainsFunc(shared, func(s string) bool { return line == s || strings.HasPrefix(line, s+" ") })
						})
						if len(left) > 0 {
							t.Errorf("%s: left: %v", about, left)
						}
					})
				}
			}
		})
	}
	if t.Logf("%d servers died", kills); kills < 200 && !t.Failed() {
		t.Errorf("only %d servers died", kills)
	}
}

// few lets bulk insertions make fewer machines than they are asked for, and then fail.
type few struct {
	*gcpfake.Fake
	makes int
}

func (f *few) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/bulkInsert") {
		return f.Fake.RoundTrip(r)
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	per := body["perInstanceProperties"].(map[string]any)
	for len(per) > f.makes {
		for name := range per {
			delete(per, name)
			break
		}
	}
	body["count"], body["minCount"] = fmt.Sprint(f.makes), fmt.Sprint(f.makes)
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	answer, err := f.Fake.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	failed := `{"name":"operation-x","status":"DONE","operationType":"bulkInsert","zone":"zones/us-central1-a","httpErrorStatusCode":503,
		"error":{"errors":[{"code":"ZONE_RESOURCE_POOL_EXHAUSTED","message":"The zone does not have enough resources available to fulfill the request."}]}}`
	answer.Body = io.NopCloser(strings.NewReader(failed))
	return answer, nil
}

// A bulk insertion that gets six of eight machines is refused as a full zone, and the six are
// given back.
func TestAPartOfTheMachinesIsGivenBack(t *testing.T) {
	home(t, t.Setenv)
	synctest.Test(t, func(t *testing.T) {
		fake := gcpfake.New()
		o := quick
		o.Transport = &few{fake, 6}
		p := New(o)
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 8, Token: "t", AuthorizedKey: key}
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		_, err := p.Launch(t.Context(), spec)
		var full *cloud.CapacityError
		if !errors.As(err, &full) || full.Place != here.Place {
			t.Errorf("%v, want a full zone", err)
		}
		machines := func() (n int) {
			for _, line := range fake.Inventory() {
				if strings.HasPrefix(line, "instances ") {
					n++
				}
			}
			return n
		}
		if n := machines(); n != 6 {
			t.Fatalf("the fake made %d machines, want 6", n)
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil || machines() > 0 {
			t.Errorf("%v; %d machines are left", err, machines())
		}
	})
}

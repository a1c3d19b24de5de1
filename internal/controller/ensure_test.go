//go:build unix

package controller

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/testbed"
)

// ensure makes the controller run and returns what was said.
func (n *near) ensure() (string, error) {
	r := testbed.NewRequest()
	_, err := n.c.Ensure(n.s.Context(), n.s.Call(r))
	return r.Out.String(), err
}

// A far server of another build is asked to go, and the new one is started from what
// was brought.
func TestAFarServerOfAnotherBuildIsReplaced(t *testing.T) {
	for _, tt := range []struct {
		name string
		code int  // of the command that ends the old server
		goes bool // the new one starts
		said string
		fail string
	}{
		{"the new one starts", 0, true, "is ready", ""},
		{"it does not start, and the old one is good enough", 0, false, "stays with sky", ""},
		{"the old one cannot be told to go", 1, true, "", "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := launched(t)
				n.far.change(func(f *farServer) { f.build = "old" })
				n.c.equipped = map[string]string{} // another life of this server
				n.Head(n.c.Name()).Commands(func(command string) (string, int) {
					if command != Jobs.dir+"/sky api stop" {
						t.Errorf("it runs %s", command)
					}
					if tt.goes && tt.code == 0 {
						n.far.change(func(f *farServer) { f.build = testbed.Build })
					}
					return "no such file\n", tt.code
				})
				said, err := n.ensure()
				if tt.fail == "" && err != nil || tt.fail != "" && (err == nil || !strings.Contains(err.Error(), tt.fail)) || !strings.Contains(said, tt.said) {
					t.Errorf("%v\n%s", err, said)
				}
			})
		})
	}
}

// An agent that is about to stop its machine takes no job: the launch is tried
// again, but not for ever.
func TestAControllerThatIsAboutToStopIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := launched(t)
		cl := n.Cluster(n.c.Name())
		if err := n.s.Clusters.AgentEnd(n.s.Context(), cl, 1, time.Second); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		head := n.Head(n.c.Name())
		head.RefuseJobs(&agentapi.Error{Code: agentapi.CodeStopping, Message: "the machine stops"})
		_, err := n.ensure()
		if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeStopping {
			t.Errorf("it never takes a job: %v", err)
		}
		head.RefuseJobs(nil)
		if _, err := n.ensure(); err != nil {
			t.Errorf("it takes jobs again: %v", err)
		}
	})
}

// One request at a time brings the controller up; the others wait for it, as long as
// somebody waits for them.
func TestRequestsTakeTurnsBringingTheControllerUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNear(t, "")
		n.c.turn <- struct{}{}
		ctx, leave := context.WithCancelCause(n.s.Context())
		gone := errors.New("gone")
		go func() { time.Sleep(time.Minute); leave(gone) }()
		if _, err := n.c.Ensure(ctx, n.s.Call(testbed.NewRequest())); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
		if m := n.Machines(); len(m) != 0 {
			t.Errorf("machines: %v", m)
		}
	})
}

// carrier is FluffyCloud with credentials that can be brought elsewhere, and perhaps
// without a way to stop machines.
type carrier struct {
	cloud.Provider
	files map[string][]byte
	err   error
	lacks map[cloud.Feature]string
}

func (c carrier) CarryCredentials(context.Context) (map[string][]byte, error) { return c.files, c.err }
func (c carrier) Features() cloud.Features {
	f := c.Provider.Features()
	if c.lacks != nil {
		f.Lacks = c.lacks
	}
	return f
}

// carried puts a carrier in the place of the cloud that the controller asks.
func (n *near) carried(change func(*carrier)) {
	c := carrier{Provider: n.s.Providers.All()[0]}
	change(&c)
	n.c.Providers = cloud.NewRegistry(c)
}

func TestCredentialsAreBroughtToTheController(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		there bool
		said  string
	}{
		{"there are some", nil, true, ""},
		{"there are none", &cloud.AuthError{Err: errors.New("no token")}, false, ""},
		{"they cannot be brought", errors.New("the token is on a stick"), false, "cannot use FluffyCloud: the token is on a stick"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNear(t, "")
				n.carried(func(c *carrier) {
					if c.err = tt.err; tt.err == nil {
						c.files = map[string][]byte{".fluffy/token": []byte("secret")}
					}
				})
				said, err := n.ensure()
				if err != nil || !strings.Contains(said, tt.said) || tt.said == "" && strings.Contains(said, "cannot use") {
					t.Fatalf("%v\n%s", err, said)
				}
				text, err := os.ReadFile(filepath.Join(n.Head(n.c.Name()).Home(), Jobs.homeDir(), ".fluffy", "token"))
				if (err == nil) != tt.there || tt.there && string(text) != "secret" {
					t.Errorf("on the head node: %q, %v", text, err)
				}
			})
		})
	}
}

// The controller stops itself as the configuration says; where machines cannot stop
// it goes on, and its user is told how to give it back.
func TestWhenTheIdleControllerStops(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		lacks        map[cloud.Feature]string
		want         agentapi.Autostop
		said         string
	}{
		{"it stops", "", nil, agentapi.Autostop{IdleMinutes: 1, WaitFor: api.WaitForJobsAndSSH}, ""},
		{"it is given back", ", autostop: {idle_minutes: 20, down: true, wait_for: jobs}", nil, agentapi.Autostop{IdleMinutes: 1, Down: true, WaitFor: api.WaitForJobs}, ""},
		{"never", ", autostop: false", nil, agentapi.Autostop{IdleMinutes: -1}, ""},
		{"it cannot", "", map[cloud.Feature]string{cloud.FeatureStop: "its machines forget"}, agentapi.Autostop{IdleMinutes: -1}, "cannot stop machines (its machines forget). To give it back: sky down "},
		{"it cannot, and nobody knows why", "", map[cloud.Feature]string{cloud.FeatureStop: ""}, agentapi.Autostop{IdleMinutes: -1}, "cannot stop machines. To give it back: sky down "},
		{"it cannot stop, but be given back", ", autostop: {idle_minutes: 20, down: true}", map[cloud.Feature]string{cloud.FeatureStop: ""}, agentapi.Autostop{IdleMinutes: 1, Down: true, WaitFor: api.WaitForJobsAndSSH}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNear(t, tt.config)
				if tt.lacks != nil {
					n.carried(func(c *carrier) { c.lacks = tt.lacks })
				}
				said, err := n.ensure()
				if err != nil || !strings.Contains(said, tt.said) || tt.said == "" && strings.Contains(said, "cannot stop") {
					t.Fatalf("%v\n%s", err, said)
				}
				a := n.Head(n.c.Name()).Autostop()
				if a == nil || a.IdleMinutes != tt.want.IdleMinutes || a.Down != tt.want.Down || tt.want.WaitFor != "" && a.WaitFor != tt.want.WaitFor {
					t.Errorf("%+v, not %+v", a, tt.want)
				}
			})
		})
	}
}

func TestWhatNamesAreReservedFor(t *testing.T) {
	for name, want := range map[string]string{
		"sky-jobs-controller-1": "managed jobs", "sky-spot-controller-1": "managed jobs", "sky-serve-controller-1": "services", "my-controller": "",
	} {
		if got := Reserved(name); got != want {
			t.Errorf("%s is reserved for %q, not %q", name, got, want)
		}
	}
}

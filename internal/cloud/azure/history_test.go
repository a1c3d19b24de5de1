package azure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/azure"
	"github.com/skypilot-go/sky/internal/cloud/azure/azurefake"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// process is a transport that dies with its process after so many calls: the last one may
// have had its effect.
type process struct {
	*azurefake.Fake
	mu    sync.Mutex
	left  int
	last  bool // the last call had its effect
	calls []string
}

func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.left--
	left := p.left
	p.calls = append(p.calls, r.Method+" "+r.URL.Path)
	p.mu.Unlock()
	if left < 0 || left == 0 && !p.last {
		return nil, io.ErrUnexpectedEOF
	}
	answer, err := p.Fake.RoundTrip(r)
	if left == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return answer, err
}

func launchSpec(n int, token string) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: n, Token: token, AuthorizedKey: key}
}

func try(ctx context.Context, p *azure.Provider, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := p.Prepare(ctx, spec); err != nil {
		return nil, err
	}
	return p.Launch(ctx, spec)
}

// nothing wants a subscription to be as it was.
func nothing(t *testing.T, fake *azurefake.Fake, about string) {
	t.Helper()
	if left := fake.Inventory(); len(left) > 0 {
		t.Errorf("%s: left: %s", about, strings.Join(left, ", "))
	}
}

// A server that dies at any call leaves nothing that the next one does not find: it goes on
// with the launch, or gives all back.
func TestServersThatDieInALaunch(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			fake, provider := start(t, nil)
			dies := quick
			dying := &process{Fake: fake, left: 1 + r.IntN(75), last: r.IntN(2) == 0}
			dies.Transport = dying
			first, second := provider(dies), provider(quick)
			about := fmt.Sprintf("seed %d, dead after %d calls", seed, dying.left)
			spec := launchSpec(3, "t1")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			_, _ = try(ctx, first, spec)
			if r.IntN(2) == 0 {
				spec.Resumed, spec.Token = true, []string{"t1", "t2"}[r.IntN(2)]
				nodes, err := try(ctx, second, spec)
				if err != nil || len(nodes) != 3 {
					t.Errorf("%s: going on: %v, %v", about, nodes, err)
				}
			}
			if r.IntN(3) == 0 { // and once more, in the middle of the end
				dies.Transport = &process{Fake: fake, left: 1 + r.IntN(30), last: r.IntN(2) == 0}
				_ = provider(dies).Terminate(ctx, spec.ID)
				second = provider(quick)
			}
			if err := second.Terminate(ctx, spec.ID); err != nil {
				t.Errorf("%s: ending: %v", about, err)
			}
			nothing(t, fake, about)
		})
	}
}

// Whatever call of a launch a server dies at, before or after the call had its effect, the next
// server finds what it began by names that follow from the cluster, and waits for it or gives
// it back: no operation's address has to be remembered.
func TestServersThatDieAtAnyCall(t *testing.T) {
	settings := map[string]any{"placement_policy": "compact"}
	spec := launchSpec(2, "t1")
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t, settings)
		alive := &process{Fake: fake, left: 1 << 20}
		tuning := quick
		tuning.Transport = alive
		if nodes, err := try(t.Context(), provider(tuning), spec); err != nil || len(nodes) != 2 {
			t.Fatalf("%v, %v", nodes, err)
		}
		calls = len(alive.calls)
	})
	if calls < 20 {
		t.Fatalf("a launch takes %d calls", calls)
	}
	for at := 1; at <= calls; at++ {
		for _, how := range []struct{ effect, goesOn bool }{{false, true}, {true, true}, {true, false}, {false, false}} {
			synctest.Test(t, func(t *testing.T) {
				fake, provider := start(t, settings)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				dying := &process{Fake: fake, left: at, last: how.effect}
				tuning := quick
				tuning.Transport = dying
				_, err := try(ctx, provider(tuning), spec)
				if len(dying.calls) < at {
					return // lists were fewer this time
				}
				about := fmt.Sprintf("dead at call %d, %s, with its effect: %v", at, dying.calls[at-1], how.effect)
				if err == nil {
					t.Errorf("%s: the launch succeeded", about)
				}
				ctx, end := context.WithTimeout(t.Context(), time.Hour)
				defer end()
				next, again := provider(quick), spec
				again.Resumed = true
				if how.goesOn {
					if nodes, err := try(ctx, next, again); err != nil || len(nodes) != 2 {
						t.Errorf("%s: going on: %v, %v", about, nodes, err)
					}
				}
				if err := next.Terminate(ctx, spec.ID); err != nil {
					t.Errorf("%s: ending: %v", about, err)
				}
				nothing(t, fake, about)
			})
		}
	}
}

// Whatever happens to a cluster, no rank is there twice, and nothing is left in the end.
// SKY_SIM_HISTORIES is how many histories there are; their seeds are 0, 1 and so on.
func TestRandomHistories(t *testing.T) {
	histories := uint64(150)
	if n, err := strconv.ParseUint(os.Getenv("SKY_SIM_HISTORIES"), 10, 64); err == nil {
		histories = n
	}
	for seed := range histories {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			fake, provider := start(t, nil)
			p := provider(quick)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
			defer cancel()
			var story []string
			spec := launchSpec(1+r.IntN(3), "t0")
			spec.Offer.Spot = r.IntN(3) == 0
			for step := range 7 {
				was := ""
				switch r.IntN(14) {
				case 0, 1, 2, 3:
					if spec.Token = fmt.Sprint("t", step); r.IntN(4) == 0 {
						spec.Offer.Region = []string{"eastus", "westus2"}[r.IntN(2)]
					}
					_, err := try(ctx, p, spec)
					was = fmt.Sprintf("launch in %s: %v", spec.Offer.Region, err)
				case 4:
					was = fmt.Sprint("stop: ", p.Stop(ctx, spec.ID))
				case 5:
					was = fmt.Sprint("terminate: ", p.Terminate(ctx, spec.ID))
				case 6:
					p, was = provider(quick), "another server"
				case 7:
					fake.Fill("eastus", here.InstanceType, r.IntN(3))
					was = "full"
				case 8:
					fake.Fail([]string{"", "virtualmachines.put", "networkinterfaces.put", "start"}[r.IntN(4)], []string{"AllocationFailed", "InternalExecutionError", "AnotherOperationInProgress"}[r.IntN(3)], "bad luck", 1+r.IntN(2))
					was = "operations fail"
				case 9:
					fake.Inject(model.Fault{Kind: model.Lose, Op: []string{"instances.create", "instances.terminate", "instances.stop", "*.put"}[r.IntN(4)], Times: 1 + r.IntN(2)})
					was = "answers are lost"
				case 10:
					fake.Inject(model.Fault{Kind: model.Fail, Code: fluffyapi.Throttled, Times: 1 + r.IntN(3)})
					was = "throttled"
				case 11:
					if nodes, _ := p.Nodes(ctx, spec.ID); len(nodes) > 0 {
						n := nodes[r.IntN(len(nodes))]
						goDown(t, fake, n)
						was = "off: " + n.ID
					}
				case 12:
					fake.Restore()
					was = "all is well"
				case 13:
					if nodes, _ := p.Nodes(ctx, spec.ID); len(nodes) > 0 && spec.Offer.Spot {
						fake.Preempt(nodes[0].ID, time.Second)
						time.Sleep(2 * time.Second)
						was = "taken back: " + nodes[0].ID
					}
				}
				story = append(story, was)
				nodes, err := p.Nodes(ctx, spec.ID)
				seen := map[int]bool{}
				for _, n := range nodes {
					if seen[n.Rank] && n.State != cloud.NodeGone || n.Rank >= 3 {
						t.Errorf("seed %d: %v: %v, %v", seed, story, nodes, err)
					}
					seen[n.Rank] = true
				}
			}
			fake.Restore()
			if err := provider(quick).Terminate(ctx, spec.ID); err != nil {
				t.Errorf("seed %d: %v: ending: %v", seed, story, err)
			}
			nothing(t, fake, fmt.Sprintf("seed %d: %s", seed, strings.Join(story, "; ")))
		})
		if t.Failed() {
			return
		}
	}
}

// All of an installation are found by a few calls, however many clusters it has.
func TestAllMachinesAreFoundByAFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t, nil)
		p := provider(quick)
		for i := range 12 {
			spec := launchSpec(1, "t")
			spec.ID.Name = fmt.Sprint("c", i)
			spec.ID.Hash = fmt.Sprint("h", i)
			if _, err := try(t.Context(), p, spec); err != nil {
				t.Fatal(err)
			}
		}
		counted := quick
		count := &process{Fake: fake, left: 1000}
		counted.Transport = count
		nodes, err := provider(counted).Nodes(t.Context(), cloud.ClusterID{Installation: "i"})
		if err != nil || len(nodes) != 12 || len(count.calls) > 6 { // a token, subscriptions, machines twice, interfaces, addresses
			t.Errorf("%d nodes, %v, by %d calls: %v", len(nodes), err, len(count.calls), count.calls)
		}
		for _, n := range nodes {
			if n.State != cloud.NodeRunning || n.ExternalIP == "" || n.Reach.Host != n.ExternalIP {
				t.Errorf("%+v", n)
			}
		}
	})
}

// A machine that Azure could not make while no server was there is made anew.
func TestAMachineThatFailedMeanwhileIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t, nil)
		fake.Fail("virtualmachines.put", "AllocationFailed", "no room", 1)
		dies := quick
		dying := &process{Fake: fake, left: 1000, last: true}
		dies.Transport = dying
		spec := launchSpec(1, "t1")
		p := provider(dies)
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		dying.left = 8 // what exists, what is used, the address and the interface with their operations, the machine
		_, err := p.Launch(t.Context(), spec)
		time.Sleep(time.Minute)
		second := provider(quick)
		nodes, listed := second.Nodes(t.Context(), spec.ID)
		if err == nil || listed != nil || len(nodes) != 1 || nodes[0].State != cloud.NodePending {
			t.Fatalf("the test is about a machine that failed: %v, %v, %v; %v", err, nodes, listed, dying.calls)
		}
		spec.Resumed = true
		if nodes, err = try(t.Context(), second, spec); err != nil || len(nodes) != 1 {
			t.Errorf("%v, %v", nodes, err)
		}
		if err := second.Terminate(t.Context(), spec.ID); err != nil {
			t.Error(err)
		}
		nothing(t, fake, "in the end")
	})
}

// A machine that was switched off from inside costs money until it is stopped.
func TestStoppingWhatIsOffFromInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t, nil)
		p := provider(quick)
		nodes, err := try(t.Context(), p, launchSpec(2, "t"))
		if err != nil {
			t.Fatal(err)
		}
		fake.Halt(nodes[1].ID)
		time.Sleep(time.Minute)
		if !fake.Billed(nodes[1].ID) {
			t.Fatal("the fake charges nothing for a machine that is off and has its place")
		}
		if err := p.Stop(t.Context(), launchSpec(2, "t").ID); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if fake.Billed(n.ID) {
				t.Errorf("%s is stopped and billed", n.ID)
			}
		}
	})
}

// Disks that are to be fast are made faster once they exist.
func TestFastDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t, nil)
		spec := launchSpec(1, "t")
		spec.DiskTier = "high"
		for range 2 {
			nodes, err := try(t.Context(), provider(quick), spec)
			if err != nil {
				t.Fatal(err)
			}
			group, _, _ := strings.Cut(fake.Body(nodes[0].ID)["id"].(string), "/providers/")
			disk := call(t, fake, "GET", group+"/providers/Microsoft.Compute/disks/"+nodes[0].ID+"-disk?api-version=2024-03-02", "")
			if !strings.Contains(disk, `"tier":"P50"`) {
				t.Error(disk)
			}
		}
	})
}

// The plan of an image is named for the user, and images of community galleries start.
func TestImagesOfOthers(t *testing.T) {
	for image, plan := range map[string]string{"kinvolk:flatcar:stable:3815.2.0": "stable", "Canonical:ubuntu-24_04-lts:server:latest": "", "/CommunityGalleries/gal/Images/base": ""} {
		synctest.Test(t, func(t *testing.T) {
			fake, provider := start(t, nil)
			fake.AddImage(image, plan)
			spec := launchSpec(1, "t")
			spec.ImageID = image
			if _, err := try(t.Context(), provider(quick), spec); err != nil {
				t.Errorf("%s: %v", image, err)
			}
		})
	}
}

// The role of docs/azure.md allows every call that is made.
func TestTheDocumentedRoleAllowsEveryCall(t *testing.T) {
	text, err := os.ReadFile("../../../docs/azure.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```json\n")
	block, _, _ = strings.Cut(block, "```")
	var role struct{ Actions []string }
	if err := json.Unmarshal([]byte(block), &role); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t, map[string]any{"placement_policy": "compact"})
		p, spec := provider(quick), launchSpec(2, "t1")
		spec.DiskTier = "high"
		do := func(what string, err error) {
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		_, err := p.Check(t.Context())
		do("check", err)
		_, err = p.Lacking(t.Context())
		do("permissions", err)
		_, err = try(t.Context(), p, spec)
		do("launch", err)
		do("ports", p.OpenPorts(t.Context(), spec.ID, []string{"81"}))
		do("off", p.WhenOff(t.Context(), spec.ID, true))
		do("stop", p.Stop(t.Context(), spec.ID))
		_, err = try(t.Context(), p, spec)
		do("start", err)
		_, err = p.Quotas(t.Context(), here.Region)
		do("quotas", err)
		_, _, err = p.ListAccounts(t.Context(), "i")
		do("accounts", err)
		do("end", p.Terminate(t.Context(), spec.ID))
		asked := fake.Asked()
		if len(asked) < 20 {
			t.Errorf("only %v were asked for", asked)
		}
		for _, action := range asked {
			if !slices.ContainsFunc(role.Actions, func(have string) bool { return strings.EqualFold(have, action) }) {
				t.Errorf("the role lacks %s", action)
			}
		}
	})
}

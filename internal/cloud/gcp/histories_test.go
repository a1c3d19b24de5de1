package gcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

// mortal is the network of a server that may be killed: what it has sent has its effect,
// and nothing comes back any more.
type mortal struct {
	fake *gcpfake.Fake
	dead atomic.Bool
}

var errDead = errors.New("the server is dead")

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	answer, err := m.fake.RoundTrip(r)
	if m.dead.Load() {
		return nil, errDead
	}
	return answer, err
}

// TestRandomHistories: servers launch, stop and end clusters one after the other on a cloud that
// fills up, loses answers and lists late, and are killed at any moment. In the end the
// last one gives everything back, and nothing is left; in between no rank ever has two
// machines. SKY_SIM_HISTORIES is how many histories there are; their seeds are 0, 1 and so on.
func TestRandomHistories(t *testing.T) {
	home(t, t.Setenv)
	histories := 40
	if n, err := strconv.Atoi(os.Getenv("SKY_SIM_HISTORIES")); err == nil {
		histories = n
	}
	const group = "gpus" // a cluster of a managed instance group
	const pods = "pods"  // clusters of TPU slices of four machines, one of them through queues
	launched, killed, ofSlices, grouped := 0, 0, 0, 0
	for seed := range histories {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 20))
			fake := gcpfake.New()
			h := fake.Harness(func() cloud.Provider { return nil })
			net := &mortal{fake: fake}
			serve := func() *Provider {
				net = &mortal{fake: fake}
				o := quick
				o.Transport, o.Timeout = net, 3*time.Minute
				return New(o)
			}
			p := serve()
			ids := []cloud.ClusterID{{Installation: "inst", Name: "a", Hash: "h1"}, {Installation: "inst", Name: "a", Hash: "h2"}, {Installation: "inst", Name: "b", Hash: "h1"},
				{Installation: "inst", Name: pods, Hash: "h1"}, {Installation: "inst", Name: pods, Hash: "h2"},
				{Installation: "inst", Name: group, Hash: "h1"}}
			nodes := map[cloud.ClusterID]int{}
			var story []string
			for step := range 12 {
				id := ids[r.IntN(len(ids))]
				if nodes[id] == 0 {
					nodes[id] = 1 + r.IntN(3)
				}
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					dying := net
					kill := time.AfterFunc(time.Duration(r.IntN(400))*time.Millisecond, func() { dying.dead.Store(true); cancel() })
					defer kill.Stop()
				}
				switch r.IntN(8) {
				case 0:
					fake.Fill("us-central1-a", []string{here.InstanceType, "v5litepod-16", "g2-standard-4"}[r.IntN(3)], r.IntN(3))
				case 1:
					h.LoseAnswers(t, cloudtest.Creating, 1)
				case 2:
					fake.HideNew(r.IntN(4))
				case 3:
					fake.AtOnce(true, true)
				case 4:
					fake.Restore()
				case 5:
					if all, err := p.Nodes(t.Context(), id); err == nil && len(all) > 0 && id.Name == pods {
						fake.Preempt(all[0].ID, 0)
					}
				}
				var err error
				what := ""
				switch r.IntN(6) {
				case 0, 1, 2:
					what = "launch"
					spec := cloud.LaunchSpec{ID: id, Offer: here, Nodes: nodes[id], Token: fmt.Sprint("t", seed, step), AuthorizedKey: key, Resumed: true}
					if id.Name == pods {
						spec.Offer.InstanceType, spec.Offer.Hosts, spec.Offer.Accelerators = tpuMachine, 4, map[string]float64{"tpu-v5litepod-16": 1}
						if spec.TPUQueued = id.Hash == "h2"; spec.TPUQueued { // nobody waits for long
							limited, end := context.WithTimeout(ctx, time.Minute)
							defer end()
							ctx = limited
						}
					}
					spec.Offer.Spot = r.IntN(3) == 0
					if id.Name == group {
						spec.Offer.InstanceType, spec.Offer.Accelerators, spec.Offer.Spot, spec.ImageID = "g2-standard-4", map[string]float64{"L4": 1}, false, plain(here)[0]
						spec.Settings = map[string]any{"managed_instance_group": map[string]any{"run_duration": 7200, "provision_timeout": 20}}
					}
					if r.IntN(2) == 0 {
						spec.Ports = []string{"80"}
					}
					if err = p.Prepare(ctx, spec); err == nil {
						_, err = p.Launch(ctx, spec)
					}
				case 3:
					what = "stop"
					err = p.Stop(ctx, id)
				case 4:
					what = "end"
					err = p.Terminate(ctx, id)
				case 5:
					what = "look"
					_, err = p.Nodes(ctx, id)
				}
				if what == "launch" && err == nil && id.Name == pods {
					ofSlices++
					if got, err := p.Nodes(t.Context(), id); err == nil && len(got)%4 != 0 {
						t.Fatalf("history %d: a part of a slice: %+v\n%s", seed, got, strings.Join(story, "\n"))
					}
				}
				story = append(story, fmt.Sprintf("%s %s/%s: %v", what, id.Name, id.Hash, err))
				cancel()
				if err == nil && what == "launch" {
					launched++
					if id.Name == group {
						grouped++
					}
				}
				if net.dead.Load() {
					killed++
					story = append(story, "killed")
					p = serve()
				}
				for _, line := range fake.Inventory() {
					if strings.HasPrefix(line, "instances ") && !strings.HasPrefix(line, "instances us-central1-a/") {
						t.Fatalf("history %d: %s\n%s", seed, line, strings.Join(story, "\n"))
					}
				}
			}
			fake.Restore()
			p = serve()
			for _, id := range ids {
				if err := p.Terminate(t.Context(), id); err != nil {
					t.Errorf("history %d: ending %v: %v\n%s", seed, id, err, strings.Join(story, "\n"))
				}
			}
			time.Sleep(2 * time.Minute) // for what is on its way
			left := slices.DeleteFunc(fake.Inventory(), func(line string) bool { return strings.HasPrefix(line, "serviceAccounts ") })
			if len(left) > 0 {
				t.Errorf("history %d: left: %v\n%s", seed, left, strings.Join(story, "\n"))
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d launches succeeded, %d of them of TPU slices, %d of groups, and %d servers were killed", launched, ofSlices, grouped, killed)
	if launched < histories || killed < histories/2 || ofSlices < histories/2 || grouped < histories/8 {
		t.Errorf("%d launches succeeded, %d of them of slices, %d of groups, and %d servers were killed in %d histories: they show too little", launched, ofSlices, grouped, killed, histories)
	}
}

package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestTheOldestGangKeepsItsNodes(t *testing.T) {
	at := func(minute int) time.Time { return time.Unix(int64(60*minute), 0) }
	old := gang{key: "a", name: "old", since: at(1), held: 1, missing: 1}
	young := gang{key: "b", name: "young", since: at(2), held: 1, missing: 1}
	with := func(g gang, change func(*gang)) gang { change(&g); return g }
	for _, c := range []struct {
		name   string
		mine   gang
		others []gang
		want   string // the name of the one that mine yields to; "": it keeps its nodes
	}{
		{"the younger one yields", young, []gang{old, young}, "old"},
		{"the older one keeps", old, []gang{old, young}, ""},
		{"a gang without a rival keeps", young, []gang{young}, ""},
		{"one that is whole is no rival", young, []gang{with(old, func(g *gang) { g.held, g.missing = 2, 0 })}, ""},
		{"one that holds nothing is no rival", young, []gang{with(old, func(g *gang) { g.held = 0 })}, ""},
		{"who is whole yields to nobody", with(young, func(g *gang) { g.missing = 0 }), []gang{old}, ""},
		{"who holds nothing has nothing to give", with(young, func(g *gang) { g.held = 0 }), []gang{old}, ""},
		{"the oldest of many", young, []gang{with(old, func(g *gang) { g.key, g.name, g.since = "c", "c", at(1).Add(time.Second) }), old}, "old"},
		{"of the same age the name decides", with(young, func(g *gang) { g.since = at(1) }), []gang{old}, "old"},
		{"other devices", with(young, func(g *gang) { g.devices = []string{"nvidia.com/gpu"} }), []gang{old}, ""},
		{"the same devices", with(young, func(g *gang) { g.devices = []string{"nvidia.com/gpu"} }),
			[]gang{with(old, func(g *gang) { g.devices = []string{"a.com/nic", "nvidia.com/gpu"} })}, "old"},
		{"other machines", with(young, func(g *gang) { g.placement = map[string][]string{"gpu": {"H100"}} }),
			[]gang{with(old, func(g *gang) { g.placement = map[string][]string{"gpu": {"A100", "T4"}} })}, ""},
		{"machines in common", with(young, func(g *gang) { g.placement = map[string][]string{"gpu": {"H100", "T4"}} }),
			[]gang{with(old, func(g *gang) { g.placement = map[string][]string{"gpu": {"A100", "T4"}, "zone": {"b"}} })}, "old"},
	} {
		got := ""
		if to := yieldTo(&c.mine, c.others); to != nil {
			got = to.name
		}
		if got != c.want {
			t.Errorf("%s: yields to %q, want %q", c.name, got, c.want)
		}
	}
}

// Whatever gangs compete for whatever nodes, in whatever order the scheduler
// serves their pods: if each fits alone all run in the end.
func TestAllGangsRunInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		room := rapid.IntRange(1, 12).Draw(rt, "room")
		sizes := rapid.SliceOfN(rapid.IntRange(1, room), 1, 6).Draw(rt, "sizes")
		type member struct {
			gang
			size, running, yields int
			behind                string // the gang that it waits for
		}
		all := make([]*member, len(sizes))
		begins := make([]int, len(sizes))
		for i, size := range sizes {
			begins[i] = rapid.IntRange(0, 5).Draw(rt, "begins")
			all[i] = &member{gang: gang{key: fmt.Sprint(i), since: time.Unix(int64(begins[i]), 0)}, size: size}
		}
		free, ended := room, 0
		limit := 40 * len(sizes)
		for step := 0; ended < len(sizes); step++ {
			if step > limit {
				rt.Fatalf("after %d steps %d of %d gangs have run: %+v", step, ended, len(sizes), all)
			}
			var pending []*member
			for i, m := range all {
				if step >= begins[i] && m.size > 0 && m.behind == "" {
					m.missing = m.size - m.held
					for range m.missing {
						pending = append(pending, m)
					}
				}
			}
			for free > 0 && len(pending) > 0 { // the scheduler's order is anybody's guess
				k := rapid.IntRange(0, len(pending)-1).Draw(rt, "next")
				pending[k].held++
				pending[k].missing--
				pending = append(pending[:k], pending[k+1:]...)
				free--
			}
			var seen []gang
			for _, m := range all {
				seen = append(seen, m.gang)
			}
			for _, m := range all {
				switch {
				case m.size == 0: // has run
				case m.behind != "":
					waits := false
					for _, g := range seen {
						waits = waits || g.key == m.behind && g.missing > 0
					}
					if !waits {
						m.behind = ""
					}
				case m.held == m.size:
					if m.running++; m.running == 2 {
						free += m.held
						m.size, m.held, m.missing = 0, 0, 0
						ended++
					}
				default:
					// Not every server looks at the same moment.
					if to := yieldTo(&m.gang, seen); to != nil && rapid.Bool().Draw(rt, "looks") {
						free += m.held
						m.held, m.missing, m.behind = 0, 0, to.key
						m.yields++
					}
				}
			}
		}
	})
}

func TestTwoGangsThatHoldHalfOfTheNodesBothRun(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	f.room, f.reuse = 2, true
	// Each gang gets one of the two places: the heads are served first.
	f.boot = 20 * time.Millisecond
	times := gangTimes{patience: 200 * time.Millisecond, look: 20 * time.Millisecond, retake: time.Minute, retakeMax: time.Hour, jitter: time.Millisecond}
	var mu sync.Mutex
	var told []string
	ctx := cloud.WithWaitReports(t.Context(), func(what string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(what, "yielded to cluster") {
			told = append(told, what)
		}
	})
	f.admit = map[string]bool{"one-head": true, "two-head": true}
	var wg sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()}) // servers of their own
		p.times = times
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: name, Name: name, Hash: "h"}, DisplayName: name, Nodes: 2,
			Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}, Settings: map[string]any{"provision_timeout": -1}}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			nodes, err := p.Launch(ctx, spec)
			if err != nil || len(nodes) != 2 {
				t.Errorf("%s: %d nodes, %v", name, len(nodes), err)
				return
			}
			if err := p.Terminate(ctx, spec.ID); err != nil { // it has run
				t.Error(err)
			}
		})
	}
	for f.placed() < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	f.mu.Lock()
	f.admit = nil
	f.mu.Unlock()
	wg.Wait()
	if len(told) == 0 || !strings.Contains(told[0], ", which has waited longer") {
		t.Errorf("told %q", told)
	}
}

func TestAGangWithoutARivalKeepsWaiting(t *testing.T) {
	f := startFake(t)
	f.room = 1
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	p.times = gangTimes{patience: 10 * time.Millisecond, look: 5 * time.Millisecond, retake: time.Minute, retakeMax: time.Minute}
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 2,
		Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}, Settings: map[string]any{"provision_timeout": -1}}
	done := make(chan error, 1)
	go func() { _, err := p.Launch(t.Context(), spec); done <- err }()
	for f.placed() < 1 {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	if f.placed() != 1 {
		t.Error("it gave its node back")
	}
	f.more(1)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

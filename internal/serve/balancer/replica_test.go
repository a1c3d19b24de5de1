package balancer

import (
	"fmt"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/policy"
)

func TestSpeedOfAReplica(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		weight float64
		age    time.Duration
		aware  bool
		want   float64
	}{
		{0, time.Hour, false, 1}, {2, time.Hour, false, 2}, {2, time.Hour, true, 8},
		{0, 0, false, 0.1}, {0, 5 * time.Second, false, 0.5}, {2, 5 * time.Second, true, 4}, {0, 10 * time.Second, false, 1},
	} {
		r := &replica{row: balancerapi.Replica{Weight: tt.weight}, capacity: 4, readySince: now.Add(-tt.age)}
		if got := r.candidate(now, 10*time.Second, tt.aware).Speed; got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// newPicker is a service whose choices can be seen without requests.
func newPicker(t *testing.T, row balancerapi.Service) *service {
	t.Helper()
	s := newService(newBalancer(t, Options{}), "chat")
	s.apply(row, time.Unix(1000, 0))
	return s
}

func rows(n int, each func(r *balancerapi.Replica)) []balancerapi.Replica {
	out := make([]balancerapi.Replica, n)
	for i := range out {
		out[i] = balancerapi.Replica{ID: i + 1, Address: fmt.Sprint("10.0.0.", i+1, ":80"), State: balancerapi.Ready}
		each(&out[i])
	}
	return out
}

// Accelerators get requests by what they can do.
func TestInstanceAware(t *testing.T) {
	s := newPicker(t, balancerapi.Service{Policy: balancerapi.Policy{Name: balancerapi.InstanceAwareLeastLoad, TargetQPS: map[string]float64{"A100": 3, "T4": 1}},
		Replicas: rows(2, func(r *balancerapi.Replica) { r.GPU = []string{"A100:1", "T4:1"}[r.ID-1] })})
	now := time.Unix(1000, 0)
	for range 80 {
		s.take(s.pick(&ask{}, now), &ask{}, now)
	}
	if a, b := s.replicas[1].inFlight, s.replicas[2].inFlight; a != 60 || b != 20 {
		t.Errorf("%d and %d requests in flight", a, b)
	}
}

// A session stays with its version as long as the shares stay, and a tenth of the
// sessions are those of the canary.
func TestSessionsStayWithTheirVersion(t *testing.T) {
	s := newPicker(t, balancerapi.Service{Policy: balancerapi.Policy{Name: balancerapi.SessionAffinity, Header: "X"},
		Versions: []balancerapi.Version{{Version: 1, Weight: 90}, {Version: 2, Weight: 10}},
		Replicas: rows(6, func(r *balancerapi.Replica) { r.Version = 1 + r.ID/6 })})
	now, canary := time.Unix(1000, 0), 0
	for i := range 2000 {
		a := &ask{key: policy.Hash(fmt.Sprint("session ", i)), keyed: true}
		first := s.pick(a, now)
		if again := s.pick(a, now); again != first {
			t.Fatalf("session %d went to %d and %d", i, first.ID, again.ID)
		}
		if first.row.Version == 2 {
			canary++
		}
	}
	if canary < 150 || canary > 250 {
		t.Errorf("%d of 2000 sessions are the canary's", canary)
	}
}

// Replicas that are ejected get nothing while others are well, and something when
// none is.
func TestEjectedReplicasAreTheLastResort(t *testing.T) {
	s := newPicker(t, balancerapi.Service{Replicas: rows(3, func(*balancerapi.Replica) {})})
	now := time.Unix(1000, 0)
	for id := 1; id <= 3; id++ {
		s.replicas[id].health.until = now.Add(time.Minute)
		for range 20 {
			if r := s.pick(&ask{}, now); id < 3 && r.ID <= id || r == nil {
				t.Fatalf("with %d ejected, %v was chosen", id, r)
			}
		}
	}
}

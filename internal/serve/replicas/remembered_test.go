package replicas

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

// A replica that found no machine is nowhere, and remembers where there was none.
func TestARetryForgetsThePlace(t *testing.T) {
	at := cloud.Place{Cloud: "fluffycloud", Region: "east", Zone: "east-a"}
	r := Replica{ID: 1, Version: 1, Status: api.ReplicaProvisioning, Place: at, InstanceType: "puff-2", ProvisionedAt: noon}
	key := r.key()
	r, err := r.After(Fact{Event: fsm.ReplicaRetry, Failure: NoCapacity}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if r.Place != (cloud.Place{}) || r.InstanceType != "" || !r.ProvisionedAt.IsZero() {
		t.Errorf("it is still in %v on %q since %v", r.Place, r.InstanceType, r.ProvisionedAt)
	}
	if len(r.Trouble) != 1 || r.Trouble[0].Key != key || !r.Trouble[0].At.Equal(noon) {
		t.Errorf("it remembers %+v, want %v", r.Trouble, key)
	}
}

// On-demand replicas in the stead of spot ones stay until these have been ready for a
// while, which is counted over decisions.
func TestSinceWhenSpotIsReadyIsRemembered(t *testing.T) {
	sp := service(spec.Scale{Min: 2, Max: 2, Placer: hedged})
	sp.Spot = true
	row := func(id int, spot bool) Replica {
		return Replica{ID: id, Version: 1, Spot: spot, Status: api.ReplicaReady, ReadySince: noon, FirstReady: noon, ProvisionedAt: noon.Add(-5 * time.Minute)}
	}
	s := Situation{Now: noon, Versions: []Version{{1, sp}}, Load: Load{Known: true}, Replicas: []Replica{row(1, true), row(2, true), row(3, false)}}
	left := -1
	for minute := range 15 {
		s.Now = noon.Add(time.Duration(minute) * time.Minute)
		d := Decide(s)
		s.State, s.Replicas = d.State, d.Replicas
		for i := range d.Replicas {
			if r := &d.Replicas[i]; !r.Spot && !r.Ready() && left < 0 {
				left = minute
			}
		}
	}
	if left != 10 { // twice the five minutes that a replica takes
		t.Errorf("the on-demand replica left in minute %d", left)
	}
}

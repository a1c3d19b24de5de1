package execution

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

func TestPlacesAreChosenAsConfigured(t *testing.T) {
	provisioning := func(m map[string]any) *config.Config { return configured(t, map[string]any{"provision": m}) }
	usual := provisionOptions(provisioning(nil))
	if usual.Ranking.PriceOnly || usual.Forget || usual.NoProbes || usual.HalfLife != 90*time.Minute || usual.HedgePrice != 2 {
		t.Errorf("%+v", usual)
	}
	got := provisionOptions(provisioning(map[string]any{"ranking": "price", "ask_first": false, "hedge": 3, "hedge_price": 1.5, "availability_half_life_minutes": 2}))
	if want := (provision.Options{Ranking: provision.Ranking{PriceOnly: true}, Forget: true, NoProbes: true, Hedge: 3, HedgePrice: 1.5, HalfLife: 2 * time.Minute}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := provisionOptions(provisioning(map[string]any{"ranking": "availability"})); got != usual {
		t.Errorf("%+v, want %+v", got, usual)
	}
	if got := patience(provisioning(nil)); got != 0 {
		t.Errorf("it gives up after %v", got)
	}
	if got := patience(provisioning(map[string]any{"retry_hours": 1.5})); got != 90*time.Minute {
		t.Errorf("it gives up after %v", got)
	}
}

// A task's config section holds over the request's configuration, and asks only for
// workspaces that the caller may use.
func TestATaskConfiguresItsLaunch(t *testing.T) {
	own := map[string]any{"provision": map[string]any{"hedge": 4}}
	for name, call := range map[string]cluster.Call{
		"beside nothing": {},
		"beside another": {Config: configured(t, map[string]any{"provision": map[string]any{"hedge": 2, "hedge_price": 3}})},
	} {
		c, err := settings(call, &task.Task{Config: own})
		if err != nil || c.Int("provision", "hedge") != 4 || (c.Float("provision", "hedge_price") == 3) != (call.Config != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := settings(cluster.Call{}, &task.Task{Config: map[string]any{"provision": 3}}); err == nil {
		t.Error("nonsense is taken")
	} else if _, ok := errors.AsType[*config.Error](err); !ok {
		t.Error(err)
	}
	other := &task.Task{Config: map[string]any{"active_workspace": "theirs"}}
	_, err := settings(cluster.Call{Scope: &state.Scope{User: "u", Workspaces: []string{"ours"}}}, other)
	if err == nil || said(t, err).Type != api.ErrPermissionDenied {
		t.Errorf("somebody else's workspace: %v", err)
	}
}

// A section of the configuration that is for one cloud, region or cluster reaches that.
func TestEachPlaceHasItsSettings(t *testing.T) {
	all := configured(t, map[string]any{"aws": map[string]any{"use_internal_ips": true}})
	at := placed(all, &state.Cluster{Name: "dev", Workspace: "default"})
	if got := at(cloud.Place{Cloud: "aws", Region: "r"})["use_internal_ips"]; got != true {
		t.Errorf("on aws: %v", got)
	}
	if got := at(cloud.Place{Cloud: "gcp", Region: "r"})["use_internal_ips"]; got == true {
		t.Errorf("on gcp: %v", got)
	}
}

// What has no known price is tried after everything that has one, and an entry of
// ordered resources after the entries before it.
func TestCandidatesAreTriedInTheirTiers(t *testing.T) {
	first, second := &task.Resources{}, &task.Resources{}
	candidate := func(name string, r *task.Resources, unpriced bool) optimizer.Candidate {
		return optimizer.Candidate{Offer: cloud.Offer{InstanceType: name}, Resources: r, Unpriced: unpriced}
	}
	for _, tt := range []struct {
		name       string
		preference task.Preference
		candidates []optimizer.Candidate
		want       [][]string
	}{
		{"any of them", task.AnyOf, []optimizer.Candidate{candidate("a", first, false), candidate("b", second, false)}, [][]string{{"a", "b"}}},
		{"in order", task.Ordered, []optimizer.Candidate{candidate("a", first, false), candidate("b", first, false), candidate("c", second, false)}, [][]string{{"a", "b"}, {"c"}}},
		{"without a price", task.AnyOf, []optimizer.Candidate{candidate("a", first, false), candidate("b", second, true), candidate("c", first, true)}, [][]string{{"a"}, {"b", "c"}}},
		{"both", task.Ordered, []optimizer.Candidate{candidate("a", first, false), candidate("b", first, true), candidate("c", second, false)}, [][]string{{"a"}, {"b"}, {"c"}}},
		{"none", task.AnyOf, nil, nil},
	} {
		plan := &optimizer.Plan{Tasks: []optimizer.TaskPlan{{Task: &task.Task{Preference: tt.preference}, Candidates: tt.candidates}}}
		var got [][]string
		for _, tier := range ranked(plan) {
			var names []string
			for _, o := range tier {
				names = append(names, o.InstanceType)
			}
			got = append(got, names)
		}
		if !slices.EqualFunc(got, tt.want, slices.Equal) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A holder splits each tier by itself; nothing of a later one comes earlier.
func TestAHolderOrdersWithinTiers(t *testing.T) {
	offer := func(region string) cloud.Offer { return cloud.Offer{Place: cloud.Place{Region: region}} }
	tiers := [][]cloud.Offer{{offer("a"), offer("b")}, {offer("c"), offer("d")}}
	count := func(m *Held) (regions []string) {
		for _, tier := range m.order(tiers) {
			var s string
			for _, o := range tier {
				s += o.Region
			}
			regions = append(regions, s)
		}
		return regions
	}
	apart := func(offers []cloud.Offer) [][]cloud.Offer { return [][]cloud.Offer{offers[1:], offers[:1]} }
	for _, tt := range []struct {
		m    *Held
		want []string
	}{{nil, []string{"ab", "cd"}}, {&Held{}, []string{"ab", "cd"}}, {&Held{Order: apart}, []string{"b", "a", "d", "c"}}} {
		if got := count(tt.m); !slices.Equal(got, tt.want) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// An agent's address that is known is kept for the same machine, unless there is a new
// one.
func TestAgentsKeepTheirAddresses(t *testing.T) {
	node := func(id, agent string) cloud.Node { return cloud.Node{ID: id, Reach: cloud.Reach{Agent: agent}} }
	got := carryAgents([]cloud.Node{node("a", ""), node("b", "new"), node("c", "")}, []cloud.Node{node("b", "old b"), node("a", "old a"), node("d", "old d")})
	for i, want := range []string{"old a", "new", ""} {
		if got[i].Reach.Agent != want {
			t.Errorf("%s: %q, want %q", got[i].ID, got[i].Reach.Agent, want)
		}
	}
}

// A plan asks only the clouds that all of its tasks name; without a name it asks all.
func TestWhichCloudsAPlanKnows(t *testing.T) {
	named := func(names ...string) *task.Task {
		tk := &task.Task{}
		for _, n := range names {
			tk.Resources = append(tk.Resources, task.Resources{Cloud: n})
		}
		return tk
	}
	for _, tt := range []struct {
		tasks []*task.Task
		want  []string
	}{
		{[]*task.Task{named("AWS", "gcp")}, []string{"aws", "gcp"}},
		{[]*task.Task{named("aws"), named("gcp")}, []string{"aws", "gcp"}},
		{[]*task.Task{named("aws", "")}, nil},
		{[]*task.Task{named("aws"), named("")}, nil},
		{[]*task.Task{named("aws"), named()}, nil},
	} {
		if got := clouds(&task.Dag{Tasks: tt.tasks}); !slices.Equal(got, tt.want) || (got == nil) != (tt.want == nil) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestCountsOfNodesAreWords(t *testing.T) {
	if nodes(1) != "1 node" || nodes(2) != "2 nodes" {
		t.Error(nodes(1), nodes(2))
	}
}

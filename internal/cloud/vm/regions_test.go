package vm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// testEnv is regions with machines, and what they answer instead.
type testEnv struct {
	Regions
	mu    sync.Mutex
	has   map[string]int
	fails map[string]error
	asked []string
}

func newTestEnv(regions ...string) *testEnv {
	env := &testEnv{has: map[string]int{}, fails: map[string]error{}}
	env.All = func(context.Context) ([]string, error) { return regions, nil }
	env.List = func(_ context.Context, region string, _ cloud.ClusterID) ([]Machine, error) {
		env.mu.Lock()
		defer env.mu.Unlock()
		env.asked = append(env.asked, region)
		return slices.Repeat([]Machine{{ID: region, State: Running}}, env.has[region]), env.fails[region]
	}
	return env
}

// find lists the machines of a cluster, and which regions were asked for that.
func (env *testEnv) find(t *testing.T, where ListScope) (n int, asked string, err error) {
	t.Helper()
	env.asked = nil
	list, err := env.Find(t.Context(), cloud.ClusterID{Name: "c"}, where)
	slices.Sort(env.asked)
	return len(list), strings.Join(env.asked, " "), err
}

func TestAClusterIsLookedForWhereItWas(t *testing.T) {
	env := newTestEnv("a", "b", "c")
	env.has["b"] = 2
	for _, step := range []struct {
		where ListScope
		want  string
	}{{ListScope{}, "a b c"}, {ListScope{}, "b"}, {ListScope{Exhaustive: true}, "a b c"}, {ListScope{Region: "c"}, "c"}, {ListScope{}, "b"}} {
		if _, asked, err := env.find(t, step.where); asked != step.want || err != nil {
			t.Errorf("%+v: asked %q, %v; want %q", step.where, asked, err, step.want)
		}
	}
	env.has = map[string]int{"c": 1}
	if n, asked, err := env.find(t, ListScope{}); n != 1 || asked != "a b b c" || err != nil {
		t.Errorf("moved: %d, asked %q, %v", n, asked, err)
	}
}

func TestARegionThatLetsNobodyInIsPassedOver(t *testing.T) {
	env := newTestEnv("a", "b")
	denied, broken := &cloud.PermissionError{Err: errors.New("denied")}, &cloud.UnreachableError{Err: errors.New("no answer")}
	env.fails["b"] = denied
	if _, _, err := env.find(t, ListScope{Exhaustive: true}); err != nil {
		t.Errorf("a region that is not switched on: %v", err)
	}
	if open, err := env.Open(t.Context()); err != nil || !slices.Equal(open, []string{"a"}) {
		t.Errorf("open are %v, %v", open, err)
	}
	env.fails["b"] = broken
	if _, _, err := env.find(t, ListScope{Exhaustive: true}); !errors.Is(err, broken) {
		t.Errorf("one that does not answer may hold machines: %v", err)
	}
	env.fails["b"] = nil
	if _, _, err := env.find(t, ListScope{Exhaustive: true}); err != nil {
		t.Error(err)
	}
	env.fails["b"] = denied
	if _, _, err := env.find(t, ListScope{Exhaustive: true}); !errors.Is(err, denied) {
		t.Errorf("one that let us in before: %v", err)
	}
	env.Reset()
	if _, _, err := env.find(t, ListScope{Exhaustive: true}); err != nil {
		t.Errorf("with other credentials: %v", err)
	}
	env.fails["a"] = denied
	env.Reset()
	if _, _, err := env.find(t, ListScope{Exhaustive: true}); !errors.Is(err, denied) || !strings.Contains(err.Error(), "1 more") {
		t.Errorf("nobody lets us in: %v", err)
	}
}

// What a cloud says of its regions is read once, with the place that it is about.
func TestRegionsSayWhatErrorsMean(t *testing.T) {
	r := Regions{
		Cloud: "toy", Refusal: Refusals{Cloud: "toy"}.Refusal,
		All: func(context.Context) ([]string, error) { return []string{"a", "b"}, nil },
		List: func(_ context.Context, region string, _ cloud.ClusterID) ([]Machine, error) {
			return nil, map[string]error{"a": &rest.Error{Status: 401}, "b": nil}[region]
		},
	}
	var auth *cloud.AuthError
	if _, err := r.Find(t.Context(), cloud.ClusterID{}, ListScope{Region: "a"}); !errors.As(err, &auth) {
		t.Errorf("one region: %v", err)
	}
	if _, err := r.Find(t.Context(), cloud.ClusterID{}, ListScope{}); err != nil {
		t.Errorf("a region that lets nobody in counts: %v", err)
	}
	if _, why := r.Asked("a"); !errors.As(why, &auth) {
		t.Errorf("%v", why)
	}
	r.All = func(context.Context) ([]string, error) { return nil, &rest.Error{Status: 403} }
	var forbidden *cloud.PermissionError
	if _, _, err := Everywhere(t.Context(), &r, func(context.Context, string) (int, error) { return 0, nil }); !errors.As(err, &forbidden) {
		t.Errorf("all regions: %v", err)
	}
}

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/state/statetest"
)

func shownBy(t testing.TB, m *Manager, call Call, b api.StatusBody) []api.StatusRecord {
	t.Helper()
	raw, err := m.StatusJSON(t.Context(), call, b)
	if err != nil {
		t.Fatal(err)
	}
	var list []api.StatusRecord
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// The list that is kept is the list that is read, for whoever asks for what.
func TestStatusJSONIsStatus(t *testing.T) {
	m := full(t, 12)
	m.Remote = nil // no keys are asked for
	no, yes, one, three := false, true, 1, 3
	calls := []Call{{}, {Scope: &state.Scope{User: "u", Workspaces: []string{"default"}}}, {Scope: &state.Scope{User: "u", Workspaces: []string{"other"}}},
		{Scope: &state.Scope{}}, {User: state.User{ID: "u"}}, {User: state.User{ID: "v"}}}
	bodies := []api.StatusBody{{}, {ClusterNames: []string{"c1", "c2"}}, {ClusterNames: []string{"c1 c2"}}, {AllUsers: &no}, {AllUsers: &yes}, {IncludeHandle: &no},
		{Limit: &three}, {Limit: &three, Page: &three}, {Limit: &one, Page: &three}, {Refresh: api.RefreshNone}}
	for range 2 {
		for _, call := range calls {
			for _, b := range bodies {
				want, err := m.Status(t.Context(), call, b)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := json.Marshal(want)
				got, err := m.StatusJSON(t.Context(), call, b)
				if err != nil || string(got) != string(text) {
					t.Fatalf("%+v, %+v: %s, %v, want %s", call, b, got, err, text)
				}
			}
		}
	}
	zero := 0
	for _, b := range []api.StatusBody{{Limit: &zero}, {Page: &one}} {
		if _, err := m.StatusJSON(t.Context(), Call{}, b); err == nil {
			t.Errorf("%+v is taken", b)
		}
	}
	if before := m.answers.by; len(before) == 0 {
		t.Error("nothing was kept")
	}
	m.answers.clear()
	shownBy(t, m, Call{}, api.StatusBody{})
}

// Whoever asks after a change sees it, also one that another process made: each
// writer counts up its own cluster and asks both servers at once, while others
// keep asking.
func TestStatusJSONIsNeverStale(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T) func() (*state.Store, error){
		"sqlite": func(t *testing.T) func() (*state.Store, error) {
			path := filepath.Join(t.TempDir(), "sky.db")
			return func() (*state.Store, error) { return state.Open(context.Background(), path) }
		},
		"postgres": func(t *testing.T) func() (*state.Store, error) {
			address := statetest.Postgres(t)
			return func() (*state.Store, error) { return state.OpenPostgres(context.Background(), address) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			open := prepare(t)
			var servers []*Manager
			for range 2 {
				store, err := open()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				servers = append(servers, &Manager{Deps: Deps{Store: store, Providers: cloud.NewRegistry()}})
			}
			var writers, readers sync.WaitGroup
			var ended atomic.Bool
			for i, m := range servers {
				for j := range 2 {
					name := fmt.Sprintf("c-%d-%d", i, j)
					c := &state.Cluster{Name: name, Hash: name, Status: api.ClusterStopped, LastUse: "0"}
					if err := m.Store.Clusters().Create(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					writers.Go(func() {
						for n := 1; n <= 40; n++ {
							c.LastUse = fmt.Sprint(n)
							if err := m.Store.Clusters().Save(t.Context(), c); err != nil {
								t.Error(err)
								return
							}
							for k, asked := range servers {
								raw, err := asked.StatusJSON(t.Context(), Call{}, api.StatusBody{})
								var list []api.StatusRecord
								if err = errors.Join(err, json.Unmarshal(raw, &list)); err != nil {
									t.Error(err)
									return
								}
								seen := ""
								for _, r := range list {
									if r.Name == name {
										seen = r.LastUse
									}
								}
								if seen != c.LastUse {
									t.Errorf("server %d was changed to %s, server %d shows %q", i, c.LastUse, k, seen)
									return
								}
							}
						}
					})
				}
				readers.Go(func() {
					for !ended.Load() {
						if _, err := m.StatusJSON(t.Context(), Call{}, api.StatusBody{}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			writers.Wait()
			ended.Store(true)
			readers.Wait()
		})
	}
}

// Lists with keys are for who may have them.
func TestAnswersWithKeysAreOfOneCaller(t *testing.T) {
	b := api.StatusBody{}
	b.UsingRemoteAPIServer = true
	seen := map[string]bool{}
	ann, eve := &state.Scope{User: "ann"}, &state.Scope{User: "eve"}
	for _, scope := range []*state.Scope{nil, ann, eve} {
		seen[answerKey(Call{Scope: scope}, b)] = true
	}
	seen[answerKey(Call{Scope: ann}, api.StatusBody{})] = true
	if len(seen) != 4 {
		t.Error(seen)
	}
	if answerKey(Call{Scope: ann}, api.StatusBody{}) != answerKey(Call{Scope: eve}, api.StatusBody{}) {
		t.Error("a list without keys is made for each")
	}
}

// A list that cannot be made is not kept, and those who waited for it make their
// own; large ones are not kept.
func TestAnswers(t *testing.T) {
	var a answers
	boom := errors.New("boom")
	begun, end := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		_, err := a.get(t.Context(), 1, "k", func() (json.RawMessage, error) { close(begun); <-end; return nil, boom })
		first <- err
	}()
	<-begun
	second := make(chan string)
	go func() {
		b, _ := a.get(t.Context(), 1, "k", func() (json.RawMessage, error) { return json.RawMessage("2"), nil })
		second <- string(b)
	}()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.get(gone, 1, "k", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(end)
	if err := <-first; err != boom {
		t.Error(err)
	}
	if got := <-second; got != "2" {
		t.Error(got)
	}
	made := 0
	get := func(version int64, key string, size int) int {
		b, err := a.get(t.Context(), version, key, func() (json.RawMessage, error) { made++; return make(json.RawMessage, size), nil })
		if err != nil {
			t.Error(err)
		}
		return len(b)
	}
	for i, step := range []struct {
		version int64
		key     string
		size    int // of the list that is made if there is none
		want    int
		made    int // in all
	}{
		{2, "a", 10, 10, 1},
		{2, "a", 11, 10, 1},                     // kept
		{1, "a", 12, 10, 1},                     // newer than asked for
		{1, "b", 13, 13, 2},                     // not kept: it may be older
		{2, "b", 14, 14, 3},                     //
		{3, "a", 15, 15, 4},                     // changed
		{3, "big", answersSize, answersSize, 5}, // does not fit
		{3, "big", 16, 16, 6},
		{3, "a", 17, 15, 6},
	} {
		if got := get(step.version, step.key, step.size); got != step.want || made != step.made {
			t.Errorf("step %d: %d bytes, %d made, want %+v", i, got, made, step)
		}
	}
	for i := range 3 * answersMost {
		get(4, fmt.Sprint(i), 1)
	}
	if len(a.by) > answersMost {
		t.Errorf("%d lists are kept", len(a.by))
	}
}

// What one of many who ask for the same list costs.
func BenchmarkStatusJSON(b *testing.B) {
	for _, n := range []int{0, 100, 1000} {
		m := full(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.StatusJSON(b.Context(), Call{}, api.StatusBody{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint(n, "_not_kept"), func(b *testing.B) {
			for b.Loop() {
				m.answers.clear()
				if _, err := m.StatusJSON(b.Context(), Call{}, api.StatusBody{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
)

// Whatever several servers do with leases, one at a time or many at once, each
// belongs to whom the rules say, and its epoch grows with every change of owner.
func TestLeasesTakenTogetherFollowTheRules(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, ls := t.Context(), s.Leases()
		rounds := 0
		rapid.Check(t, func(t *rapid.T) {
			rounds++
			type lease struct {
				owner   string
				epoch   int64
				expired bool
			}
			model := map[string]*lease{}
			name := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("%d/%d", rounds, rapid.IntRange(0, 5).Draw(t, "name")) })
			owner := rapid.SampledFrom([]string{"s1", "s2", "s3"})
			fail := func(what string, got, want any) { t.Fatalf("%s: got %+v, want %+v", what, got, want) }
			take := func(name, by string, expired bool) bool {
				l := model[name]
				switch {
				case l == nil:
					l = &lease{owner: by, epoch: 1}
					model[name] = l
				case l.owner == by:
				case l.expired:
					l.owner, l.epoch = by, l.epoch+1
				default:
					return false
				}
				l.expired = expired
				return true
			}
			ttl := func(t *rapid.T) (time.Duration, bool) {
				expired := rapid.Bool().Draw(t, "runs out at once")
				return map[bool]time.Duration{false: time.Hour, true: -time.Hour}[expired], expired
			}
			steps := map[string]func(*rapid.T){
				"take one": func(t *rapid.T) {
					n, by := name.Draw(t, "name"), owner.Draw(t, "owner")
					d, expired := ttl(t)
					l, got, err := ls.Acquire(ctx, n, by, d)
					if want := take(n, by, expired); err != nil || got != want || l.Epoch != model[n].epoch || l.Owner != model[n].owner {
						fail("one", fmt.Sprint(l, got, err), *model[n])
					}
				},
				"take many": func(t *rapid.T) {
					ns, by := rapid.SliceOfN(name, 0, 8).Draw(t, "names"), owner.Draw(t, "owner")
					d, expired := ttl(t)
					list, err := ls.AcquireAll(ctx, ns, by, d)
					if err != nil {
						t.Fatal(err)
					}
					got, want := map[string]int64{}, map[string]int64{}
					for _, l := range list {
						if _, twice := got[l.Name]; twice || l.Owner != by {
							fail("many", l, by)
						}
						got[l.Name] = l.Epoch
					}
					slices.Sort(ns)
					for _, n := range slices.Compact(ns) {
						if take(n, by, expired) {
							want[n] = model[n].epoch
						}
					}
					if !maps.Equal(got, want) {
						fail("many", got, want)
					}
				},
				"give up": func(t *rapid.T) {
					n, by := name.Draw(t, "name"), owner.Draw(t, "owner")
					l := model[n]
					if l == nil {
						return
					}
					if err := ls.Release(ctx, Lease{Name: n, Owner: by, Epoch: l.epoch}); err != nil {
						t.Fatal(err)
					}
					if l.owner == by {
						l.owner, l.expired = "", true
					}
				},
				"renew": func(t *rapid.T) {
					by := owner.Draw(t, "owner")
					held, err := ls.Beat(ctx, fmt.Sprintf("%d/", rounds), by, time.Hour)
					want := map[string]int64{}
					for n, l := range model {
						if l.owner == by {
							l.expired, want[n] = false, l.epoch
						}
					}
					if err != nil || !maps.Equal(held, want) {
						fail("renewed", fmt.Sprint(held, err), want)
					}
				},
			}
			for range rapid.IntRange(1, 10).Draw(t, "steps") { // each waits for the disk
				steps[rapid.SampledFrom(slices.Sorted(maps.Keys(steps))).Draw(t, "step")](t)
			}
		})
	})
}

// Servers that take the same jobs over at the same time share them: each job has
// one controller, and nobody waits for anybody for long.
func TestJobsAreTakenOverByOneServerEach(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		const jobs, servers = 24, 4
		ctx, js := t.Context(), s.ManagedJobs()
		names := make([]string, jobs)
		for n := range jobs {
			j := must(js.Submit(ctx, newManaged(fmt.Sprint("r", n), 1)))(t)
			names[n] = ManagedLease + strconv.Itoa(j.ID)
		}
		// Every other lease is one that a dead server had; the rest is not there yet.
		for n := 0; n < jobs; n += 2 {
			_, _, err := s.Leases().Acquire(ctx, names[n], "dead", -time.Hour)
			ok(t, err)
		}
		var mu sync.Mutex
		owner := map[int]string{}
		var wg sync.WaitGroup
		for server := range servers {
			me := fmt.Sprint("s", server)
			wg.Go(func() {
				for at := range jobs { // in an order of its own
					var some []string
					for i := range 7 {
						some = append(some, names[(at*(2*server+1)+i*(server+3))%jobs])
					}
					got, err := s.Leases().AcquireAll(ctx, some, me, time.Hour)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := s.Leases().Beat(ctx, ManagedLease, me, time.Hour); err != nil {
						t.Error(err)
					}
					held := map[int]Lease{}
					for _, l := range got {
						id, _ := strconv.Atoi(l.Name[len(ManagedLease):])
						held[id] = l
					}
					found, err := js.AdoptAll(ctx, held)
					if err != nil || len(found) != len(held) {
						t.Errorf("%d of %d: %v", len(found), len(held), err)
					}
					mu.Lock()
					for _, a := range found {
						if was := owner[a.Job.ID]; was != "" && was != me {
							t.Errorf("job %d belongs to %s and to %s", a.Job.ID, was, me)
						}
						owner[a.Job.ID] = me
						if l := held[a.Job.ID]; a.Job.Epoch != l.Epoch || len(a.Job.Tasks) != 1 {
							t.Errorf("job %d: %+v under %+v", a.Job.ID, a.Job, l)
						}
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(owner) != jobs {
			t.Errorf("%d of %d jobs have a controller", len(owner), jobs)
		}
	})
}

// Jobs come with all that a controller needs of them; those that somebody else has
// a later lease on, and those that have ended, do not.
func TestAdoptAll(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		for n := range 4 {
			must(js.Submit(ctx, newManaged(fmt.Sprint("r", n), 2)))(t)
		}
		j := must(js.Adopt(ctx, 1, Lease{Epoch: 1}))(t)
		j.Schedule, j.Tasks[0].Status, j.Tasks[0].Attempt = api.ScheduleLaunching, api.ManagedStarting, 2
		for n := range 2 {
			ok(t, js.Save(ctx, ManagedChange{Job: j, Attempt: &ManagedAttempt{JobID: 1, Number: n + 1, ClusterName: "c", StartedAt: day}}))
		}
		must(js.Adopt(ctx, 2, Lease{Epoch: 7}))(t)
		must(js.AskCancel(ctx, []int{3}, 0))(t) // which had not begun: it has ended
		found := must(js.AdoptAll(ctx, map[int]Lease{1: {Epoch: 2}, 2: {Epoch: 6}, 3: {Epoch: 1}, 4: {Epoch: 1}, 9: {Epoch: 1}}))(t)
		var want []ManagedAdopted
		for _, id := range []int{1, 4} {
			want = append(want, ManagedAdopted{must(js.Get(ctx, id))(t), must(js.Attempts(ctx, id))(t)})
		}
		same(t, "adopted", found, want)
		if len(found) != 2 || found[0].Job.Epoch != 2 || len(found[0].Attempts) != 2 || found[1].Job.Epoch != 1 {
			t.Fatalf("%+v", found)
		}
		if err := js.Save(ctx, ManagedChange{Job: j}); !errors.Is(err, ErrConflict) {
			t.Errorf("who had the job before may save it: %v", err)
		}
		ok(t, js.Save(ctx, ManagedChange{Job: found[0].Job}))
		same(t, "of none", must(js.AdoptAll(ctx, nil))(t), []ManagedAdopted(nil))
	})
}

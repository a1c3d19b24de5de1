package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// clock is time that goes on when it is told to.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func newCloud(t testing.TB, change func(*Config)) (*Cloud, *clock) {
	t.Helper()
	k := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	cfg := Default(7)
	cfg.Now, cfg.Record = k.Now, true
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, k
}

func create(name string) fluffyapi.Create {
	return fluffyapi.Create{ClientToken: name, Name: name, Zone: "east-a", Type: "puff-2"}
}

// must is v; an error ends the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func code(err error) fluffyapi.Code {
	var e *fluffyapi.Error
	errors.As(err, &e)
	if e == nil {
		return ""
	}
	return e.Code
}

func TestAnInstanceBootsAndHaltsInItsTime(t *testing.T) {
	c, k := newCloud(t, nil)
	a := c.Account("ann", "owner")
	i := must(a.Create(t.Context(), create("x")))
	state := func() fluffyapi.State { return must(a.Instance(t.Context(), i.ID)).State }
	for _, step := range []struct {
		after time.Duration
		do    func() error
		want  fluffyapi.State
	}{
		{0, nil, fluffyapi.Pending},
		{19 * time.Second, nil, fluffyapi.Pending},
		{41 * time.Second, nil, fluffyapi.Running},
		{0, func() error { _, err := a.Stop(t.Context(), i.ID); return err }, fluffyapi.Stopping},
		{20 * time.Second, nil, fluffyapi.Stopped},
		{time.Hour, nil, fluffyapi.Stopped},
		{0, func() error { _, err := a.Start(t.Context(), i.ID, fluffyapi.Start{}); return err }, fluffyapi.Pending},
		{time.Minute, nil, fluffyapi.Running},
		{0, func() error { _, err := a.Terminate(t.Context(), i.ID); return err }, fluffyapi.Terminating},
		{20 * time.Second, nil, fluffyapi.Terminated},
	} {
		k.advance(step.after)
		if step.do != nil {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
		}
		if got := state(); got != step.want {
			t.Fatalf("%s, want %s", got, step.want)
		}
	}
	k.advance(time.Hour)
	if _, err := a.Instance(t.Context(), i.ID); code(err) != fluffyapi.NotFound {
		t.Errorf("an instance is remembered for ever: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	with := func(f func(*fluffyapi.Create)) fluffyapi.Create {
		in := create("new")
		f(&in)
		return in
	}
	c, _ := newCloud(t, nil)
	a := c.Account("ann", "owner")
	must(a.Create(t.Context(), create("taken")))
	if err := c.SetCapacity("west-b", "puff-2", 0); err != nil {
		t.Fatal(err)
	}
	if err := c.SetQuota("ann", "north", "cpus", 1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		in   fluffyapi.Create
		want fluffyapi.Code
	}{
		{"no token", with(func(in *fluffyapi.Create) { in.ClientToken = "" }), fluffyapi.Invalid},
		{"no name", with(func(in *fluffyapi.Create) { in.Name = "" }), fluffyapi.Invalid},
		{"a zone that is not there", with(func(in *fluffyapi.Create) { in.Zone = "east-z" }), fluffyapi.Invalid},
		{"a type that is not there", with(func(in *fluffyapi.Create) { in.Type = "puff-3" }), fluffyapi.Invalid},
		{"a type that the region lacks", with(func(in *fluffyapi.Create) { in.Zone, in.Type = "west-a", "fluff-h100-8" }), fluffyapi.Invalid},
		{"an image", with(func(in *fluffyapi.Create) { in.Image = "ubuntu" }), fluffyapi.Invalid},
		{"a firewall that is not there", with(func(in *fluffyapi.Create) { in.Firewall = "f" }), fluffyapi.Invalid},
		{"a name that is taken", with(func(in *fluffyapi.Create) { in.Name = "taken" }), fluffyapi.NameTaken},
		{"a token of another request", with(func(in *fluffyapi.Create) { in.ClientToken = "taken" }), fluffyapi.TokenReused},
		{"a full zone", with(func(in *fluffyapi.Create) { in.Zone = "west-b" }), fluffyapi.NoCapacity},
		{"a used up quota", with(func(in *fluffyapi.Create) { in.Zone = "north-a" }), fluffyapi.QuotaExceeded},
		{"spot has a quota of its own", with(func(in *fluffyapi.Create) { in.Zone, in.Spot = "north-a", true }), ""},
	} {
		if _, err := a.Create(t.Context(), tt.in); code(err) != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := c.Account("bob", "owner").Create(t.Context(), create("taken")); err != nil {
		t.Errorf("names and tokens of one account are in the way of another: %v", err)
	}
	if _, err := c.Account("ann", "reader").Create(t.Context(), create("r")); code(err) != fluffyapi.Forbidden {
		t.Errorf("a reader touches: %v", err)
	}
}

func TestSpotInstancesThatNoLongerFitGetANotice(t *testing.T) {
	c, k := newCloud(t, nil)
	a := c.Account("ann", "owner")
	for n := range 4 {
		in := create(fmt.Sprint(n))
		in.Spot = n > 0 // one is paid in full
		must(a.Create(t.Context(), in))
	}
	k.advance(time.Minute)
	if err := c.SetCapacity("east-a", "puff-2", 2); err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for _, m := range c.Machines() {
		if m.TakenBack != nil {
			noticed++
		}
	}
	k.advance(2*time.Minute - time.Second)
	if n := count(c, fluffyapi.Running); noticed != 2 || n != 4 {
		t.Errorf("%d have a notice, %d run until it ends; want 2, 4", noticed, n)
	}
	k.advance(time.Minute)
	if n := count(c, fluffyapi.Running); n != 2 || c.Machines()[0].State != fluffyapi.Running {
		t.Errorf("%d run, want 2, among them the one that is paid in full", n)
	}
}

func count(c *Cloud, s fluffyapi.State) (n int) {
	for _, m := range c.Machines() {
		if m.State == s {
			n++
		}
	}
	return n
}

func TestTracesChangePricesAndCapacity(t *testing.T) {
	c, k := newCloud(t, nil)
	a := c.Account("ann", "owner")
	in := create("x")
	in.Spot = true
	i := must(a.Create(t.Context(), in))
	price, none := 0.5, 0
	err := c.Play([]Point{
		{After: 2 * time.Hour, Zone: "east-a", Type: "puff-2", Spot: true, Price: &price},
		{After: 3 * time.Hour, Zone: "east-a", Type: "puff-2", Capacity: &none},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Play([]Point{{Zone: "nowhere", Type: "puff-2"}}); code(err) != fluffyapi.Invalid {
		t.Errorf("a trace of nowhere: %v", err)
	}
	k.advance(4 * time.Hour)
	got := must(a.Instance(t.Context(), i.ID))
	if got.State != fluffyapi.Terminated || got.Reason == "" {
		t.Errorf("%s (%s) in a zone without capacity", got.State, got.Reason)
	}
	bills := c.Ledger()
	if len(bills) != 2 || bills[0].Price == price || bills[1].Price != price {
		t.Fatalf("%+v", bills)
	}
	if total := bills[1].Took(k.now); total != time.Hour+2*time.Minute { // to the end of the notice
		t.Errorf("%v at the second price", total)
	}
}

func TestSpotInstancesLiveAsLongAsTheySay(t *testing.T) {
	c, k := newCloud(t, func(cfg *Config) { cfg.SpotLife = 10 * time.Hour })
	a := c.Account("ann", "owner")
	for n := range 2000 {
		in := create(fmt.Sprint(n))
		in.Spot = true
		must(a.Create(t.Context(), in))
	}
	k.advance(1000 * time.Hour)
	var sum time.Duration
	for _, took := range c.Running() {
		sum += took
	}
	if mean := sum / 2000; mean < 9*time.Hour || mean > 11*time.Hour {
		t.Errorf("they lived for %v on average", mean)
	}
}

func TestCallsAreLimited(t *testing.T) {
	c, k := newCloud(t, func(cfg *Config) { cfg.CallRate, cfg.CallBurst = 2, 3 })
	a := c.Account("ann", "owner")
	for n, want := range []fluffyapi.Code{"", "", "", fluffyapi.Throttled} {
		if _, err := a.Account(t.Context()); code(err) != want {
			t.Errorf("call %d: %v", n, err)
		}
	}
	k.advance(500 * time.Millisecond)
	if _, err := a.Account(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFaultsStrikeWhereAndAsOftenAsTheySay(t *testing.T) {
	c, _ := newCloud(t, nil)
	a := c.Account("ann", "owner")
	ask := func() error { _, err := a.Account(t.Context()); return err }
	if err := c.Inject(Fault{ID: "f", Kind: Fail, Op: "instances.*", Code: fluffyapi.Forbidden, Times: 2}); err != nil {
		t.Fatal(err)
	}
	for n, want := range []fluffyapi.Code{fluffyapi.Forbidden, fluffyapi.Forbidden, ""} {
		if err := ask(); err != nil {
			t.Errorf("another operation: %v", err)
		}
		if _, err := a.Instances(t.Context(), fluffyapi.Query{}); code(err) != want {
			t.Errorf("call %d: %v, want %q", n, err, want)
		}
	}
	if left := c.Faults(); len(left) != 0 {
		t.Errorf("spent and still there: %+v", left)
	}
	if err := c.Inject(Fault{Kind: Throttle, Chance: 0.3}); err != nil {
		t.Fatal(err)
	}
	hit := 0
	for range 1000 {
		if ask() != nil {
			hit++
		}
	}
	if hit < 230 || hit > 370 {
		t.Errorf("a chance of 0.3 struck %d times of 1000", hit)
	}
	for _, bad := range []Fault{{Kind: "x"}, {Kind: Fail, Op: "["}} {
		if err := c.Inject(bad); code(err) != fluffyapi.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestHangsEndWithTheFaultOrTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Default(1))
		if err != nil {
			t.Fatal(err)
		}
		a := c.Account("ann", "owner")
		for _, times := range []int{0, 1} {
			if err := c.Inject(Fault{ID: "h", Kind: Hang, Times: times}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			time.AfterFunc(time.Hour, func() { c.Remove("h") })
			if _, err := a.Account(t.Context()); err != nil || time.Since(start) != time.Hour {
				t.Errorf("times %d: %v after %v", times, err, time.Since(start))
			}
		}
		if err := c.Inject(Fault{Kind: Hang}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.Account(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// random does anything that customers and operators do.
func random(ctx context.Context, c *Cloud, k *clock, rng *rand.Rand, steps int) {
	a := c.Account("ann", "owner")
	pick := func() string {
		if m := c.Machines(); len(m) > 0 {
			return m[rng.IntN(len(m))].ID
		}
		return "none"
	}
	for n := range steps {
		switch rng.IntN(10) {
		case 0, 1, 2:
			in := create(fmt.Sprintf("n%d", rng.IntN(30)))
			in.ClientToken = fmt.Sprintf("t%d", rng.IntN(steps))
			in.Spot = rng.IntN(2) == 0
			_, _ = a.Create(ctx, in)
		case 3:
			_, _ = a.Stop(ctx, pick())
		case 4:
			_, _ = a.Start(ctx, pick(), fluffyapi.Start{})
		case 5:
			_, _ = a.Terminate(ctx, pick())
		case 6:
			_ = c.Preempt(pick(), time.Duration(rng.IntN(100))*time.Second)
		case 7:
			_ = c.SetPrice("east-a", "puff-2", rng.IntN(2) == 0, float64(n))
			_ = c.SetCapacity("east-a", "puff-2", rng.IntN(20)-1)
		case 8:
			if rng.IntN(2) == 0 {
				_ = c.Kill(pick(), "broken")
			} else {
				_ = c.Halt(pick())
			}
		case 9:
			k.advance(time.Duration(rng.IntN(200)) * time.Second)
		}
	}
}

// TestWhatIsBilledIsWhatRan compares the ledger with the history, which is
// written in another place, and the counters with a count.
func TestWhatIsBilledIsWhatRan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, k := newCloud(t, func(cfg *Config) { cfg.SpotLife = time.Hour })
		random(t.Context(), c, k, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)), 300)
		ran, since := map[string]time.Duration{}, map[string]time.Time{}
		for _, h := range c.History() {
			if h.From == fluffyapi.Running {
				ran[h.Instance] += h.At.Sub(since[h.Instance])
				delete(since, h.Instance)
			}
			if h.To == fluffyapi.Running {
				since[h.Instance] = h.At
			}
		}
		for id, at := range since {
			ran[id] += k.now.Sub(at)
		}
		billed := c.Running()
		for id, d := range ran {
			if billed[id] != d {
				rt.Errorf("%s ran for %v and was billed for %v", id, d, billed[id])
			}
		}
		if len(billed) > len(ran) {
			rt.Errorf("%d were billed, %d ran", len(billed), len(ran))
		}
		used, quota := c.used, c.quota
		c.index()
		for key, n := range used {
			if n != c.used[key] {
				rt.Errorf("%s: %d are counted, %d are there", key, n, c.used[key])
			}
		}
		for key, n := range quota {
			if n != c.quota[key] {
				rt.Errorf("%s: a quota of %d is counted, %d is used", key, n, c.quota[key])
			}
		}
	})
}

func TestTheSameSeedIsTheSameCloud(t *testing.T) {
	run := func() []byte {
		c, k := newCloud(t, func(cfg *Config) { cfg.SpotLife = time.Hour })
		random(t.Context(), c, k, rand.New(rand.NewPCG(3, 4)), 2000)
		return must(c.Snapshot())
	}
	first, second := run(), run()
	var a, b any
	if err := errors.Join(json.Unmarshal(first, &a), json.Unmarshal(second, &b)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs differ")
	}
}

func TestARestoredCloudGoesOnAsIfNothingHadHappened(t *testing.T) {
	cfg := func(k *clock) Config {
		cfg := Default(7)
		cfg.Now, cfg.SpotLife = k.Now, time.Hour
		return cfg
	}
	k := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c := must(New(cfg(k)))
	random(t.Context(), c, k, rand.New(rand.NewPCG(5, 6)), 500)
	k2 := &clock{k.now}
	again := must(Restore(cfg(k2), must(c.Snapshot())))
	for _, pair := range []struct {
		c *Cloud
		k *clock
	}{{c, k}, {again, k2}} {
		random(t.Context(), pair.c, pair.k, rand.New(rand.NewPCG(7, 8)), 500)
	}
	if a, b := must(c.Snapshot()), must(again.Snapshot()); string(a) != string(b) {
		t.Error("they differ")
	}
	if _, err := Restore(cfg(k), []byte("{")); err == nil {
		t.Error("a damaged snapshot was taken")
	}
}

func TestAChangeThatCannotBeKeptIsNotAnswered(t *testing.T) {
	full := errors.New("disk full")
	c, _ := newCloud(t, func(cfg *Config) { cfg.Commit = func([]byte) error { return full } })
	if _, err := c.Account("ann", "owner").Create(t.Context(), create("x")); code(err) != fluffyapi.Internal {
		t.Errorf("%v", err)
	}
}

func TestListsComeInPages(t *testing.T) {
	c, _ := newCloud(t, func(cfg *Config) { cfg.PageSize = 10 })
	a := c.Account("ann", "owner")
	for n := range 57 {
		in := create(fmt.Sprint(n))
		in.Tags = map[string]string{"even": fmt.Sprint(n%2 == 0), "all": "yes"}
		must(a.Create(t.Context(), in))
	}
	must(c.Account("bob", "owner").Create(t.Context(), create("other")))
	for tags, want := range map[string]int{"": 57, "true": 29, "false": 28, "never": 0} {
		q := fluffyapi.Query{}
		if tags != "" {
			q.Tags = map[string]string{"even": tags, "all": "yes"}
		}
		seen := map[string]bool{}
		for _, i := range must(fluffyapi.All(t.Context(), q, a.Instances)) {
			seen[i.Name] = true
		}
		if len(seen) != want {
			t.Errorf("even=%s: %d, want %d", tags, len(seen), want)
		}
	}
	if offers := must(fluffyapi.All(t.Context(), fluffyapi.Query{}, a.Offers)); len(offers) != 10*12-3 { // no H100 in the west
		t.Errorf("%d offers", len(offers))
	}
}

func BenchmarkListAClusterAmongTenThousand(b *testing.B) {
	c, _ := newCloud(b, nil)
	a := c.Account("ann", "owner")
	for n := range 10_000 {
		in := create(fmt.Sprint(n))
		in.Tags = map[string]string{"cluster": fmt.Sprint(n / 4), "installation": "i"}
		must(a.Create(b.Context(), in))
	}
	for b.Loop() {
		must(a.Instances(b.Context(), fluffyapi.Query{Tags: map[string]string{"cluster": "77", "installation": "i"}}))
	}
}

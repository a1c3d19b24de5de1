package jobs

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/state/statetest"
)

// TestServersShareJobs lets three servers run jobs on one PostgreSQL, ends one
// of them as a power cut would, and sees the others take its jobs over. It reports
// how long that took and who has how many.
//
//	SKY_TEST_POSTGRES=postgres://… SKY_TEST_JOBS=3000 go test -run ServersShareJobs -v ./internal/jobs
func TestServersShareJobs(t *testing.T) {
	jobs := setting(t, "SKY_TEST_JOBS", 90)
	const servers = 3
	address := statetest.Postgres(t)
	c, provider, offers, err := newCloud(1, 4*jobs)
	if err != nil {
		t.Fatal(err)
	}
	c.Remove("bad-day")
	c.SetDelays(model.Delay{}, model.Delay{})
	o := &outside{
		steady: true, cloud: c, provider: provider, offers: offers, plans: map[int]*plan{},
		records: map[string]*row{}, machines: map[string]*gang{}, lastLost: map[attemptTask]loss{},
		listen: func() []*notify.Keyed[string] { return nil },
	}
	for id := 1; id <= jobs; id++ {
		o.plans[id] = &plan{nodes: 1, work: 1000 * time.Hour, left: 1000 * time.Hour, results: []int{0}}
	}
	var lives []*life
	dbs := make([]*state.Store, servers)
	for n := range servers {
		db, err := state.OpenPostgres(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		dbs[n] = db
		t.Cleanup(func() { db.Close() })
	}
	for n := range jobs {
		if _, err := dbs[0].ManagedJobs().Submit(t.Context(), &state.ManagedJob{
			RequestID: fmt.Sprint(n), Name: "j", UserHash: "u", SubmittedAt: time.Now(), Tasks: []*state.ManagedTask{{Name: "j"}},
			Dag: []byte("name: j\nresources: {use_spot: false}\nrun: work\n"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	for n, db := range dbs {
		ctx, cancel := context.WithCancel(context.Background())
		l := newLife(cancel)
		lives = append(lives, l)
		m := newManager(crashingDatabase{managedJobs: db.ManagedJobs(), d: stored{db}, l: l}, &fakeEnvironment{outside: o, life: l, changes: new(notify.Keyed[string])},
			slog.New(slog.DiscardHandler), serverName(n), t.TempDir(), 64)
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	wait := func(what string, f func() bool) time.Duration {
		t.Helper()
		start := time.Now()
		for !f() {
			if time.Since(start) > 5*time.Minute {
				t.Fatalf("%s: not within %v", what, time.Since(start))
			}
			time.Sleep(50 * time.Millisecond)
		}
		return time.Since(start)
	}
	took := wait("all jobs run", func() bool {
		page, err := dbs[0].ManagedJobs().List(t.Context(), state.ManagedFilter{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return page.Counts[api.ManagedRunning] == jobs
	})
	had := owners(t, address)
	t.Logf("%d jobs run after %v, by server: %v", jobs, took.Round(time.Millisecond), had)
	victim := 0 // the one with the most jobs
	for n := range servers {
		if had[serverName(n)] > had[serverName(victim)] {
			victim = n
		}
	}
	lost := had[serverName(victim)]
	lives[victim].light(0)
	_ = lives[victim].breath()
	var now map[string]int
	took = wait("the others have its jobs", func() bool {
		now = owners(t, address)
		others := 0
		for n := range servers {
			if n != victim {
				others += now[serverName(n)]
			}
		}
		return others == jobs
	})
	t.Logf("%d jobs of a dead server were taken over %v after its death, by server: %v", lost, took.Round(time.Millisecond), now)
	for _, v := range o.violations {
		t.Error(v)
	}
}

func serverName(n int) string { return fmt.Sprint("server", n) }

// owners counts the leases on jobs that hold, by server.
func owners(t *testing.T, address string) map[string]int {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT owner, COUNT(*) FROM leases WHERE name LIKE '" + state.ManagedLease + "%' AND expires > " +
		strconv.FormatInt(time.Now().UnixNano(), 10) + " GROUP BY owner")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var owner string
		var n int
		if err := rows.Scan(&owner, &n); err != nil {
			t.Fatal(err)
		}
		out[owner] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

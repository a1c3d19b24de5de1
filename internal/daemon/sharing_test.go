package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// sharing is another server of the same database, which knows that it shares it.
func sharing(d *daemon) *daemon {
	return &daemon{o: d.o, dir: d.dir, log: d.log, store: d.store.AsShared(), settings: d.settings}
}

// alone is a server with no more than a database of its own.
func alone(t *testing.T) *daemon {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &daemon{store: s, log: slog.New(slog.DiscardHandler), o: Options{Home: t.TempDir()}}
}

// Work that several servers share is done by one of them in each period.
func TestADutyIsDoneOncePerPeriodByAllServersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		single := alone(t)
		one, two := sharing(single), sharing(single)
		done := 0
		for i, step := range []struct {
			d     *daemon
			later time.Duration
			want  int
		}{
			{one, 0, 1}, {two, 0, 1}, {one, 30 * time.Second, 1}, // somebody just did
			{two, 30 * time.Second, 2}, {one, time.Second, 2},
			{single, 0, 3}, {single, 0, 4}, // who shares with nobody takes no turns
		} {
			time.Sleep(step.later)
			if step.d.oncePer(t.Context(), time.Minute, "dusting", func(context.Context) { done++ }); done != step.want {
				t.Errorf("step %d: done %d times, not %d", i, done, step.want)
			}
		}
	})
}

// Servers that share a database are told apart, and use one ssh key for a user.
func TestWhatServersOfOneDatabaseHaveInCommon(t *testing.T) {
	single := alone(t)
	one, two := sharing(single), sharing(single)
	one.instance, two.instance = "1", "2"
	if single.serverID() != "local" || one.serverID() == two.serverID() {
		t.Errorf("servers are called %s, %s, %s", single.serverID(), one.serverID(), two.serverID())
	}
	if single.machine() != "" || one.machine() == "" || single.requestLogs() != nil || one.requestLogs() == nil || single.shareKey() != nil {
		t.Error("a server with a database of its own counts as one of several, or the other way round")
	}
	for _, d := range []*daemon{one, two} {
		if key, err := d.shareKey()("u", []byte("key of "+d.instance)); err != nil || string(key) != "key of 1" {
			t.Errorf("server %s uses %q, %v", d.instance, key, err)
		}
	}
}

// The generation of a shared database moves on with time, and each step is noted
// beside it: an older copy is known by that.
func TestTheGenerationOfASharedDatabaseMovesOn(t *testing.T) {
	single := alone(t)
	var noted int64
	note := func(generation int64) error { noted = generation; return nil }
	single.note = note
	if single.advance(t.Context()); noted != 0 {
		t.Errorf("a database of one server moved to %d by itself", noted)
	}
	shared := sharing(single)
	shared.note = note
	for i := range int64(2) {
		if shared.advance(t.Context()); noted != i+1 {
			t.Errorf("step %d: generation %d is noted", i, noted)
		}
	}
}

// settingsOf are the settings of one server of a database.
func settingsOf(t *testing.T, d *daemon) *settings {
	t.Helper()
	s, err := loadSettings(t.TempDir(), d.log)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.inDatabase(t.Context(), d.store); err != nil {
		t.Fatal(err)
	}
	return s
}

// What one server changes in the configuration holds for the others soon.
func TestServersOfOneDatabaseShareTheirConfiguration(t *testing.T) {
	t.Setenv("SKYPILOT_GLOBAL_CONFIG", "")
	t.Setenv(config.EnvDatabase, "postgres://nobody@127.0.0.1:1/none") // never opened here
	synctest.Test(t, func(t *testing.T) {
		d := sharing(alone(t))
		one, two := settingsOf(t, d), settingsOf(t, d)
		hours := func(s *settings) int { return s.current().Int("api_server", "requests_retention_hours") }
		was := hours(two)
		set := func(ctx context.Context, s *settings, to any) error {
			return s.edit(ctx, func(*config.Config) ([]string, any, error) {
				return []string{"api_server", "requests_retention_hours"}, to, nil
			})
		}
		wants(t, "one server changes it", set(t.Context(), one, 7), "")
		if hours(one) != 7 || hours(two) != was {
			t.Errorf("at once %d and %d", hours(one), hours(two))
		}
		if time.Sleep(askEvery); hours(two) != 7 {
			t.Errorf("later the other one has %d", hours(two))
		}
		if _, err := os.Stat(two.file); err == nil {
			t.Error("it was written into a file")
		}
		wants(t, "what is not valid", set(t.Context(), one, "many"), "requests_retention_hours")
		// A server that edits keeps the others waiting, until it is done or has died.
		release, err := one.alone(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond) // between two tries
		defer cancel()
		wants(t, "two at once", set(soon, two, 8), "another server")
		began := time.Now()
		wants(t, "after the other one died", set(t.Context(), two, 8), "")
		if waited := time.Since(began); waited > editTime+time.Second || hours(two) != 8 {
			t.Errorf("it took %v", waited)
		}
		release()
		wants(t, "removing it", set(t.Context(), one, nil), "")
		if time.Sleep(askEvery); hours(one) != was || hours(two) != was {
			t.Errorf("removed: %d and %d, not %d", hours(one), hours(two), was)
		}
	})
}

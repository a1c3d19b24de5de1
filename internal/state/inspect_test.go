package state

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/envelope"
)

// A database says whose it is and how old, before anything in it is changed.
func TestAFileIsKnownBeforeItIsOpened(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sky.db")
	look := func(path string) Found {
		t.Helper()
		return must(Inspect(t.Context(), path))(t)
	}
	if f := look(path); !f.Missing || !f.Checked {
		t.Errorf("there is none: %+v", f)
	}
	ok(t, os.WriteFile(path, nil, 0o600))
	if f := look(path); f.Missing || !f.Empty {
		t.Errorf("an empty file: %+v", f)
	}
	s := must(Open(t.Context(), path))(t)
	if f := look(path); !f.Empty || !f.Checked || f.Damage != nil {
		t.Errorf("nobody's: %+v", f)
	}
	owner, first, err := s.Claim(t.Context(), "mine", 0)
	ok(t, err)
	if owner != "mine" || first < 1 {
		t.Errorf("claimed: %s, %d", owner, first)
	}
	if owner, _, err := s.Claim(t.Context(), "theirs", 1000); err != nil || owner != "mine" {
		t.Errorf("claimed by another: %s, %v", owner, err)
	}
	past := must(s.Advance(t.Context()))(t)
	if past <= first || past > 100 {
		t.Errorf("another's generation counts: %d after %d", past, first)
	}
	if _, g, err := s.Claim(t.Context(), "mine", past+50); err != nil || g != past+51 {
		t.Errorf("moved past what is known elsewhere: %d, %v", g, err)
	}
	want := must(s.Generation(t.Context()))(t)
	ok(t, s.Check(t.Context()))
	ok(t, s.Close())
	if f := look(path); f.ID != "mine" || f.Generation != want || f.Empty {
		t.Errorf("%+v, want generation %d", f, want)
	}
	refused := errors.New("not this one")
	if _, err := OpenIf(t.Context(), path, func(f Found) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("opened although it was refused: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	} else {
		const page = 4096
		for at := page; at < len(text); at += page { // the header of every page but the first
			for i := range 8 {
				text[at+i] ^= 0xff
			}
		}
		ok(t, os.WriteFile(path, text, 0o600))
	}
	f, err := Inspect(t.Context(), path)
	if err == nil && f.Damage == nil {
		t.Errorf("damage is not seen: %+v", f)
	}
	ok(t, os.WriteFile(path, []byte(strings.Repeat("this is no database ", 500)), 0o600))
	if f := look(path); f.Damage == nil {
		t.Errorf("a text file: %+v", f)
	}
}

// A copy is what the database was at one moment, with what only the log beside it
// holds, and never written over something.
func TestACopyIsTheDatabaseAtOneMoment(t *testing.T) {
	s := openTest(t)
	ok(t, s.Settings().Set(t.Context(), "a", []byte("1")))
	dir := t.TempDir()
	path, again := filepath.Join(dir, "copy.db"), filepath.Join(dir, "again.db")
	ok(t, s.Snapshot(t.Context(), path))
	ok(t, s.Settings().Set(t.Context(), "a", []byte("2")))
	ok(t, SnapshotFile(t.Context(), path, again))
	for _, p := range []string{path, again} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", p, info.Mode(), err)
		}
		c := must(Open(t.Context(), p))(t)
		if got := must(c.Settings().Get(t.Context(), "a"))(t); string(got) != "1" {
			t.Errorf("%s holds %q", p, got)
		}
		if have, want := must(c.Schema(t.Context()))(t), must(s.Schema(t.Context()))(t); have != want || have == 0 {
			t.Errorf("schema %d, want %d", have, want)
		}
		ok(t, c.Close())
	}
	if err := s.Snapshot(t.Context(), path); err == nil {
		t.Error("written over a file")
	}
	if err := s.AsShared().Snapshot(t.Context(), filepath.Join(dir, "x")); !errors.Is(err, ErrShared) {
		t.Errorf("of a shared database: %v", err)
	}
}

func TestSettingsAreListedByTheirBeginning(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		for name, v := range map[string]string{"user/a": "1", "user/b": "2", "use": "3", "workspace/x": "secret"} {
			ok(t, s.Settings().Set(t.Context(), name, []byte(v)))
		}
		got := must(s.Settings().List(t.Context(), "user/"))(t)
		same(t, "listed", got, map[string][]byte{"user/a": []byte("1"), "user/b": []byte("2")})
		same(t, "opened", must(s.Settings().List(t.Context(), "workspace/"))(t), map[string][]byte{"workspace/x": []byte("secret")})
		ok(t, s.Settings().Delete(t.Context(), "user/a"))
		ok(t, s.Settings().Delete(t.Context(), "user/a"))
		_, err := s.Settings().Get(t.Context(), "user/a")
		is(t, err, ErrNotFound)
	})
}

// Of two servers that bring a new key one wins, and a key is done with only while it
// is the current one.
func TestTheCurrentKeyIsTheLatest(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		keys := s.EncryptionKeys()
		one, two := envelope.NewKey(), envelope.NewKey()
		ok(t, keys.Add(t.Context(), EncryptionKey{Number: 1, ID: one.ID(), Source: "file"}))
		is(t, keys.Add(t.Context(), EncryptionKey{Number: 1, ID: two.ID(), Source: "other"}), ErrConflict)
		ok(t, keys.Add(t.Context(), EncryptionKey{Number: 2, ID: two.ID(), Source: "file", Wrapped: []byte("w")}))
		is(t, keys.Finish(t.Context(), 1), ErrConflict)
		if list := must(keys.List(t.Context()))(t); len(list) != 2 || list[0].Number != 2 || !list[1].RetiredAt.IsZero() || list[0].Complete {
			t.Errorf("%+v", list)
		}
		ok(t, keys.Finish(t.Context(), 2))
		list := must(keys.List(t.Context()))(t)
		if !list[0].Complete || list[1].RetiredAt.IsZero() || !list[0].RetiredAt.IsZero() || string(list[0].Wrapped) != "w" || list[1].ID != one.ID() {
			t.Errorf("%+v", list)
		}
	})
}

func TestAScopeIsWhatItsCallerMayTouch(t *testing.T) {
	var all *Scope
	some, none := &Scope{User: "ann", Workspaces: []string{"default", "x"}}, &Scope{User: "bob"}
	for _, tt := range []struct {
		scope      *Scope
		workspace  string
		user       string
		sees, owns bool
	}{
		{all, "y", "bob", true, true},
		{some, "x", "ann", true, true},
		{some, "", "bob", true, false},
		{some, "y", "", false, false},
		{none, "", "bob", false, true},
	} {
		if tt.scope.Sees(tt.workspace) != tt.sees || tt.scope.Owns(tt.user) != tt.owns {
			t.Errorf("%+v, %q, %q: sees %v, owns %v", tt.scope, tt.workspace, tt.user, !tt.sees, !tt.owns)
		}
	}
	if all.Within() != nil || len(none.Within()) == 0 {
		t.Error("nobody's workspaces are all")
	}
}

// The first word on how a job ended counts, and one of an attempt that is unknown is
// dropped.
func TestTheFirstReportCounts(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		jobs := s.ManagedJobs()
		j := must(jobs.Submit(t.Context(), newManaged("a", 1)))(t)
		if live := must(jobs.Live(t.Context()))(t); len(live) != 1 || live[0] != j.ID {
			t.Errorf("live: %v", live)
		}
		l, _, err := s.Leases().Acquire(t.Context(), fmt.Sprint(ManagedLease, j.ID), "s1", time.Hour)
		ok(t, err)
		j = must(jobs.Adopt(t.Context(), j.ID, l))(t)
		a := &ManagedAttempt{JobID: j.ID, Number: 1, ClusterName: "c", StartedAt: time.Now()}
		ok(t, jobs.Save(t.Context(), ManagedChange{Job: j, Attempt: a}))
		for _, r := range []ManagedReport{{ClusterHash: "h", ClusterJob: 1, Status: "SUCCEEDED"}, {ClusterHash: "h", ClusterJob: 1, Status: "FAILED"}} {
			ok(t, jobs.Report(t.Context(), j.ID, 0, 1, r))
			ok(t, jobs.Report(t.Context(), j.ID, 0, 7, r))
		}
		got := must(jobs.Attempt(t.Context(), j.ID, 0, 1))(t)
		if got.Report == nil || got.Report.Status != "SUCCEEDED" {
			t.Errorf("%+v", got.Report)
		}
		ok(t, jobs.Note(t.Context(), ManagedEvent{JobID: j.ID, Task: 0, Code: "CALLBACK", Reason: "done", At: time.Now()}))
		if e := must(jobs.Events(t.Context(), j.ID, -1, 1))(t); len(e) != 1 || e[0].Reason != "done" {
			t.Errorf("%+v", e)
		}
	})
}

func TestRequestsThatNobodyFinishesAreEnded(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ok(t, s.Requests().Create(t.Context(), &Request{ID: "a", Name: "sky.x", Status: "PENDING", CreatedAt: time.Now()}))
		n, err := s.Requests().EndAll(t.Context(), []byte(`"over"`))
		if err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
		if r := must(s.Requests().Get(t.Context(), "a"))(t); r.Status != "FAILED" || string(r.Error) != `"over"` || r.FinishedAt.IsZero() {
			t.Errorf("%+v", r)
		}
		if n, err := s.Requests().EndAll(t.Context(), nil); err != nil || n != 0 {
			t.Errorf("again: %d, %v", n, err)
		}
	})
}

// What is secret is not printed by whatever way it is printed.
func TestASealedValueIsNotPrinted(t *testing.T) {
	v := Seal([]byte("hush"))
	text, err := v.MarshalText()
	ok(t, err)
	for _, got := range []string{fmt.Sprint(v), fmt.Sprintf("%#v", v), fmt.Sprintf("%+v", struct{ V Sealed }{v}), v.LogValue().String(), string(text), slog.Any("v", v).String()} {
		if strings.Contains(got, "hush") || !strings.Contains(got, "<redacted>") {
			t.Errorf("%s", got)
		}
	}
	if plain, err := v.Open(); err != nil || string(plain) != "hush" || !v.Equal(Seal([]byte("hush"))) || v.Equal(Seal([]byte("loud"))) {
		t.Errorf("%q, %v", plain, err)
	}
}

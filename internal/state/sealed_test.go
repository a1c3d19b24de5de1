package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/envelope"
)

// planted stands in every place where a secret may be.
const planted = "hunter2-planted-secret"

// plant writes rows with secrets everywhere and returns the ids of a request and
// a job that have not ended.
func plant(t *testing.T, s *Store) (request string, job int) {
	t.Helper()
	ctx := t.Context()
	r := &Request{ID: "r1", Name: "sky.launch", Status: api.RequestRunning, OwnerID: "local", Attempt: 1, CreatedAt: day,
		Body: []byte(`{"task":"secrets: {A: ` + planted + `}","cluster_name":"c1"}`)}
	ok(t, s.Requests().Create(ctx, r))
	ok(t, s.Requests().SetState(ctx, r, []byte(`{"s":"`+planted+`"}`)))
	done := &Request{ID: "r2", Name: "sky.validate", Status: api.RequestSucceeded, CreatedAt: day, FinishedAt: day,
		Body: []byte(`{"task":"` + planted + `"}`), ReturnValue: []byte(`"` + planted + `"`)}
	ok(t, s.Requests().Create(ctx, done))
	c := fullCluster("c1")
	c.Certs = Seal([]byte(planted))
	ok(t, s.Clusters().Create(ctx, c))
	m := &ManagedJob{RequestID: "r3", Name: "j", Dag: []byte("name: j\nrun: echo\nsecrets:\n  A: " + planted + "\n"), Config: []byte(`{"x":"` + planted + `"}`),
		SubmittedAt: day, Tasks: []*ManagedTask{{Name: "j"}}}
	j, err := s.ManagedJobs().Submit(ctx, m)
	ok(t, err)
	_, err = s.ManagedSchedules().Submit(ctx, &ManagedSchedule{RequestID: "r4", Name: "s", Cron: "@daily", Job: m, SubmittedAt: day, NextAt: day})
	ok(t, err)
	ok(t, s.Logins().Put(ctx, "challenge", planted, s.Now().Add(time.Hour)))
	for _, name := range []string{"jwt_secret", "ssh-key/u", "config", "workspace/w"} {
		ok(t, s.Settings().Set(ctx, name, []byte(planted)))
	}
	return r.ID, j.ID
}

// everything is every value of every table as text.
func everything(t *testing.T, s *Store) string {
	t.Helper()
	ctx := t.Context()
	query := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if s.Shared() {
		query = "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()"
	}
	tables, err := all(s.read(ctx), func(n *string) []any { return []any{text(n)} }, query)
	ok(t, err)
	var b strings.Builder
	for _, name := range tables {
		rows, err := s.read(ctx).query(ctx, "SELECT * FROM "+*name, nil)
		ok(t, err)
		cols, err := rows.Columns()
		ok(t, err)
		for rows.Next() {
			values := make([]any, len(cols))
			dest := make([]any, len(cols))
			for i := range values {
				dest[i] = &values[i]
			}
			ok(t, rows.Scan(dest...))
			for i, v := range values {
				fmt.Fprintf(&b, "%s.%s = %s\n", *name, cols[i], v)
			}
		}
		ok(t, rows.Err())
		rows.Close()
	}
	return b.String()
}

func noSecrets(t *testing.T, s *Store) {
	t.Helper()
	for line := range strings.Lines(everything(t, s)) {
		if strings.Contains(line, planted) {
			t.Errorf("in clear: %.200s", line)
		}
	}
}

// reseal runs to the end and counts.
func reseal(t *testing.T, s *Store) (sum Resealed) {
	t.Helper()
	var at ResealMark
	for !at.Done {
		r, err := s.Reseal(t.Context(), &at)
		ok(t, err)
		sum.Changed += r.Changed
		sum.Lost = append(sum.Lost, r.Lost...)
	}
	return sum
}

func TestNoTableHoldsASecretInClear(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		request, job := plant(t, s)
		noSecrets(t, s)
		r, err := s.Requests().Get(t.Context(), request)
		ok(t, err)
		if !bytes.Contains(r.Body, []byte(planted)) || !bytes.Contains(r.State, []byte(planted)) {
			t.Errorf("body %s, state %s", r.Body, r.State)
		}
		j, err := s.ManagedJobs().Get(t.Context(), job)
		ok(t, err)
		if !bytes.Contains(j.Dag, []byte(planted)) || !bytes.Contains(j.Config, []byte(planted)) {
			t.Errorf("dag %s, config %s", j.Dag, j.Config)
		}
		c, err := s.Clusters().Get(t.Context(), "c1")
		ok(t, err)
		if certs, err := c.Certs.Open(); string(certs) != planted {
			t.Errorf("certs %s %v", certs, err)
		}
		ok(t, s.Clusters().Save(t.Context(), c))
		due, err := s.ManagedSchedules().Due(t.Context())
		ok(t, err)
		if len(due) != 1 || !bytes.Contains(due[0].Job.Dag, []byte(planted)) {
			t.Error(due)
		}
		if v, err := s.Settings().Get(t.Context(), "jwt_secret"); string(v) != planted {
			t.Error(v, err)
		}
		if v, err := s.Logins().Take(t.Context(), "challenge"); v != planted {
			t.Error(v, err)
		}
	})
}

func TestNoFileOfTheDatabaseHoldsASecretInClear(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	path := filepath.Join(dir, "sky.db")
	s, err := Open(ctx, path)
	ok(t, err)
	defer s.Close()
	plant(t, s) // as an earlier sky did
	if !inFiles(t, dir) {
		t.Fatal("the test plants nothing")
	}
	s.Unlock(envelope.NewRing(envelope.NewKey()))
	if r := reseal(t, s); r.Changed == 0 || len(r.Lost) > 0 {
		t.Error(r)
	}
	noSecrets(t, s)
	ok(t, s.ClearFree(ctx))
	if inFiles(t, dir) {
		t.Error("a file of the database still holds a secret after everything was encrypted")
	}
	if r := reseal(t, s); r.Changed > 0 {
		t.Errorf("the second pass changed %d values", r.Changed)
	}
}

func inFiles(t *testing.T, dir string) (found bool) {
	entries, err := os.ReadDir(dir)
	ok(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		ok(t, err)
		if bytes.Contains(b, []byte(planted)) {
			t.Log(e.Name())
			found = true
		}
	}
	return found
}

func TestRowsInClearAreReadUntilTheyAreEncrypted(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ring := s.ring.Swap(nil)
		request, job := plant(t, s)
		s.Unlock(ring)
		r, err := s.Requests().Get(t.Context(), request)
		ok(t, err)
		if !bytes.Contains(r.Body, []byte(planted)) {
			t.Errorf("%s", r.Body)
		}
		if r := reseal(t, s); r.Changed < 10 || len(r.Lost) > 0 {
			t.Error(r)
		}
		noSecrets(t, s)
		j, err := s.ManagedJobs().Get(t.Context(), job)
		ok(t, err)
		if !bytes.Contains(j.Dag, []byte(planted)) {
			t.Errorf("%s", j.Dag)
		}
	})
}

func TestAnotherKeyTakesOverAndTheOldOneIsNotNeeded(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		request, _ := plant(t, s)
		s.ring.Load().Use(envelope.NewKey())
		if r := reseal(t, s); r.Changed < 10 || len(r.Lost) > 0 {
			t.Error(r)
		}
		s.Unlock(envelope.NewRing(s.ring.Load().Current())) // without the old one
		if r := reseal(t, s); r.Changed > 0 || len(r.Lost) > 0 {
			t.Error(r)
		}
		r, err := s.Requests().Get(t.Context(), request)
		ok(t, err)
		if !bytes.Contains(r.Body, []byte(planted)) {
			t.Errorf("%s", r.Body)
		}
		noSecrets(t, s)
	})
}

// Without its keys a server says so: what is encrypted is not read as empty.
func TestAStoreWithoutKeysSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := must(Open(t.Context(), path))(t)
	s.Unlock(envelope.NewRing(envelope.NewKey()))
	ok(t, s.Requests().Create(t.Context(), fullRequest("aa")))
	ok(t, s.Close())
	s = must(Open(t.Context(), path))(t)
	defer s.Close()
	if _, err := s.Requests().Get(t.Context(), "aa"); !errors.Is(err, ErrLocked) {
		t.Errorf("read without keys: %v", err)
	}
}

func TestAValueMovedToAnotherRowIsRefused(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		plant(t, s)
		ok(t, s.Requests().Create(t.Context(), &Request{ID: "thief", Name: "sky.launch", Status: api.RequestPending, CreatedAt: day}))
		ok(t, s.write(t.Context(), func(w *session) error {
			_, err := w.exec("UPDATE requests SET body = (SELECT body FROM requests WHERE id = 'r1') WHERE id = 'thief'")
			return err
		}))
		if _, err := s.Requests().Get(t.Context(), "thief"); !errors.Is(err, envelope.ErrForged) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestWhatHasEndedKeepsNoSecret(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		request, job := plant(t, s)
		r, err := s.Requests().Get(ctx, request)
		ok(t, err)
		r.Status = api.RequestSucceeded
		ok(t, s.Requests().Finish(ctx, r))
		for _, id := range []string{"r1", "r2"} {
			r, err = s.Requests().Get(ctx, id)
			ok(t, err)
			if bytes.Contains(r.Body, []byte(planted)) {
				t.Errorf("%s keeps %s", id, r.Body)
			}
		}
		ok(t, s.Requests().Create(ctx, &Request{ID: "r9", Name: "sky.launch", Status: api.RequestPending, CreatedAt: day, Body: []byte(`{"task":"` + planted + `"}`)}))
		if r, err = s.Requests().Cancel(ctx, "r9"); err != nil || len(r.Body) > 0 {
			t.Errorf("%s %v", r.Body, err)
		}
		_, err = s.ManagedJobs().AskCancel(ctx, []int{job}, 0)
		ok(t, err)
		j, err := s.ManagedJobs().Get(ctx, job)
		ok(t, err)
		if bytes.Contains(j.Dag, []byte(planted)) || !bytes.Contains(j.Dag, []byte("run: echo")) || len(j.Config) > 0 {
			t.Errorf("the job keeps %s and %s", j.Dag, j.Config)
		}
		ended, err := s.ManagedSchedules().End(ctx, []int{1})
		ok(t, err)
		m, err := s.ManagedSchedules().Get(ctx, ended[0])
		ok(t, err)
		if bytes.Contains(m.Job.Dag, []byte(planted)) {
			t.Errorf("the schedule keeps %s", m.Job.Dag)
		}
	})
}

func TestALostKeyEndsWhatItsSecretsAreFor(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		request, job := plant(t, s)
		s.Unlock(envelope.NewRing(envelope.NewKey()))
		lost := reseal(t, s).Lost
		if len(lost) < 10 {
			t.Fatal(lost)
		}
		for range 2 { // a crash begins again
			ok(t, s.GiveUp(ctx, lost, "the key was lost"))
		}
		if r := reseal(t, s); len(r.Lost) > 0 {
			t.Error(r.Lost)
		}
		r, err := s.Requests().Get(ctx, request)
		ok(t, err)
		if r.Status != api.RequestFailed || !bytes.Contains(r.Error, []byte("the key was lost")) {
			t.Errorf("%s %s", r.Status, r.Error)
		}
		j, err := s.ManagedJobs().Get(ctx, job)
		ok(t, err)
		if j.Schedule != api.ScheduleDone || j.Tasks[0].Status != api.ManagedCancelled {
			t.Error(j, j.Tasks[0].Status)
		}
		c, err := s.Clusters().Get(ctx, "c1")
		ok(t, err)
		if certs, err := c.Certs.Open(); len(certs) > 0 || err != nil {
			t.Error(certs, err)
		}
		list, err := s.ManagedSchedules().List(ctx, ScheduleFilter{Live: true})
		ok(t, err)
		if len(list) > 0 {
			t.Error(list)
		}
	})
}

func TestTheBodyOfWhatHasEnded(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"names stay", `{"cluster_name":"c1","job_ids":[1,2],"all":true,"tail":0,"names":["a*","b"]}`, `{"all":true,"cluster_name":"c1","job_ids":[1,2],"names":["a*","b"],"tail":0}`},
		{"tasks go", `{"task":"run: x","dag":"a\nb"}`, `{"dag":"<redacted>","task":"<redacted>"}`},
		{"what sounds secret goes", `{"password":"x","token_name":"x","private_key":"k"}`, `{"password":"<redacted>","private_key":"<redacted>","token_name":"<redacted>"}`},
		{"assignments and addresses with passwords go", `{"name":"A=b","cluster_name":"https://u:p@h/"}`, `{"cluster_name":"<redacted>","name":"<redacted>"}`},
		{"of variables stays who asked", `{"env_vars":{"SKYPILOT_USER_ID":"u","SKYPILOT_DOCKER_PASSWORD":"p"}}`, `{"env_vars":{"SKYPILOT_USER_ID":"u"}}`},
		{"of the configuration stays the workspace", `{"override_skypilot_config":{"active_workspace":"w","x":{"token":"t"}}}`, `{"override_skypilot_config":{"active_workspace":"w"}}`},
		{"maps go", `{"envs":{"A":"b"},"client_info":{}}`, `{"client_info":null,"envs":null}`},
		{"lists of what may be secret go", `{"args":["--key=x"],"things":[{"a":1}],"token_ids":7}`, `{"args":null,"things":null,"token_ids":null}`},
		{"what is no object goes", `[1]`, ``},
	} {
		if got := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(retained([]byte(tt.body)))); got != tt.want {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

package state

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/envelope"
)

var errRefused = errors.New("statement refused by the test")

// refusal makes one statement of an open store fail.
type refusal struct {
	querier
	at   int // the statement that fails, counted from 1; 0: none
	seen int // statements so far
	how  failing
}

// failing is how a statement fails.
type failing string

const (
	atOnce  failing = "failed"
	inRows  failing = "failed as its rows were read"
	nothing failing = "found nothing" // as if somebody else had changed the row
)

func (r *refusal) next() bool {
	r.seen++
	return r.seen == r.at
}

func (r *refusal) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if r.next() {
		if r.how == nothing {
			return driver.RowsAffected(0), nil
		}
		return nil, errRefused
	}
	return r.querier.ExecContext(ctx, query, args...)
}

func (r *refusal) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if !r.next() {
		return r.querier.QueryContext(ctx, query, args...)
	}
	switch r.how {
	case atOnce:
		return nil, errRefused
	case nothing:
		return r.querier.QueryContext(ctx, "SELECT 1 WHERE FALSE")
	}
	ctx, cut := context.WithCancelCause(ctx)
	rows, err := r.querier.QueryContext(ctx, query, args...)
	cut(errRefused)
	for err == nil && rows.Err() == nil { // the rows close by themselves
		time.Sleep(time.Microsecond)
	}
	return rows, err
}

// on is the same open store with its statements run by r.
func (r *refusal) on(s *Store) *Store {
	through := func(q *session) *session {
		c := *q.once()
		c.db, r.querier = r, q.db
		return &c
	}
	db := *s.db
	write, read := db.write, db.read
	db.write = func(ctx context.Context, f func(*session) error) error {
		return write(ctx, func(q *session) error {
			err := f(through(q))
			if err == nil && r.how == nothing && r.seen >= r.at {
				return errRefused // what it made of that is of no interest
			}
			return err
		})
	}
	db.read = func(ctx context.Context) *session { return through(read(ctx)) }
	g := *s
	g.db = &db
	return &g
}

// digest tells apart what is in the tables of a database.
func digest(t *testing.T, s *Store) string {
	t.Helper()
	q := s.read(t.Context()).once()
	tables := must(all(q, func(name *string) []any { return []any{name} }, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"))(t)
	sum := sha256.New()
	for _, table := range tables {
		rows := must(q.query(t.Context(), "SELECT * FROM "+*table, nil))(t)
		columns := must(rows.Columns())(t)
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			ok(t, rows.Scan(values...))
			for _, v := range values {
				fmt.Fprintf(sum, "%s %q\n", *table, *v.(*any))
			}
		}
		ok(t, rows.Err())
		rows.Close()
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// A step of a store's life. What it takes from earlier ones is read anew each
// time, so that it can be tried again.
type lifeStep struct {
	name string
	do   func(ctx context.Context, s *Store) error
	// reads: it reads what it has written. If that fails, it is made again.
	reads bool
}

// aLife uses every table, in an order in which each step succeeds.
func aLife() []*lifeStep {
	var steps []*lifeStep
	step := func(name string, do func(ctx context.Context, s *Store) error) *lifeStep {
		steps = append(steps, &lifeStep{name: name, do: do})
		return steps[len(steps)-1]
	}

	later := time.Now().Add(time.Hour)

	step("a user is made", func(ctx context.Context, s *Store) error {
		return s.Users().Create(ctx, User{ID: "u1", Name: "ann", Role: "user"}, "hash")
	})
	step("a user is known", func(ctx context.Context, s *Store) error {
		_, err := s.Users().Touch(ctx, User{ID: "u1", Name: "anna"})
		return err
	})
	step("an administrator is made", func(ctx context.Context, s *Store) error {
		return s.Users().SeedAdmin(ctx, User{ID: "root", Name: "root"}, "hash")
	})
	step("a password is set", func(ctx context.Context, s *Store) error { return s.Users().SetPassword(ctx, "u1", "h2") })
	step("a workspace is preferred", func(ctx context.Context, s *Store) error { return s.Users().Prefer(ctx, "u1", "team") })
	step("users are listed", func(ctx context.Context, s *Store) error {
		_, err := s.Users().List(ctx)
		return err
	})
	step("passwords are read", func(ctx context.Context, s *Store) error {
		_, err := s.Users().Credential(ctx, "u1")
		return err
	})
	step("all passwords are read", func(ctx context.Context, s *Store) error {
		_, err := s.Users().Credentials(ctx)
		return err
	})
	step("a token is made", func(ctx context.Context, s *Store) error {
		return s.Tokens().Create(ctx, Token{ID: "t1", Name: "ci", Hash: "x", AccountID: "sa", CreatorID: "u1"}, User{ID: "sa", Name: "ci", Role: "user"})
	})
	step("another token is made", func(ctx context.Context, s *Store) error {
		return s.Tokens().Create(ctx, Token{ID: "t2", Name: "cd", Hash: "y", AccountID: "sb", CreatorID: "u1"}, User{ID: "sb", Name: "cd", Role: "user"})
	})
	step("a role is lowered", func(ctx context.Context, s *Store) error { return s.Users().SetRole(ctx, "u1", "viewer") })
	step("tokens are read", func(ctx context.Context, s *Store) error {
		_, err := s.Tokens().Get(ctx, "t1")
		_, err2 := s.Tokens().ByHash(ctx, "x")
		_, err3 := s.Tokens().List(ctx, "u1")
		return errors.Join(err, err2, err3)
	})
	step("a token is rotated", func(ctx context.Context, s *Store) error { return s.Tokens().Rotate(ctx, "t1", "z", later) })
	step("a token is used", func(ctx context.Context, s *Store) error { return s.Tokens().Used(ctx, "t1", day) })
	step("a token is deleted", func(ctx context.Context, s *Store) error { return s.Tokens().Delete(ctx, "t1") })
	step("a login waits", func(ctx context.Context, s *Store) error { return s.Logins().Put(ctx, "c", "token", later) })
	step("a login is taken", func(ctx context.Context, s *Store) error {
		_, err := s.Logins().Take(ctx, "c")
		return err
	})

	step("a setting is set", func(ctx context.Context, s *Store) error { return s.Settings().Set(ctx, "config", []byte("a: 1")) })
	step("a setting is set once", func(ctx context.Context, s *Store) error {
		_, err := s.Settings().SetIfAbsent(ctx, "jwt_secret", []byte("x"))
		return err
	})
	step("settings are read", func(ctx context.Context, s *Store) error {
		_, err := s.Settings().Get(ctx, "config")
		_, err2 := s.Settings().List(ctx, "c")
		return errors.Join(err, err2)
	})
	step("a setting goes", func(ctx context.Context, s *Store) error { return s.Settings().Delete(ctx, "config") })

	step("a stream grows", func(ctx context.Context, s *Store) error {
		return s.Streams().Append(ctx, "logs/1", Piece{Data: []byte("one")})
	})
	step("a stream is read", func(ctx context.Context, s *Store) error {
		_, err := s.Streams().Read(ctx, "logs/1", 0, 10)
		_, err2 := s.Streams().Size(ctx, "logs/1")
		_, err3 := s.Streams().Sizes(ctx, "logs/")
		return errors.Join(err, err2, err3)
	})
	blob := Blob{Name: "part", Stream: "logs/1", UserID: "u1"}
	step("a blob begins", func(ctx context.Context, s *Store) error { return s.Blobs().Begin(ctx, blob) })
	step("a blob is whole", func(ctx context.Context, s *Store) error { return s.Blobs().Finish(ctx, "part", "whole", 3) })
	step("blobs are read", func(ctx context.Context, s *Store) error {
		_, err := s.Blobs().List(ctx, "w")
		_, err2 := s.Blobs().UsedBy(ctx, "u1")
		return errors.Join(err, err2)
	})
	step("a blob is used", func(ctx context.Context, s *Store) error {
		_, err := s.Blobs().Use(ctx, "whole")
		return err
	})
	step("a blob goes", func(ctx context.Context, s *Store) error {
		return s.Blobs().Delete(ctx, Blob{Name: "whole", Stream: "logs/1", UsedAt: s.Now().Add(time.Hour)})
	})

	step("a call is recorded", func(ctx context.Context, s *Store) error {
		return s.Audit().Add(ctx, AuditEntry{ID: "aa", Action: "sky.launch", Queued: true, At: day})
	})
	step("a call is settled", func(ctx context.Context, s *Store) error { return s.Audit().Settle(ctx) })
	step("a call ends", func(ctx context.Context, s *Store) error { return s.Audit().End(ctx, "bb", "200", "") })
	step("calls are read", func(ctx context.Context, s *Store) error {
		_, err := s.Audit().Get(ctx, "aa")
		_, err2 := s.Audit().List(ctx, AuditFilter{User: "u1", Cluster: "c*", Since: day, Until: later})
		return errors.Join(err, err2)
	})
	step("old calls go", func(ctx context.Context, s *Store) error {
		_, err := s.Audit().Prune(ctx, later)
		return err
	})

	request := func(ctx context.Context, s *Store) (*Request, error) { return s.Requests().Get(ctx, "aa") }
	step("a request is made", func(ctx context.Context, s *Store) error { return s.Requests().Create(ctx, fullRequest("aa")) })
	step("another request is made", func(ctx context.Context, s *Store) error { return s.Requests().Create(ctx, fullRequest("bb")) })
	step("a request is claimed", func(ctx context.Context, s *Store) error {
		r, err := request(ctx, s)
		if err == nil {
			_, err = s.Requests().Claim(ctx, r, "s1")
		}
		return err
	})
	step("a request's step is noted", func(ctx context.Context, s *Store) error {
		r, err := request(ctx, s)
		if err == nil {
			err = s.Requests().SetState(ctx, r, []byte("{}"))
		}
		return err
	})
	step("a request says what it waits for", func(ctx context.Context, s *Store) error {
		r, err := request(ctx, s)
		if err == nil {
			err = s.Requests().SetStatusMsg(ctx, r, "waits")
		}
		return err
	})
	step("requests are held", func(ctx context.Context, s *Store) error {
		_, err := s.Requests().Beat(ctx, "s1")
		return err
	})
	step("requests are looked for", func(ctx context.Context, s *Store) error {
		_, err := s.Requests().Lost(ctx, Dead{Created: later, Heartbeat: later})
		_, err2 := s.Requests().List(ctx, RequestFilter{IDPrefixes: []string{"a"}, Statuses: []api.RequestStatus{api.RequestRunning}})
		_, err3 := s.Requests().IDs(ctx, "a", 10)
		_, err4 := s.Requests().Waiting(ctx, "u1")
		return errors.Join(err, err2, err3, err4)
	})
	step("a running request is cancelled", func(ctx context.Context, s *Store) error {
		_, err := s.Requests().Cancel(ctx, "aa")
		return err
	})
	step("a waiting request is cancelled", func(ctx context.Context, s *Store) error {
		_, err := s.Requests().Cancel(ctx, "bb")
		return err
	})
	step("requests are released", func(ctx context.Context, s *Store) error { return s.Requests().Release(ctx, "s1") })
	step("a request ends", func(ctx context.Context, s *Store) error {
		r, err := request(ctx, s)
		if err == nil {
			r.Status, r.ReturnValue = api.RequestSucceeded, []byte("null")
			err = s.Requests().Finish(ctx, r)
		}
		return err
	})
	step("ended requests are found", func(ctx context.Context, s *Store) error {
		_, err := s.Requests().Expired(ctx, s.Now().Add(time.Hour), 10)
		_, err2 := s.Requests().Delivered(ctx, []string{"sky.launch"}, s.Now().Add(time.Hour), 10)
		return errors.Join(err, err2)
	})
	step("all other requests end", func(ctx context.Context, s *Store) error {
		_, err := s.Requests().EndAll(ctx, []byte(`"gone"`))
		return err
	})
	step("requests go", func(ctx context.Context, s *Store) error { return s.Requests().Delete(ctx, []string{"aa", "bb"}) })

	step("a volume is made", func(ctx context.Context, s *Store) error { return s.Volumes().Create(ctx, fullVolume("data")) })
	step("a cluster is made", func(ctx context.Context, s *Store) error {
		return s.Clusters().CreateWith(ctx, fullCluster("c1"), []NewVolumeMount{{Name: "data", Path: "/d"}, {Own: fullVolume("own"), Path: "/o"}})
	})
	step("volumes are read", func(ctx context.Context, s *Store) error {
		_, err := s.Volumes().List(ctx, VolumeFilter{Workspace: "team"})
		_, err2 := s.Volumes().Mounts(ctx, "hash-c1")
		_, err3 := s.Volumes().Holders(ctx, "data")
		return errors.Join(err, err2, err3)
	})
	step("a volume is attached", func(ctx context.Context, s *Store) error { return s.Volumes().Attached(ctx, "hash-c1", "again") })
	step("a try begins", func(ctx context.Context, s *Store) error {
		return s.Attempts().BeginPlacing(ctx, Attempt{Token: "t1", ClusterHash: "hash-c1", ClusterName: "c1", NameOnCloud: "n"})
	})
	step("a try begins elsewhere", func(ctx context.Context, s *Store) error {
		return s.Attempts().Begin(ctx, Attempt{Token: "t2", ClusterHash: "hash-c1", ClusterName: "c1"})
	})
	step("tries are read", func(ctx context.Context, s *Store) error {
		_, err := s.Attempts().Open(ctx)
		_, err2 := s.Attempts().OfCluster(ctx, "hash-c1")
		_, err3 := s.Attempts().Since(ctx, day, 10)
		return errors.Join(err, err2, err3)
	})
	step("a try is abandoned", func(ctx context.Context, s *Store) error { return s.Attempts().Abandon(ctx, "t2", "slow") })
	step("a try ends", func(ctx context.Context, s *Store) error {
		return s.Attempts().End(ctx, "t1", AttemptEnd{Outcome: "ok"})
	})
	step("a try ends twice", func(ctx context.Context, s *Store) error {
		return s.Attempts().End(ctx, "t1", AttemptEnd{Outcome: "ok"})
	})
	step("old tries go", func(ctx context.Context, s *Store) error {
		_, err := s.Attempts().Delete(ctx, s.Now().Add(time.Hour))
		return err
	})
	step("a cluster is up", func(ctx context.Context, s *Store) error {
		_, err := s.Clusters().Update(ctx, "c1", "hash-c1", func(c *Cluster) error { c.Status = api.ClusterUp; return nil })
		return err
	})
	step("a cluster is used", func(ctx context.Context, s *Store) error { return s.Clusters().OpenUsage(ctx, "hash-c1", day) })
	step("a cluster has an event", func(ctx context.Context, s *Store) error {
		return s.Clusters().AddEvent(ctx, ClusterEvent{ClusterHash: "hash-c1", ClusterName: "c1", Type: "STATUS_CHANGE", Reason: "x", Ending: api.ClusterUp, At: day})
	})
	step("clusters are read", func(ctx context.Context, s *Store) error {
		_, err := s.Clusters().Get(ctx, "c1")
		_, err2 := s.Clusters().List(ctx, ClusterFilter{Names: []string{"c*"}, Statuses: []api.ClusterStatus{api.ClusterUp}})
		_, err3 := s.Clusters().Events(ctx, "c1", "hash-c1", []string{"STATUS_CHANGE"}, 10)
		_, err4 := s.Clusters().History(ctx, day)
		_, err5 := s.Clusters().WorkspaceOf(ctx, "hash-c1")
		_, err6 := s.Clusters().Version(ctx)
		return errors.Join(err, err2, err3, err4, err5, err6)
	})
	step("a cluster is used no more", func(ctx context.Context, s *Store) error {
		return s.Clusters().CloseUsage(ctx, "hash-c1", day.Add(time.Hour))
	})
	step("a cluster goes", func(ctx context.Context, s *Store) error { return s.Clusters().Delete(ctx, "c1", "hash-c1") })
	step("old events go", func(ctx context.Context, s *Store) error {
		_, err := s.Clusters().DeleteEvents(ctx, []string{"STATUS_CHANGE"}, later)
		return err
	})
	step("a volume is being deleted", func(ctx context.Context, s *Store) error {
		_, err := s.Volumes().BeginDelete(ctx, "data", "data-hash")
		return err
	})
	step("a volume goes", func(ctx context.Context, s *Store) error { return s.Volumes().Delete(ctx, "data", "data-hash") })

	lease := Lease{Name: ManagedLease + "1", Owner: "s1", Epoch: 1}
	step("leases are taken", func(ctx context.Context, s *Store) error {
		_, err := s.Leases().AcquireAll(ctx, []string{ManagedLease + "1", ManagedLease + "2"}, "s1", time.Hour)
		return err
	})
	step("a lease is taken", func(ctx context.Context, s *Store) error {
		_, _, err := s.Leases().Acquire(ctx, "x", "s1", time.Hour)
		return err
	})
	step("leases are renewed", func(ctx context.Context, s *Store) error {
		_, err := s.Leases().Beat(ctx, ManagedLease, "s1", time.Hour)
		return err
	})
	step("a lease is renewed", func(ctx context.Context, s *Store) error {
		_, err := s.Leases().Renew(ctx, lease, time.Hour)
		return err
	})

	step("jobs are submitted", func(ctx context.Context, s *Store) error {
		j := newManaged("r1", 2)
		_, err := s.ManagedJobs().Submit(ctx, j)
		return err
	}).reads = true
	step("an array is submitted", func(ctx context.Context, s *Store) error {
		j := newManaged("r2", 1)
		j.Size = 2
		_, err := s.ManagedJobs().Submit(ctx, j)
		return err
	}).reads = true
	step("a job is adopted", func(ctx context.Context, s *Store) error {
		_, err := s.ManagedJobs().Adopt(ctx, 1, lease)
		return err
	}).reads = true
	step("jobs are adopted", func(ctx context.Context, s *Store) error {
		_, err := s.ManagedJobs().AdoptAll(ctx, map[int]Lease{2: {Epoch: 1}, 3: {Epoch: 1}})
		return err
	}).reads = true
	step("a job begins", func(ctx context.Context, s *Store) error {
		j, err := s.ManagedJobs().Get(ctx, 1)
		if err != nil || len(j.Tasks) == 0 {
			return err
		}
		j.Schedule, j.Tasks[0].Status, j.Tasks[0].Attempt = api.ScheduleLaunching, api.ManagedStarting, 1
		return s.ManagedJobs().Save(ctx, ManagedChange{Job: j, Attempt: &ManagedAttempt{JobID: 1, Number: 1, ClusterName: "c", StartedAt: day},
			Events: []ManagedEvent{{Status: api.ManagedStarting, Code: "STARTING", At: day}}, Unreported: true})
	})
	step("a job's end is reported", func(ctx context.Context, s *Store) error {
		return s.ManagedJobs().Report(ctx, 1, 0, 1, ManagedReport{ClusterJob: 1, Status: api.JobSucceeded})
	})
	step("a job is noted about", func(ctx context.Context, s *Store) error {
		return s.ManagedJobs().Note(ctx, ManagedEvent{JobID: 1, Code: "X", Reason: "y", At: day})
	})
	step("jobs are read", func(ctx context.Context, s *Store) error {
		js := s.ManagedJobs()
		_, err := js.Get(ctx, 1)
		_, err2 := js.List(ctx, ManagedFilter{})
		_, err3 := js.Attempt(ctx, 1, 0, 1)
		_, err4 := js.Attempts(ctx, 1)
		_, err5 := js.Events(ctx, 1, 0, 10)
		_, err6 := js.FilesInUse(ctx)
		_, err7 := js.Live(ctx)
		_, _, err8 := js.Next(ctx)
		_, err9 := js.Orphans(ctx, "s2")
		return errors.Join(err, err2, err3, err4, err5, err6, err7, err8, err9)
	})
	step("jobs are to be cancelled", func(ctx context.Context, s *Store) error {
		_, err := s.ManagedJobs().AskCancel(ctx, []int{1, 2}, time.Second)
		return err
	})
	step("cancelled jobs are found", func(ctx context.Context, s *Store) error {
		_, err := s.ManagedJobs().Cancelled(ctx)
		return err
	})
	step("a job ends", func(ctx context.Context, s *Store) error {
		j, err := s.ManagedJobs().Get(ctx, 1)
		if err != nil || len(j.Tasks) == 0 {
			return err
		}
		j.Schedule = api.ScheduleDone
		for _, task := range j.Tasks {
			task.Status = api.ManagedCancelled
		}
		return s.ManagedJobs().Save(ctx, ManagedChange{Job: j})
	})
	step("a schedule is made", func(ctx context.Context, s *Store) error {
		_, err := s.ManagedSchedules().Submit(ctx, &ManagedSchedule{RequestID: "r9", Name: "nightly", UserHash: "u1", Cron: "0 0 * * *", Job: newManaged("r9", 1), NextAt: day})
		return err
	}).reads = true
	step("schedules are read", func(ctx context.Context, s *Store) error {
		_, err := s.ManagedSchedules().Due(ctx)
		_, err2 := s.ManagedSchedules().List(ctx, ScheduleFilter{Name: "nightly"})
		return errors.Join(err, err2)
	})
	step("a schedule fires", func(ctx context.Context, s *Store) error {
		m, err := s.ManagedSchedules().Get(ctx, 1)
		if err != nil {
			return err
		}
		m.NextAt = day.Add(time.Hour)
		return s.ManagedSchedules().Fire(ctx, m, newManaged("r9/1", 1))
	})
	step("a schedule ends", func(ctx context.Context, s *Store) error {
		_, err := s.ManagedSchedules().End(ctx, []int{1})
		return err
	})
	step("a lease is given back", func(ctx context.Context, s *Store) error {
		return s.Leases().Release(ctx, Lease{Name: "x", Owner: "s1", Epoch: 1})
	})
	step("a key is added", func(ctx context.Context, s *Store) error {
		return s.EncryptionKeys().Add(ctx, EncryptionKey{Number: 7, ID: envelope.NewKey().ID()})
	})
	step("a key is in use everywhere", func(ctx context.Context, s *Store) error { return s.EncryptionKeys().Finish(ctx, 7) })
	step("keys are read", func(ctx context.Context, s *Store) error {
		_, err := s.EncryptionKeys().List(ctx)
		return err
	})
	step("a user goes", func(ctx context.Context, s *Store) error { return s.Users().Delete(ctx, "u1") })
	return steps
}

// Whatever statement of a call fails, and however: the call says so, and nothing of
// it is left. One that finds a row changed or gone may do without it, or undo all.
func TestAStatementThatFailsIsToldAndLeavesNothing(t *testing.T) {
	s, failings := openTest(t), []failing{atOnce, inRows, nothing}
	if testing.Short() { // under the race detector, to which they are alike
		failings = failings[2:]
	}
	for _, step := range aLife() {
		for n := 0; ; n++ {
			before := digest(t, s)
			r := &refusal{at: 1 + n/len(failings), how: failings[n%len(failings)]}
			err := step.do(t.Context(), r.on(s))
			if r.seen < r.at { // the step is done
				if err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
				break
			}
			if err == nil && r.how != nothing {
				t.Fatalf("%s succeeded although statement %d %s", step.name, r.at, r.how)
			}
			if !step.reads && digest(t, s) != before {
				t.Fatalf("%s wrote something although statement %d %s: %v", step.name, r.at, r.how, err)
			}
		}
	}
}

package requests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// seen is what a test's function reports about each of its runs.
type seen struct {
	attempt int
	cause   error
}

// blocker is a function that runs until its context ends or the test lets it go.
func blocker() (f Func, begun chan seen, ended chan seen, letGo chan struct{}) {
	begun, ended, letGo = make(chan seen, 10), make(chan seen, 10), make(chan struct{})
	return func(ctx context.Context, c *Call) (any, error) {
		begun <- seen{attempt: c.Attempt}
		select {
		case <-ctx.Done():
			ended <- seen{c.Attempt, context.Cause(ctx)}
			return nil, ctx.Err()
		case <-letGo:
			return c.Attempt, nil
		}
	}, begun, ended, letGo
}

func TestDeadServersRequestIsResumedWhenItsLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		dying, next := env.server("s1"), env.server("s2")
		f, begun, _, letGo := blocker()
		dying.Handle("sky.x", api.ScheduleLong, f)
		g, begun2, _, letGo2 := blocker()
		next.Handle("sky.x", api.ScheduleLong, g)
		env.start(dying)
		env.start(next)
		id := submit(t, dying, "sky.x", "").ID
		<-begun
		time.Sleep(time.Minute) // the lease is kept
		if len(begun2) > 0 {
			t.Fatal("taken over from a server that lives")
		}
		dying.halt() // its heart stops, its function goes on
		stopped := time.Now()
		if s := <-begun2; s.attempt != 2 {
			t.Errorf("attempt %d", s.attempt)
		}
		if d := time.Since(stopped); d < dying.o.LeaseTTL-dying.o.HeartbeatEvery || d > dying.o.LeaseTTL+2*dying.o.HeartbeatEvery {
			t.Errorf("resumed after %v, the lease is %v", d, dying.o.LeaseTTL)
		}
		close(letGo) // the dead one's result comes too late
		synctest.Wait()
		if r, _ := env.store.Requests().Get(t.Context(), id); r.Status != api.RequestRunning || r.OwnerID != "s2" {
			t.Errorf("a lost lease wrote %v of %s", r, r.OwnerID)
		}
		close(letGo2)
		for _, e := range []*Engine{next, dying} { // both learn of the end
			if r := wait(t, e, id); string(r.ReturnValue) != "2" {
				t.Errorf("result %s", r.ReturnValue)
			}
		}
	})
}

func TestEarlierLifeIsResumedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		dead := env.server("s1", func(o *Options) { o.LongWorkers = 2 })
		f, begun, _, letGo := blocker()
		dead.Handle("sky.long", api.ScheduleLong, f)
		dead.Handle("sky.short", api.ScheduleShort, f)
		if err := dead.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, name := range []string{"sky.long", "sky.long", "sky.long", "sky.short"} { // the third long one waits
			ids = append(ids, submit(t, dead, name, "").ID)
		}
		for range 3 {
			<-begun
		}
		dead.halt()

		life := env.server("s1")
		g, begun2, _, letGo2 := blocker()
		life.Handle("sky.long", api.ScheduleLong, g)
		life.Handle("sky.short", api.ScheduleShort, g)
		start := time.Now()
		env.start(life)
		attempts := 0
		for range 4 {
			attempts += (<-begun2).attempt
		}
		if attempts != 2+2+1+2 || time.Since(start) > 0 {
			t.Errorf("attempts %d after %v", attempts, time.Since(start))
		}
		close(letGo2)
		for _, id := range ids {
			if r := wait(t, life, id); r.Status != api.RequestSucceeded {
				t.Errorf("%v", r)
			}
		}
		close(letGo)
		synctest.Wait()
	})
}

func TestLostLeaseEndsTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s1")
		f, begun, ended, _ := blocker()
		var log *Log
		e.Handle("sky.x", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) {
			log = c.Log
			v, err := f(ctx, c)
			synctest.Wait() // the log is closed beside this
			if _, err := log.Write([]byte("too late\n")); err == nil {
				t.Error("a log that belongs to another attempt was written")
			}
			if err := c.SetState(context.Background(), []byte("1")); !errors.Is(err, state.ErrConflict) {
				t.Errorf("state was written: %v", err)
			}
			return v, err
		})
		env.start(e)
		id := submit(t, e, "sky.x", "").ID
		<-begun
		row, err := env.store.Requests().Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		thief, err := env.store.Requests().Claim(t.Context(), row, "s2")
		if err != nil {
			t.Fatal(err)
		}
		taken := time.Now()
		if s := <-ended; s.cause != ErrLeaseLost || time.Since(taken) > e.o.HeartbeatEvery {
			t.Errorf("cause %v after %v", s.cause, time.Since(taken))
		}
		thief.Status, thief.ReturnValue = api.RequestSucceeded, []byte(`"theirs"`)
		if err := env.store.Requests().Finish(t.Context(), thief); err != nil {
			t.Fatal(err)
		}
		if r := wait(t, e, id); string(r.ReturnValue) != `"theirs"` {
			t.Errorf("%v %s", r, r.ReturnValue)
		}
	})
}

// A server that does not reach the database it shares stops what it does before its
// leases run out; a moment without it changes nothing. One that has its database for
// itself works on.
func TestUnreachableDatabaseEndsSharedWork(t *testing.T) {
	for _, shared := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			env := newTestEnv(t)
			var away atomic.Bool
			env.store = env.store.Gated(func(change func() error) error {
				if away.Load() {
					return errors.New("the database does not answer")
				}
				return change()
			})
			if shared {
				env.store = env.store.AsShared()
			}
			e := env.server("s1")
			f, begun, ended, letGo := blocker()
			e.Handle("sky.x", api.ScheduleShort, f)
			env.start(e)
			id := submit(t, e, "sky.x", "").ID
			<-begun
			time.Sleep(time.Minute)
			away.Store(true)
			time.Sleep(2 * e.o.HeartbeatEvery)
			away.Store(false)
			time.Sleep(time.Minute)
			if len(ended) > 0 {
				t.Fatal("it stopped although it had its lease")
			}
			away.Store(true)
			select {
			case s := <-ended:
				if !shared || s.cause != ErrLeaseLost {
					t.Errorf("shared %v: %v", shared, s.cause)
				}
			case <-time.After(e.o.LeaseTTL):
				if shared {
					t.Error("it works on when another server may begin")
				}
			}
			away.Store(false)
			close(letGo)
			if r := wait(t, e, id); r.Status != api.RequestSucceeded {
				t.Errorf("shared %v: %v", shared, r)
			}
		})
	}
}

// A lock that its function held was taken over by another server, its own lease was
// not: whoever asked hears of the end, not of that.
func TestARequestThatLostALockRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s1")
		e.Handle("sky.x", api.ScheduleLong, func(_ context.Context, c *Call) (any, error) {
			if c.Attempt < 3 {
				return nil, fmt.Errorf("another server took over: %w", state.ErrHandover)
			}
			return c.Attempt, nil
		})
		env.start(e)
		id := submit(t, e, "sky.x", "").ID
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if r, err := e.Wait(ctx, id); err != nil || r.Status != api.RequestSucceeded || string(r.ReturnValue) != "3" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A call is repeated while its first try is begun, and its record is not on disk yet.
func TestACallThatIsBeingRecordedIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s1")
		e.Handle("sky.x", api.ScheduleShort, func(context.Context, *Call) (any, error) { return 1, nil })
		env.start(e)
		sub := Submission{ID: "8b0f2d4e-0000-4000-8000-000000000001", Name: "sky.x", User: alice}
		r, err := e.beginNew(e.newRow(sub, api.ScheduleShort))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Submit(t.Context(), sub); !errors.Is(err, ErrRecording) {
			t.Errorf("while it is being recorded: %v", err)
		}
		e.end(r)
		if row, err := e.Submit(t.Context(), sub); err != nil || row.ID != sub.ID {
			t.Errorf("afterwards: %+v, %v", row, err)
		}
	})
}

func TestCancelReachesAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		owner, other := env.server("s1"), env.server("s2")
		f, begun, ended, _ := blocker()
		owner.Handle("sky.x", api.ScheduleLong, f)
		other.Handle("sky.x", api.ScheduleLong, f)
		env.start(owner)
		env.start(other)
		id := submit(t, owner, "sky.x", "").ID
		<-begun
		asked := time.Now()
		if got, err := other.Cancel(t.Context(), []string{id}); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if s := <-ended; s.cause != ErrCancelled || time.Since(asked) > owner.o.HeartbeatEvery {
			t.Errorf("cause %v after %v", s.cause, time.Since(asked))
		}
		for _, e := range []*Engine{owner, other} {
			if r := wait(t, e, id); r.Status != api.RequestCancelled {
				t.Errorf("%v", r)
			}
		}
	})
}

func TestCancelledRequestIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		dead := &state.Request{ID: "r1", Name: "sky.x", Status: api.RequestRunning, Schedule: api.ScheduleLong, OwnerID: "dead", Attempt: 1, CreatedAt: time.Now(), Heartbeat: time.Now()}
		if err := env.store.Requests().Create(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		e := env.server("s1")
		e.Handle("sky.x", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) { t.Error("resumed"); return nil, nil })
		env.start(e)
		if got, err := e.Cancel(t.Context(), []string{"r1"}); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		time.Sleep(time.Minute)
		if r, _ := env.store.Requests().Get(t.Context(), "r1"); r.Status != api.RequestCancelled {
			t.Errorf("%v", r)
		}
	})
}

func TestIdleServerTakesWhatABusyOneHasNoSlotFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		busy, idle := env.server("s1", func(o *Options) { o.LongWorkers = 1 }), env.server("s2")
		f, begun, _, letGo := blocker()
		busy.Handle("sky.x", api.ScheduleLong, f)
		g, begun2, _, _ := blocker()
		idle.Handle("sky.x", api.ScheduleLong, g)
		env.start(busy)
		env.start(idle)
		submit(t, busy, "sky.x", "")
		<-begun
		id := submit(t, busy, "sky.x", "").ID
		if s := <-begun2; s.attempt != 1 {
			t.Error(s.attempt)
		}
		close(letGo) // the busy one pops it, too late
		synctest.Wait()
		if r, _ := env.store.Requests().Get(t.Context(), id); r.OwnerID != "s2" || r.Attempt != 1 {
			t.Errorf("%s %d", r.OwnerID, r.Attempt)
		}
	})
}

// A claim whose answer was lost leaves a row that is ours and that nobody runs.
func TestStrayRequestIsFoundAgain(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			env := newTestEnv(t)
			e := env.server("s1")
			e.Handle("sky.block", api.ScheduleShort, block)
			e.Handle("sky.x", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) { return c.Attempt, nil })
			env.start(e)
			if busy {
				submit(t, e, "sky.block", "")
			}
			stray := &state.Request{ID: "r1", Name: "sky.x", Status: api.RequestRunning, Schedule: api.ScheduleLong, OwnerID: "s1", Attempt: 1, CreatedAt: time.Now(), Heartbeat: time.Now()}
			if err := env.store.Requests().Create(t.Context(), stray); err != nil {
				t.Fatal(err)
			}
			time.Sleep(e.o.LeaseTTL + 2*e.o.HeartbeatEvery)
			if r := wait(t, e, "r1"); string(r.ReturnValue) != "2" {
				t.Errorf("busy %v: %v %s", busy, r, r.ReturnValue)
			}
			_, err := e.Cancel(t.Context(), []string{"r1"})
			if err != nil {
				t.Error(err)
			}
			ids, err := env.store.Requests().List(t.Context(), state.RequestFilter{Statuses: []api.RequestStatus{api.RequestRunning}})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range ids {
				e.Cancel(t.Context(), []string{r.ID})
			}
		})
	}
}

func TestGivesUpOnWhatKillsTheServer(t *testing.T) {
	env := newTestEnv(t)
	row := &state.Request{ID: "r1", Name: "sky.x", Status: api.RequestRunning, Schedule: api.ScheduleLong, OwnerID: "s1", Attempt: maxAttempts, CreatedAt: time.Now()}
	if err := env.store.Requests().Create(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	e := env.server("s1")
	e.Handle("sky.x", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) { t.Error("run again"); return nil, nil })
	env.start(e)
	if r := wait(t, e, "r1"); r.Status != api.RequestFailed || !strings.Contains(string(r.Error), "given up") {
		t.Errorf("%v %s", r, r.Error)
	}
}

func TestUnknownRequestOfAnotherVersionFails(t *testing.T) {
	env := newTestEnv(t)
	row := &state.Request{ID: "r1", Name: "sky.of_the_future", Status: api.RequestPending, Schedule: api.ScheduleLong, CreatedAt: time.Now()}
	if err := env.store.Requests().Create(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	e := env.start(env.server("s1"))
	if r := wait(t, e, "r1"); r.Status != api.RequestFailed || !strings.Contains(string(r.Error), "sky.of_the_future") {
		t.Errorf("%v %s", r, r.Error)
	}
}

func TestLogRequestEndsWithItsServer(t *testing.T) {
	env := newTestEnv(t)
	row := &state.Request{ID: "r1", Name: "sky.logs", Status: api.RequestRunning, Schedule: api.ScheduleShort, OwnerID: "s1", Attempt: 1, CreatedAt: time.Now()}
	if err := env.store.Requests().Create(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	e := env.server("s1")
	e.HandleLog("sky.logs", func(ctx context.Context, c *Call, w io.Writer) (any, error) {
		t.Error("run for nobody")
		return nil, nil
	})
	env.start(e)
	if r := wait(t, e, "r1"); r.Status != api.RequestCancelled {
		t.Errorf("%v", r)
	}
}

// The work is done, so it must not be lost, nor done twice, because the
// database cannot be written for a while; nor is other work stopped.
func TestResultOutlivesABrokenDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s")
		runs := 0
		e.Handle("sky.x", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
			runs++
			time.Sleep(5 * time.Second)
			return "done", nil
		})
		f, begun, ended, letGo := blocker()
		e.Handle("sky.block", api.ScheduleShort, f)
		env.start(e)
		id, other := submit(t, e, "sky.x", "").ID, submit(t, e, "sky.block", "").ID
		<-begun
		db, err := sql.Open("sqlite", "file:"+filepath.Join(env.dir, "state.db")+"?_pragma=busy_timeout(10000)") // the engine writes beside it
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		exec := func(query string) {
			if _, err := db.Exec(query); err != nil {
				t.Fatal(err)
			}
		}
		exec("CREATE TRIGGER broken BEFORE UPDATE ON requests BEGIN SELECT RAISE(ABORT, 'the disk is broken'); END")
		time.Sleep(time.Minute)
		if r, _ := env.store.Requests().Get(t.Context(), id); r.Status != api.RequestRunning {
			t.Errorf("%v is written though nothing can be", r)
		}
		exec("DROP TRIGGER broken")
		if r := wait(t, e, id); r.Status != api.RequestSucceeded || runs != 1 {
			t.Errorf("%v after %d runs", r, runs)
		}
		close(letGo)
		if r := wait(t, e, other); r.Status != api.RequestSucceeded || len(ended) > 0 {
			t.Errorf("%v", r)
		}
	})
}

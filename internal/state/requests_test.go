package state

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

func fullRequest(id string) *Request {
	return &Request{
		ID: id, Name: "sky.launch", Status: api.RequestPending, Schedule: api.ScheduleLong, UserID: "u1", UserName: "ann", ClusterName: "c1",
		Body: []byte(`{"x":"é\u0000"}`), CreatedAt: day, ClientAPI: 53,
	}
}

func TestRequestLife(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		rs := s.Requests()
		r := fullRequest("aa")
		ok(t, rs.Create(ctx, r))
		is(t, rs.Create(ctx, r), ErrConflict)
		same(t, "as created", must(rs.Get(ctx, "aa"))(t), r)
		_, err := rs.Get(ctx, "zz")
		is(t, err, ErrNotFound)

		one := must(rs.Claim(ctx, r, "s1"))(t)
		if one.Status != api.RequestRunning || one.Attempt != 1 || one.OwnerID != "s1" || one.StartedAt.IsZero() || one.Heartbeat.IsZero() {
			t.Errorf("claimed: %+v", *one)
		}
		_, err = rs.Claim(ctx, r, "s2")
		is(t, err, ErrConflict)
		ok(t, rs.SetState(ctx, one, []byte(`{"step":1}`)))
		ok(t, rs.SetStatusMsg(ctx, one, "waits"))

		// Another server takes over; what the first still writes is refused.
		now := must(rs.Get(ctx, "aa"))(t)
		two := must(rs.Claim(ctx, now, "s2"))(t)
		if two.Attempt != 2 || string(two.State) != `{"step":1}` || two.StatusMsg != "waits" || !two.StartedAt.Equal(one.StartedAt) {
			t.Errorf("resumed: %+v", *two)
		}
		is(t, rs.SetState(ctx, one, nil), ErrConflict)
		is(t, rs.SetStatusMsg(ctx, one, ""), ErrConflict)
		one.Status = api.RequestSucceeded
		is(t, rs.Finish(ctx, one), ErrConflict)

		two.Status, two.ReturnValue = api.RequestSucceeded, []byte("null")
		ok(t, rs.Finish(ctx, two))
		is(t, rs.Finish(ctx, two), ErrConflict)
		end := must(rs.Get(ctx, "aa"))(t)
		if end.Status != api.RequestSucceeded || string(end.ReturnValue) != "null" || end.Error != nil || end.StatusMsg != "" || end.FinishedAt.IsZero() {
			t.Errorf("ended: %+v", *end)
		}
		two.Status = api.RequestRunning
		if err := rs.Finish(ctx, two); err == nil {
			t.Error("a request ended as RUNNING")
		}
	})
}

func TestRequestClaimNeedsAnUnchangedLease(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		rs := s.Requests()
		ok(t, rs.Create(ctx, fullRequest("aa")))
		must(rs.Claim(ctx, fullRequest("aa"), "s1"))(t)
		seen := must(rs.Get(ctx, "aa"))(t)
		time.Sleep(time.Millisecond)
		held := must(rs.Beat(ctx, "s1"))(t)
		same(t, "held", held, []Held{{"aa", 1, false}})
		_, err := rs.Claim(ctx, seen, "s2") // it was only slow
		is(t, err, ErrConflict)
		if r := must(rs.Claim(ctx, seen, "s1"))(t); r.Attempt != 2 { // its own next life
			t.Errorf("attempt %d", r.Attempt)
		}
		same(t, "nothing of others", must(rs.Beat(ctx, "s2"))(t), []Held{})
	})
}

func TestRequestClaimIsExclusive(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		rs := s.Requests()
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 20 {
			r := fullRequest(fmt.Sprint("r", i))
			ok(t, rs.Create(ctx, r))
			for w := range 4 {
				wg.Go(func() {
					switch _, err := rs.Claim(ctx, r, fmt.Sprint("s", w)); err {
					case nil:
						won.Add(1)
					case ErrConflict:
					default:
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if won.Load() != 20 {
			t.Errorf("%d claims won, want 20", won.Load())
		}
	})
}

func TestRequestCancel(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		rs := s.Requests()
		for _, id := range []string{"waits", "runs"} {
			ok(t, rs.Create(ctx, fullRequest(id)))
		}
		running := must(rs.Claim(ctx, fullRequest("runs"), "s1"))(t)

		r := must(rs.Cancel(ctx, "waits"))(t)
		if r.Status != api.RequestCancelled || r.FinishedAt.IsZero() {
			t.Errorf("waiting: %+v", *r)
		}
		_, err := rs.Claim(ctx, fullRequest("waits"), "s1")
		is(t, err, ErrConflict)

		r = must(rs.Cancel(ctx, "runs"))(t)
		if r.Status != api.RequestRunning || !r.CancelAsked || !r.FinishedAt.IsZero() {
			t.Errorf("running: %+v", *r)
		}
		same(t, "the owner learns", must(rs.Beat(ctx, "s1"))(t), []Held{{"runs", 1, true}})
		must(rs.Cancel(ctx, "runs"))(t) // asking twice is fine
		running.Status = api.RequestCancelled
		ok(t, rs.Finish(ctx, running))
		_, err = rs.Cancel(ctx, "runs")
		is(t, err, ErrConflict)
		_, err = rs.Cancel(ctx, "none")
		is(t, err, ErrNotFound)
	})
}

func TestRequestLost(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		rs := s.Requests()
		for i, id := range []string{"p1", "p2", "mine", "theirs", "done"} {
			r := fullRequest(id)
			r.CreatedAt = day.Add(time.Duration(i) * time.Second)
			ok(t, rs.Create(ctx, r))
		}
		claim := func(id, owner string) *Request { return must(rs.Claim(ctx, must(rs.Get(ctx, id))(t), owner))(t) }
		claim("mine", "s1")
		claim("theirs", "s2")
		done := claim("done", "s1")
		done.Status = api.RequestFailed
		ok(t, rs.Finish(ctx, done))
		now := s.Now()
		for _, c := range []struct {
			name string
			d    Dead
			want string
		}{
			{"nothing", Dead{}, ""},
			{"an earlier life", Dead{Owner: "s1"}, "mine"},
			{"expired", Dead{Heartbeat: now.Add(time.Hour)}, "mine theirs"},
			{"waiting", Dead{Created: day}, "p1"},
			{"all", Dead{Created: now, Heartbeat: now.Add(time.Hour)}, "mine theirs p1 p2"},
			{"some", Dead{Created: now, Limit: 1}, "p1"},
		} {
			var got []string
			for _, r := range must(rs.Lost(ctx, c.d))(t) {
				got = append(got, r.ID)
			}
			same(t, c.name, strings.Join(got, " "), c.want)
		}
		ok(t, rs.Release(ctx, "s2"))
		if l := must(rs.Lost(ctx, Dead{Heartbeat: day}))(t); len(l) != 1 || l[0].ID != "theirs" || l[0].Body != nil {
			t.Errorf("after release: %v", l)
		}
	})
}

func TestRequestList(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		rs := s.Requests()
		for i, id := range []string{"abc-1", "abd-2", "b-3", "ab%-4"} {
			r := fullRequest(id)
			r.CreatedAt = day.Add(time.Duration(i) * time.Second)
			r.UserID = []string{"u1", "u2"}[i%2]
			r.Name = []string{"sky.launch", "sky.down"}[i/2]
			r.ClusterName = []string{"c1", "c2"}[i/3]
			ok(t, rs.Create(ctx, r))
		}
		must(rs.Cancel(ctx, "b-3"))(t)
		for _, c := range []struct {
			name string
			f    RequestFilter
			want string
		}{
			{"all, the newest first", RequestFilter{}, "ab%-4 b-3 abd-2 abc-1"},
			{"prefix", RequestFilter{IDPrefixes: []string{"ab"}}, "ab%-4 abd-2 abc-1"},
			{"prefixes", RequestFilter{IDPrefixes: []string{"abc", "b-3"}}, "b-3 abc-1"},
			{"no wildcards", RequestFilter{IDPrefixes: []string{"ab%"}}, "ab%-4"},
			{"active", RequestFilter{Statuses: []api.RequestStatus{api.RequestPending, api.RequestRunning}}, "ab%-4 abd-2 abc-1"},
			{"ended", RequestFilter{Statuses: []api.RequestStatus{api.RequestCancelled}}, "b-3"},
			{"either", RequestFilter{Statuses: []api.RequestStatus{api.RequestCancelled, api.RequestPending}}, "ab%-4 b-3 abd-2 abc-1"},
			{"user", RequestFilter{UserID: "u2"}, "ab%-4 abd-2"},
			{"name and user", RequestFilter{UserID: "u1", Names: []string{"sky.down"}}, "b-3"},
			{"cluster", RequestFilter{ClusterName: "c2"}, "ab%-4"},
			{"limit", RequestFilter{Limit: 2}, "ab%-4 b-3"},
		} {
			var got []string
			for _, r := range must(rs.List(ctx, c.f))(t) {
				got = append(got, r.ID)
			}
			same(t, c.name, strings.Join(got, " "), c.want)
		}
		same(t, "ids", must(rs.IDs(ctx, "ab", 2))(t), []string{"ab%-4", "abc-1"})
	})
}

func TestRequestRetention(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		rs := s.Requests()
		for _, id := range []string{"a", "b", "c"} {
			ok(t, rs.Create(ctx, fullRequest(id)))
		}
		must(rs.Cancel(ctx, "a"))(t)
		must(rs.Cancel(ctx, "b"))(t)
		later := s.Now().Add(time.Second)
		same(t, "none yet", must(rs.Expired(ctx, day, 10))(t), []string{})
		same(t, "some", len(must(rs.Expired(ctx, later, 1))(t)), 1)
		same(t, "all that ended", len(must(rs.Expired(ctx, later, 10))(t)), 2)
		ok(t, rs.Delete(ctx, []string{"a", "b", "c"}))
		ok(t, rs.Delete(ctx, nil))
		same(t, "what has not ended stays", must(rs.IDs(ctx, "", 10))(t), []string{"c"})
	})
}

// The questions that are asked all the time must not read every request.
func TestRequestQueriesUseTheirIndex(t *testing.T) {
	s := openTest(t)
	for name, query := range map[string]string{
		"beat":    "UPDATE requests SET heartbeat = 1 WHERE " + active + " AND status = 'RUNNING' AND owner_id = 'x'",
		"lost":    "SELECT id FROM requests WHERE " + active + " AND (status = 'PENDING' AND created_at <= 1 OR status = 'RUNNING' AND (heartbeat < 1 OR owner_id = 'x')) ORDER BY created_at, id",
		"active":  "SELECT id FROM requests WHERE status IN ('a', 'b') AND " + active + " ORDER BY created_at DESC, id DESC",
		"expired": "SELECT id FROM requests WHERE finished_at > 0 AND finished_at < 1 ORDER BY finished_at LIMIT 1",
		"prefix":  "SELECT id FROM requests WHERE id >= 'a' AND id < 'b' ORDER BY id LIMIT 1",
		"latest":  "SELECT id FROM requests ORDER BY created_at DESC, id DESC LIMIT 1",
		"first":   selectClusters + " ORDER BY c.launched_at DESC, c.name LIMIT 1",
	} {
		type plan struct {
			a, b, c int
			detail  string
		}
		steps, err := all(s.read(context.Background()), func(p *plan) []any { return []any{&p.a, &p.b, &p.c, &p.detail} }, "EXPLAIN QUERY PLAN "+query)
		ok(t, err)
		if !strings.Contains(steps[0].detail, "INDEX") || name != "latest" && strings.Contains(steps[0].detail, "requests_by_creation") {
			t.Errorf("%s: %s", name, steps[0].detail)
		}
		for _, p := range steps {
			if strings.Contains(p.detail, "TEMP B-TREE") {
				t.Errorf("%s sorts: %s", name, p.detail)
			}
		}
	}
}

// A server with room takes from everybody who waits, not only from whoever asked
// for a hundred things first.
func TestWaitingUsersTakeTurns(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for i, id := range strings.Fields("a1 a2 a3 b1 a4 c1 b2") {
			ok(t, s.Requests().Create(ctx, &Request{ID: id, Name: "sky.x", Status: api.RequestPending, UserID: id[:1], CreatedAt: day.Add(time.Duration(i) * time.Second)}))
		}
		var got []string
		for _, r := range must(s.Requests().Lost(ctx, Dead{Created: s.Now(), Limit: 6}))(t) {
			got = append(got, r.ID)
		}
		same(t, "order", strings.Join(got, " "), "a1 b1 c1 a2 b2 a3")
		same(t, "waiting", must(s.Requests().Waiting(ctx, "a"))(t), 4)
		same(t, "nobody's", must(s.Requests().Waiting(ctx, "d"))(t), 0)
	})
}

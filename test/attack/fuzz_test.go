//go:build attack && linux

package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// oddities are values that somebody may send for anything.
var oddities = []any{
	nil, true, 0, -1, 1 << 53, 1e308, 0.5, "", " ", "x", "\x00", "../../../../etc/passwd", "/etc/shadow", "a\nb", "\u202e\ufeff💥", "%s%n", "$(touch /tmp/x)", "'; DROP TABLE users; --",
	strings.Repeat("a", 70_000), []any{}, []any{nil}, []any{[]any{[]any{}}}, map[string]any{}, map[string]any{"": nil}, map[string]any{"a": map[string]any{"b": []any{1}}},
	"{", "run: x", "run: [", "&a [*a]", "name: x\n---\nname: y\n", "-9223372036854775809", "1e999", "00000000-0000-4000-8000-000000000000", "*", "c1", "ada",
}

// odd is a value for a field: one that it may have, or any.
func odd(r *rand.Rand, s *schema, depth int) any {
	if s == nil || depth > 4 || r.IntN(3) == 0 {
		return oddities[r.IntN(len(oddities))]
	}
	switch {
	case len(s.Properties) > 0:
		out := map[string]any{}
		for name, f := range s.Properties {
			required := false
			for _, n := range s.Required {
				required = required || n == name
			}
			if required && r.IntN(20) > 0 || r.IntN(4) == 0 {
				out[name] = odd(r, f, depth+1)
			}
		}
		if r.IntN(10) == 0 {
			out["nobody asked for this"] = oddities[r.IntN(len(oddities))]
		}
		return out
	case s.is("array"):
		out := []any{}
		for range r.IntN(4) {
			out = append(out, odd(r, s.Items, depth+1))
		}
		return out
	case s.is("string"):
		for {
			if v, ok := oddities[r.IntN(len(oddities))].(string); ok {
				return v
			}
		}
	case s.is("integer"):
		return []int{0, 1, -1, 2, 1 << 40, -1 << 62}[r.IntN(6)]
	case s.is("boolean"):
		return r.IntN(2) == 0
	}
	return map[string]any{fmt.Sprint(r.IntN(3)): odd(r, s.Items, depth+1)}
}

// body is what is sent to a route: mostly JSON of about the right shape.
func oddBody(r *rand.Rand, rt route) []byte {
	if r.IntN(12) == 0 {
		return [][]byte{nil, []byte("{"), []byte("null"), []byte("[]"), []byte("\xff\xfe"), []byte(`{"a":1,"a":2}`), []byte(strings.Repeat("[", 20_000)), []byte("PK\x03\x04"), []byte(`"x"`)}[r.IntN(9)]
	}
	if rt.body == nil {
		return nil
	}
	s := *rt.body
	var v any = odd(r, &schema{Properties: s.Properties, Required: s.Required, Type: "object"}, 0)
	if len(s.Properties) == 0 {
		v = odd(r, &s, 0)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	if r.IntN(15) == 0 && len(b) > 1 {
		b = b[:r.IntN(len(b))]
	}
	return b
}

func oddQuery(r *rand.Rand, rt route) string {
	q := url.Values{}
	for _, name := range rt.query {
		if r.IntN(2) == 0 {
			q.Add(name, text(oddities[r.IntN(len(oddities))]))
		}
	}
	if r.IntN(4) == 0 {
		q.Add([]string{"request_id", "refresh", "limit", "follow", "log_path", "cluster_name", "user_hash"}[r.IntN(7)], text(oddities[r.IntN(len(oddities))]))
	}
	if len(q) == 0 {
		return ""
	}
	out := q.Encode()
	if len(out) > 30_000 {
		out = out[:30_000]
	}
	if r.IntN(20) == 0 {
		out += "&%zz=%"
	}
	return "?" + out
}

func text(v any) string {
	s := fmt.Sprint(v)
	return s[:min(len(s), 3000)]
}

func oddHeader(r *rand.Rand, ids []string) http.Header {
	h := http.Header{}
	for range r.IntN(3) {
		switch r.IntN(8) {
		case 0:
			h.Set("X-Skypilot-Api-Version", []string{"0", "24", "53", "9999", "-1", "x", ""}[r.IntN(7)])
		case 1:
			h.Set("X-Skypilot-Version", "0.0.0")
		case 2:
			h.Set("X-Skypilot-Request-Id", ids[r.IntN(len(ids))])
		case 3:
			h.Set("Content-Encoding", "gzip")
		case 4:
			h.Set("Accept", "text/html")
			h.Set("User-Agent", "Mozilla/5.0")
		case 5:
			h.Set("Traceparent", "00-"+strings.Repeat("z", 32)+"-x-01")
		case 6:
			h.Set("Range", "bytes=5-1")
		case 7:
			h.Set("Cookie", "session="+strings.Repeat("A", 500))
		}
	}
	return h
}

// TestOddCalls sends calls that nobody means to every route. The server fails on
// none, goes on, and does not grow.
func TestOddCalls(t *testing.T) {
	t.Parallel()
	r := random(t)
	c := count(t)
	s := newSite(t, false)
	// Ids that were used before are used again, also for other calls.
	ids := []string{"x", "", "00000000-0000-4000-8000-000000000000"}
	for _, path := range []string{"/status", "/cost_report", "/jobs/queue"} {
		ids = append(ids, s.as("ada").done(path, map[string]any{}))
	}
	routes := s.routes()
	until := time.Now().Add(length(t, 25*time.Second))
	var all sync.WaitGroup
	var failed sync.Map // routes that failed: each is told once
	for worker := range 4 {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(worker)))
		all.Go(func() {
			for n := worker; time.Now().Before(until); n += 4 {
				rt := routes[n%len(routes)]
				if rt.path == "/jobs/wait" || rt.path == "/users/delete" { // takes long; would take ada away
					continue
				}
				who := s.as([]string{"ada", "ada", "uma"}[own.IntN(3)])
				who.header = oddHeader(own, ids)
				path, body := rt.concrete()+oddQuery(own, rt), oddBody(own, rt)
				kind := []string{"application/json", "application/json", "application/json", "text/plain", ""}[own.IntN(5)]
				a := who.within(5*time.Second, rt.method, path, bytes.NewReader(body), kind)
				c.add("calls", 1)
				c.add(fmt.Sprintf("answers %dxx", a.status/100), 1)
				if rt.path == "/api/get" && a.status == 500 && bytes.Contains(a.body, []byte(`"request_id"`)) {
					continue // that is how a request failed, as clients expect it
				}
				if a.status >= 500 && a.status != 501 && a.status != 507 {
					c.add("5xx", 1)
					if _, told := failed.LoadOrStore(rt.String(), true); told {
						continue
					}
					t.Errorf("%s %.300s as %s, headers %v: %s\nbody %.600s", rt.method, path, who.name, who.header, a, body)
				}
				who.client.CloseIdleConnections()
			}
		})
	}
	all.Wait()
	s.cancelAll()
	if a := s.as("ada").get("/api/health"); a.status != 200 {
		t.Errorf("the server does not answer any more: %s", a)
	}
	c.add("MiB resident at most", s.resident("VmHWM"))
	if most := s.resident("VmHWM"); most > 512 {
		t.Errorf("the server had %d MiB", most)
	}
	s.noFaults(c)
}

// TestLargeBodiesAtOnce sends eight bodies of 28 MB that are refused in the end.
// Others are answered meanwhile, and the server keeps few of them at once.
func TestLargeBodiesAtOnce(t *testing.T) {
	t.Parallel()
	c := count(t)
	s := newSite(t, false)
	var b bytes.Buffer
	b.WriteString(`{"cluster_name": 5, "task": [`)
	for b.Len() < 28_000_000 {
		b.WriteString(`{"a":[1,2,{"b":"c"}]},`)
	}
	b.WriteString(`1]}`)
	var all sync.WaitGroup
	began := time.Now()
	for range 8 {
		all.Go(func() {
			a := s.as("uma").within(2*time.Minute, "POST", "/launch", io.NopCloser(bytes.NewReader(b.Bytes())), "application/json")
			if a.err == nil && (a.status < 400 || a.status >= 500 && a.status != 503) {
				t.Errorf("a body of 28 MB: %s", a)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	slowest := time.Duration(0)
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(100 * time.Millisecond):
		}
		at := time.Now()
		if a := s.as("otto").get("/users/role"); a.status != 200 {
			t.Errorf("somebody else meanwhile: %s", a)
		}
		slowest = max(slowest, time.Since(at))
	}
	most := s.resident("VmHWM")
	c.add("MiB resident at most", most)
	c.add("ms for all", int(time.Since(began).Milliseconds()))
	c.add("ms of the slowest answer to others", int(slowest.Milliseconds()))
	if most > 350 {
		t.Errorf("eight bodies of 28 MB at once take %d MiB", most)
	}
	if slowest > 5*time.Second {
		t.Errorf("others wait for %v", slowest)
	}
}

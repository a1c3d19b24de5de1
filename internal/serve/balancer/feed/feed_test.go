package feed

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

const long = 60 * time.Second

// target is a balancer that keeps what it is given.
type target struct {
	mu      sync.Mutex
	table   balancerapi.Table
	applied chan int64
	waiting chan struct{}
	have    chan map[string]int64
}

func newTarget() *target {
	return &target{applied: make(chan int64, 100), waiting: make(chan struct{}, 1), have: make(chan map[string]int64, 100)}
}

func (f *target) Apply(t balancerapi.Table) error {
	f.mu.Lock()
	f.table = t
	f.mu.Unlock()
	f.applied <- t.Version
	return nil
}

func (f *target) Table() balancerapi.Table {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table
}

func (f *target) Report(have map[string]int64) balancerapi.Report {
	select {
	case f.have <- have:
	default:
	}
	return balancerapi.Report{Balancer: "b", Epoch: "e", Time: 100, Services: []balancerapi.ServiceReport{{Name: "chat", Arrivals: 1, Recent: []balancerapi.Second{{At: 99, N: 1}}}}}
}

func (f *target) Waiting() <-chan struct{} { return f.waiting }

func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(long):
		t.Fatal("it never came")
		panic("")
	}
}

func TestTablesArePushedAndReportsReturn(t *testing.T) {
	var tally Tally
	reports := make(chan balancerapi.Report, 100)
	source := NewSource(func(r balancerapi.Report) balancerapi.Receipt {
		select {
		case reports <- r:
		default:
		}
		return tally.Add(r, time.Unix(100, 0))
	}, func(context.Context) error { return nil })
	var down sync.Mutex // held while the server is away
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sky_x" {
			t.Errorf("Authorization %q", r.Header.Get("Authorization"))
		}
		if !down.TryLock() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		down.Unlock()
		source.ServeHTTP(w, r)
	}))
	defer srv.Close()
	f := newTarget()
	ctx, cancel := context.WithCancel(t.Context())
	c := Client{Endpoint: srv.URL + "/", Token: func() string { return "sky_x" }, HTTP: &http.Client{}, Logger: slog.New(slog.DiscardHandler), Every: time.Hour}
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx, f) }()
	for _, v := range []int64{1, 2, 7} {
		source.Publish(balancerapi.Table{Version: v})
		if got := next(t, f.applied); got != v {
			t.Fatalf("version %d, want %d", got, v)
		}
	}
	source.Publish(balancerapi.Table{Version: 3}) // older: nobody gets it
	source.Publish(balancerapi.Table{Epoch: "restored", Version: 3})
	if got := next(t, f.applied); got != 3 || f.Table().Epoch != "restored" {
		t.Fatalf("version %d of epoch %q", got, f.Table().Epoch)
	}
	// The first report has all; later ones what is new.
	f.waiting <- struct{}{}
	next(t, reports)
	if got := next(t, f.have); got != nil {
		t.Errorf("have %v before any receipt", got)
	}
	f.waiting <- struct{}{}
	next(t, reports)
	if got := next(t, f.have); got["chat"] != 99 {
		t.Errorf("have %v", got)
	}
	// While the server is away the table stays; then the client comes back by itself.
	down.Lock()
	source.Publish(balancerapi.Table{Epoch: "restored", Version: 4})
	for len(f.applied) > 0 {
		<-f.applied
	}
	source.Publish(balancerapi.Table{Epoch: "restored", Version: 5})
	down.Unlock()
	for next(t, f.applied) != 5 {
	}
	cancel()
	next(t, reports) // the last one
	next(t, ended)
	if n := tally.Arrivals("chat", time.Unix(0, 0)); n != 1 {
		t.Errorf("%d arrivals after three reports of the same one", n)
	}
}

func TestSourceRefusesNonsense(t *testing.T) {
	source := NewSource(func(balancerapi.Report) balancerapi.Receipt { return balancerapi.Receipt{} }, nil)
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", balancerapi.TablePath + "?after=x", "", 400},
		{"POST", balancerapi.TablePath, "", 404},
		{"POST", balancerapi.ReportPath, "{", 400},
		{"POST", balancerapi.ReportPath, "{}", 400},
		{"GET", "/other", "", 404},
	} {
		w := httptest.NewRecorder()
		source.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, http.NoBody))
		if w.Code != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, w.Code, tt.want)
		}
	}
}

// A balancer that moves to another server gets what the first one had published, at
// least; while the other cannot say that it has that, it gets nothing.
func TestATableIsNeverOlderThanTheOneOfAnotherServer(t *testing.T) {
	var source *Source
	away := errors.New("no database")
	renewed := 0
	source = NewSource(nil, func(context.Context) error {
		if away != nil {
			return away
		}
		renewed++
		source.Publish(balancerapi.Table{Epoch: "b", Version: 2})
		return nil
	})
	source.Publish(balancerapi.Table{Epoch: "b", Version: 1})
	ask := func(query string) (int, string) {
		w := httptest.NewRecorder()
		source.ServeHTTP(w, httptest.NewRequest("GET", balancerapi.TablePath+query, http.NoBody))
		return w.Code, w.Body.String()
	}
	if code, text := ask("?epoch=a&after=9"); code != http.StatusServiceUnavailable || !strings.Contains(text, "no database") {
		t.Errorf("%d %s", code, text)
	}
	away = nil
	if code, text := ask("?epoch=a&after=9"); code != http.StatusOK || !strings.Contains(text, `"version":2`) {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := ask("?epoch=b&after=1"); code != http.StatusOK || renewed != 1 {
		t.Errorf("%d; renewed %d times", code, renewed)
	}
}

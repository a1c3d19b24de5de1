// Package feed carries tables from a controller to load balancers on other
// machines, and their reports back: [Source] is the controller's side, an
// http.Handler, and [Client] that of a balancer.
package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// pollTime is how long a question for a newer table is held. A client waits longer.
const pollTime = 25 * time.Second

// maxMessage bounds a table and a report.
const maxMessage = 64 << 20

// A Source holds the latest table and hands it to those who ask.
type Source struct {
	report func(balancerapi.Report) balancerapi.Receipt
	renew  func(context.Context) error

	mu      sync.Mutex
	table   *balancerapi.Table
	changed chan struct{} // closed at the next table
}

// NewSource has no table yet. report gets the reports of balancers, and may be called
// concurrently. renew publishes a table that knows all that has happened before the
// call: a balancer that comes with the table of another server of the installation
// never gets an older one.
func NewSource(report func(balancerapi.Report) balancerapi.Receipt, renew func(context.Context) error) *Source {
	return &Source{report: report, renew: renew, changed: make(chan struct{})}
}

// Publish hands a table to all balancers that wait for one.
func (s *Source) Publish(t balancerapi.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = &t
	close(s.changed)
	s.changed = make(chan struct{})
}

// ServeHTTP answers [balancerapi.TablePath] and [balancerapi.ReportPath]. Whoever
// mounts it checks that the caller may.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == balancerapi.TablePath && r.Method == http.MethodGet:
		s.serveTable(w, r)
	case r.URL.Path == balancerapi.ReportPath && r.Method == http.MethodPost:
		s.serveReport(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Source) serveTable(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var have balancerapi.Table
	if after := q.Get("after"); after != "" {
		n, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			http.Error(w, fmt.Sprintf("after=%q is not a version", after), http.StatusBadRequest)
			return
		}
		have = balancerapi.Table{Epoch: q.Get("epoch"), Version: n}
	}
	if s.isOthers(have) {
		if err := s.renew(r.Context()); err != nil {
			http.Error(w, "the table of this server may be older: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	end := time.NewTimer(pollTime)
	defer end.Stop()
	for {
		s.mu.Lock()
		t, changed := s.table, s.changed
		s.mu.Unlock()
		if t != nil && (q.Get("after") == "" || t.Newer(have)) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(t)
			return
		}
		select {
		case <-changed:
		case <-end.C:
			w.WriteHeader(http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

// isOthers reports whether a table was another server's.
func (s *Source) isOthers(have balancerapi.Table) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return have.Epoch != "" && (s.table == nil || have.Epoch != s.table.Epoch)
}

func (s *Source) serveReport(w http.ResponseWriter, r *http.Request) {
	var rep balancerapi.Report
	if err := json.NewDecoder(bounded.Reader(r.Body, maxMessage, "a report")).Decode(&rep); err != nil {
		http.Error(w, "reading the report: "+err.Error(), http.StatusBadRequest)
		return
	}
	if rep.Balancer == "" || rep.Epoch == "" {
		http.Error(w, "a report needs balancer and epoch", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(s.report(rep))
}

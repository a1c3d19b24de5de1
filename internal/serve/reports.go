package serve

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/state"
)

// exchange is what servers that share a database pass on to each other of what
// balancers report: the server that looks after a service is not always the one that
// the service's balancers speak to.
type exchange struct {
	unsaved map[string]balancerapi.Report // by balancer
	seen    map[string]reportKey          // of those that others got, by balancer
	after   time.Time                     // reports saved before are known
	swept   time.Time
}

// reportKey tells the reports of a balancer apart.
type reportKey struct {
	epoch string
	time  float64
}

// Where servers share a database balancers send arrivals again for arrivalsAgain, so
// that a server that looks now and then misses none. Reports are remembered for
// reportsKept, and looked for from lookBack before the last one found.
const (
	arrivalsAgain = window + 30*time.Second
	reportsKept   = time.Hour
	lookBack      = time.Minute
)

// Reported takes in what a balancer has counted.
func (m *Manager) Reported(r balancerapi.Report) balancerapi.Receipt {
	receipt := m.count(r, time.Now())
	if !m.Store.Shared() {
		return receipt
	}
	m.mu.Lock()
	if old, ok := m.others.unsaved[r.Balancer]; !ok || old.Epoch != r.Epoch || old.Time < r.Time {
		if m.others.unsaved == nil {
			m.others.unsaved = map[string]balancerapi.Report{}
		}
		m.others.unsaved[r.Balancer] = r
	}
	m.mu.Unlock()
	for name, have := range receipt.Have {
		receipt.Have[name] = min(have, int64(r.Time-arrivalsAgain.Seconds()))
	}
	return receipt
}

// count adds a report to the others, and makes controllers look at once at services
// for which requests wait.
func (m *Manager) count(r balancerapi.Report, at time.Time) balancerapi.Receipt {
	receipt := m.tally.Add(r, at)
	for _, s := range r.Services {
		if s.Waiting > 0 {
			m.rows.Notify(s.Name)
		}
	}
	return receipt
}

// passOn gives the other servers what balancers reported here, and takes what they got.
func (m *Manager) passOn(ctx context.Context) {
	if !m.Store.Shared() {
		return
	}
	if err := m.passOnOnce(ctx); err != nil && ctx.Err() == nil {
		m.Log.WarnContext(ctx, "servers do not learn from each other what balancers report; to be tried again", "err", err)
	}
}

func (m *Manager) passOnOnce(ctx context.Context) error {
	now := m.Store.Now()
	m.mu.Lock()
	unsaved := m.others.unsaved
	m.others.unsaved = nil // each balancer reports again before long
	m.mu.Unlock()
	var save []*state.BalancerReport
	for _, r := range unsaved {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		save = append(save, &state.BalancerReport{Balancer: r.Balancer, Server: m.ServerID, At: now, Report: text})
	}
	if err := m.Store.Services().SaveReports(ctx, save); err != nil {
		return err
	}
	x := &m.others // what follows of it belongs to the goroutine of Run
	if x.seen == nil {
		x.seen, x.after = map[string]reportKey{}, now.Add(-reportsKept)
	}
	list, err := m.Store.Services().Reports(ctx, m.ServerID, x.after)
	if err != nil {
		return err
	}
	for _, saved := range list {
		var r balancerapi.Report
		if err := json.Unmarshal(saved.Report, &r); err != nil {
			return err
		}
		if key := (reportKey{r.Epoch, r.Time}); x.seen[r.Balancer] != key {
			x.seen[r.Balancer] = key
			m.count(r, time.Now().Add(-max(0, now.Sub(saved.At)))) // by this server's clock
		}
		if at := saved.At.Add(-lookBack); at.After(x.after) {
			x.after = at
		}
	}
	if now.Sub(x.swept) < reportsKept/2 {
		return nil
	}
	x.swept = now
	return m.Store.Services().ForgetReports(ctx, now.Add(-reportsKept))
}

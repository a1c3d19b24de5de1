package simulate

import (
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/serve/spec"
	"github.com/skypilot-go/sky/task"
)

// Row is one line of a comparison.
type Row struct {
	Trace  string `json:"trace"`
	Policy string `json:"policy"`
	Result
	WaitedShare float64 `json:"waited_share"`
	FailedShare float64 `json:"failed_share"`
	// CostShare is the cost against the same service on on-demand machines.
	CostShare float64 `json:"cost_share"`
}

func rowOf(trace, policy string, r Result, onDemand float64) Row {
	out := Row{Trace: trace, Policy: policy, Result: r, FailedShare: 1 - r.Served()}
	if r.Requests > 0 {
		out.WaitedShare = float64(r.Waited) / float64(r.Requests)
	}
	if onDemand > 0 {
		out.CostShare = r.Cost / onDemand
	}
	return out
}

// Header names the columns of [Row.Cells].
var Header = []string{"TRACE", "POLICY", "REQUESTS", "WAITED", "FAILED", "P95", "REPLICA_HOURS", "MOST", "PREEMPTED", "COST", "OF_ON-DEMAND"}

// Cells is the row as text.
func (r Row) Cells() []string {
	return []string{
		r.Trace, r.Policy, fmt.Sprint(r.Requests), fmt.Sprintf("%.2f%%", 100*r.WaitedShare), fmt.Sprintf("%.3f%%", 100*r.FailedShare), fmt.Sprintf("%.1fs", r.P95),
		fmt.Sprintf("%.0f", r.ReplicaHours), fmt.Sprint(r.Most), fmt.Sprint(r.Preemptions), fmt.Sprintf("$%.0f", r.Cost), fmt.Sprintf("%.0f%%", 100*r.CostShare),
	}
}

// Compare runs a service over traces, and, if it is on spot machines, the same
// service on on-demand ones.
func Compare(o Options, traces []Trace, progress func(trace string)) []Row {
	var out []Row
	for _, t := range traces {
		if progress != nil {
			progress(t.Name)
		}
		o.Requests = t.Requests
		plain := o
		plain.Spec = onDemand(o.Spec)
		base := Run(plain)
		out = append(out, rowOf(t.Name, "on-demand", base, base.Cost))
		if o.Spec.Spot {
			out = append(out, rowOf(t.Name, "as written", Run(o), base.Cost))
		}
	}
	return out
}

// onDemand is the same service without spot machines.
func onDemand(s *spec.Spec) *spec.Spec {
	c := *s
	c.Spot = false
	c.Scale.Placer, c.Scale.DynamicFallback, c.Scale.BaseOnDemand = "", false, 0
	return &c
}

// Peak is a rate that all replicas of a service can serve with some room.
func Peak(sp *spec.Spec, m Machine) float64 {
	m = m.filled(sp)
	return max(0.7*float64(max(sp.Scale.Max, 1)*m.Slots)/m.Work.Seconds(), 0.01)
}

// What docs/serve.md compares.
const (
	docDays     = 3
	docPeak     = 5.0 // requests a second
	docSpotDays = 4
	docSpotPeak = 3.0
	docSeed     = 1
)

var docPolicies = []struct{ name, policy string }{
	{"fixed: as many as the peak needs", "min_replicas: 10, max_replicas: 10"},
	{"requests a second, defaults", "min_replicas: 1, max_replicas: 12, target_qps_per_replica: 0.6"},
	{"… `upscale_delay_seconds: 60`", "min_replicas: 1, max_replicas: 12, target_qps_per_replica: 0.6, upscale_delay_seconds: 60"},
	{"… and `num_overprovision: 1`", "min_replicas: 1, max_replicas: 12, target_qps_per_replica: 0.6, upscale_delay_seconds: 60, num_overprovision: 1"},
	{"… and `predictive: true`", "min_replicas: 1, max_replicas: 12, target_qps_per_replica: 0.6, upscale_delay_seconds: 60, predictive: true"},
	{"… and a schedule for the day", "min_replicas: 1, max_replicas: 12, target_qps_per_replica: 0.6, upscale_delay_seconds: 60, schedules: [{cron: '0 8 * * *', duration: 10h, min_replicas: 6}]"},
	{"requests in flight", "min_replicas: 1, max_replicas: 12, target_in_flight_per_replica: 6, upscale_delay_seconds: 60"},
	{"latency", "min_replicas: 1, max_replicas: 12, target_latency_seconds: 0.8, upscale_delay_seconds: 60"},
	{"a metric (requests that run)", "min_replicas: 1, max_replicas: 12, metric: {name: 'vllm:num_requests_running', target: 6}, upscale_delay_seconds: 60"},
	{"by accelerator (A100 and L4)", "min_replicas: 1, max_replicas: 16, target_qps_per_replica: {A100: 0.6, L4: 0.3}, upscale_delay_seconds: 60"},
	{"to zero", "min_replicas: 0, max_replicas: 12, target_qps_per_replica: 0.6, upscale_delay_seconds: 60"},
}

const docScale = "min_replicas: 2, max_replicas: 10, target_qps_per_replica: 0.6, upscale_delay_seconds: 60"

var docPlacers = []struct{ name, policy string }{
	{"on-demand", ""},
	{"spot alone", "-"},
	{"`dynamic_ondemand_fallback: true`", "dynamic_ondemand_fallback: true"},
	{"`spot_placer: dynamic_fallback` and the same", "spot_placer: dynamic_fallback, dynamic_ondemand_fallback: true"},
	{"`spot_placer: hedged`", "spot_placer: hedged"},
}

// docSpec is a service of these pages.
func docSpec(policy string, spot bool) *spec.Spec {
	balancing := ""
	if strings.Contains(policy, "{A100") {
		balancing = "load_balancing_policy: instance_aware_least_load, "
	}
	text := fmt.Sprintf("service: {%sreplica_policy: {%s}}\nresources: {ports: 8000, use_spot: %v}", balancing, policy, spot)
	d, err := task.Parse("service.yaml", []byte(text))
	if err == nil {
		var s *spec.Spec
		if s, err = spec.Of(d.Tasks[0]); err == nil {
			return s
		}
	}
	panic(fmt.Sprintf("a policy of the documentation is wrong: %v in\n%s", err, text))
}

// Doc is the part of docs/serve.md that this package writes.
func Doc() string {
	var b strings.Builder
	span := docDays * 24 * time.Hour
	traces := Requests(span, docPeak, docSeed)
	fmt.Fprintf(&b, "%d days, at most %.0f requests a second; a replica works on 8 requests at a time, 10 seconds on each, and is ready 4 minutes after it was asked for.\n", docDays, docPeak)
	b.WriteString("*Waited*: more than a second for a replica. *Failed*: waited for 5 minutes, or lost the replica.\n\n")
	b.WriteString("| `replica_policy` |")
	for _, t := range traces {
		fmt.Fprintf(&b, " %s: waited | failed | replica-hours |", t.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", 3*len(traces)) + "\n")
	for _, p := range docPolicies {
		fmt.Fprintf(&b, "| %s |", p.name)
		for _, t := range traces {
			r := rowOf("", "", Run(Options{Spec: docSpec(p.policy, false), Requests: t.Requests, Span: span}), 0)
			fmt.Fprintf(&b, " %.2f%% | %.3f%% | %.0f |", 100*r.WaitedShare, 100*r.FailedShare, r.ReplicaHours)
		}
		b.WriteString("\n")
	}
	span = docSpotDays * 24 * time.Hour
	t := Requests(span, docSpotPeak, docSeed)[0]
	fmt.Fprintf(&b, "\nSpot machines in nine zones of three regions for %d days, diurnal, at most %.0f requests a second. Zones run out for hours, regions with most of their zones. "+
		"A spot machine costs about a third. Two runs, each with zones of its own; the worse counts for what waited and failed.\n\n", docSpotDays, docSpotPeak)
	b.WriteString("| | waited | failed | failed, without notices | cost, of on-demand | preemptions |\n|---|---|---|---|---|---|\n")
	onDemandCost := 0.0
	for _, p := range docPlacers {
		var worst, sum Row
		sudden := 0.0
		const runs = 2
		for seed := range uint64(runs) {
			o := Options{Spec: docSpec(docScale, false), Requests: t.Requests, Span: span, Zones: Zones(span, seed)}
			if p.policy != "" {
				o.Spec = docSpec(strings.TrimSuffix(docScale+", "+strings.Trim(p.policy, "-"), ", "), true)
			}
			r := rowOf("", "", Run(o), 0)
			worst.WaitedShare, worst.FailedShare = max(worst.WaitedShare, r.WaitedShare), max(worst.FailedShare, r.FailedShare)
			sum.Cost += r.Cost / runs
			sum.Preemptions += r.Preemptions
			if p.policy != "" {
				o.Machine.Notice = -1
				sudden = max(sudden, 1-Run(o).Served())
			}
		}
		if p.policy == "" {
			onDemandCost = sum.Cost
		}
		fmt.Fprintf(&b, "| %s | %.2f%% | %.3f%% | %.3f%% | %.0f%% | %d |\n", p.name, 100*worst.WaitedShare, 100*worst.FailedShare, 100*sudden, 100*sum.Cost/onDemandCost, sum.Preemptions)
	}
	return b.String()
}

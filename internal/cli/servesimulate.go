package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/serve/simulate"
	"github.com/skypilot-go/sky/internal/serve/spec"
	"github.com/skypilot-go/sky/internal/table"
	"github.com/skypilot-go/sky/task"
)

// simulation has the options of sky serve simulate.
type simulation struct {
	requests, availability           string
	days, peak, work, launch, start  float64
	notice, patience, onDemand, spot float64
	slots                            int
	seed                             uint64
}

func (a *app) serveSimulateCommand() *cobra.Command {
	var o simulation
	return a.build(command{
		name: "simulate", args: "SERVICE_YAML", short: "Say what a service's scaling would cost, and how many requests would wait.", min: 1, max: 1, noConfig: true,
		long: "Requests are replayed in virtual time against the decisions that the service would make; nothing is rented or sent anywhere. " +
			"Without --requests three traces are made: diurnal, bursts, ramps. A service on spot machines is compared with the same on on-demand machines; " +
			"without --availability nine zones in three regions run out of machines for hours at a time.\n\n" +
			"WAITED is the share of requests that waited for more than a second for a replica; FAILED of those that waited for too long, or whose replica was taken away.",
		example: "sky serve simulate service.yaml\n" +
			"sky serve simulate service.yaml --requests traces/ --work-seconds 20 --slots 16\n" +
			"sky serve simulate spot.yaml --availability zones/ --on-demand-price 4 --spot-price 1.2 -o json",
		flags: func(f flags) {
			f.text(&o.requests, "requests", "", "Folder of request traces: files with arrival times in seconds, one a line.")
			f.text(&o.availability, "availability", "", "Folder of availability traces, a *.json file for each zone: {\"metadata\": {\"gap_seconds\": 195}, \"data\": [0, 1, 1]}.")
			f.Float64Var(&o.days, "days", 3, "Length of the traces that are made.")
			f.Float64Var(&o.peak, "peak", 0, "Their highest rate, in requests a second (default: what max_replicas can serve, with some room).")
			f.Uint64Var(&o.seed, "seed", 1, "Another seed makes other traces.")
			f.Float64Var(&o.work, "work-seconds", 10, "How long a replica works on a request, on average.")
			f.IntVar(&o.slots, "slots", 8, "Requests that a replica works on at the same time.")
			f.Float64Var(&o.launch, "launch-seconds", 150, "From asking for a machine to a program that starts, on average.")
			f.Float64Var(&o.start, "start-seconds", 90, "From there to a replica that is ready, on average.")
			f.Float64Var(&o.notice, "notice-seconds", 120, "For how long it is known before that a spot machine is taken away.")
			f.Float64Var(&o.patience, "patience-seconds", 0, "For how long requests wait (default: load_balancer.queue.max_wait_seconds of the service).")
			f.Float64Var(&o.onDemand, "on-demand-price", 3, "Of a machine, in $ an hour.")
			f.Float64Var(&o.spot, "spot-price", 0, "The same of a spot machine (default: about a third of --on-demand-price).")
			for _, name := range []string{"peak", "patience-seconds", "spot-price"} {
				f.Lookup(name).DefValue = "" // 0 is no value
			}
			f.out(a)
		},
		run: func(_ context.Context, _ *cobra.Command, words []string) error { return a.simulate(words[0], o) },
	})
}

func (a *app) simulate(file string, o simulation) error {
	sp, err := a.simulated(file)
	if err != nil {
		return err
	}
	m, err := o.machine()
	if err != nil {
		return err
	}
	run := simulate.Options{Spec: sp, Seed: o.seed, Machine: m}
	var traces []simulate.Trace
	if o.requests != "" {
		if traces, err = simulate.ReadRequests(expandHome(o.requests, a.home)); err != nil {
			return err
		}
		for _, t := range traces {
			run.Span = max(run.Span, seconds(t.Requests[len(t.Requests)-1]+60))
		}
	} else {
		run.Span = time.Duration(o.days * float64(24*time.Hour))
		peak := o.peak
		if peak == 0 {
			peak = simulate.Peak(sp, m)
		}
		if n := peak * run.Span.Seconds(); n > mostRequests {
			return usagef("%.0f requests are more than can be replayed (%.0g); give less of --days or --peak.", n, float64(mostRequests))
		}
		traces = simulate.Requests(run.Span, peak, o.seed)
	}
	switch {
	case o.availability != "":
		if run.Zones, err = simulate.ReadZones(expandHome(o.availability, a.home)); err != nil {
			return err
		}
	case sp.Spot:
		run.Zones = simulate.Zones(run.Span, o.seed)
		for i := range run.Zones { // prices around the given one
			run.Zones[i].Price *= m.Spot
		}
	}
	rows := simulate.Compare(run, traces, nil)
	if done, err := a.emit(rows); done {
		return err
	}
	a.t.Print(a.t.Table(simulationTable(rows)))
	return nil
}

// simulationTable lists what each policy would have done.
func simulationTable(rows []simulate.Row) *table.Table {
	tab := table.New(simulate.Header...).Whole("TRACE", "POLICY").Optional("MOST", "PREEMPTED", "REPLICA_HOURS", "FAILED", "REQUESTS")
	for _, r := range rows {
		tab.Add(r.Cells()...)
	}
	return tab
}

// simulated reads the service of a file.
func (a *app) simulated(file string) (*spec.Spec, error) {
	text, err := a.readFile(file)
	if err != nil {
		return nil, err
	}
	d, err := task.Parse(fileTitle(file), text)
	if err != nil {
		return nil, err
	}
	one, err := single(d, "A service is a single task; the file has several.")
	if err != nil {
		return nil, err
	}
	if one.Service == nil {
		return nil, usagef("Service section not found in the YAML file. To fix, add a valid `service` field.")
	}
	if err := checkServicePorts(one); err != nil {
		return nil, err
	}
	return spec.Of(one)
}

func (o simulation) machine() (simulate.Machine, error) {
	for _, n := range []struct {
		name    string
		value   float64
		least   float64
		highest float64
	}{
		{"days", o.days, 0.01, 366}, {"peak", o.peak, 0, 1e4}, {"work-seconds", o.work, 0.001, 1e6}, {"slots", float64(o.slots), 1, 1e6}, {"launch-seconds", o.launch, 1, 1e6},
		{"start-seconds", o.start, 1, 1e6}, {"notice-seconds", o.notice, 0, 1e6}, {"patience-seconds", o.patience, 0, 1e6}, {"on-demand-price", o.onDemand, 0.0001, 1e6}, {"spot-price", o.spot, 0, 1e6},
	} {
		if !(n.value >= n.least && n.value <= n.highest) {
			plain := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
			return simulate.Machine{}, usagef("Invalid value for '--%s': it should be from %s to %s, not %s.", n.name, plain(n.least), plain(n.highest), plain(n.value))
		}
	}
	m := simulate.Machine{Work: seconds(o.work), Slots: o.slots, Launch: seconds(o.launch), Start: seconds(o.start), Notice: seconds(o.notice),
		Patience: seconds(o.patience), OnDemand: o.onDemand, Spot: o.spot}
	if o.notice == 0 {
		m.Notice = -1
	}
	if o.spot == 0 {
		m.Spot = o.onDemand / 3.15
	}
	return m, nil
}

// mostRequests is what a trace that is made may have: minutes of replaying.
const mostRequests = 1e8

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

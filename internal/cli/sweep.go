package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// sweepOptions are the flags of sky sweep.
type sweepOptions struct {
	terminate, adopt, yes bool
	grace                 *int
}

func (a *app) sweepCommand() *cobra.Command {
	var o sweepOptions
	return a.build(command{
		name: "sweep", args: "[CLOUDS]...", short: "List machines that run but belong to no cluster, and end them.", max: -1,
		long: "Everything that sky rents carries the tags of its installation. What has these tags on any cloud and belongs\n" +
			"to no cluster on record costs money for nothing: it is listed, and with --terminate ended. The API server looks\n" +
			"for such machines by itself now and then, and says so in its log and metrics.\n\n" +
			"With --adopt they become clusters on record again, as far as their tags tell, as after the loss of the server's\n" +
			"database. Their agents get new certificates where the user's ssh key is still there; where it is not, sky stop and\n" +
			"sky down work and nothing else does.\n\n" +
			"The exit code is 0 when nothing is left, 1 when something is or a cloud could not be asked.",
		example: "sky sweep\nsky sweep aws gcp -o json\nsky sweep --terminate",
		flags: func(f flags) {
			f.on(&o.terminate, "terminate", "", "End what is found.")
			f.on(&o.adopt, "adopt", "", "Take what is found back into the records, as clusters.")
			f.number(&o.grace, "grace", "", "Minutes for which a machine must have been there to count; 0: none (default: provision.sweep.grace_minutes).")
			f.yes(&o.yes)
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, clouds []string) error { return a.sweep(ctx, clouds, o) },
	})
}

func (a *app) sweep(ctx context.Context, clouds []string, o sweepOptions) error {
	if o.grace != nil && *o.grace < 0 {
		return usagef("Invalid value for '--grace': %d is negative.", *o.grace)
	}
	if o.adopt && o.terminate {
		return usagef("Choose one of --adopt and --terminate.")
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	body := api.SweepBody{Clouds: clouds, Adopt: o.adopt}
	if o.grace != nil {
		body.GraceMinutes = new(float64(*o.grace))
	}
	report, err := a.swept(ctx, c, body)
	if err != nil {
		return err
	}
	if o.terminate && len(report.Strays) > 0 {
		if a.output == "table" {
			a.t.Print(sweepText(a.t, report, a.now()))
		}
		if !o.yes {
			if err := a.t.Confirm(ctx, fmt.Sprintf("Terminating %s. Proceed?", countText(machinesOf(report.Strays), "machine", "machines")), false); err != nil {
				return err
			}
		}
		body.Terminate = true
		for _, s := range report.Strays { // those that were shown, no others
			body.Strays = append(body.Strays, s.ID)
		}
		if report, err = a.swept(ctx, c, body); err != nil {
			return err
		}
	}
	done, err := a.emit(report)
	if err != nil {
		return err
	}
	if !done {
		a.t.Print(sweepText(a.t, report, a.now()))
	}
	if len(report.Unlisted) > 0 || slices.ContainsFunc(report.Strays, func(s api.Stray) bool { return !s.Ended && s.Adopted == "" }) {
		return exitError(1)
	}
	return nil
}

func (a *app) swept(ctx context.Context, c *sky.Client, body api.SweepBody) (api.SweepReport, error) {
	req, err := c.Sweep(ctx, body)
	return wait(ctx, a, req, err)
}

func machinesOf(strays []api.Stray) int {
	n := 0
	for _, s := range strays {
		n += len(s.Machines)
	}
	return n
}

func countText(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// sweepTable lists machines that belong to no cluster.
func sweepTable(r api.SweepReport, now time.Time) *table.Table {
	tab := table.New("CLOUD", "PLACE", "CLUSTER", "MACHINES", "STATE", "SINCE", "RESULT").
		Whole("CLUSTER").Prose("RESULT").Optional("SINCE", "STATE", "MACHINES", "PLACE")
	for _, s := range r.Strays {
		var places, states []string
		for _, m := range s.Machines {
			place := m.Zone
			if place == "" {
				place = m.Region
			}
			if m.Account != "" {
				place += " (" + m.Account + ")"
			}
			places, states = addOnce(places, place), addOnce(states, m.State)
		}
		result := "left"
		switch {
		case s.Ended:
			result = "ended"
		case s.Adopted != "":
			result = "now cluster " + s.Adopted
		case s.Error != "":
			result = "left: " + s.Error
		}
		tab.Add(s.Cloud, strings.Join(places, ", "), s.Cluster, fmt.Sprint(len(s.Machines)), strings.Join(states, ", "),
			ageText(now.Sub(time.Unix(s.Since, 0)))+" ago", result)
	}
	return tab
}

// sweepText is what a sweep found and did, for people.
func sweepText(t *term.Term, r api.SweepReport, now time.Time) string {
	var b strings.Builder
	left, ended := 0, 0
	for _, s := range r.Strays {
		switch {
		case s.Ended:
			ended += len(s.Machines)
		case s.Adopted == "":
			left += len(s.Machines)
		}
	}
	if len(r.Strays) > 0 {
		b.WriteString(t.Table(sweepTable(r, now)))
	}
	switch {
	case len(r.Strays) == 0 && len(r.Unlisted) == 0:
		b.WriteString("No machines without a cluster.\n")
	case len(r.Strays) == 0:
		b.WriteString("No machines without a cluster on the clouds that could be asked.\n")
	}
	if ended > 0 {
		fmt.Fprintf(&b, "%s ended.\n", countText(ended, "machine", "machines"))
	}
	if left > 0 {
		fmt.Fprintf(&b, "%s cost money and belong to no cluster. To end what is left: sky sweep --terminate; to make it clusters again: sky sweep --adopt\n", t.Style(term.Red, countText(left, "machine", "machines")))
	}
	if r.Elsewhere {
		b.WriteString("Another API server sweeps at the moment, so nothing was ended here; look again in a minute.\n")
	}
	for _, cloud := range slices.Sorted(maps.Keys(r.Unlisted)) {
		fmt.Fprintf(&b, "%s could not be asked: %s\n", cloud, r.Unlisted[cloud])
	}
	return b.String()
}

func addOnce(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

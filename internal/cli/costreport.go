package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// costRows are shown without --all.
const costRows = 5

func (a *app) costReportCommand() *cobra.Command {
	var all bool
	days := new(30)
	return a.build(command{
		name: "cost-report", short: "Show what clusters cost, past ones included.",
		example: "sky cost-report\nsky cost-report --days 7 -a\nsky cost-report -o json",
		flags: func(f flags) {
			f.on(&all, "all", "a", "Show all clusters, not only the latest ones.")
			f.number(&days, "days", "", "How far to look back; 0 means everything.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if *days < 0 {
				return usagef("Invalid value for '--days': %d is negative.", *days)
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.CostReport(ctx, api.CostReportBody{Days: days})
			records, err := wait(ctx, a, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(costJSON(records)); done {
				return err
			}
			a.t.Print(costText(a.t, records, *days, all, a.now()))
			return nil
		},
	})
}

const terminated = api.ClusterStatus("TERMINATED")

// costJSON gives clusters that are gone a status of their own.
func costJSON(records []api.CostRecord) []api.CostRecord {
	out := slices.Clone(nonNil(records))
	for i := range out {
		out[i].Status = new(costStatus(out[i]))
	}
	return out
}

func costStatus(r api.CostRecord) api.ClusterStatus {
	if r.Status == nil || *r.Status == "" {
		return terminated
	}
	return *r.Status
}

// costText lists live clusters first, then the latest ones.
func costText(t *term.Term, records []api.CostRecord, days int, all bool, now time.Time) string {
	sorted := slices.Clone(records)
	slices.SortStableFunc(sorted, func(x, y api.CostRecord) int {
		if live := cmp.Compare(gone(x), gone(y)); live != 0 {
			return live
		}
		return cmp.Compare(y.LaunchedAt, x.LaunchedAt)
	})
	var clusters, controllers []api.CostRecord
	total := 0.0
	for _, r := range sorted {
		total += r.TotalCost
		if controllerOf(r.Name) != "" {
			controllers = append(controllers, r)
		} else {
			clusters = append(clusters, r)
		}
	}
	cut := !all && len(clusters) > costRows
	if cut {
		clusters = clusters[:costRows]
	}
	var b strings.Builder
	if len(clusters) > 0 {
		title := "Clusters"
		if days > 0 {
			title += fmt.Sprintf(" (last %d days)", days)
		}
		b.WriteString(t.Style(term.Title, title) + "\n" + t.Table(costTable(t, clusters, now)))
	}
	for _, r := range controllers {
		b.WriteString("\n" + t.Style(term.Title, controllerOf(r.Name)+" controller") + "\n" + t.Table(costTable(t, []api.CostRecord{r}, now)))
	}
	fmt.Fprintf(&b, "\n%s\n", t.Style(term.Bold, fmt.Sprintf("Total Cost: $%.2f", total)))
	if !all {
		fmt.Fprintf(&b, "%s\n", t.Style(term.Yellow, fmt.Sprintf("Showing up to %d most recent clusters. To see all clusters in history, pass the --all flag.", costRows)))
	}
	b.WriteString("Costs are estimates by list prices. Costs of clusters with auto{stop,down} scheduled may not be accurate.\n")
	return b.String()
}

func gone(r api.CostRecord) int {
	if costStatus(r) == terminated {
		return 1
	}
	return 0
}

func costTable(t *term.Term, records []api.CostRecord, now time.Time) *table.Table {
	tab := table.New("NAME", "LAUNCHED", "DURATION", "RESOURCES", "STATUS", "COST/hr", "COST (est.)").
		Whole("NAME", "STATUS").Optional("LAUNCHED", "RESOURCES", "DURATION")
	for _, r := range records {
		status := costStatus(r)
		cell := t.Style(term.Red, string(status))
		if status != terminated {
			cell = clusterStatusCell(t, status)
		}
		tab.Add(format.Name(r.Name), format.Ago(float64(r.LaunchedAt), now), format.Seconds(float64(r.Duration)), format.OrDash(r.ResourcesStr), cell,
			format.Price(&r.HourlyPrice, 2), format.Price(&r.TotalCost, 2))
	}
	return tab
}

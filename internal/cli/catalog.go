package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/table"
)

func (a *app) catalogCommand() *cobra.Command {
	return a.build(command{
		name: "catalog", short: "Price lists: how old they are, fetch them again, rebuild them.",
		example: "sky catalog status\nsky catalog refresh aws gcp",
		group:   []*cobra.Command{a.catalogStatusCommand(), a.catalogRefreshCommand(), a.catalogFetchCommand()},
	})
}

func (a *app) catalogStatusCommand() *cobra.Command {
	return a.build(command{
		name: "status", short: "Show where each cloud's prices come from and how old they are.",
		example: "sky catalog status\nsky catalog status -o json",
		flags:   func(f flags) { f.out(a) },
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.CatalogStatus(ctx)
			lists, err := wait(ctx, a, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(lists); done {
				return err
			}
			a.t.Print(a.t.Table(catalogTable(lists)))
			return nil
		},
	})
}

func (a *app) catalogRefreshCommand() *cobra.Command {
	return a.build(command{
		name: "refresh", args: "[CLOUDS]...", short: "Fetch price lists again, except those you have edited.", max: -1,
		example: "sky catalog refresh\nsky catalog refresh aws gcp",
		flags:   func(f flags) { f.out(a) },
		run: func(ctx context.Context, _ *cobra.Command, clouds []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.RefreshCatalog(ctx, clouds)
			lists, err := wait(ctx, a, req, err)
			if err != nil {
				return err
			}
			_, err = a.emit(lists)
			return err
		},
	})
}

// catalogTable lists price lists.
func catalogTable(lists []api.CatalogStatus) *table.Table {
	tab := table.New("CLOUD", "OFFERS", "AGE", "REFRESHED", "NOTES").Prose("NOTES").Optional("REFRESHED")
	for _, l := range lists {
		age, period, offers := "-", "never", "-"
		if l.FetchedAt > 0 {
			age, offers = ageText(time.Duration(l.AgeSeconds)*time.Second), fmt.Sprint(l.Offers)
		}
		if l.PeriodSeconds > 0 {
			period = "every " + ageText(time.Duration(l.PeriodSeconds)*time.Second)
		}
		var notes []string
		if l.FetchedAt == 0 {
			notes = append(notes, "not fetched yet")
		}
		if l.Edited {
			notes = append(notes, "edited by you: never overwritten")
		}
		if l.Overdue {
			notes = append(notes, "overdue")
		}
		if l.Malformed > 0 {
			notes = append(notes, fmt.Sprintf("%d rows skipped", l.Malformed))
		}
		if l.Problem != "" {
			notes = append(notes, l.Problem)
		}
		tab.Add(l.Cloud, offers, age, period, strings.Join(notes, "; "))
	}
	return tab
}

// ageText is a time span in its two largest units.
func ageText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60), "0m")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

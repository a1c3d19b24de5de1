package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// auditRows are shown unless more are asked for.
const auditRows = 50

func (a *app) auditCommand() *cobra.Command {
	var since, user, cluster string
	var lines bool
	limit := new(auditRows)
	return a.build(command{
		name: "audit", short: "Show who changed what through the API server.", noConfig: true,
		example: "sky audit --since 24h\nsky audit --cluster 'train-*' --user ada\nsky audit --since 2026-01-01 --jsonl > audit.jsonl",
		flags: func(f flags) {
			f.text(&since, "since", "", "Only calls of the last time, such as 90m, 24h or 7d, or since a date.")
			f.text(&user, "user", "", "Only calls of a user, by name or id.")
			f.text(&cluster, "cluster", "", "Only calls about a cluster; may be a pattern.")
			f.number(&limit, "limit", "l", fmt.Sprintf("How many calls to show, the newest first (%d).", auditRows))
			f.on(&lines, "jsonl", "", "Export every entry, one JSON object a line.")
			f.out(a)
		},
		run: func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			f := sky.AuditFilter{User: user, Cluster: cluster, Limit: *limit}
			if *limit < 1 {
				return usagef("Invalid value for '--limit': %d is not at least 1.", *limit)
			}
			var err error
			if f.Since, err = parseSince(since, a.now()); err != nil {
				return err
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if lines {
				if !cmd.Flags().Changed("limit") {
					f.Limit = 0
				}
				return c.ExportAudit(ctx, f, a.t.Out)
			}
			records, err := c.Audit(ctx, f)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(records)); done {
				return err
			}
			if len(records) == 0 {
				a.t.Println("No calls on record.")
				return nil
			}
			a.t.Print(a.t.Table(auditTable(a.t, records, a.now())))
			return nil
		},
	})
}

// parseSince reads how far to look back: a time such as 90m or 7d, or a date.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 36500 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("Invalid value for '--since': %q is neither a time such as 24h or 7d nor a date such as 2026-01-31.", s)
}

func auditTable(t *term.Term, records []api.AuditRecord, now time.Time) *table.Table {
	tab := table.New("WHEN", "USER", "ROLE", "FROM", "ACTION", "CLUSTER", "RESULT", "REQUEST").Whole("CLUSTER", "RESULT", "REQUEST").Optional("ROLE", "FROM", "CLUSTER", "WHEN")
	for _, r := range records {
		result := cmp.Or(r.Result, "RUNNING")
		style := map[string]term.Style{"SUCCEEDED": term.Green, "FAILED": term.Red, "DENIED": term.Red}[result]
		tab.Add(format.Ago(r.At, now), format.OrDash(cmp.Or(r.UserName, r.UserID)), format.OrDash(r.Role), format.OrDash(r.Address),
			strings.TrimPrefix(r.Action, "sky."), format.OrDash(r.Cluster), t.Style(style, result), r.ID)
	}
	return tab
}

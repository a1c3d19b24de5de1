package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/table"
)

func (a *app) jobsScheduleCommand() *cobra.Command {
	return a.build(command{
		name: "schedule", aliases: []string{"schedules"}, short: "Managed jobs that are submitted again and again.",
		example: "sky jobs schedule ls\nsky jobs schedule cancel 1",
		long:    "A task with a schedule field is kept by \"sky jobs launch\" and submitted whenever its time comes.",
		group:   []*cobra.Command{a.scheduleListCommand(), a.scheduleCancelCommand()},
	})
}

func (a *app) scheduleListCommand() *cobra.Command {
	var b api.JobsSchedulesBody
	return a.build(command{
		name: "ls", short: "List schedules.", max: 0,
		example: "sky jobs schedule ls\nsky jobs schedule ls --all -o json",
		flags: func(f flags) {
			f.on(&b.All, "all", "a", "Those that have ended, too.")
			f.on(&b.AllUsers, "all-users", "u", "The schedules of all users.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.JobSchedules(ctx, b)
			list, err := quiet(ctx, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(list)); done {
				return err
			}
			if len(list) == 0 {
				a.t.Println("No schedules.")
				return nil
			}
			a.t.Print(a.t.Table(schedulesTable(list, b.AllUsers, a.now())))
			return nil
		},
	})
}

// schedulesTable lists schedules; times are in the zone of each.
func schedulesTable(list []api.JobsSchedule, users bool, now time.Time) *table.Table {
	tab := table.New("ID", "NAME").Whole("ID", "NAME", "SCHEDULE", "STATUS").Optional("LEFT OUT", "RUNS", "LAST", "LAST JOB", "USER", "TIMEZONE")
	if users {
		tab.Header = append(tab.Header, "USER")
	}
	tab.Header = append(tab.Header, "SCHEDULE", "TIMEZONE", "NEXT", "LAST", "LAST JOB", "RUNS", "LEFT OUT", "STATUS")
	for _, s := range list {
		row := []string{strconv.Itoa(s.ID), s.Name}
		if users {
			row = append(row, format.OrDash(s.UserName))
		}
		status := "ACTIVE"
		if s.EndedAt != nil {
			status = "ENDED " + format.Ago(*s.EndedAt, now)
		}
		tab.Add(append(row, s.Cron, s.Timezone, clock(s.NextAt, s.Timezone), clock(s.LastAt, s.Timezone), number(s.LastJob),
			strconv.Itoa(s.Runs), strconv.Itoa(s.LeftOut), status)...)
	}
	return tab
}

// clock is a time in a zone.
func clock(at *float64, zone string) string {
	if at == nil {
		return "-"
	}
	l, err := time.LoadLocation(zone)
	if err != nil {
		l = time.UTC
	}
	return time.Unix(int64(*at), 0).In(l).Format("2006-01-02 15:04")
}

func (a *app) scheduleCancelCommand() *cobra.Command {
	var name string
	var all, allUsers, yes bool
	return a.build(command{
		name: "cancel", args: "[SCHEDULE_IDS]...", needs: "SCHEDULE_IDS, --name, --all or --all-users", short: "End schedules; jobs that they submitted go on.", max: -1,
		example: "sky jobs schedule cancel 1\nsky jobs schedule cancel -n nightly",
		flags: func(f flags) {
			f.text(&name, "name", "n", "The schedules of this name.")
			f.on(&all, "all", "a", "All your schedules.")
			f.on(&allUsers, "all-users", "u", "The schedules of all users.")
			f.yes(&yes)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			given, what := 0, "schedules "+joinInts(ids, ",")
			if len(ids) > 0 {
				given++
			}
			if name != "" {
				given, what = given+1, fmt.Sprintf("the schedules named '%s'", name)
			}
			if all || allUsers {
				given, what = given+1, "all schedules"
				if allUsers {
					what += " FOR ALL USERS"
				}
			}
			if given != 1 {
				return usagef("Say in exactly one way which schedules to end: SCHEDULE_IDS, --name, or --all/--all-users.")
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if !yes {
				if err := a.t.Confirm(ctx, "Ending "+what+". Proceed?", true); err != nil {
					return err
				}
			}
			req, err := c.EndJobSchedules(ctx, api.JobsEndSchedulesBody{ScheduleIDs: ids, Name: optional(name), All: all, AllUsers: allUsers})
			_, err = wait(ctx, a, req, err)
			return err
		},
	})
}

// scheduleHints is the block after a schedule was kept.
func scheduleHints(id int) string {
	return fmt.Sprintf("\n📋 Useful Commands\nSchedule ID: %d\n├── To end the schedule:\tsky jobs schedule cancel %[1]d\n"+
		"├── To list schedules:\t\tsky jobs schedule ls\n└── To view all managed jobs:\tsky jobs queue\n", id)
}

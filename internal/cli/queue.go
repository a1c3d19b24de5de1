package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

func (a *app) queueCommand() *cobra.Command {
	var allUsers, skipFinished bool
	return a.oldFlags(a.build(command{
		name: "queue", args: "[CLUSTERS]...", short: "Show the jobs of clusters.", max: -1,
		long:     "Without CLUSTERS, the queues of all your clusters are shown.",
		example:  "sky queue dev\nsky queue -s 'train-*'\nsky queue -o json",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.on(&allUsers, "all-users", "u", "Show the jobs of all users.")
			f.on(&skipFinished, "skip-finished", "s", "Show only jobs that have not ended.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			return a.queue(ctx, names, skipFinished, allUsers)
		},
	}), oldFlag{name: "all", short: "a", today: "all-users"})
}

// queueOf is the queue of one cluster, or why there is none.
type queueOf struct {
	cluster string
	jobs    []api.JobRecord
	err     error
}

func (a *app) queue(ctx context.Context, names []string, skipFinished, allUsers bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	a.progress("Fetching and parsing job queue...")
	clusters, err := a.expand(ctx, c, names, allUsers)
	if err != nil {
		return err
	}
	queues := make([]queueOf, len(clusters))
	var g errgroup.Group
	g.SetLimit(8)
	for i, name := range clusters {
		queues[i].cluster = name
		g.Go(func() error {
			req, err := c.Queue(ctx, api.QueueBody{ClusterName: name, SkipFinished: skipFinished, AllUsers: allUsers})
			queues[i].jobs, queues[i].err = quiet(ctx, req, err)
			return nil
		})
	}
	_ = g.Wait()
	byCluster := map[string][]api.JobRecord{}
	for _, q := range queues {
		switch {
		case q.err == nil:
			byCluster[q.cluster] = nonNil(q.jobs)
		case !perCluster(q.err):
			return q.err
		}
	}
	if done, err := a.emit(byCluster); done {
		for _, q := range queues {
			if q.err != nil {
				a.t.Warn("Failed to get the job queue for cluster '%s'.\n  %s", q.cluster, errorText(q.err))
			}
		}
		return err
	}
	if len(clusters) == 0 {
		a.t.Println("No existing clusters.")
	}
	whose := "current user"
	if allUsers {
		whose = "all users"
	}
	for _, q := range queues {
		if q.err != nil {
			a.t.Printf("%s\n  %s\n", a.t.Style(term.Yellow, "Failed to get the job queue for cluster '"+q.cluster+"'."), errorText(q.err))
			continue
		}
		a.t.Printf("\nJob queue of %s on cluster %s\n%s", whose, q.cluster, a.t.Table(jobTable(a.t, q.jobs, a.now())))
	}
	return nil
}

// progress is a line that only people need: on the error stream when the output
// is for programs.
func (a *app) progress(text string) {
	if a.output == "table" {
		a.t.Println(text)
	} else {
		a.t.Note("%s", text)
	}
}

// expand turns names and patterns into cluster names; none means all of the
// caller's. A plain name stays even when the server does not list it, so that
// the server says what is wrong with it.
func (a *app) expand(ctx context.Context, c *sky.Client, names []string, allUsers bool) ([]string, error) {
	patterns := len(names) == 0
	for _, n := range names {
		patterns = patterns || isPattern(n)
	}
	if !patterns {
		return names, nil
	}
	records, err := a.listClusters(ctx, c, names, false, allUsers)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range records {
		out = append(out, r.Name)
	}
	for _, n := range notFound(names, records) {
		if isPattern(n) {
			a.t.Warn("No clusters match '%s'.", n)
		} else {
			out = append(out, n)
		}
	}
	return out, nil
}

// errorText is a failure in one line, with its class.
func errorText(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return className(e.Type) + ": " + plainText(e.Message)
	}
	return err.Error()
}

// jobTable lists the jobs of a cluster.
func jobTable(t *term.Term, jobs []api.JobRecord, now time.Time) *table.Table {
	tab := table.New("ID", "NAME", "USER", "SUBMITTED", "STARTED", "DURATION", "RESOURCES", "STATUS", "LOG", "GIT COMMIT").
		Whole("ID", "NAME", "STATUS", "LOG", "GIT COMMIT").Optional("GIT COMMIT", "LOG", "STARTED", "USER", "RESOURCES", "DURATION")
	for _, j := range jobs {
		commit, _ := j.Metadata["git_commit"].(string)
		tab.Add(format.Number(float64(j.JobID)), format.OrDash(j.JobName), j.Username,
			format.Ago(j.SubmittedAt, now), format.Ago(value(j.StartAt), now), jobDuration(j, now),
			j.Resources, jobStatusCell(t, j.Status), j.LogPath, format.OrDash(commit))
	}
	return tab
}

func jobDuration(j api.JobRecord, now time.Time) string {
	start := value(j.StartAt)
	if start <= 0 {
		return "-"
	}
	end := value(j.EndAt)
	if end <= 0 {
		end = float64(now.UnixMilli()) / 1000
	}
	return format.Elapsed(start, end)
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

func jobStatusCell(t *term.Term, s api.JobStatus) string {
	switch s {
	case api.JobSucceeded, api.JobRunning:
		return t.Style(term.Green, string(s))
	case api.JobFailed, api.JobFailedSetup, api.JobFailedDriver:
		return t.Style(term.Red, string(s))
	case api.JobCancelled, api.JobPending:
		return t.Style(term.Yellow, string(s))
	}
	return t.Style(term.Blue, string(s))
}

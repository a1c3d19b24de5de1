package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/state"
)

// Queue lists the jobs of one cluster, newest first.
func (m *Manager) Queue(ctx context.Context, call Call, body api.QueueBody) ([]api.JobRecord, error) {
	jobs, err := m.jobs(ctx, body.ClusterName, "Listing jobs")
	if err != nil {
		return nil, err
	}
	records := []api.JobRecord{}
	for _, j := range jobs {
		if body.SkipFinished && j.Status.Terminal() || !body.AllUsers && j.UserHash != call.User.ID {
			continue
		}
		records = append(records, jobRecord(j))
	}
	return records, nil
}

func (m *Manager) jobs(ctx context.Context, name, doing string) (jobs []agentapi.Job, err error) {
	err = m.ask(ctx, name, doing, func(_ *state.Cluster, client *agentclient.Client) error {
		jobs, err = client.Jobs(ctx)
		return err
	})
	return jobs, err
}

func jobRecord(j agentapi.Job) api.JobRecord {
	r := api.JobRecord{
		JobID: j.ID, JobName: orElse(j.Name, "-"), Username: j.User, UserHash: j.UserHash,
		SubmittedAt: j.SubmittedAt, Resources: j.Resources, Status: j.Status,
		LogPath: j.LogDir, Metadata: map[string]any{}, ExitCodes: j.ExitCodes, Reason: j.Reason,
	}
	if j.StartedAt > 0 {
		r.StartAt = &j.StartedAt
	}
	if j.EndedAt > 0 {
		r.EndAt = &j.EndedAt
	}
	for k, v := range j.Metadata {
		r.Metadata[k] = v
	}
	return r
}

// JobStatus tells the states of jobs by id; an unknown id has none. Without
// ids it is the latest job.
func (m *Manager) JobStatus(ctx context.Context, body api.JobStatusBody) (map[string]*api.JobStatus, error) {
	ids := body.JobIDs
	if len(ids) == 0 {
		ids = []int{0}
	}
	out := map[string]*api.JobStatus{}
	err := m.ask(ctx, body.ClusterName, "Asking for job states", func(_ *state.Cluster, client *agentclient.Client) error {
		for _, id := range ids {
			job, err := client.Job(ctx, id)
			switch {
			case isNotFound(err) && id == 0:
			case isNotFound(err):
				out[strconv.Itoa(id)] = nil
			case err != nil:
				return err
			default:
				out[strconv.Itoa(job.ID)] = &job.Status
			}
		}
		return nil
	})
	return out, err
}

// JobAnd reports how far a job of a cluster is, nil if there is no such job, and then what
// a command prints on the head. It must be safe to run twice.
func (m *Manager) JobAnd(ctx context.Context, name string, id int, command string) (job *agentapi.Job, said []byte, err error) {
	err = m.ask(ctx, name, "Reading results", func(_ *state.Cluster, client *agentclient.Client) (err error) {
		if job, err = client.Job(ctx, id); isNotFound(err) {
			job, err = nil, nil
		}
		if err == nil {
			said, _, err = client.Run(ctx, agentapi.ShellQuery{Command: command})
		}
		return err
	})
	return job, said, err
}

// Rented says what a cluster's machines are, and what all nodes cost in $ per hour.
func Rented(c *state.Cluster) (text string, price float64) {
	return resourcesString(c, false), float64(c.NumNodes) * c.Offer.HourlyPrice
}

// Cancel ends jobs on a cluster and reports which.
func (m *Manager) Cancel(ctx context.Context, call Call, body api.CancelBody) error {
	req := agentapi.CancelRequest{IDs: body.JobIDs, UserHash: call.User.ID}
	switch {
	case body.AllUsers:
		req = agentapi.CancelRequest{All: true}
	case body.All:
		req = agentapi.CancelRequest{All: true, UserHash: call.User.ID}
	}
	if len(req.IDs) > 0 {
		req.UserHash = ""
	}
	call.Out.Spin("Cancelling jobs on cluster " + body.ClusterName)
	var resp *agentapi.CancelResponse
	var others []string
	err := m.ask(ctx, body.ClusterName, "Cancelling jobs", func(c *state.Cluster, client *agentclient.Client) (err error) {
		if err := RefuseHeld(c); err != nil {
			return err
		}
		if resp, err = client.Cancel(ctx, req); err != nil {
			return err
		}
		others, err = notCancelled(ctx, client, c.Name, req.IDs, resp.Cancelled)
		return err
	})
	call.Out.StopSpin()
	if err != nil {
		return err
	}
	for _, line := range others {
		fmt.Fprintln(call.Out, line)
	}
	if len(resp.Cancelled) == 0 {
		fmt.Fprintln(call.Out, "No job needed to be cancelled.")
		return nil
	}
	slices.Sort(resp.Cancelled)
	ids := make([]string, len(resp.Cancelled))
	for i, id := range resp.Cancelled {
		ids[i] = strconv.Itoa(id)
	}
	noun := "Job"
	if len(ids) > 1 {
		noun = "Jobs"
	}
	fmt.Fprintf(call.Out, "%s %s cancelled.\n", noun, strings.Join(ids, ", "))
	return nil
}

// notCancelled says of each job that was to be cancelled and was not, why.
func notCancelled(ctx context.Context, client *agentclient.Client, cluster string, ids, cancelled []int) (lines []string, err error) {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if slices.Contains(cancelled, id) {
			continue
		}
		job, err := client.Job(ctx, id)
		switch {
		case isNotFound(err):
			lines = append(lines, fmt.Sprintf("Job %d is not on cluster %s (see: sky queue %s).", id, cluster, cluster))
		case err != nil:
			return nil, err
		default:
			lines = append(lines, fmt.Sprintf("Job %d has already ended (status: %s).", id, job.Status))
		}
	}
	return lines, nil
}

// isNotFound reports whether an agent said that it has no such job.
func isNotFound(err error) bool {
	var e *agentapi.Error
	return errors.As(err, &e) && e.Code == agentapi.CodeNotFound
}

package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/state"
)

// Cancel asks for jobs to be ended and reports which. They end by themselves
// from then on, whatever becomes of the server.
func (m *Manager) Cancel(ctx context.Context, call cluster.Call, b api.JobsCancelBody) error {
	if count(len(b.JobIDs) > 0, b.Name != nil && *b.Name != "", b.Pool != nil && *b.Pool != "", b.All || b.AllUsers) != 1 {
		return &api.Error{Type: api.ErrValue, Message: "Say in exactly one way which managed jobs to cancel: by ids, by name, by pool, or all."}
	}
	if b.Pool != nil && *b.Pool != "" {
		return unsupported("pools", "Name the jobs by id, by name (-n), or say all (-a); they are in: sky jobs queue")
	}
	grace, err := cluster.Grace(b.Graceful, b.GracefulTimeout)
	if err != nil {
		return err
	}
	if b.AllUsers && call.Scope != nil {
		return &api.Error{Type: api.ErrPermissionDenied, Message: "Only administrators cancel the managed jobs of all users."}
	}
	f := state.ManagedFilter{IDs: b.JobIDs, Live: true, Scope: call.Scope}
	switch {
	case b.Name != nil && *b.Name != "":
		f.Name = *b.Name
		if call.Scope != nil { // of two jobs of one name, theirs is meant
			f.UserHash = call.User.ID
		}
	case b.All && !b.AllUsers:
		f.UserHash = call.User.ID
	}
	page, err := m.store.ManagedJobs().List(ctx, f)
	if err != nil {
		return err
	}
	var ids, elsewhere []int
	arrays := map[int]bool{}
	for _, r := range page.Rows {
		if !call.Scope.Owns(r.Job.UserHash) {
			return &api.Error{Type: api.ErrPermissionDenied,
				Message: fmt.Sprintf("Managed job %d belongs to %s: only they or an administrator may cancel it.", r.Job.ID, r.Job.UserName)}
		}
		list := &ids
		if r.Job.Workspace != workspace(call) {
			list = &elsewhere
		}
		arrays[cmp.Or(r.Job.Array, -r.Job.ID)] = true
		if n := len(*list); n == 0 || (*list)[n-1] != r.Job.ID {
			*list = append(*list, r.Job.ID)
		}
	}
	if len(elsewhere) > 0 {
		fmt.Fprintf(call.Out, "Skipped, because they are not in the active workspace %q: %s\n", workspace(call), join(elsewhere))
	}
	if f.Name != "" && len(arrays) > 1 { // the jobs of one array are meant together
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%d managed jobs that have not ended are named %q: %s. Cancel them by id.", len(ids), f.Name, join(ids))}
	}
	if err := m.sayEnded(ctx, call, f, page.Rows); err != nil {
		return err
	}
	asked, err := m.store.ManagedJobs().AskCancel(ctx, ids, cmp.Or(grace, proc.Grace))
	if err != nil {
		return err
	}
	for _, id := range asked {
		m.rows.Notify(id)
	}
	m.wake()
	switch len(asked) {
	case 0:
		fmt.Fprintln(call.Out, "No job to cancel.")
	case 1:
		fmt.Fprintf(call.Out, "Job with ID %d is scheduled to be cancelled.\n", asked[0])
	default:
		fmt.Fprintf(call.Out, "Jobs with IDs %s are scheduled to be cancelled.\n", join(asked))
	}
	return nil
}

// sayEnded says of each job that was named and is not among the live ones why it is
// not cancelled.
func (m *Manager) sayEnded(ctx context.Context, call cluster.Call, f state.ManagedFilter, live []state.ManagedRow) error {
	if len(f.IDs) == 0 {
		return nil
	}
	f.Live = false
	page, err := m.store.ManagedJobs().List(ctx, f)
	if err != nil {
		return err
	}
	for _, id := range f.IDs {
		of := func(r state.ManagedRow) bool { return r.Job.ID == id }
		switch {
		case slices.ContainsFunc(live, of):
		case slices.ContainsFunc(page.Rows, of):
			fmt.Fprintf(call.Out, "Managed job %d has already ended.\n", id)
		default:
			fmt.Fprintf(call.Out, "There is no managed job %d (see: sky jobs queue).\n", id)
		}
	}
	return nil
}

func join(ids []int) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = strconv.Itoa(id)
	}
	return strings.Join(out, ", ")
}

package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// mostJobs is how many jobs an array may have.
const mostJobs = 10000

// Submit stores a new managed job. The same request again gives the same job.
func (m *Manager) Submit(ctx context.Context, call cluster.Call, body api.JobsLaunchBody) (*api.JobsLaunchResult, error) {
	if err := notYet(body); err != nil {
		return nil, err
	}
	if err := m.check(ctx, body.Task); err != nil {
		return nil, err
	}
	dag, err := task.ParseSent("task", []byte(body.Task))
	if err != nil {
		return nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	if dag.Execution == task.Parallel {
		return nil, unsupported("job groups (execution: parallel)",
			"Tasks that need not reach each other run at the same time with `depends_on: []` in place of `execution: parallel`, each on a cluster of its own.")
	}
	if body.Name != nil && *body.Name != "" {
		dag.Name = *body.Name
		if len(dag.Tasks) == 1 {
			dag.Tasks[0].Name = dag.Name
		}
	}
	for _, t := range dag.Tasks {
		if err := cmp.Or(call.MayUse(t.Config), call.MayBegin(t.Config)); err != nil {
			return nil, err
		}
	}
	dag.FillNames(call.User.Name)
	at := dag.Schedule
	dag.Schedule = nil // what it submits is a plain job
	shown, err := dag.DisplayYAML()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	j := &state.ManagedJob{
		RequestID: call.RequestID, Name: dag.Name,
		UserHash: call.User.ID, UserName: call.User.Name, Workspace: workspace(call),
		Entrypoint: call.Command, UserYAML: string(shown), SubmittedAt: now,
	}
	if body.NumJobs != nil {
		j.Size = *body.NumJobs
	}
	j.Priority, j.PriorityClass = priority(dag)
	for _, t := range dag.Tasks {
		j.Tasks = append(j.Tasks, &state.ManagedTask{
			Name: t.Name, Resources: t.Requested(), UserYAML: cmp.Or(t.UserYAML, string(shown)), Metadata: t.Metadata,
		})
	}
	if len(body.OverrideConfig) > 0 {
		if j.Config, err = json.Marshal(body.OverrideConfig); err != nil {
			return nil, err
		}
	}
	var through []string
	if m.buckets != nil && at == nil { // a schedule's files outlive its jobs
		if through, err = m.buckets.Intermediate(ctx, call, "jobs", dag); err != nil {
			return nil, err
		}
	}
	call.Out.Spin("Keeping a copy of the job's files")
	folders, done, err := m.files.Take(ctx, call.User.ID, call.Files, dag)
	call.Out.StopSpin()
	if err != nil {
		return nil, err
	}
	defer done()
	j.Files = folders
	if j.Dag, err = dag.YAML(); err != nil {
		return nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	if at != nil {
		return m.schedule(ctx, call, j, *at)
	}
	if j, err = m.store.ManagedJobs().Submit(ctx, j); err != nil {
		return nil, err
	}
	for id := j.ID; len(through) > 0 && id < j.ID+max(1, j.Size); id++ {
		if err := m.buckets.HoldIntermediate(ctx, through, state.JobHolder(id)); err != nil {
			return nil, err
		}
	}
	m.wake()
	if j.Size == 0 {
		fmt.Fprintf(call.Out, "✓ Managed job submitted, ID: %d\n", j.ID)
		return &api.JobsLaunchResult{JobID: api.IntList{j.ID}}, nil
	}
	fmt.Fprintf(call.Out, "✓ Managed jobs submitted, IDs: %d to %d\n", j.ID, j.ID+j.Size-1)
	ids := make(api.IntList, j.Size)
	for i := range ids {
		ids[i] = j.ID + i
	}
	return &api.JobsLaunchResult{JobID: ids, Array: true}, nil
}

// priority is that of the job: any task may say it, and those that do agree; of
// classes the last counts.
func priority(dag *task.Dag) (n int, class string) {
	for _, t := range dag.Tasks {
		for _, r := range t.Resources {
			if r.Priority != nil {
				n = *r.Priority
			}
			class = cmp.Or(r.PriorityClass, class)
		}
	}
	return n, class
}

// workspace is the one that what a call makes belongs to.
func workspace(call cluster.Call) string {
	if call.Config == nil {
		return "default"
	}
	return call.Config.ActiveWorkspace()
}

// notYet refuses what this version cannot do.
func notYet(body api.JobsLaunchBody) error {
	switch {
	case body.NumJobs != nil && (*body.NumJobs < 1 || *body.NumJobs > mostJobs):
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("num_jobs should be from 1 to %d, not %d.", mostJobs, *body.NumJobs)}
	case body.Pool != nil && *body.Pool != "":
		return unsupported("pools", "Without a pool, each job gets a cluster of its own: sky jobs launch --num-jobs 10 task.yaml")
	}
	return nil
}

// unsupported refuses what this version lacks, and says what to do instead.
func unsupported(what, instead string) error {
	return &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf("This version of sky does not have %s yet.", what), Hint: instead}
}

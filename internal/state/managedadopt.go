package state

import (
	"context"
	"maps"
	"slices"
)

// ManagedAdopted is a job whose lease somebody got, as it is stored, with every
// attempt of its tasks in order.
type ManagedAdopted struct {
	Job      *ManagedJob
	Attempts []*ManagedAttempt
}

// AdoptAll makes the holder of leases, which are given by the ids of their jobs,
// the only one who may save those jobs. It returns, in order, the jobs of which
// that is true: not those that have ended, and not those for which a later lease
// was used already.
func (t *ManagedJobs) AdoptAll(ctx context.Context, leases map[int]Lease) ([]ManagedAdopted, error) {
	byEpoch := map[int64][]int{}
	for id, l := range leases {
		byEpoch[l.Epoch] = append(byEpoch[l.Epoch], id)
	}
	var adopted []int
	for epoch, ids := range byEpoch {
		var of []*int
		err := t.s.writeAgain(ctx, func(s *session) (err error) {
			of, err = all(s.once(), func(id *int) []any { return []any{id} }, `UPDATE managed_jobs SET epoch = ?, version = version + 1
				WHERE id IN (SELECT id FROM managed_jobs WHERE id IN (`+marks(len(ids))+") ORDER BY id"+s.d.inTurn+`)
				AND epoch <= ? AND schedule <> 'DONE' RETURNING id`, append(append([]any{epoch}, anys(ids)...), epoch)...)
			return err
		})
		if err != nil {
			return nil, err
		}
		adopted = append(adopted, values(of)...)
	}
	return t.withAttempts(ctx, adopted)
}

// withAttempts reads jobs with all that is known of their tasks.
func (t *ManagedJobs) withAttempts(ctx context.Context, ids []int) ([]ManagedAdopted, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	s := t.s.read(ctx).once()
	of, args := " IN ("+marks(len(ids))+") ", anys(ids)
	jobs, err := all(s, t.s.managedJobFields, selectManagedJobs+"WHERE id"+of, args...)
	if err != nil {
		return nil, t.s.explain(err)
	}
	tasks, err := all(s, managedTaskFields, "SELECT "+managedTaskColumns.list()+" FROM managed_tasks WHERE job_id"+of+"ORDER BY job_id, task", args...)
	if err != nil {
		return nil, t.s.explain(err)
	}
	attempts, err := all(s, managedAttemptFields, selectManagedAttempts+"WHERE job_id"+of+"ORDER BY job_id, task, attempt", args...)
	if err != nil {
		return nil, t.s.explain(err)
	}
	found := map[int]*ManagedAdopted{}
	for _, j := range jobs {
		found[j.ID] = &ManagedAdopted{Job: j}
	}
	for _, task := range tasks {
		if a := found[task.JobID]; a != nil {
			a.Job.Tasks = append(a.Job.Tasks, task)
		}
	}
	for _, attempt := range attempts {
		if a := found[attempt.JobID]; a != nil {
			a.Attempts = append(a.Attempts, attempt)
		}
	}
	out := make([]ManagedAdopted, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[id])
	}
	return out, nil
}

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// EnvReplica tells a replica's program its id.
const EnvReplica = "SKYPILOT_SERVE_REPLICA_ID"

// leakGuard is after how many idle minutes the cluster of a replica gives itself back
// if no server comes to look any more.
const leakGuard = 60

// launch brings a replica's cluster up and starts its program. Again, after a crash at
// any point, it goes on where it was.
func (c *controller) launch(ctx context.Context, r row) {
	select {
	case c.m.launches <- struct{}{}:
		defer func() { <-c.m.launches }()
	case <-ctx.Done():
		return
	}
	hash, job, offer, err := c.bring(ctx, &r)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		c.out.Printf("Replica %d could not be launched: %v", r.ID, err)
		f, detail := failureOf(err)
		fact := replicas.Fact{Event: fsm.ReplicaRetry, Failure: f, Detail: detail}
		if f.Final() {
			fact.Event = fsm.ReplicaStop
		}
		c.report(ctx, report{id: r.ID, fact: fact, set: func(s *state.ServiceReplica) { s.Progress = nil }})
		return
	}
	c.report(ctx, report{
		id:   r.ID,
		fact: replicas.Fact{Event: fsm.ReplicaLaunched, Place: offer.Place, InstanceType: offer.InstanceType, Accelerator: accelerator(offer)},
		set: func(s *state.ServiceReplica) {
			s.ClusterHash, s.ClusterJob, s.Progress = hash, job, nil
		},
	})
}

func accelerator(o cloud.Offer) string {
	for _, name := range slices.Sorted(maps.Keys(o.Accelerators)) {
		return fmt.Sprintf("%s:%s", name, strconv.FormatFloat(o.Accelerators[name], 'f', -1, 64))
	}
	return ""
}

// failureOf is what a launch that failed means for its replica.
func failureOf(err error) (replicas.Failure, string) {
	switch {
	case errors.As(err, new(*cloud.ImageError)):
		return replicas.ImagePull, err.Error()
	case errors.As(err, new(*sshconn.NoSpaceError)):
		return replicas.OutOfDisk, err.Error()
	}
	var e *api.Error
	if !errors.As(err, &e) {
		return replicas.LaunchError, err.Error()
	}
	switch e.Type {
	case api.ErrResourcesUnavailable:
		return replicas.NoCapacity, e.Message
	case api.ErrResourcesMismatch, api.ErrNotSupported, api.ErrValue, api.ErrFileNotFound, api.ErrPermissionDenied, api.ErrNoWorkspaceAccess, api.ErrInvalidConfig:
		return replicas.Refused, e.Message
	}
	return replicas.LaunchError, e.Message
}

// bring is one launch.
func (c *controller) bring(ctx context.Context, r *row) (hash string, job int, at cloud.Offer, err error) {
	v, err := c.m.Store.Services().Task(ctx, c.hash, r.Version)
	if err != nil {
		return "", 0, at, err
	}
	read, err := readVersion(v)
	if err != nil {
		return "", 0, at, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	t := replicaTask(read, r)
	call, text, err := c.call(ctx, r, read, t)
	if err != nil {
		return "", 0, at, err
	}
	call.Load = func() []byte { return r.at.Progress }
	call.Save = func(ctx context.Context, b []byte) error {
		if !json.Valid(b) {
			return errors.New("a launch keeps something that is no JSON")
		}
		r.at.Progress = b
		return c.m.Store.Services().SaveReplica(ctx, c.hold.Lease.Epoch, &r.at)
	}
	c.out.Printf("Launching cluster %s for replica %d (version %d)", r.at.ClusterName, r.ID, r.Version)
	idle := leakGuard
	res, err := c.m.Executor.LaunchHeld(ctx, call, api.LaunchBody{Task: text, ClusterName: r.at.ClusterName, IdleMinutesAutostop: &idle, Down: true},
		execution.Held{Holder: c.holder(), TaskID: c.taskID(r), Envs: map[string]string{EnvReplica: strconv.Itoa(r.ID)}})
	c.out.StopSpin()
	if err != nil {
		return "", 0, at, err
	}
	if res == nil || res.JobID == nil {
		return "", 0, at, errors.New("the cluster was given no job")
	}
	cl, err := c.m.Store.Clusters().Get(ctx, r.at.ClusterName)
	if err != nil {
		return "", 0, at, fmt.Errorf("the cluster was gone as soon as it had its job: %w", err)
	}
	return cl.Hash, *res.JobID, cl.Offer, nil
}

// holder is the service as a holder of clusters.
func (c *controller) holder() state.Holder {
	return (&state.Service{Name: c.name, Hash: c.hash, Kind: state.KindService}).Holder()
}

// taskID is SKYPILOT_TASK_ID of a replica.
func (c *controller) taskID(r *row) string {
	return fmt.Sprintf("sky-serve-%s_%s_%d", r.CreatedAt.UTC().Format("2006-01-02-15-04-05-000000"), c.name, r.ID)
}

// key is the name under which a replica's program is submitted. Nobody else's is like it.
func (c *controller) key(r *row) string {
	return fmt.Sprintf("service-%s-%d-%d", c.hash, r.ID, r.Tries)
}

// replicaTask is a version's task as a replica runs it.
func replicaTask(v *version, r *row) *task.Task {
	t := v.task
	t.Service, t.Pool, t.DependsOn, t.MaxDuration = nil, nil, nil, 0
	port := strconv.Itoa(v.spec.Port)
	for i := range t.Resources {
		res := &t.Resources[i]
		res.Autostop, res.JobRecovery = nil, nil // the service decides when its clusters go
		if v.spec.Port > 0 && len(res.Ports) == 0 {
			res.Ports = []string{port}
		}
		if v.spec.Spot && !r.Spot {
			no := false
			res.UseSpot = &no
		}
	}
	if r.Place != (cloud.Place{}) && len(t.Resources) > 0 {
		res := t.Resources[0]
		res.Cloud, res.Region, res.Zone = r.Place.Cloud, r.Place.Region, r.Place.Zone
		if r.InstanceType != "" {
			res.InstanceType, res.CPUs, res.Memory = r.InstanceType, "", ""
		}
		t.Resources = []task.Resources{res}
	}
	return t
}

// call is who asks for a launch, with the task's text and files.
func (c *controller) call(ctx context.Context, r *row, v *version, t *task.Task) (cluster.Call, string, error) {
	call := c.caller(c.key(r), v.Entrypoint)
	have, err := c.m.Files.Bring(ctx, t, v.Files)
	if err != nil {
		return call, "", err
	}
	call.Files = have
	text, err := dagOf(t)
	if err != nil || c.m.Admit == nil {
		return call, text, err
	}
	sent, err := v.config()
	if err != nil {
		return call, "", fmt.Errorf("the stored configuration of version %d: %w", v.Number, err)
	}
	admitted, cfg, err := c.m.Admit(ctx, call.User, text, sent, c.out)
	call.Config = cfg
	return call, admitted, err
}

// caller is in whose name something is done to a replica's cluster.
func (c *controller) caller(id, command string) cluster.Call {
	return cluster.Call{RequestID: id, User: c.owner, Attempt: 2, Command: command, Out: c.out}
}

// Pauses before a cluster that could not be given back is tried again, and how often
// that is tried before the replica is shown as not cleaned up. It is tried on.
const (
	endPause     = 5 * time.Second
	endPauseMost = 2 * time.Minute
	endTries     = 5
)

// end gives a replica's cluster back.
func (c *controller) end(ctx context.Context, r row) {
	call := c.caller(fmt.Sprintf("service-%s-%d-end", c.hash, r.ID), "sky serve down "+c.name)
	wait, said := endPause, ""
	if r.Status == api.ReplicaFailedCleanup { // a server before has tried
		wait = endPauseMost
	}
	for try := 1; ctx.Err() == nil; try++ {
		err := c.m.Clusters.DownHeld(ctx, call, r.at.ClusterName, c.holder())
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			c.report(ctx, report{id: r.ID, fact: replicas.Fact{Event: fsm.ReplicaGone}})
			return
		}
		if why := err.Error(); try <= endTries || why != said {
			c.out.Printf("Cluster %s of replica %d could not be given back: %v", r.at.ClusterName, r.ID, err)
			said = why
		}
		if try == endTries && r.Status != api.ReplicaFailedCleanup {
			c.report(ctx, report{id: r.ID, fact: replicas.Fact{Event: fsm.ReplicaUncleaned, Detail: err.Error()}})
		}
		sleep(ctx, wait)
		wait = min(2*wait, endPauseMost)
	}
}

// dagOf is a task alone, in the form that travels.
func dagOf(t *task.Task) (string, error) {
	text, err := (&task.Dag{Name: t.Name, Execution: task.Serial, Tasks: []*task.Task{t}}).YAML()
	return string(text), err
}

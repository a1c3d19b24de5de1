package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// Names of the logs of a service; they are kept until it has ended.

func controllerLog(hash string) string { return "services/" + hash + "/controller.log" }
func replicaLogs(hash string) string   { return "services/" + hash + "/replica_*.log" } // pattern
func balancerLog(hash string) string   { return "services/" + hash + "/load_balancer.log" }
func replicaLog(hash string, id int) string {
	return fmt.Sprintf("services/%s/replica_%d.log", hash, id)
}

// Targets of logs.
const (
	targetController = "controller"
	targetBalancer   = "load_balancer"
	targetReplica    = "replica"
)

func noTarget(target string) error {
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%q has no log; there are %s, %s and %s.", target, targetController, targetBalancer, targetReplica)}
}

// Logs writes the log of a service's controller, balancer or replica from an offset
// on. offset is negative the first time; begin is then told where the stream starts.
func (m *Manager) Logs(ctx context.Context, call cluster.Call, body api.ServeLogsBody, offset int64, begin func(int64) error, w io.Writer) error {
	v, err := m.find(ctx, call, body.ServiceName)
	if err != nil {
		return err
	}
	name := ""
	switch body.Target {
	case targetController:
		name = controllerLog(v.Hash)
	case targetBalancer:
		name = balancerLog(v.Hash)
	case targetReplica, "":
		if body.ReplicaID == nil {
			return &api.Error{Type: api.ErrValue, Message: "Which replica's log is meant? Give its id."}
		}
		name = replicaLog(v.Hash, *body.ReplicaID)
		if err := m.hasReplica(ctx, v, *body.ReplicaID, name); err != nil {
			return err
		}
	default:
		return noTarget(body.Target)
	}
	if offset < 0 {
		offset = 0
		if body.Tail != nil && *body.Tail > 0 {
			if offset, _, err = logstore.LastLines(m.Kept, name, *body.Tail); err != nil {
				return err
			}
		}
		if err := begin(offset); err != nil {
			return err
		}
	}
	grew, stop := m.logs.Subscribe(v.Hash)
	defer stop()
	follow := body.Follow == nil || *body.Follow
	for {
		over, err := m.logOver(ctx, v, body)
		if err != nil {
			return err
		}
		if offset, err = m.copyLog(name, offset, w); err != nil || !follow || over {
			return err
		}
		t := time.NewTimer(logAgain)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-grew:
		case <-t.C:
		}
		t.Stop()
	}
}

// logAgain is how often a log is looked at that another server writes.
const logAgain = time.Second

// hasReplica refuses a replica that is neither there nor has left a log.
func (m *Manager) hasReplica(ctx context.Context, v *state.Service, id int, name string) error {
	rows, err := m.Store.Services().Replicas(ctx, []string{v.Hash})
	if err != nil {
		return err
	}
	for _, r := range rows[v.Hash] {
		if r.ID == id {
			return nil
		}
	}
	l, err := m.Kept.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("The service %q has no replica %d.", v.Name, id), Hint: "See: sky serve status " + v.Name}
	}
	if err != nil {
		return err
	}
	return l.Close()
}

// logOver reports whether nothing more comes.
func (m *Manager) logOver(ctx context.Context, v *state.Service, body api.ServeLogsBody) (bool, error) {
	rows, err := m.Store.Services().Replicas(ctx, []string{v.Hash})
	if err != nil {
		return false, err
	}
	if body.Target == targetReplica || body.Target == "" {
		for _, r := range rows[v.Hash] {
			if r.ID == *body.ReplicaID {
				read, err := readRow(r)
				return err == nil && read.Status.Failed(), err
			}
		}
		return true, nil
	}
	left, err := m.Store.Services().List(ctx, state.ServiceFilter{Hashes: []string{v.Hash}})
	return len(left) == 0, err
}

// copyLog writes what there is of a log from an offset on.
func (m *Manager) copyLog(name string, offset int64, w io.Writer) (int64, error) {
	l, err := m.Kept.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return offset, nil
	}
	if err != nil {
		return offset, err
	}
	defer l.Close()
	size, err := l.Size()
	if err != nil || size <= offset {
		return offset, err
	}
	n, err := io.Copy(w, io.NewSectionReader(l, offset, size-offset))
	return offset + n, err
}

// forgetLogs removes the logs of a service that has ended.
func (m *Manager) forgetLogs(ctx context.Context, hash string) {
	names, err := m.Kept.List("services/" + hash + "/*")
	if err == nil {
		err = m.Kept.Remove(slices.Collect(maps.Keys(names))...)
	}
	if err != nil && ctx.Err() == nil {
		m.Log.WarnContext(ctx, "logs of an ended service not removed", "service", hash, "err", err)
	}
}

package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/logstore"
)

// DownloadLogs gathers logs of a service in a new folder below dir and returns that:
// of the targets, all if there are none, and of replicas those named, or all. What it
// writes is taken from room; what fails leaves nothing behind.
func (m *Manager) DownloadLogs(ctx context.Context, call cluster.Call, b api.ServeSyncLogsBody, dir string, room *diskspace.Share) (target string, err error) {
	v, err := m.find(ctx, call, b.ServiceName)
	if err != nil {
		return "", err
	}
	wanted := map[string]bool{}
	for _, t := range b.Targets {
		if !slices.Contains([]string{targetController, targetBalancer, targetReplica}, t) {
			return "", noTarget(t)
		}
		wanted[t] = true
	}
	names := map[string]bool{}
	all := len(b.Targets) == 0 && len(b.ReplicaIDs) == 0
	if all || wanted[targetController] {
		names[controllerLog(v.Hash)] = true
	}
	if all || wanted[targetBalancer] {
		names[balancerLog(v.Hash)] = true
	}
	for _, id := range b.ReplicaIDs {
		name := replicaLog(v.Hash, id)
		if err := m.hasReplica(ctx, v, id, name); err != nil {
			return "", err
		}
		names[name] = true
	}
	if all || wanted[targetReplica] && len(b.ReplicaIDs) == 0 {
		kept, err := m.Kept.List(replicaLogs(v.Hash))
		if err != nil {
			return "", err
		}
		for name := range kept {
			names[name] = true
		}
	}
	target = filepath.Join(dir, "service", fmt.Sprintf("%s-%s", v.Name, time.Now().UTC().Format("2006-01-02-15-04-05-000000")))
	if err := os.MkdirAll(target, 0o700); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(target)
		}
	}()
	for name := range names {
		offset := int64(0)
		if b.Tail != nil && *b.Tail > 0 {
			if offset, _, err = logstore.LastLines(m.Kept, name, *b.Tail); err != nil {
				return "", err
			}
		}
		if err := logstore.Save(ctx, m.Kept, name, offset, filepath.Join(target, path.Base(name)), func(w io.Writer) io.Writer { return room.Writer(w) }); err != nil {
			return "", fmt.Errorf("gathering the logs of service %s: %w", v.Name, err)
		}
	}
	return target, nil
}

package jobs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/logstore"
)

// DownloadLogs gathers the logs of a job in a new folder below dir and returns
// it by the job's id; the result is empty if there is no such job. What it writes is
// taken from room; what fails leaves nothing behind.
func (m *Manager) DownloadLogs(ctx context.Context, call cluster.Call, b api.JobsDownloadLogsBody, dir string, room *diskspace.Share) (_ map[string]string, err error) {
	j, err := m.find(ctx, call, b.JobID, b.Name)
	if err != nil || j == nil {
		return map[string]string{}, err
	}
	kind, pattern := "managed-job", "task-*.log"
	if b.Controller {
		kind, pattern = "managed-job-controller", "controller.log"
	}
	target := filepath.Join(dir, "managed_jobs", fmt.Sprintf("%s-%d-%s", kind, j.ID, time.Now().UTC().Format("2006-01-02-15-04-05-000000")))
	if err := os.MkdirAll(target, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(target)
		}
	}()
	logs, err := m.kept.List(strconv.Itoa(j.ID) + "/" + pattern)
	if err != nil {
		return nil, err
	}
	for name := range logs {
		if err := logstore.Save(ctx, m.kept, name, 0, filepath.Join(target, path.Base(name)), func(w io.Writer) io.Writer { return room.Writer(w) }); err != nil {
			return nil, fmt.Errorf("gathering the logs of managed job %d: %w", j.ID, err)
		}
	}
	return map[string]string{strconv.Itoa(j.ID): target}, nil
}

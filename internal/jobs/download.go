package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/diskspace"
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
		if err := m.copyTo(ctx, filepath.Join(target, path.Base(name)), name, room); err != nil {
			return nil, fmt.Errorf("gathering the logs of managed job %d: %w", j.ID, err)
		}
	}
	return map[string]string{strconv.Itoa(j.ID): target}, nil
}

// copyTo makes a file of a log, unless that was removed meanwhile.
func (m *Manager) copyTo(ctx context.Context, to, name string, room *diskspace.Share) error {
	in, err := m.kept.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(room.Writer(out), untilDone{ctx, io.NewSectionReader(in, 0, math.MaxInt64)})
	return errors.Join(err, out.Close())
}

// untilDone reads until a context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

package cluster

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/state"
)

// LogPosition is where a log stream began; with it the stream can be repeated
// to the letter.
type LogPosition struct {
	Hash   string `json:"hash"` // the cluster's incarnation
	JobID  int    `json:"job_id"`
	Offset int64  `json:"offset"`
}

// How a log stream comes back after its connection broke.
const (
	logTries = 20
	logPause = 500 * time.Millisecond
)

// Logs writes a job's log and returns the exit code that the job's state
// means. at is nil the first time; begin is then told where the stream starts.
// A broken connection to the agent is resumed where it broke.
func (m *Manager) Logs(ctx context.Context, body api.LogsBody, at *LogPosition, begin func(LogPosition) error, w io.Writer) (int, error) {
	follow := body.Follow == nil || *body.Follow
	tail := body.Tail
	c, job, err := m.findJob(ctx, body.ClusterName, body.JobID, at)
	if at == nil {
		if isNotFound(err) {
			if body.JobID == nil {
				fmt.Fprintf(w, "Cluster %s has not run any job yet.\n", body.ClusterName)
			} else {
				fmt.Fprintf(w, "Job %d not found on cluster %s (see: sky queue %s).\n", *body.JobID, body.ClusterName, body.ClusterName)
			}
			return api.ExitJobNotFound, nil
		}
		if err != nil {
			return 0, err
		}
		at = &LogPosition{Hash: c.Hash, JobID: job.ID}
	} else {
		if err != nil {
			return 0, err
		}
		tail = 0 // the position says where the tail began
		if at.Hash != c.Hash {
			return 0, &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("The cluster %s that this log came from is gone.", c.Name)}
		}
	}
	out := &lineEnder{w: w}
	read := func(ctx context.Context, at LogPosition, lines int, follow bool, begin func(LogPosition) error, w io.Writer) (int64, error) {
		return m.copyLog(ctx, c, at, lines, follow, begin, w)
	}
	last := func(ctx context.Context) (*agentapi.Job, error) {
		_, job, err := m.findJob(ctx, c.Name, &at.JobID, nil)
		return job, err
	}
	if follow {
		job, err = m.tails.follow(ctx, *at, tail, begin, out, read, last)
	} else if _, err = read(ctx, *at, tail, false, begin, out); err == nil {
		job, err = last(ctx)
	}
	if err != nil {
		return 0, err
	}
	if err := out.end(); err != nil {
		return 0, err
	}
	if !job.Status.Terminal() {
		return api.ExitJobSucceeded, nil // only without follow
	}
	if follow {
		fmt.Fprintf(w, "%s Job finished (status: %s).\n", mark(job.Status), job.Status)
	}
	return job.Status.ExitCode(), nil
}

func mark(s api.JobStatus) string {
	if s == api.JobSucceeded {
		return "✓"
	}
	return "✗"
}

// findJob returns the cluster and the job that a stream is of: the one of a
// known position, the one of that id, or the latest.
// Both are shared with others who ask for the same.
func (m *Manager) findJob(ctx context.Context, name string, id *int, at *LogPosition) (*state.Cluster, *agentapi.Job, error) {
	want := 0
	switch {
	case at != nil:
		want = at.JobID
	case id != nil:
		want = *id
	}
	found, err := m.finding.do(ctx, jobKey{name, want}, func(ctx context.Context) (f foundJob, err error) {
		err = m.ask(ctx, name, "Reading logs", func(up *state.Cluster, client *agentclient.Client) error {
			f.cluster = up
			f.job, err = client.Job(ctx, want)
			return err
		})
		return f, err
	})
	return found.cluster, found.job, err
}

// jobKey names a job, the latest one if its id is 0, of whatever cluster has the
// name now.
type jobKey struct {
	cluster string
	id      int
}

type foundJob struct {
	cluster *state.Cluster
	job     *agentapi.Job
}

// copyLog streams from the position on, reconnecting when the stream breaks
// while the cluster lives; see [readLog].
func (m *Manager) copyLog(ctx context.Context, c *state.Cluster, at LogPosition, tail int, follow bool, begin func(LogPosition) error, w io.Writer) (int64, error) {
	started := begin == nil
	for try := 0; ; try++ {
		client, err := m.Remote.Head(c)
		if err != nil {
			return at.Offset, err
		}
		rc, start, err := client.Log(ctx, at.JobID, agentclient.LogOptions{Offset: at.Offset, Tail: tail, Follow: follow})
		if err == nil {
			at.Offset, tail = start, 0
			if !started {
				if err := begin(at); err != nil {
					rc.Close()
					return at.Offset, err
				}
				started = true
			}
			var n int64
			n, err = copyLogBytes(w, rc)
			rc.Close()
			at.Offset += n
			if n > 0 {
				try = 0
			}
			if err == nil {
				return at.Offset, nil
			}
			var we *writeError
			if errors.As(err, &we) {
				return at.Offset, we.err // the reader of our stream is gone
			}
		}
		if ctx.Err() != nil {
			return at.Offset, context.Cause(ctx)
		}
		if isNotFound(err) || try >= logTries {
			return at.Offset, unreachable(c, "Reading logs", err)
		}
		// The agent may have died and be restarted: find out what is left.
		fresh, rerr := m.Refresh(ctx, c.Name)
		switch {
		case errors.Is(rerr, state.ErrNotFound), rerr == nil && (fresh == nil || fresh.Hash != at.Hash):
			return at.Offset, &api.Error{Type: api.ErrClusterDoesNotExist, Message: fmt.Sprintf("Cluster %s is gone; its log ends here.", c.Name)}
		case rerr == nil && fresh.Status == api.ClusterStopped:
			return at.Offset, NotUp(fresh, "Reading logs")
		case rerr == nil:
			c = fresh
		}
		select {
		case <-ctx.Done():
			return at.Offset, context.Cause(ctx)
		case <-time.After(logPause):
		}
	}
}

// lineEnder makes sure that what follows starts on a line of its own, and
// tells errors of its writer from those of what is read.
type lineEnder struct {
	w    io.Writer
	open bool
}

type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func (l *lineEnder) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := l.w.Write(p)
	if n > 0 {
		l.open = p[n-1] != '\n'
	}
	if err != nil {
		return n, &writeError{err}
	}
	return n, nil
}

func (l *lineEnder) end() error {
	if !l.open {
		return nil
	}
	_, err := io.WriteString(l.w, "\n")
	return err
}

// HookLogs writes what the cluster's hooks printed.
func (m *Manager) HookLogs(ctx context.Context, name, event string, w io.Writer) error {
	events := []string{event}
	if event == "" {
		events = []string{"stop", "preemption", "down"}
	}
	for _, e := range events {
		var rc io.ReadCloser
		err := m.ask(ctx, name, "Reading hook logs", func(_ *state.Cluster, client *agentclient.Client) (err error) {
			rc, err = client.HookLog(ctx, e)
			return err
		})
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(w, rc)
		rc.Close()
		return err
	}
	fmt.Fprintf(w, "No hook has run on cluster %s yet.\n", name)
	return nil
}

// DownloadLogs copies the log folders of jobs to dir, which it makes, one folder a
// job, and returns them by job id. Ids may be globs; none means every job. What it
// writes is taken from room; what fails leaves nothing behind.
func (m *Manager) DownloadLogs(ctx context.Context, call Call, body api.DownloadLogsBody, dir string, room *diskspace.Share) (_ map[string]string, err error) {
	jobs, err := m.jobs(ctx, body.ClusterName, "Downloading logs")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	out, left := map[string]string{}, mostEntries
	for _, j := range jobs {
		id := strconv.Itoa(j.ID)
		if !match(body.JobIDs, id) {
			continue
		}
		folder := filepath.Base(filepath.FromSlash(j.LogDir))
		if !filepath.IsLocal(folder) || folder == "." {
			return nil, fmt.Errorf("downloading the logs of job %d: the cluster says that they are in %q", j.ID, j.LogDir)
		}
		var rc io.ReadCloser
		if err := m.ask(ctx, body.ClusterName, "Downloading logs", func(_ *state.Cluster, client *agentclient.Client) (err error) {
			rc, err = client.LogFiles(ctx, j.ID)
			return err
		}); err != nil {
			return nil, err
		}
		err = untar(rc, dir, room, &left)
		rc.Close()
		if err != nil {
			return nil, fmt.Errorf("downloading the logs of job %d: %w", j.ID, err)
		}
		out[id] = filepath.Join(dir, folder)
	}
	return out, nil
}

const (
	mostEntries = 100_000 // files and folders of one download
	entryBytes  = 4 << 10 // is what one takes at least
)

// untar unpacks regular files and folders below dir; names cannot leave it. left is
// how many more there may be.
func untar(r io.Reader, dir string, room *diskspace.Share, left *int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.FromSlash(h.Name)
		depth := 1 + strings.Count(name, string(filepath.Separator))
		if *left -= depth; *left < 0 {
			return &bounded.TooMuchError{What: "the download", Most: mostEntries, Unit: "files and folders"}
		}
		if err := room.Take(int64(depth) * entryBytes); err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			if err := root.MkdirAll(name, 0o700); err != nil {
				return err
			}
		case tar.TypeReg:
			if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				return err
			}
			f, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			_, err = io.Copy(room.Writer(f), tr)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
	}
}

// ParseLogPosition reads what a request kept of its stream's start.
func ParseLogPosition(b []byte) *LogPosition {
	var p LogPosition
	if len(b) == 0 || json.Unmarshal(b, &p) != nil {
		return nil
	}
	return &p
}

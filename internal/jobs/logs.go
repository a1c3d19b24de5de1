package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// Position is where a log stream began; with it the stream can be repeated to
// the letter.
type Position struct {
	Job     int   `json:"job"`
	Task    int   `json:"task"`
	Attempt int   `json:"attempt"`
	Offset  int64 `json:"offset"`
	// Lines is how many lines of the log are written, and nothing else; nil: all.
	Lines *int `json:"lines,omitempty"`
}

// ParsePosition reads what a request kept of its stream's start; nil: nothing.
func ParsePosition(b []byte) *Position {
	var p Position
	if len(b) == 0 || json.Unmarshal(b, &p) != nil {
		return nil
	}
	return &p
}

// Logs writes the log of a job, of all its attempts one after the other, and
// returns the exit code that its state means. at is nil the first time; begin
// is then told where the stream starts.
func (m *Manager) Logs(ctx context.Context, call cluster.Call, b api.JobsLogsBody, at *Position, begin func(Position) error, w io.Writer) (int, error) {
	if at != nil {
		b.JobID, b.Name = &at.Job, nil
	}
	j, err := m.find(ctx, call, b.JobID, b.Name)
	if err != nil {
		return 0, err
	}
	if j == nil {
		fmt.Fprintln(w, notFound(b.JobID, b.Name))
		return api.ExitJobNotFound, nil
	}
	which, err := findTask(j, b.Task)
	if err != nil {
		return 0, err
	}
	f := &follower{m: m, w: w, out: call.Out, id: j.ID, which: which, follow: b.Follow == nil || *b.Follow}
	f.rows, f.stopRows = m.rows.Subscribe(j.ID)
	defer f.stopRows()
	f.logs, f.stopLogs = m.logs.Subscribe(j.ID)
	defer f.stopLogs()
	if at == nil {
		if at, err = f.start(ctx, j, b); err != nil {
			return 0, err
		}
		if err := begin(*at); err != nil {
			return 0, err
		}
	}
	if at.Lines != nil {
		if f.lines = new(*at.Lines); *f.lines == 0 {
			return api.ExitJobSucceeded, nil
		}
	}
	if gone, err := m.logsGone(j); err != nil {
		return 0, err
	} else if gone {
		if err := f.say("The logs of managed job %d were removed: it ended longer ago than jobs.controller.task_logs_gc_retention_hours keeps them.", j.ID); err != nil {
			return 0, err
		}
	}
	code := api.ExitJobSucceeded
	if b.Controller {
		err = f.controller(ctx, at.Offset)
	} else {
		code, err = f.tasks(ctx, *at)
	}
	if errors.Is(err, errPage) {
		return api.ExitJobSucceeded, nil
	}
	return code, err
}

// errPage ends a stream whose lines are written.
var errPage = errors.New("as many lines as were asked for")

// logsGone reports whether a job that ended has no log any more.
func (m *Manager) logsGone(j *state.ManagedJob) (bool, error) {
	if j.Schedule != api.ScheduleDone || j.Current().Attempt == 0 {
		return false, nil
	}
	for _, name := range []string{controlLogName(j.ID), attemptLogName(j.ID, j.Current().Index, j.Current().Attempt)} {
		l, err := m.kept.Open(name)
		if err == nil {
			return false, l.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return true, nil
}

// start is where the stream begins: at the last lines that were asked for. With an offset
// they are those before that many of the last ones, as a reader has who pages back.
func (f *follower) start(ctx context.Context, j *state.ManagedJob, b api.JobsLogsBody) (*Position, error) {
	p := &Position{Job: j.ID, Task: max(f.which, 0), Attempt: 1}
	tail, skip := 0, 0
	if b.Tail != nil && *b.Tail > 0 {
		tail = *b.Tail
	}
	if b.TailOffset != nil && *b.TailOffset > 0 && tail > 0 {
		skip = *b.TailOffset
	}
	// page bounds the stream, which begins with that many lines of the log.
	page := func(lines int) *Position {
		if skip > 0 {
			p.Lines = new(max(lines-skip, 0))
		}
		return p
	}
	graph, err := graphOf(j)
	if err != nil {
		return nil, err
	}
	turns := graph.turns()
	if f.which < 0 {
		p.Task = turns[0]
	}
	if tail == 0 {
		return p, nil
	}
	if b.Controller {
		offset, lines, err := logstore.LastLines(f.m.kept, controlLogName(j.ID), tail+skip)
		p.Offset = offset
		return page(lines), err
	}
	attempts, err := f.m.store.ManagedJobs().Attempts(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(attempts, func(a, b *state.ManagedAttempt) int {
		return slices.Index(turns, a.Task) - slices.Index(turns, b.Task)
	})
	left := tail + skip
	for i := len(attempts) - 1; i >= 0 && left > 0; i-- {
		a := attempts[i]
		if f.which >= 0 && a.Task != f.which {
			continue
		}
		offset, lines, err := logstore.LastLines(f.m.kept, attemptLogName(a.JobID, a.Task, a.Number), left)
		if err != nil {
			return nil, err
		}
		left -= lines
		p.Task, p.Attempt, p.Offset = a.Task, a.Number, offset
	}
	return page(tail + skip - left), nil
}

// follower writes one stream.
type follower struct {
	m      *Manager
	w      io.Writer
	out    cluster.Output // for what is waited for
	id     int
	which  int // task, -1: all
	follow bool
	open   bool // the last line has not ended
	lines  *int // of the log that are still to be written; nil: all

	rows, logs         <-chan struct{}
	stopRows, stopLogs func()
}

// controller writes the controller's log until the job is done.
func (f *follower) controller(ctx context.Context, offset int64) error {
	for {
		j, err := f.m.store.ManagedJobs().Get(ctx, f.id)
		if err != nil {
			return err
		}
		if offset, err = f.copy(controlLogName(f.id), offset); err != nil {
			return err
		}
		if !f.follow || j.Schedule == api.ScheduleDone {
			return f.endLine()
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
}

// tasks writes the logs of the tasks from a position on. What it writes follows
// from what is stored alone, so that it can be repeated.
func (f *follower) tasks(ctx context.Context, p Position) (int, error) {
	j, err := f.m.store.ManagedJobs().Get(ctx, f.id)
	if err != nil {
		return 0, err
	}
	turns := []int{p.Task}
	if f.which < 0 {
		graph, err := graphOf(j)
		if err != nil {
			return 0, err
		}
		turns = graph.turns()
		turns = turns[slices.Index(turns, p.Task):]
	}
	for n, i := range turns {
		attempt, offset := 1, int64(0)
		if n == 0 {
			attempt, offset = p.Attempt, p.Offset
		}
		title := ""
		if len(j.Tasks) > 1 && f.which < 0 && attempt == 1 && offset == 0 {
			title = fmt.Sprintf("├── Task %d of %d: %s", i, len(j.Tasks), j.Tasks[i].Name)
		}
		t, err := f.task(ctx, i, attempt, offset, title)
		if err != nil {
			return 0, err
		}
		if !t.Status.Terminal() {
			break // without follow, what comes later has not begun
		}
	}
	if f.out != nil {
		f.out.StopSpin()
	}
	if j, err = f.m.store.ManagedJobs().Get(ctx, f.id); err != nil {
		return 0, err
	}
	s := status(j, f.which)
	if !s.Terminal() {
		return api.ExitJobSucceeded, f.endLine() // only without follow
	}
	t := j.Current()
	if f.which >= 0 {
		t = j.Tasks[f.which]
	}
	if why := whyNot(j, t); why != "" {
		if err := f.say("✗ %s", why); err != nil {
			return 0, err
		}
	}
	if f.follow {
		mark := "✗"
		if s == api.ManagedSucceeded {
			mark = "✓"
		}
		if err := f.say("%s Job finished (status: %s).", mark, s); err != nil {
			return 0, err
		}
	}
	return s.ExitCode(), f.endLine()
}

// whyNot is why a task that has ended did not succeed, as far as its log does not
// tell; "" if there is nothing to add.
func whyNot(j *state.ManagedJob, t *state.ManagedTask) string {
	if t.Failure != "" || t.Status != api.ManagedCancelled || t.Attempt > 0 {
		return t.Failure
	}
	what := "the job"
	if len(j.Tasks) > 1 {
		what = fmt.Sprintf("task %d", t.Index)
	}
	why := what + " never ran: it was cancelled before it was launched"
	for _, other := range j.Tasks {
		if other.Status.Failed() {
			return fmt.Sprintf("%s, as task %d (%s) ended %s", why, other.Index, other.Name, other.Status)
		}
	}
	return why
}

// task writes the log of one task from an attempt on, through every recovery,
// below a title. A task that never began has none.
func (f *follower) task(ctx context.Context, index, attempt int, offset int64, title string) (*state.ManagedTask, error) {
	for {
		j, err := f.m.store.ManagedJobs().Get(ctx, f.id)
		if err != nil {
			return nil, err
		}
		t := j.Tasks[index]
		a, err := f.m.store.ManagedJobs().Attempt(ctx, f.id, index, attempt)
		if errors.Is(err, state.ErrNotFound) {
			a = nil
		} else if err != nil {
			return nil, err
		}
		if title != "" && (a != nil || !t.Status.Terminal() && t.Attempt > 0) {
			if err := f.say("%s", title); err != nil {
				return nil, err
			}
			title = ""
		}
		// What is read of the file after the row said that it is whole, is whole.
		if offset, err = f.copy(attemptLogName(f.id, index, attempt), offset); err != nil {
			return nil, err
		}
		if a != nil && a.LogKept && t.Attempt > attempt {
			if err := f.say("↺ Attempt %d ended: %s. Starting again.", attempt, a.Reason); err != nil {
				return nil, err
			}
			attempt, offset = attempt+1, 0
			continue
		}
		if t.Status.Terminal() && (a == nil || a.LogKept) {
			return t, f.endLine()
		}
		missing := f.m.missing(f.id, index, attempt)
		if !f.follow {
			if missing != "" {
				return t, f.say("[%s]", missing)
			}
			return t, f.endLine()
		}
		if f.out != nil {
			if missing != "" { // no line of the log: a stream that is repeated must be the same
				f.out.Spin(missing)
			} else if t.Status == api.ManagedRunning && (a == nil || a.Outcome == "") {
				f.out.StopSpin()
			} else {
				f.out.Spin(waitingFor(j, t))
			}
		}
		if err := f.wait(ctx); err != nil {
			return nil, err
		}
	}
}

func waitingFor(j *state.ManagedJob, t *state.ManagedTask) string {
	s := fmt.Sprintf("Managed job %d is %s", j.ID, t.Status)
	if d := details(j, t); d != "" {
		s += ": " + d
	}
	return s
}

// wait waits until there may be more to write.
func (f *follower) wait(ctx context.Context) error {
	t := time.NewTimer(seeAgain)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.rows:
	case <-f.logs:
	case <-t.C:
	}
	return nil
}

// copy writes a log from a byte on and returns where it ended.
func (f *follower) copy(name string, offset int64) (int64, error) {
	log, err := f.m.kept.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return offset, nil
	}
	if err != nil {
		return offset, err
	}
	defer log.Close()
	n, err := io.Copy(lineWatcher{f}, io.NewSectionReader(log, offset, math.MaxInt64-offset))
	return offset + n, err
}

// lineWatcher notes whether the last line has ended.
type lineWatcher struct{ f *follower }

func (l lineWatcher) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if l.f.out != nil {
		l.f.out.StopSpin()
	}
	p, full := l.f.page(p)
	n, err := l.f.w.Write(p)
	if n > 0 {
		l.f.open = p[n-1] != '\n'
	}
	if err == nil && full {
		err = errPage
	}
	return n, err
}

// page is what of p belongs to the lines that are to be written, and whether it ends them.
func (f *follower) page(p []byte) (_ []byte, full bool) {
	if f.lines == nil {
		return p, false
	}
	n := 0
	for *f.lines > 0 && n < len(p) {
		i := bytes.IndexByte(p[n:], '\n')
		if i < 0 {
			return p, false
		}
		n += i + 1
		*f.lines--
	}
	return p[:n], *f.lines == 0
}

// say writes a line of our own.
func (f *follower) say(format string, a ...any) error {
	if err := f.endLine(); err != nil {
		return err
	}
	if f.out != nil {
		f.out.StopSpin()
	}
	_, err := fmt.Fprintf(f.w, format+"\n", a...)
	return err
}

func (f *follower) endLine() error {
	if !f.open {
		return nil
	}
	f.open = false
	_, err := io.WriteString(f.w, "\n")
	if err == nil && f.lines != nil {
		if *f.lines--; *f.lines == 0 {
			return errPage
		}
	}
	return err
}

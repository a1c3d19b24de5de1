package jobs

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// failure makes calls fail: of those of the kinds that it is about, the one after so
// many, and more in a row.
type failure struct {
	of   func(call string) bool // nil: of any kind
	more int
	mu   sync.Mutex
	left int
	hit  error // how it failed; nil: not yet
}

// pass counts a call and reports whether it fails.
func (f *failure) pass(call string) error {
	if f.of != nil && !f.of(call) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	if f.left > -1 || f.left < -1-f.more {
		return nil
	}
	f.hit = fmt.Errorf("%s failed", call)
	return f.hit
}

// failed is how the call failed; nil: it was not made.
func (f *failure) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

// do makes a call unless it fails.
func (f *failure) do(call string, do func() error) error {
	if err := f.pass(call); err != nil {
		return err
	}
	return do()
}

// passing is do for a call with a result.
func passing[T any](f *failure, call string, do func() (T, error)) (T, error) {
	if err := f.pass(call); err != nil {
		var none T
		return none, err
	}
	return do()
}

// failing is a database of which a call fails.
type failing struct {
	database
	*failure
}

func (f failing) ManagedJobs() managedJobs { return failingJobs{f.database.ManagedJobs(), f.failure} }

func (f failing) ManagedSchedules() managedSchedules {
	return failingSchedules{f.database.ManagedSchedules(), f.failure}
}

type failingJobs struct {
	managedJobs
	*failure
}

func (f failingJobs) Submit(ctx context.Context, j *state.ManagedJob) (*state.ManagedJob, error) {
	return passing(f.failure, "Submit", func() (*state.ManagedJob, error) { return f.managedJobs.Submit(ctx, j) })
}

func (f failingJobs) Get(ctx context.Context, id int) (*state.ManagedJob, error) {
	return passing(f.failure, "Get", func() (*state.ManagedJob, error) { return f.managedJobs.Get(ctx, id) })
}

func (f failingJobs) List(ctx context.Context, l state.ManagedFilter) (*state.ManagedPage, error) {
	return passing(f.failure, "List", func() (*state.ManagedPage, error) { return f.managedJobs.List(ctx, l) })
}

func (f failingJobs) Attempts(ctx context.Context, id int) ([]*state.ManagedAttempt, error) {
	return passing(f.failure, "Attempts", func() ([]*state.ManagedAttempt, error) { return f.managedJobs.Attempts(ctx, id) })
}

func (f failingJobs) Attempt(ctx context.Context, id, task, n int) (*state.ManagedAttempt, error) {
	return passing(f.failure, "Attempt", func() (*state.ManagedAttempt, error) { return f.managedJobs.Attempt(ctx, id, task, n) })
}

func (f failingJobs) Save(ctx context.Context, c state.ManagedChange) error {
	return f.do("Save", func() error { return f.managedJobs.Save(ctx, c) })
}

func (f failingJobs) AskCancel(ctx context.Context, ids []int, grace time.Duration) ([]int, error) {
	return passing(f.failure, "AskCancel", func() ([]int, error) { return f.managedJobs.AskCancel(ctx, ids, grace) })
}

func (f failingJobs) Events(ctx context.Context, id, task, limit int) ([]state.ManagedEvent, error) {
	return passing(f.failure, "Events", func() ([]state.ManagedEvent, error) { return f.managedJobs.Events(ctx, id, task, limit) })
}

func (f failingJobs) Note(ctx context.Context, e state.ManagedEvent) error {
	return f.do("Note", func() error { return f.managedJobs.Note(ctx, e) })
}

func (f failingJobs) FilesInUse(ctx context.Context) (map[string]bool, error) {
	return passing(f.failure, "FilesInUse", func() (map[string]bool, error) { return f.managedJobs.FilesInUse(ctx) })
}

type failingSchedules struct {
	managedSchedules
	*failure
}

func (f failingSchedules) Submit(ctx context.Context, s *state.ManagedSchedule) (*state.ManagedSchedule, error) {
	return passing(f.failure, "Submit", func() (*state.ManagedSchedule, error) { return f.managedSchedules.Submit(ctx, s) })
}

func (f failingSchedules) List(ctx context.Context, l state.ScheduleFilter) ([]*state.ManagedSchedule, error) {
	return passing(f.failure, "List", func() ([]*state.ManagedSchedule, error) { return f.managedSchedules.List(ctx, l) })
}

func (f failingSchedules) End(ctx context.Context, ids []int) ([]int, error) {
	return passing(f.failure, "End", func() ([]int, error) { return f.managedSchedules.End(ctx, ids) })
}

func (f failingSchedules) Fire(ctx context.Context, s *state.ManagedSchedule, j *state.ManagedJob) error {
	return f.do("Fire", func() error { return f.managedSchedules.Fire(ctx, s, j) })
}

// failingLogs are logs of which a call fails.
type failingLogs struct {
	logstore.Logs
	*failure
}

func (f failingLogs) Open(name string) (logstore.Log, error) {
	l, err := passing(f.failure, "open", func() (logstore.Log, error) { return f.Logs.Open(name) })
	if err != nil {
		return nil, err
	}
	return failingLog{l, f.failure}, nil
}

func (f failingLogs) List(pattern string) (map[string]int64, error) {
	return passing(f.failure, "list", func() (map[string]int64, error) { return f.Logs.List(pattern) })
}

func (f failingLogs) Remove(names ...string) error {
	return f.do("remove", func() error { return f.Logs.Remove(names...) })
}

type failingLog struct {
	logstore.Log
	*failure
}

func (f failingLog) ReadAt(p []byte, at int64) (int, error) {
	return passing(f.failure, "read", func() (int, error) { return f.Log.ReadAt(p, at) })
}

func (f failingLog) Size() (int64, error) {
	return passing(f.failure, "size", func() (int64, error) { return f.Log.Size() })
}

// failingWriter is a reader of a stream who goes away at one of its parts.
type failingWriter struct {
	io.Writer
	*failure
}

func (f failingWriter) Write(p []byte) (int, error) {
	return passing(f.failure, "write", func() (int, error) { return f.Writer.Write(p) })
}

// Package callback writes what a task does, step by step, for `sky bench show`.
//
//	steps, err := callback.Start(callback.Options{TotalSteps: 100})
//	...
//	defer steps.Close()
//	for range 100 {
//		train()
//		steps.Done()
//	}
package callback

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options are how a [Writer] counts; the zero value fits a program that does not know
// how many steps it will take.
type Options struct {
	Rank        int    // of this process among those that work together: only that with rank 0 writes
	Dir         string // the folder to write below; "": $SKY_CALLBACK_DIR, or ~/sky_benchmark_dir
	TotalSteps  int    // 0: not known
	WarmupSteps int    // steps at the start that are no measure; 0: one, -1: none
}

// every is how often a summary is written.
const every = 5 * time.Second

// Writer writes a summary every five seconds and when it is closed. Its methods may be
// called concurrently.
type Writer struct {
	path string // "": nothing is written
	stop chan struct{}
	done chan struct{}

	mu  sync.Mutex
	s   summary
	err error
}

// summary is summary.json; times are Unix seconds.
type summary struct {
	BootTime           float64  `json:"boot_time"`
	CreateTime         float64  `json:"create_time"`
	WarmupSteps        int      `json:"warmup_steps"`
	TotalSteps         *int     `json:"total_steps"`
	NumSteps           int      `json:"num_steps"`
	FirstStepTime      *float64 `json:"first_step_time"`
	WarmupEndTime      *float64 `json:"warmup_end_time"`
	LastStepTime       *float64 `json:"last_step_time"`
	TimePerStep        *float64 `json:"time_per_step"`
	EstimatedTotalTime *float64 `json:"estimated_total_time"`
}

// began is about when the process started.
var began = time.Now()

// Start begins a summary in a folder of its own.
func Start(o Options) (*Writer, error) {
	w := &Writer{stop: make(chan struct{}), done: make(chan struct{})}
	w.s = summary{BootTime: bootTime(), CreateTime: seconds(began), WarmupSteps: max(0, cmp.Or(o.WarmupSteps, 1))}
	if o.TotalSteps > 0 {
		w.s.TotalSteps = &o.TotalSteps
	}
	if w.s.WarmupSteps == 0 {
		w.s.WarmupEndTime = new(seconds(time.Now()))
	}
	if o.Rank != 0 {
		close(w.done)
		return w, nil
	}
	dir := cmp.Or(o.Dir, os.Getenv("SKY_CALLBACK_DIR"))
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(home, "sky_benchmark_dir")
	}
	stamp := strings.ReplaceAll(time.Now().UTC().Format("2006-01-02-15-04-05.000000"), ".", "-")
	w.path = filepath.Join(dir, "sky-callback-"+stamp, "summary.json")
	if err := os.MkdirAll(filepath.Dir(w.path), 0o755); err != nil {
		return nil, err
	}
	if err := w.write(); err != nil {
		return nil, err
	}
	go w.keep()
	return w, nil
}

// Done says that a step has ended.
func (w *Writer) Done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.s.count(seconds(time.Now()))
}

// Close writes the summary for the last time. It returns why that, or an earlier
// time, failed.
func (w *Writer) Close() error {
	if w.path == "" {
		return nil
	}
	close(w.stop)
	<-w.done
	return w.err
}

func (w *Writer) keep() {
	defer close(w.done)
	t := time.NewTicker(every)
	defer t.Stop()
	for last := false; !last; {
		select {
		case <-w.stop:
			last = true
		case <-t.C:
		}
		w.err = w.write()
	}
}

// write replaces the file, so that nobody reads a half.
func (w *Writer) write() error {
	w.mu.Lock()
	text, err := json.Marshal(w.s)
	w.mu.Unlock()
	if err == nil {
		err = os.WriteFile(w.path+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(w.path+".new", w.path)
	}
	if err != nil {
		return fmt.Errorf("writing the summary of a benchmark: %w", err)
	}
	return nil
}

// count takes in the end of a step.
func (s *summary) count(now float64) {
	s.NumSteps++
	s.LastStepTime = &now
	if s.FirstStepTime == nil {
		s.FirstStepTime = &now
	}
	if s.NumSteps == s.WarmupSteps {
		s.WarmupEndTime = &now
	}
	if s.NumSteps <= s.WarmupSteps {
		return
	}
	each := (now - *s.WarmupEndTime) / float64(s.NumSteps-s.WarmupSteps)
	s.TimePerStep = &each
	if s.TotalSteps != nil {
		s.EstimatedTotalTime = new(*s.WarmupEndTime - s.CreateTime + each*float64(*s.TotalSteps-s.WarmupSteps))
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// bootTime is when this machine started; 0 if that is not known.
func bootTime() float64 {
	text, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		var at float64
		if n, _ := fmt.Sscanf(line, "btime %g", &at); n == 1 {
			return at
		}
	}
	return 0
}

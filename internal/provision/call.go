package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// grace is how long a call may go on after it was asked to stop. A provider that
// does not listen is left behind: its machines are then looked for.
const grace = 10 * time.Second

// tellEvery is how often a step that takes long says that it still goes on.
const reportEvery = 30 * time.Second

// errDeadline is the cause of a context that a step's deadline ended.
var errDeadline = errors.New("the step's deadline passed")

// step is one call to a provider, bounded and told of.
type step struct {
	name  string
	limit time.Duration // given up after that
	usual time.Duration // what most have taken
	doing string        // "getting 4 machines in aws/us-east-1/a"; "": in silence
	out   *progress
	note  func(state.Step)
}

// waits is what a call's provider said last that it waits for.
type waits struct {
	mu   sync.Mutex
	what string
	step *step
}

// hear keeps what it waits for, and shows it when it is something else than
// before.
func (w *waits) hear(what string) {
	what = oneLine(what)
	w.mu.Lock()
	defer w.mu.Unlock()
	if what == w.what {
		return
	}
	w.what = what
	w.step.out.show(started(w.step.doing) + ": waiting for " + what)
}

// now is ", waiting for" what it was last, "" for nothing.
func (w *waits) now() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.what == "" {
		return ""
	}
	return ", waiting for " + w.what
}

// started is what is done, as the beginning of a line.
func started(doing string) string { return strings.ToUpper(doing[:1]) + doing[1:] }

// mostWaits bounds what is told about a wait, in bytes: schedulers of large clusters
// are wordy.
const mostWaits = 300

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > mostWaits {
		s = strings.ToValidUTF8(s[:mostWaits], "") + " …"
	}
	return s
}

// run calls f and returns what it returned. A call that its deadline cut off is
// a [*TimeoutError].
func run[T any](ctx context.Context, s step, f func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	start := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, s.limit, errDeadline)
	defer cancel()
	waits := &waits{step: &s}
	if s.doing != "" { // else whoever listens already does
		limited = cloud.WithNotes(cloud.WithWaitReports(limited, waits.hear), func(text string) { s.out.say("⚠ %s", text) })
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := f(limited)
		answers <- answer{v, err}
	}()
	tell := time.NewTicker(reportEvery)
	defer tell.Stop()
	ended := limited.Done()
	var tooLong <-chan time.Time
	for {
		select {
		case a := <-answers:
			cut := context.Cause(limited) == errDeadline
			if a.err != nil && cut {
				a.err = &TimeoutError{Step: s.name, After: s.limit, Err: a.err}
			}
			s.took(start, a.err == nil)
			return a.v, a.err
		case <-tell.C:
			if s.doing != "" {
				s.out.say("… still %s%s: %s so far, most take %s, %s", s.doing, waits.now(), took(time.Since(start)), took(s.usual), limit(s.limit))
			}
		case <-ended:
			ended = nil
			t := time.NewTimer(grace)
			defer t.Stop()
			tooLong = t.C
		case <-tooLong:
			var none T
			s.took(start, false)
			if context.Cause(limited) == errDeadline {
				return none, &TimeoutError{Step: s.name, After: s.limit}
			}
			return none, fmt.Errorf("the step %q does not stop: %w", s.name, context.Cause(limited))
		}
	}
}

// limit is how long a step may take, for people.
func limit(d time.Duration) string {
	if d >= cloud.Forever {
		return "never given up"
	}
	return "given up after " + took(d)
}

func (s *step) took(start time.Time, ok bool) {
	if s.note != nil {
		s.note(state.Step{Name: s.name, Took: time.Since(start), OK: ok})
	}
}

// act is run for calls that return nothing.
func act(ctx context.Context, s step, f func(context.Context) error) error {
	_, err := run(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// progress is where attempts, maybe several at once, say what they do.
type progress struct {
	mu sync.Mutex
	w  io.Writer
}

// say writes one line.
func (p *progress) say(format string, args ...any) {
	if p == nil || p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// show is say for what the next line may replace, where that can be done.
func (p *progress) show(text string) {
	if p == nil || p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.w.(interface{ Spin(string) }); ok {
		s.Spin(text)
		return
	}
	fmt.Fprintln(p.w, text)
}

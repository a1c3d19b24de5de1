//go:build unix

package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
)

// fakeWorker answers to being told to stop with errors in turn, the last one for
// ever; nil is an acknowledgement, after which it is gone.
type fakeWorker struct {
	errs  []error
	told  int
	after time.Duration // how long each try takes
}

func (w *fakeWorker) Shutdown(ctx context.Context, _ agentapi.ShutdownRequest) (*agentapi.Info, error) {
	time.Sleep(w.after)
	err := w.errs[min(w.told, len(w.errs)-1)]
	w.told++
	return &agentapi.Info{}, err
}

func (w *fakeWorker) Info(context.Context) (*agentapi.Info, error) { return nil, io.EOF }

// TestHowLongAHeadTriesToStopAWorker is the rule of what proves that a worker has
// stopped.
func TestHowLongAHeadTriesToStopAWorker(t *testing.T) {
	call := func(err error) error { return &agentclient.UnreachableError{Address: "w", Err: err} }
	var (
		ok       error
		lost     = call(io.ErrUnexpectedEOF)
		reset    = call(&net.OpError{Op: "read", Err: syscall.ECONNRESET})
		refused  = call(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		noHost   = call(&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH})
		timedOut = call(&net.OpError{Op: "dial", Err: context.DeadlineExceeded})
		no       = &agentapi.Error{Code: agentapi.CodeInternal, Message: "no"}
	)
	few := 2 * workerAbsent * workerRetry
	for _, tt := range []struct {
		name string
		errs []error
		took func(time.Duration) bool
	}{
		{"it acknowledges", []error{ok}, func(d time.Duration) bool { return d < time.Second }},
		{"its answer is lost and it is gone", []error{lost, refused}, func(d time.Duration) bool { return d < few }},
		{"its answer is cut off and its host is gone", []error{reset, noHost}, func(d time.Duration) bool { return d < few }},
		{"its answer is lost, and it is told again", []error{lost, ok}, func(d time.Duration) bool { return d < few }},
		{"its answer is lost and nothing answers: a network may be cut", []error{lost, timedOut}, func(d time.Duration) bool { return d == workerPatience }},
		{"it was never told: its agent may be starting", []error{refused}, func(d time.Duration) bool { return d == workerPatience }},
		{"it was never told, and then it is", []error{refused, refused, refused, refused, ok}, func(d time.Duration) bool { return d < few }},
		{"it was never reached", []error{timedOut}, func(d time.Duration) bool { return d == workerPatience }},
		{"it refuses for a while", []error{no, no, ok}, func(d time.Duration) bool { return d < few }},
		{"it comes and goes", []error{lost, refused, refused, timedOut, refused, refused, no, refused, refused, timedOut}, func(d time.Duration) bool { return d == workerPatience }},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &fakeWorker{errs: tt.errs}
			start := time.Now()
			stopWorker(t.Context(), slog.New(slog.DiscardHandler), w, "terminate")
			if took := time.Since(start); !tt.took(took) {
				t.Errorf("%s: it took %v and %d tries", tt.name, took, w.told)
			}
		})
	}
	if !errors.Is(refused, syscall.ECONNREFUSED) {
		t.Error("the client's errors hide their cause")
	}
}

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

func TestAnUploadOnWhichNothingMovesIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		m := &movingReader{Reader: iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 100)))}
		go m.watch(ctx, cancel)
		// It may be slow: a byte every 50 seconds.
		for range 100 {
			time.Sleep(uploadStall - 10*time.Second)
			if _, err := io.ReadFull(m, make([]byte, 1)); err != nil || ctx.Err() != nil {
				t.Fatalf("%v, %v", err, context.Cause(ctx))
			}
		}
		last := time.Now()
		<-ctx.Done()
		if d := time.Since(last); !errors.Is(context.Cause(ctx), errStalled) || d > 2*uploadStall {
			t.Errorf("ended %v after the last byte: %v", d, context.Cause(ctx))
		}
	})
}

func TestWhyAnUploadFailed(t *testing.T) {
	target := sshconn.Target{Host: "h"}
	other := errors.New("other")
	for _, tt := range []struct {
		err  error
		says string
	}{
		{&sshconn.ExitError{Code: 126, Stderr: "Permission denied"}, "h does not run programs from its home folder (mounted noexec?), and no folder such as /var/lib could be used in its place, which takes root: exit code 126: Permission denied"},
		{&sshconn.ExitError{Code: exitDamaged}, "what arrived on h is not what was sent"},
		{&sshconn.ExitError{Code: 1, Stderr: "x"}, "exit code 1: x"},
		{other, "other"},
	} {
		if got := uploadError(target, fmt.Errorf("%w", tt.err)).Error(); got != tt.says {
			t.Errorf("%q, want %q", got, tt.says)
		}
	}
}

func TestWhoCanBringTheAgentIsWaitedForAsLongAsTheRequestLives(t *testing.T) {
	s := newSpread(nil)
	cancelled := errors.New("the request was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cancelled)
	if _, err := s.take(ctx); err != cancelled {
		t.Errorf("%v", err)
	}
}

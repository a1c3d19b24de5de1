package localserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/proc"
)

// stopGrace is how long a server may take to finish what it must not leave
// half-done.
const stopGrace = 20 * time.Second

// proveWithin is how long whoever listens at the endpoint may take to say who it is.
const proveWithin = 10 * time.Second

// Stop ends the local server: TERM, then KILL. stopped is false when none ran.
// Starting and stopping exclude each other.
func (l *Local) Stop(ctx context.Context) (stopped bool, err error) {
	if err := os.MkdirAll(Dir(l.Home), 0o700); err != nil {
		return false, err
	}
	unlock, err := lock(ctx, filepath.Join(Dir(l.Home), ".creation.lock"))
	if err != nil {
		return false, fmt.Errorf("waiting for another sky command that starts the API server: %w", err)
	}
	defer unlock()
	in, err := l.running(ctx)
	if err != nil || in.PID == 0 {
		return false, err
	}
	p, err := os.FindProcess(in.PID)
	if err != nil {
		return false, fmt.Errorf("finding the API server (pid %d): %w", in.PID, err)
	}
	if err := terminate(p); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("ending the API server (pid %d): %w", in.PID, err)
	}
	if gone(ctx, in, cmp.Or(l.Grace, stopGrace)) {
		return true, ctx.Err()
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("killing the API server (pid %d): %w", in.PID, err)
	}
	if !gone(ctx, in, 5*time.Second) {
		return false, fmt.Errorf("the API server (pid %d) does not end", in.PID)
	}
	return true, nil
}

// running describes the server of this home folder that listens at the endpoint; PID
// 0 means that nobody does. Somebody else's is a [*ForeignError].
func (l *Local) running(ctx context.Context) (sky.Instance, error) {
	in, err := sky.ReadInstance(l.Home)
	if err == nil && in.PID > 0 && (in.Endpoint == "" || in.Endpoint == l.Endpoint || addressOf(in.Endpoint) == l.address()) && proc.Alive(in.PID, in.Start) {
		return in, nil
	}
	if err := l.foreign(); err != nil {
		return sky.Instance{}, err
	}
	// The file may be lost or of another port; the server itself knows its pid.
	h, ours, err := l.Client.Prove(ctx, cmp.Or(l.prove, proveWithin))
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return sky.Instance{}, fmt.Errorf("finding out who listens at %s: %w", l.Endpoint, err)
	}
	if err != nil {
		return sky.Instance{}, nil
	}
	if !ours {
		return sky.Instance{}, l.notOurs()
	}
	start, err := proc.StartTime(h.PID)
	if err != nil {
		return sky.Instance{}, nil
	}
	return sky.Instance{PID: h.PID, Start: start, Endpoint: l.Endpoint, InstanceID: h.InstanceID, BuildID: h.BuildID}, nil
}

// gone waits until the process has ended.
func gone(ctx context.Context, in sky.Instance, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for proc.Alive(in.PID, in.Start) {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

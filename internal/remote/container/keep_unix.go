//go:build unix

package container

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Machine is what the keeper switches off.
type Machine interface {
	Stop(ctx context.Context) error
	Terminate(ctx context.Context) error
}

// Keep waits until the container ends and does then what the agent inside wanted
// of the machine. Of several keepers of a home folder one works; the others
// return at once.
func Keep(ctx context.Context, home, name string, m Machine, log *slog.Logger) error {
	f, err := os.OpenFile(filepath.Join(home, ".sky", "keeper.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil
		}
		return err
	}
	e, err := findEngine(ctx, &teller{out: os.Stderr})
	if err != nil {
		return err
	}
	code, err := e.await(ctx, name, log)
	if err != nil {
		return err
	}
	log.Info("the container has ended", "code", code)
	if m == nil {
		return nil
	}
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		switch wanted(code) {
		case "terminate":
			err = m.Terminate(ctx)
		case "stop":
			err = m.Stop(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		log.Error("machine not given back, trying again", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// await returns the exit code of a container. The engine may come and go
// meanwhile; a container that was removed ended with 0.
func (e *engine) await(ctx context.Context, name string, log *slog.Logger) (int, error) {
	for {
		c := e.exec(ctx, "wait", name)
		out, err := c.Output()
		if code, nerr := strconv.Atoi(strings.TrimSpace(string(out))); err == nil && nerr == nil {
			return code, nil
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		log.Warn("waiting for the container was cut off", "err", err)
		if state, ierr := e.inspect(ctx, name); ierr == nil && state == nil {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(2 * time.Second):
		}
	}
}

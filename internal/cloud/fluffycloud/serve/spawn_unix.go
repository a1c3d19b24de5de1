//go:build unix

package serve

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/machine"
)

// spawn switches a machine on: a process of its own that outlives this one.
func spawn(dir string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	console, err := os.OpenFile(filepath.Join(dir, "console.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	cmd := exec.Command(exe, "machine", "--dir", dir)
	cmd.Dir = filepath.Join(dir, "home")
	cmd.Env = append(os.Environ(), machine.EnvMachine+"="+dir)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // reaps it; how it ended is seen elsewhere
	return nil
}

// lockLimit is how long a folder may stay locked after its server was killed: a
// child that it was just about to start holds the lock until it has begun.
const lockLimit = 3 * time.Second

// lock keeps a second server out of the folder.
func lock(dir string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	l := flock.New(filepath.Join(dir, "lock"))
	if _, err := l.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		l.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("another server works in %s", dir)
		}
		return nil, err
	}
	return func() { l.Close() }, nil
}

//go:build unix

package nodeagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// PowerOff is a rented machine that powers off. Whether that stops or
// terminates it was settled with its cloud before (cloud.OffSwitch).
type PowerOff struct{}

func (PowerOff) Stop(ctx context.Context) error      { return powerOff(ctx) }
func (PowerOff) Terminate(ctx context.Context) error { return powerOff(ctx) }

// MarksEnd is a rented machine that powers off, and whose end is seen to by a script on it
// if the file Mark is there.
type MarksEnd struct{ Mark string }

func (m MarksEnd) Stop(ctx context.Context) error {
	if err := asRoot(ctx, "rm", "-f", m.Mark); err != nil {
		return err
	}
	return powerOff(ctx)
}

func (m MarksEnd) Terminate(ctx context.Context) error {
	if err := asRoot(ctx, "touch", m.Mark); err != nil {
		return err
	}
	err := powerOff(ctx)
	if err != nil { // it is still on, and who powers it off next may mean another thing
		err = errors.Join(err, asRoot(context.WithoutCancel(ctx), "rm", "-f", m.Mark))
	}
	return err
}

// asRoot runs a command that changes the system.
func asRoot(ctx context.Context, command ...string) error {
	if os.Geteuid() != 0 {
		command = append([]string{"sudo", "-n"}, command...)
	}
	ctx, cancel := context.WithTimeout(ctx, offCommand)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return nil
}

const (
	// offCommand bounds one command that switches off.
	offCommand = 20 * time.Second
	// offWithin is how long a machine that was asked to may take to be off.
	offWithin = 3 * time.Minute
)

// offCommands switch a machine off, the one that asks the system nicely first.
var offCommands = [][]string{{"poweroff"}, {"shutdown", "-h", "now"}, {"systemctl", "poweroff"}, {"halt", "-p"}}

// powerOff returns an error if the machine is still on after a while, or nil if
// this process was asked to end, which is how that begins.
func powerOff(ctx context.Context) error {
	var errs []error
	for _, command := range offCommands {
		err := asRoot(ctx, command...)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(offWithin):
			return fmt.Errorf("%q was said %v ago, and this machine is still on", command, offWithin)
		}
	}
	return errors.Join(errs...)
}

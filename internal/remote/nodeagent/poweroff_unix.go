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

const (
	// offCommand bounds one command that switches off.
	offCommand = 20 * time.Second
	// offWithin is how long a machine that was told to may take to be off.
	offWithin = 3 * time.Minute
)

// offCommands switch a machine off, the one that asks the system nicely first.
var offCommands = [][]string{{"poweroff"}, {"shutdown", "-h", "now"}, {"systemctl", "poweroff"}, {"halt", "-p"}}

// powerOff returns an error if the machine is still on after a while, or nil if
// this process was told to end, which is how that begins.
func powerOff(ctx context.Context) error {
	var errs []error
	for _, command := range offCommands {
		if os.Geteuid() != 0 {
			command = append([]string{"sudo", "-n"}, command...)
		}
		cctx, cancel := context.WithTimeout(ctx, offCommand)
		out, err := exec.CommandContext(cctx, command[0], command[1:]...).CombinedOutput()
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w: %s", command, err, bytes.TrimSpace(out)))
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

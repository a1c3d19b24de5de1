package nodestorage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/mount"
)

// codeRunning is the exit code of a second process for the same folder.
const codeRunning = 3

// mountMain is sky-mount mount: it holds the mounts of a folder until it is asked to end.
// whole: the program is the whole sky.
func mountMain(ctx context.Context, dir string, whole bool) int {
	debug.SetGCPercent(50)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	o := mount.Options{Dir: dir, Version: api.ProductVersion, Log: log}
	broker := (*mount.Broker)(nil)
	if !mount.MayMount() {
		broker = mount.FindBroker(mount.BrokerDir)
	}
	switch {
	case broker != nil:
		o.Rights = broker
	case os.Geteuid() != 0:
		self, err := os.Executable()
		if err != nil {
			fmt.Fprintln(os.Stderr, "sky-mount:", err)
			return 1
		}
		command := []string{self, privileged}
		if whole {
			command = []string{self, Command, privileged}
		}
		if h := mount.BySudo(command...); h != nil {
			o.Rights = h
		} else if f := mount.FindFusermount(); f != nil {
			o.Rights = f
		}
	}
	err := mount.Serve(ctx, o)
	switch {
	case errors.Is(err, mount.ErrRunning):
		return codeRunning
	case err != nil:
		fmt.Fprintln(os.Stderr, "sky-mount:", err)
		return 1
	}
	return 0
}

// brokerMain is sky-mount broker: it mounts for containers of this machine.
func brokerMain(ctx context.Context, dir string) int {
	if err := mount.ServeBroker(ctx, dir, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, "sky-mount:", err)
		return 1
	}
	return 0
}

// privilegedMain is what the helper of sky-mount does, as root.
func privilegedMain(order string) int { return mount.Privileged(order, os.Stdin, os.Stdout) }

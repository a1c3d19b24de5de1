package nodestorage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/mount"
)

// codeRunning is the exit code of a second process for the same folder.
const codeRunning = 3

// mountMain is sky-mount mount: it holds the mounts of a folder until it is told to end.
// whole: the program is the whole sky.
func mountMain(ctx context.Context, dir string, whole bool) int {
	debug.SetGCPercent(50)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	o := mount.Options{Dir: dir, Version: api.ProductVersion, Log: log}
	if os.Geteuid() != 0 {
		o.Helper = helper(whole)
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

// helper mounts by sudo; nil: there is no sudo without a password.
func helper(whole bool) *mount.Helper {
	self, err := os.Executable()
	if err != nil || exec.Command("sudo", "-n", "true").Run() != nil {
		return nil
	}
	command := []string{"sudo", "-n", "--", self}
	if whole {
		command = append(command, Command)
	}
	return &mount.Helper{Command: append(command, privileged)}
}

// privilegedMain is what the helper does, as root.
func privilegedMain(order string) int { return mount.Privileged(order, os.Stdin, os.Stdout) }

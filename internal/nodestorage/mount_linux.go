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

// mountMain is sky-mount mount: it holds the mounts of a folder until it is told to end.
func mountMain(ctx context.Context, dir string) int {
	debug.SetGCPercent(50)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := mount.Serve(ctx, mount.Options{Dir: dir, Version: api.ProductVersion, Log: log})
	switch {
	case errors.Is(err, mount.ErrRunning):
		return codeRunning
	case err != nil:
		fmt.Fprintln(os.Stderr, "sky-mount:", err)
		return 1
	}
	return 0
}

package machine

import (
	"context"
	"errors"
	"log/slog"
)

// Run is the machine.
func Run(context.Context, string, *slog.Logger) error {
	return errors.New("FluffyCloud's machines need Linux or macOS")
}

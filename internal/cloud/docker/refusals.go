package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// refused turns an engine's refusal into an error of package cloud; nil stays
// nil.
func (p *Provider) refused(ctx context.Context, place cloud.Place, err error) error {
	if err == nil {
		return nil
	}
	var invalid *cloud.InvalidError
	var engine *EngineError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &invalid):
		return err
	case isPermission(err):
		return &cloud.PermissionError{Place: place, Err: err}
	case !errors.As(err, &engine):
		return &cloud.UnreachableError{Err: fmt.Errorf("the container engine on %s: %w", p.engine.socket, err)}
	case strings.Contains(engine.Message, "no space left on device"), strings.Contains(engine.Message, "could not select device driver"),
		strings.Contains(engine.Message, "non-overlapping IPv4 address pool"):
		return &cloud.CapacityError{Place: place, Err: err}
	case engine.Status == 400:
		return &cloud.InvalidError{Place: place, Err: err}
	case engine.Status >= 500:
		return &cloud.UnreachableError{Err: err}
	}
	return err
}

func isPermission(err error) bool { return errors.Is(err, fs.ErrPermission) }

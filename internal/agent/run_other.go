//go:build !unix

package agent

import (
	"context"
	"errors"
)

// Run fails: nodes are Unix machines.
func Run(context.Context, Options) error {
	return errors.New("the node agent runs on Linux and macOS only")
}

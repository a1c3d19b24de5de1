//go:build unix

package shell

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Resizes says when the terminal's size changes, until ctx ends.
func Resizes(ctx context.Context) <-chan struct{} {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	changed := make(chan struct{}, 1)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
	}()
	return changed
}

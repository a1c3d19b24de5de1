// Command sky is the command line, the API server ("sky api start") and the
// node agent ("sky agent") in one file, and the program that works with buckets on nodes.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/skypilot-go/sky/internal/cli"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/daemon"
	"github.com/skypilot-go/sky/internal/installation"
	"github.com/skypilot-go/sky/internal/nodestorage"
	"github.com/skypilot-go/sky/internal/remote/nodeagent"
)

func main() {
	os.Exit(cli.Main(cli.Program{
		Args:    os.Args[1:],
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Serve:   serve,
		Restore: restore,
		Agent:   nodeagent.Main,
		Mount:   nodestorage.Main,
	}))
}

func restore(ctx context.Context, home, file string, other bool) (*cli.Restored, error) {
	r, err := daemon.Restore(ctx, installation.RestoreOptions{Home: home, File: file, Other: other})
	if err != nil {
		return nil, err
	}
	return &cli.Restored{
		File: r.File, Installation: r.ID, Generation: r.Generation, Aside: r.Aside, RequestsEnded: r.Requests,
		LiveJobs: r.Jobs, KeysRestored: r.KeysPut, KeysAbsent: r.KeysAbsent,
	}, nil
}

func serve(ctx context.Context, o cli.ServeOptions) error {
	paceGC()
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if config.Debug.On(os.LookupEnv) {
		level = slog.LevelDebug
	}
	err = daemon.Run(ctx, daemon.Options{
		Home: home, Host: o.Host, Port: o.Port, AnyPort: o.AnyPort, UntilIdle: o.UntilIdle, Ready: o.Ready,
		AcceptDatabase: o.AcceptDatabase, StartAnew: o.StartAnew,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	})
	if errors.Is(err, daemon.ErrIdle) {
		return cli.ErrIdle
	}
	return err
}

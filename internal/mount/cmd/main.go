//go:build linux

// Command cmd holds the mounts of a folder until it is interrupted: to try package mount.
//
//	go run ./internal/mount/cmd DIR &
//	curl --unix-socket DIR/socket http://x/v1/mount -d '{"spec":{"path":"/mnt/x","url":"s3://bucket","mode":"MOUNT"}}'
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/skypilot-go/sky/internal/mount"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cmd DIR")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := mount.Serve(ctx, mount.Options{Dir: os.Args[1], Log: log}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

package serve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/machine"
)

const usage = `FluffyCloud is a cloud that runs on your own machine.

  fluffycloud serve --dir DIR [--listen 127.0.0.1:7070] [--credentials FILE] [--boot 2s] [--page-size N]
      serves the cloud that is kept in DIR; the machines stay when it ends
  fluffycloud destroy --dir DIR
      ends all machines of a cloud that is not served, and removes DIR
  fluffycloud admin --dir DIR METHOD PATH [JSON]
      does what operators do, for instance:
        admin --dir DIR GET  inventory
        admin --dir DIR POST capacity '{"zone":"east-a","type":"puff-2","total":0}'
        admin --dir DIR POST faults '{"kind":"lose","op":"instances.create","times":1}'
        admin --dir DIR POST instances/ID/preempt '{"after":30}'
`

// Main is the command fluffycloud. It returns the exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	err := command(ctx, args[0], args[1:], stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, new(*usageError)):
		fmt.Fprintf(stderr, "fluffycloud: %v\n", err)
		return 2
	}
	fmt.Fprintf(stderr, "fluffycloud: %v\n", err)
	return 1
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func command(ctx context.Context, name string, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("fluffycloud "+name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	dir := fs.String("dir", "", "")
	log := slog.New(slog.NewTextHandler(stderr, nil))
	var o Options
	if name == "serve" {
		fs.StringVar(&o.Listen, "listen", "127.0.0.1:7070", "")
		fs.StringVar(&o.Credentials, "credentials", "", "")
		fs.IntVar(&o.PageSize, "page-size", 0, "")
		fs.DurationVar(&o.Boot, "boot", 500*time.Millisecond, "")
	}
	switch name {
	case "serve", "destroy", "admin", "machine":
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	default:
		return &usageError{fmt.Sprintf("there is no command %q; see: fluffycloud help", name)}
	}
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return err
	} else if err != nil {
		return &usageError{err.Error()}
	}
	if *dir == "" {
		return &usageError{name + " needs --dir DIR"}
	}
	switch name {
	case "serve":
		o.Dir, o.Logger = *dir, log
		o.Ready = func(endpoint string) { fmt.Fprintf(stdout, "FluffyCloud is at %s\n", endpoint) }
		return Run(ctx, o)
	case "destroy":
		return Destroy(ctx, *dir)
	case "machine":
		return machine.Run(ctx, *dir, log)
	}
	return admin(ctx, *dir, fs.Args(), stdout)
}

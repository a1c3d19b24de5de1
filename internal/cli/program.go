// Package cli is the command line: commands, flags, tables, prompts and exit
// codes. It talks to the API server through package sky only, so everything a
// command does a program can do too.
//
// There is one file per command or noun. A command parses its flags, decides
// what to ask, calls the client, and prints; what it prints comes from pure
// functions, which have the tests.
package cli

import (
	"context"
	"errors"
	"io"
	"time"
)

// Program is the outside world of one run of sky. Everything that the command
// line may not import because it is heavy (the server, the agent) comes in as a
// function.
type Program struct {
	// Args are the arguments after the program's name.
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Environ lists the environment as os.Environ does; nil means os.Environ().
	Environ []string

	// Serve runs the API server until ctx ends; it returns [ErrIdle] if it ended
	// because there was nothing to do.
	Serve func(ctx context.Context, o ServeOptions) error
	// Agent runs the hidden "sky agent …"; args come after the word agent.
	Agent func(args []string) int
}

// ServeOptions say where and how an API server listens.
type ServeOptions struct {
	Host            string
	Port            int
	Deploy          bool // for a team: listens on every address
	EnableBasicAuth bool
	AnyPort         bool          // takes another port if that one is in use
	UntilIdle       time.Duration // ends after so long without anything to do; 0: never
	// Ready, if not nil, is called once the server answers requests.
	Ready func()
}

// ErrIdle is why a server ended that was to run while there is work.
var ErrIdle = errors.New("there was nothing to do any more")

// exitIdle is the exit code of such a server: it tells its end from others.
const exitIdle = 10

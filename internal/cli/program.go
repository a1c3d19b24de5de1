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
	"io"
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

	// Serve runs the API server until ctx ends.
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
	// Ready, if not nil, is called once the server answers requests.
	Ready func()
}

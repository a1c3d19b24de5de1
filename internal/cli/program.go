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
	// Patience is how long a server that does not answer is waited for, as
	// [sky.Options] has it.
	Patience time.Duration

	// Serve runs the API server until ctx ends; it returns [ErrIdle] if it ended
	// because there was nothing to do.
	Serve func(ctx context.Context, o ServeOptions) error
	// Restore puts a backup in the place of the database below the home folder.
	Restore func(ctx context.Context, home, file string, other bool) (*Restored, error)
	// Agent runs the hidden "sky agent …"; args come after the word agent.
	Agent func(args []string) int
	// Mount runs the hidden "sky sky-mount …", which works with buckets on a node.
	Mount func(args []string) int
}

// ServeOptions say where and how an API server listens.
type ServeOptions struct {
	Host            string
	Port            int
	Deploy          bool // for a team: listens on every address
	EnableBasicAuth bool
	AnyPort         bool          // takes another port if that one is in use
	UntilIdle       time.Duration // ends after so long without anything to do; 0: never
	// AcceptDatabase goes on with a database that is older than the server knows, or
	// of another installation; StartAnew begins a new one in place of a lost one.
	AcceptDatabase, StartAnew bool
	// Ready, if not nil, is called once the server answers requests.
	Ready func()
}

// Restored is what a restore has done, for -o json.
type Restored struct {
	File          string `json:"file"`
	Installation  string `json:"installation"`
	Generation    int64  `json:"generation"`
	Aside         string `json:"aside,omitempty"` // the folder with what was there before
	RequestsEnded int    `json:"requests_ended"`  // that had not ended when the backup was made
	LiveJobs      []int  `json:"live_jobs"`       // managed jobs that had not
	KeysRestored  int    `json:"keys_restored"`
	KeysAbsent    bool   `json:"keys_absent"` // keys that the content needs are neither here nor in the backup
}

// ErrIdle is why a server ended that was to run while there is work.
var ErrIdle = errors.New("there was nothing to do any more")

// exitIdle is the exit code of such a server: it tells its end from others.
const exitIdle = 10

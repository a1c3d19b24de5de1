// Package nodestorage is the program that works with buckets on a node: the command
// sky-mount, which a server starts through the node's agent. Credentials reach it on its
// standard input and stay in its memory.
//
// mount DIR holds the mounts of a folder (package mount); the node's agent starts it.
// broker DIR mounts for containers of a machine that may not. What
// copy reads is a [CopySpec] and after that, for as
// long as the input lasts, [Renewal]s, one JSON object a line; what it writes is [Event]s,
// one a line. The end of the input ends the program: whoever started it is gone.
package nodestorage

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/granted"
)

// Command is the word after sky that begins this program where the whole sky is on a node.
const Command = "sky-mount"

// privileged is the word for what is done with the right to mount, by sudo.
const privileged = "privileged"

// CopySpec is what copy does.
type CopySpec struct {
	Grants []storage.Grant `json:"grants"`
	Copies []Copy          `json:"copies"`
}

// Copy is one thing to copy.
type Copy struct {
	Grant  int    `json:"grant"` // index of the bucket's grant
	Key    string `json:"key"`   // an object, or what folder's keys begin with; "": the whole bucket
	Dst    string `json:"dst"`   // absolute, or below the home folder: "~/x" or "x"
	Folder bool   `json:"folder,omitempty"`
	// AsRoot prepares a destination that the user may not write, with sudo.
	AsRoot bool `json:"as_root,omitempty"`
}

// Renewal replaces the credentials of all grants, in the order of the specification.
type Renewal struct {
	Grants []storage.Grant `json:"grants"`
}

// Event is a line of output. Lines that are no event come from the login shell.
type Event struct {
	Mark string `json:"sky_mount"` // Kind of the event; never empty
	Copy int    `json:"copy"`      // index

	Files      int64   `json:"files,omitempty"` // so far, or all in all
	Bytes      int64   `json:"bytes,omitempty"`
	TotalFiles int64   `json:"total_files,omitempty"`
	TotalBytes int64   `json:"total_bytes,omitempty"`
	Counted    bool    `json:"counted,omitempty"` // the totals are final
	Rate       float64 `json:"rate,omitempty"`
	Left       float64 `json:"left,omitempty"` // seconds

	Same   int64    `json:"same,omitempty"` // files that were there already
	Folder bool     `json:"folder,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	Error  string   `json:"error,omitempty"`
	Fault  Fault    `json:"fault,omitempty"`
}

// Kinds of events.
const (
	Progress = "progress"
	Done     = "done"   // one copy is complete
	Failed   = "failed" // one copy is not; the program ends
)

// A Fault says what kind of failure there was.
type Fault string

// The faults.
const (
	FaultCredentials Fault = "credentials" // the store does not take them (any more)
	FaultStore       Fault = "store"       // the store has trouble, or is out of reach
	FaultMissing     Fault = "missing"
	FaultDenied      Fault = "denied"
	FaultSpace       Fault = "space" // the node's disk is full
	FaultFiles       Fault = "files" // some files could not be written
	FaultOther       Fault = "other"
)

// Main is sky-mount with its arguments; it returns the exit code.
func Main(args []string) int {
	whole := len(args) > 0 && args[0] == Command
	if whole {
		args = args[1:]
	}
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	granted.Forget()
	switch {
	case verb == "copy" && len(args) == 1:
		return copyMain(ctx, os.Stdin, os.Stdout, os.Getenv("HOME"))
	case verb == "mount" && len(args) == 2:
		return mountMain(ctx, args[1], whole)
	case verb == "broker" && len(args) == 2:
		return brokerMain(ctx, args[1])
	case verb == privileged && len(args) == 2:
		return privilegedMain(args[1])
	case verb == "--version":
		fmt.Println(api.ProductVersion, buildid.ID())
		return 0
	}
	fmt.Fprintln(os.Stderr, "sky-mount works with buckets on a node and is started by sky. usage: sky-mount copy | sky-mount mount DIR | sky-mount broker DIR")
	return 2
}

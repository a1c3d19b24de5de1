// Package folder is a node that is a folder on a machine which is not rented but
// somebody's own: how it looks on disk, and how it is given back. Its agent and
// the provider that looks at it from outside share it.
package folder

import "context"

// What is in a node's folder. The cluster with the record has the machine; while the
// node is being given back the record has its other name.
const (
	Record  = "node.json"
	Leaving = "leaving.json"
	Home    = "home" // the node's home folder

	// RuntimePrefix begins the names of folders for programs outside of homes from which none
	// run: .sky/runtime of the home is a link to it, and it is removed with the node.
	RuntimePrefix = "sky-runtime-"
)

// Node is the folder Dir; its processes have Mark=Dir in their environment.
type Node struct {
	Dir, Mark string
	// Clear removes what of the node is not in the folder; nil: there is nothing.
	// It is called while nobody else can have the machine.
	Clear func(context.Context) error
}

// Package nodeagent is the end of package remote that is on the node: the
// command line "sky agent", which serves as the node's agent, starts one that
// outlives the connection, and gives the node's folder back.
//
// Package remote gets the binary onto a node in whatever way the node is
// reached; from then on this package does the same everywhere.
package nodeagent

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/local"
)

// Spec says how the agent of a node is to be started.
type Spec struct {
	// Home is the node's home folder; "" is that of the user who starts it.
	Home string `json:"home,omitempty"`
	// Listen is the address, ip:port. Another port is taken if this one is in
	// use.
	Listen string `json:"listen"`
	// Machine says how the agent can switch the node off: see [Machines].
	Machine string `json:"machine,omitempty"`
	// Node is the folder that marks the node's processes; "" leaves them
	// unmarked.
	Node string `json:"node,omitempty"`
	// WholeEnvironment lets the agent and the jobs have all of the environment
	// that it is started with, except what ssh says about the login: in a
	// container that is the image's, on a rented machine the cloud's.
	WholeEnvironment bool `json:"whole_environment,omitempty"`
	// OpenFiles is how many files a process of a job may have open, if that is more than
	// the machine allows by itself; 0: no more than that.
	OpenFiles uint64 `json:"open_files,omitempty"`
	// Container is the one on this machine in which the agent is to run; "": it
	// runs on the machine itself.
	Container string `json:"container,omitempty"`
	// Files are the certificates by name (pki.NodeFiles).
	Files map[string][]byte `json:"files"`
}

// Machines are what Spec.Machine may say.
const (
	MachineNone      = ""                     // the agent cannot switch its machine off
	MachineLocal     = local.Name             // a node of package local
	MachineFolder    = cloud.MachineFolder    // a node of package folder
	MachineContainer = cloud.MachineContainer // see [Container]
	MachinePowerOff  = cloud.MachinePowerOff  // see [PowerOff]
	MachineMarksEnd  = cloud.MachineMarksEnd  // see [MarksEnd]
	MachineInside    = "inside"               // a container on a machine: see package container
)

// Life is what a running agent tells about itself in agent.json.
type Life struct {
	PID     int    `json:"pid"`
	Start   string `json:"start"`
	Address string `json:"address"`
	BuildID string `json:"build_id"`
}

// Errand is what "sky agent --send" reads on a node: bring your own program to
// another one.
type Errand struct {
	Addresses []string `json:"addresses"` // of the other node's sshd; the first that answers
	User      string   `json:"user"`
	HostKeys  []string `json:"host_keys"` // of which it must show one, as in authorized_keys
	Command   string   `json:"command"`   // reads the program
}

// Sent is what became of an Errand.
type Sent struct {
	Error string `json:"error,omitempty"`
}

// SentExtension is the request in ssh-agent's protocol that carries a Sent.
const SentExtension = "sent@sky"

// Refusal is how "sky agent --start" says that it failed, so that the other end
// can say what it branches on.
type Refusal struct {
	Error   string `json:"error"`
	NoSpace bool   `json:"no_space,omitempty"`
}

// Dir is where the agent of a home folder keeps its files.
func Dir(home string) string { return filepath.Join(home, ".sky", "agent") }

// readLife reads agent.json; false if there is none.
func readLife(dir string) (Life, bool) {
	var l Life
	b, err := os.ReadFile(filepath.Join(dir, "agent.json"))
	if err != nil || json.Unmarshal(b, &l) != nil || l.Address == "" {
		return l, false
	}
	return l, true
}

// Package container puts what runs on a machine into a container of an image:
// the end of that which is on the machine. Package remote says which image; the
// agent and all it starts then run inside.
//
// The container shares the machine's network, so that agents find each other as
// on bare machines, and nothing has to be in the image but a shell: the agent's
// program is mounted into it. It keeps its disk when the machine is off, and is
// started again with it. Docker's own command line does the work, because the
// user's options are options of it.
package container

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/skypilot-go/sky/internal/registry"
)

// Spec says which container there is to be.
type Spec struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	// Options are further options of "docker run", one word each.
	Options []string        `json:"options,omitempty"`
	GPUs    bool            `json:"gpus,omitempty"`   // all of the machine's
	Mounts  bool            `json:"mounts,omitempty"` // buckets are mounted in it
	Login   *registry.Login `json:"login,omitempty"`
	// Home is the machine's home folder of this cluster; below it are the
	// agent's programs and what is noted about the container.
	Home string `json:"home"`
	// Node marks what belongs to a node that is a folder; "": nothing needs to.
	Node string `json:"node,omitempty"`
	// Machine is how the machine is switched off when the agent inside asks for
	// it, as for an agent that runs on the machine itself.
	Machine string `json:"machine,omitempty"`
	// Create allows to pull the image and make the container. Without it one
	// that exists is started, and none is an error.
	Create bool `json:"create,omitempty"`
}

// Programs is the folder in the container with the agent's programs, each in a
// folder that is named by its build.
const Programs = "/opt/sky"

// A Line is what "sky agent --contain" says: how far it is, and at last what
// became of it.
type Line struct {
	Doing   string `json:"doing,omitempty"`
	Done    bool   `json:"done,omitempty"` // the last line
	Error   string `json:"error,omitempty"`
	NoSpace bool   `json:"no_space,omitempty"`
	Image   bool   `json:"image,omitempty"` // it is an [ImageError]
}

// teller writes lines; several may speak at once.
type teller struct {
	mu   sync.Mutex
	out  io.Writer
	last string
}

func (t *teller) doing(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = fmt.Sprintf(format, args...)
	t.say(Line{Doing: t.last})
}

// again repeats the last line, so that a connection on which nothing happens is
// known to be there.
func (t *teller) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say(Line{Doing: t.last})
}

func (t *teller) say(l Line) { _ = json.NewEncoder(t.out).Encode(l) }

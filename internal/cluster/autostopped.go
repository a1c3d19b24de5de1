package cluster

import (
	"encoding/json"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
)

// SwitchedOn notes in the record of a stopped cluster that its machines are about
// to be switched on; the caller saves it.
func SwitchedOn(c *state.Cluster) {
	Awake(c)
	if c.AutostopMinutes >= 0 {
		if b, err := json.Marshal(AutostopOf(c)); err == nil {
			c.Notes.AutostopBefore = string(b)
		}
	}
	c.AutostopMinutes, c.AutostopDown = -1, false
}

// Awake forgets the autostop from before a cluster was switched on: another one,
// or none, holds from now on.
func Awake(c *state.Cluster) { c.Notes.AutostopBefore = "" }

// Waking reports whether a cluster was switched on and still lacks the autostop that
// it had before.
func Waking(c *state.Cluster) bool { return c.Notes.AutostopBefore != "" }

// AutostopOf is a cluster's autostop, or what it was before the cluster was
// switched on.
func AutostopOf(c *state.Cluster) agentapi.Autostop {
	if Waking(c) {
		var a agentapi.Autostop
		if json.Unmarshal([]byte(c.Notes.AutostopBefore), &a) == nil {
			return a
		}
	}
	return agentapi.Autostop{IdleMinutes: c.AutostopMinutes, Down: c.AutostopDown, WaitFor: c.AutostopWaitFor}
}

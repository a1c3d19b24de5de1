package cluster

import (
	"encoding/json"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
)

// autostopKey is the key in a record's metadata for the autostop that a cluster
// had when it was switched on again: its agent begins without one. It is there
// until one is set, so that a start that fails or that a crash cuts off loses
// nothing.
const autostopKey = "autostop_before_start"

// SwitchedOn notes in the record of a stopped cluster that its machines are about
// to be switched on; the caller saves it.
func SwitchedOn(c *state.Cluster) {
	Awake(c)
	if c.AutostopMinutes >= 0 {
		if b, err := json.Marshal(AutostopOf(c)); err == nil {
			if c.Metadata == nil {
				c.Metadata = map[string]any{}
			}
			c.Metadata[autostopKey] = string(b)
		}
	}
	c.AutostopMinutes, c.AutostopDown = -1, false
}

// Awake forgets the autostop from before a cluster was switched on: another one,
// or none, holds from now on.
func Awake(c *state.Cluster) { delete(c.Metadata, autostopKey) }

// Waking tells whether a cluster was switched on and still lacks the autostop that
// it had before.
func Waking(c *state.Cluster) bool { return c.Metadata[autostopKey] != nil }

// AutostopOf is a cluster's autostop, or what it was before the cluster was
// switched on.
func AutostopOf(c *state.Cluster) agentapi.Autostop {
	if b, ok := c.Metadata[autostopKey].(string); ok {
		var a agentapi.Autostop
		if json.Unmarshal([]byte(b), &a) == nil {
			return a
		}
	}
	return agentapi.Autostop{IdleMinutes: c.AutostopMinutes, Down: c.AutostopDown, WaitFor: c.AutostopWaitFor}
}

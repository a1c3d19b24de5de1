package cluster

import (
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// Mark notes in a new record which machine it is made on.
func (m *Manager) Mark(c *state.Cluster) {
	c.Notes.ServerMachine = m.Machine
}

// Here is an error if a cluster's nodes are on the machine of another API
// server: only that one sees them, and to any other they look gone.
func (m *Manager) Here(c *state.Cluster) error {
	on := c.Notes.ServerMachine
	if m.Machine == "" || on == "" || on == m.Machine {
		return nil
	}
	if !m.onServer(c) {
		return nil
	}
	return &api.Error{
		Type: api.ErrNotSupported,
		Message: fmt.Sprintf("Cluster %q is on the machine of another API server (%s): nodes on %s can only be reached by the server that made them.",
			c.Name, on, c.Offer.Cloud),
		Hint: "Ask that server directly (SKYPILOT_API_SERVER_ENDPOINT), or launch where every server reaches the nodes.",
	}
}

// onServer reports whether a cluster's nodes are on the machine of a server.
func (m *Manager) onServer(c *state.Cluster) bool {
	p, ok := m.Providers.Get(c.Offer.Cloud)
	return ok && p.Features().OnServer
}

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
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
func Awake(c *state.Cluster) { c.Notes.AutostopBefore, c.Notes.SwitchingOff = "", "" }

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

// idleEnough is why the server ends machines that cannot do it themselves.
const idleEnough = "idle long enough, and its machines cannot switch themselves off"

// endIdle stops, or gives back, a cluster whose lock is held and whose agents have ended all
// that ran there. A nil cluster is gone.
func (m *Manager) endIdle(ctx context.Context, c *state.Cluster) (*state.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, takeDown)
	defer cancel()
	failed := func(err error) error {
		return &api.Error{Type: api.ErrStatusFetching, Err: err, Message: fmt.Sprintf("Cluster %q is idle, and its machines are still on: %v", c.Name, err)}
	}
	if c.AutostopDown {
		if err := m.forget(ctx, nil, c, idleEnough); err != nil {
			return c, failed(err)
		}
		return nil, nil
	}
	p, err := m.provider(c)
	if err == nil {
		err = m.SameAccount(ctx, c, p)
	}
	stopper, ok := cloud.As[cloud.Stopper](p)
	if err == nil && !ok {
		err = errors.New("they cannot be stopped")
	}
	if err != nil {
		return c, failed(err)
	}
	if c.Notes.SwitchingOff == "" {
		marked, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
			c.Notes.SwitchingOff = idleEnough
			return nil
		})
		if err != nil {
			return c, err
		}
		c = marked
	}
	if err := stopper.Stop(ctx, m.Provision.ClusterID(c)); err != nil {
		return c, failed(err)
	}
	return m.stopped(ctx, c, "", idleEnough)
}

//go:build unix

package agent

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// storedTeardown says on disk that the cluster is giving itself back, so that
// an agent that dies meanwhile finishes it in its next life.
type storedTeardown struct {
	Boot  string `json:"boot"`
	Run   string `json:"run"`   // tells this teardown's hooks from another's
	Event string `json:"event"` // stop or down
	Last  bool   `json:"last"`  // only this machine is left to be stopped
	Epoch int64  `json:"epoch"` // of the cluster when it began
}

const (
	// restartGrace is how long an agent that finds its own machine about to be
	// stopped waits for somebody to say that it was started again on purpose.
	restartGrace = time.Minute
	// workerPatience bounds the tries to reach a worker that must stop first.
	workerPatience = 5 * time.Minute
	// stopPause is the longest pause between tries to stop this machine.
	stopPause = 10 * time.Minute
)

// autostop gives the cluster back: hooks, then jobs, then the workers'
// machines, then this one.
func (a *Agent) autostop() {
	a.mu.Lock()
	set, epoch := a.idle.setting(), a.spec.Epoch
	a.state = agentapi.AgentAutostopping
	a.mu.Unlock()
	a.log.Info("cluster is idle, giving it back", "down", set.Down)
	t := storedTeardown{Boot: proc.BootID(), Run: strconv.FormatInt(a.now().UnixMilli(), 36), Event: "stop", Epoch: epoch}
	if set.Down {
		t.Event = "down"
	}
	if err := a.queue.put("teardown", t); err != nil {
		// A full disk must not keep the machine running.
		a.log.Warn("teardown not noted", "err", err)
	}
	a.finishTeardown(t)
}

// recoverTeardown continues what an earlier agent of this boot began.
func (a *Agent) recoverTeardown() error {
	var t storedTeardown
	ok, err := a.queue.load("teardown", &t)
	if err != nil {
		return err
	}
	if !ok || t.Run == "" || t.Boot != proc.BootID() || a.spec == nil || a.spec.Self != 0 || t.Epoch != a.spec.Epoch {
		a.unclaim()
		return nil
	}
	a.state = agentapi.AgentAutostopping
	a.wg.Go(func() {
		if t.Last {
			select {
			case <-a.ctx.Done():
				return
			case <-time.After(restartGrace):
			}
			if a.clusterSpec().Epoch != t.Epoch {
				return
			}
		}
		a.finishTeardown(t)
	})
	return nil
}

// wantedAgain forgets a teardown because the cluster was configured anew.
func (a *Agent) wantedAgain(epoch int64) error {
	a.mu.Lock()
	leaving := a.state == agentapi.AgentAutostopping && a.spec != nil && epoch > a.spec.Epoch
	a.mu.Unlock()
	if !leaving {
		return nil
	}
	var t storedTeardown
	if ok, err := a.queue.load("teardown", &t); err != nil || !ok || !t.Last {
		return err // its machines are being stopped right now
	}
	if err := a.queue.put("teardown", storedTeardown{}); err != nil {
		return err
	}
	a.mu.Lock()
	a.state = agentapi.AgentRunning
	a.mu.Unlock()
	a.unclaim()
	return nil
}

func (a *Agent) finishTeardown(t storedTeardown) {
	a.publishState()
	machine := "stop"
	if t.Event == "down" {
		machine = "terminate"
	}
	if !t.Last {
		a.endAll(a.ctx, t.Event, t.Run, a.o.endGrace)
		if a.ctx.Err() != nil {
			return
		}
		a.stopWorkers(machine)
		t.Last = true
		_ = a.setAutostop(nil) // a machine that is started again is wanted
		_ = a.queue.put("teardown", t)
	}
	a.stopMachine(machine)
}

// endAll runs the hooks of an event, unless an earlier event did, and ends all
// that the agent has started.
func (a *Agent) endAll(ctx context.Context, event, run string, grace time.Duration) {
	if hookEvents[event] && a.isHead() {
		a.hooksOf(ctx, event, run)
	}
	if a.isHead() {
		if _, err := a.cancel(ctx, &agentapi.CancelRequest{All: true}); err != nil {
			a.log.Warn("jobs not cancelled", "err", err)
		}
	}
	if err := a.ranks.endAll(ctx, grace); err != nil {
		a.log.Warn("processes not ended", "err", err)
	}
}

// hooksOf runs the hooks of an event, unless an earlier event did.
func (a *Agent) hooksOf(ctx context.Context, event, run string) {
	a.mu.Lock()
	set := a.idle.setting()
	a.mu.Unlock()
	a.hooking.Lock()
	defer a.hooking.Unlock()
	hooks := hooksFor(set, event)
	if len(hooks) == 0 {
		return
	}
	mine, err := a.claim(event, run)
	if err != nil {
		a.log.Warn("hooks not claimed", "event", event, "err", err)
	}
	if mine {
		a.runHooks(ctx, event, run, hooks)
	}
}

// stopWorkers asks the other agents to end everything and stop their machines.
func (a *Agent) stopWorkers(machine string) {
	a.mu.Lock()
	var peers []remotePeer
	for i, n := range a.spec.Nodes {
		if i != a.spec.Self {
			peers = append(peers, remotePeer{a.clientLocked(n.Address)})
		}
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.ctx, workerPatience)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := p.c.Shutdown(ctx, agentapi.ShutdownRequest{Machine: machine})
				if err == nil {
					a.awaitGone(ctx, p)
					return
				}
				a.log.Warn("worker not stopped, trying again", "err", err)
				select {
				case <-ctx.Done():
				case <-time.After(3 * time.Second):
				}
			}
		})
	}
	wg.Wait()
}

// awaitGone waits until a worker does not answer any more: its agent ends when
// its machine is being stopped.
func (a *Agent) awaitGone(ctx context.Context, p remotePeer) {
	ctx, cancel := context.WithTimeout(ctx, goneAfter)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := p.c.Info(ctx); err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stopMachine stops or terminates this machine, and ends the agent with it.
func (a *Agent) stopMachine(machine string) {
	if a.o.Machine == nil {
		a.log.Error("this agent cannot stop its machine")
		return
	}
	act := a.o.Machine.Stop
	if machine == "terminate" {
		act = a.o.Machine.Terminate
	}
	for wait := time.Second; ; wait = min(2*wait, stopPause) {
		err := act(a.ctx)
		if err == nil {
			a.stop(errShutDown)
			return
		}
		a.log.Error("machine not stopped, trying again", "err", err, "in", wait)
		a.tellStuck(err.Error())
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(wait):
		}
		a.mu.Lock()
		wanted := a.state == agentapi.AgentRunning // somebody configured the cluster anew
		a.mu.Unlock()
		if wanted {
			a.tellStuck("")
			return
		}
	}
}

// tellStuck lets the server know why this machine is still on; "" if it is
// wanted again.
func (a *Agent) tellStuck(why string) {
	a.mu.Lock()
	a.stuck = why
	a.mu.Unlock()
	a.publishState()
}

// postShutdown ends everything on this node and then the agent. The head is
// asked by the server, a worker also by its head.
func (a *Agent) postShutdown(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[agentapi.ShutdownRequest](w, r)
	if err != nil {
		return err
	}
	switch {
	case in.Event != "" && !hookEvents[in.Event]:
		return invalid("there are hooks for stop, down and preemption, not for " + strconv.Quote(in.Event))
	case in.Machine != "" && in.Machine != "stop" && in.Machine != "terminate":
		return invalid("a machine can be stopped or terminated")
	}
	a.mu.Lock()
	if a.state == agentapi.AgentRunning {
		a.state = agentapi.AgentShuttingDown
	}
	a.mu.Unlock()
	a.publishState()
	grace := a.o.endGrace
	if in.GraceSeconds > 0 {
		grace = time.Duration(in.GraceSeconds) * time.Second
	}
	a.endAll(a.ctx, in.Event, "shutdown", grace)
	if err := errors.Join(a.setAutostop(nil), a.queue.put("teardown", storedTeardown{})); err != nil {
		a.log.Warn("autostop not cleared", "err", err)
	}
	writeJSON(w, http.StatusOK, a.info())
	_ = http.NewResponseController(w).Flush()
	a.wg.Go(func() {
		if in.Machine != "" {
			a.stopMachine(in.Machine)
		}
		a.stop(errShutDown)
	})
	return nil
}

//go:build unix

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
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
	// workerRetry is the pause between tries to tell a worker that it must stop.
	workerRetry = 3 * time.Second
	// workerAbsent is how many tries in a row must find nobody at the address of a
	// worker that was asked to stop, whose answer was lost, before it counts as stopped.
	workerAbsent = 3
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
	a.state, a.allEnded = agentapi.AgentRunning, false
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
		a.endAll(a.ctx, t.Event, t.Run, 0)
		a.storeAll(a.ctx, t.Event == "down")
		if a.ctx.Err() != nil {
			return
		}
		a.stopWorkers(machine)
		t.Last = true
		_ = a.setAutostop(nil) // a machine that is started again is wanted
		_ = a.queue.put("teardown", t)
	}
	a.mounts.end(a.ctx, waitPoll)
	a.stopMachine(machine)
}

// endAll runs the hooks of an event, unless an earlier event did, and ends all
// that the agent has started, which has graceSeconds between TERM and KILL; 0: as
// usual.
func (a *Agent) endAll(ctx context.Context, event, run string, graceSeconds int) {
	grace := a.o.endGrace
	if graceSeconds > 0 {
		grace = time.Duration(graceSeconds) * time.Second
	}
	if hookEvents[event] && a.isHead() {
		a.hooksOf(ctx, event, run)
	}
	if a.isHead() {
		if _, err := a.cancelWithin(ctx, &agentapi.CancelRequest{All: true, GraceSeconds: graceSeconds}, cancelWait(grace)); err != nil {
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

// A worker is another agent that ends before its head does.
type worker interface {
	Shutdown(ctx context.Context, r agentapi.ShutdownRequest) (*agentapi.Info, error)
	Info(ctx context.Context) (*agentapi.Info, error)
}

// stopWorkers asks the other agents to end everything and stop their machines.
func (a *Agent) stopWorkers(machine string) {
	a.mu.Lock()
	var workers []worker
	for i, n := range a.spec.Nodes {
		if i != a.spec.Self {
			workers = append(workers, a.clientLocked(n.Address))
		}
	}
	a.mu.Unlock()
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() { stopWorker(a.ctx, a.log, w, machine) })
	}
	wg.Wait()
}

// stopWorker tells one worker to stop its machine until it has stopped, or for
// workerPatience at most.
//
// A worker acknowledges when everything on it has ended and then stops its machine at
// once, so its answer may be lost. If it may have been told, which is the case when a
// connection to it broke, and then nobody is at its address in workerAbsent tries in a
// row, it has stopped: a worker that was told goes on with that although nobody listens,
// and its agent ends only with its machine. A connection that times out proves nothing,
// as a network may be cut, and neither does a refusal by a worker that was never told:
// its agent may just be starting again. Those are tried for all of workerPatience, so
// that no machine is left running and billed that could have been told. The one case
// that looks the same is an agent that crashed while it was told: nobody starts it again
// while the head waits, so waiting longer would not end its machine either. The server
// does, which gives back every machine of a cluster whose head ended itself.
func stopWorker(ctx context.Context, log *slog.Logger, w worker, machine string) {
	ctx, cancel := context.WithTimeout(ctx, workerPatience)
	defer cancel()
	told, absent := false, 0
	for ctx.Err() == nil {
		_, err := w.Shutdown(ctx, agentapi.ShutdownRequest{Machine: machine})
		if err == nil {
			awaitGone(ctx, w)
			return
		}
		switch _, refused := errors.AsType[*agentapi.Error](err); {
		case refused:
			absent = 0
		case nobodyThere(err):
			absent++
		default: // it may have read the call
			told, absent = told || !neverConnected(err), 0
		}
		if told && absent >= workerAbsent {
			log.Info("worker has stopped; its answer was lost", "err", err)
			return
		}
		log.Warn("worker not stopped, trying again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(workerRetry):
		}
	}
}

// nobodyThere reports whether an address has no agent: its host refuses connections, or
// the network says that there is no such host.
func nobodyThere(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH)
}

// neverConnected reports whether a call cannot have reached anybody.
func neverConnected(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// awaitGone waits until a worker does not answer any more: its agent ends when
// its machine is being stopped.
func awaitGone(ctx context.Context, w worker) {
	ctx, cancel := context.WithTimeout(ctx, goneAfter)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := w.Info(ctx); err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stopMachine stops or terminates this machine, and ends the agent with it. A machine that
// cannot do that is the server's to stop.
func (a *Agent) stopMachine(machine string) {
	if a.o.Machine == nil {
		a.log.Info("all has ended, and the machine is left to the server")
		a.mu.Lock()
		a.allEnded = true
		a.mu.Unlock()
		a.publishState()
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
	a.endAll(a.ctx, in.Event, "shutdown", in.GraceSeconds)
	limit := agentapi.FlushTime
	if in.FlushSeconds > 0 {
		limit = time.Duration(in.FlushSeconds) * time.Second
	}
	a.mounts.end(a.ctx, limit)
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

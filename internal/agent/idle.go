//go:build unix

package agent

import (
	"context"
	"runtime"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// storedAutostop is an autostop on disk. It counts only for the boot in which
// it was set: a machine that was started again is wanted again.
type storedAutostop struct {
	Boot string             `json:"boot"`
	Set  *agentapi.Autostop `json:"set"`
}

// activity notes that the cluster is used: the clock of autostop starts again.
func (a *Agent) activity() {
	a.mu.Lock()
	a.idle.since = a.now()
	a.mu.Unlock()
	a.lookAgain()
}

// jobEndedLocked notes that a job is over: idle time begins, if jobs count.
func (a *Agent) jobEndedLocked() {
	if a.idle.waitFor() != api.WaitForNone {
		a.idle.since = a.now()
	}
	a.lookAgain()
}

// lookAgain makes the autostopper look at what has changed.
func (a *Agent) lookAgain() {
	select {
	case a.looked <- struct{}{}:
	default:
	}
}

// autostopper calls fire when the cluster has been idle for long enough. It
// sleeps as long as it can: until something happens or the time has come.
func (a *Agent) autostopper(fire func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-timer.C:
		case <-a.looked:
		}
		now, again := a.lookIdle()
		if now {
			fire()
		}
		timer.Stop()
		if again > 0 {
			timer.Reset(again)
		}
	}
}

func (a *Agent) lookIdle() (fire bool, again time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != agentapi.AgentRunning || a.spec == nil || a.spec.Self != 0 || !a.idle.armed() {
		return false, 0
	}
	// Jobs that are only being cleared up do not count: a node that has gone
	// silent with their processes must not keep the cluster running.
	jobs := a.counts[api.JobInit] + a.counts[api.JobPending] + a.counts[api.JobSettingUp] + a.counts[api.JobRunning]
	return a.idle.look(activity{jobs: jobs, ssh: sshTerminals()}, a.now())
}

func (a *Agent) putAutostop(_ context.Context, set *agentapi.Autostop) (*agentapi.Info, error) {
	if err := a.setAutostop(set); err != nil {
		return nil, err
	}
	return a.info(), nil
}

// setAutostop stores a setting and then obeys it; nil: there is none.
func (a *Agent) setAutostop(set *agentapi.Autostop) error {
	a.setting.Lock()
	defer a.setting.Unlock()
	a.mu.Lock()
	next := a.idle
	a.mu.Unlock()
	if set == nil {
		next.set = nil
	} else {
		next.change(*set, a.now())
	}
	if err := a.queue.put("autostop", storedAutostop{proc.BootID(), next.set}); err != nil {
		return err
	}
	a.mu.Lock()
	if next.since.After(a.idle.since) {
		a.idle.since = next.since
	}
	a.idle.set = next.set
	a.mu.Unlock()
	a.publishState()
	a.lookAgain()
	return nil
}

// recoverIdle continues with the setting of an earlier agent; its clock starts
// with this one.
func (a *Agent) recoverIdle() error {
	var stored storedAutostop
	ok, err := a.queue.load("autostop", &stored)
	if ok && stored.Boot == proc.BootID() {
		a.idle.set = stored.Set
	}
	a.idle.since = a.now()
	return err
}

func (a *Agent) publishState() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hub.publish(agentapi.Event{Kind: agentapi.EventState, At: seconds(a.now()), Info: a.infoLocked()})
}

// session counts a shell that we serve until the returned function is called.
func (a *Agent) session() (end func()) {
	count := func(n int) {
		a.mu.Lock()
		a.idle.sessions += n
		if a.idle.waitFor() == api.WaitForJobsAndSSH {
			a.idle.since = a.now()
		}
		a.mu.Unlock()
		a.lookAgain()
	}
	count(1)
	return func() { count(-1) }
}

func cpuCount() int { return runtime.NumCPU() }

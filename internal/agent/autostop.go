package agent

import (
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

// idleCheck is how often terminals of ssh sessions are looked for while an
// autostop that cares about them is armed. All other activity reports by itself.
const idleCheck = time.Minute

// idleness is what autostop is decided from.
type idleness struct {
	set      *agentapi.Autostop // nil: never set
	since    time.Time          // nothing has happened since
	sessions int                // open shells that we serve
}

// activity is what goes on at the moment.
type activity struct {
	jobs int  // not ended
	ssh  bool // somebody has a terminal through sshd
}

// armed reports whether the cluster will give itself back some time.
func (i *idleness) armed() bool { return i.set != nil && i.set.IdleMinutes >= 0 }

func (i *idleness) waitFor() api.WaitFor {
	if i.set == nil || i.set.WaitFor == "" {
		return api.WaitForJobsAndSSH
	}
	return i.set.WaitFor
}

// change applies a new setting and starts the clock again: whoever sets an idle time
// means the time from now on.
func (i *idleness) change(next agentapi.Autostop, now time.Time) {
	if next.Hooks == nil && i.set != nil {
		next.Hooks = i.set.Hooks
	}
	i.since, i.set = now, &next
}

// look decides whether now is the time to go and, if not, when to look again
// (0: when something happens). What goes on starts the clock again.
func (i *idleness) look(act activity, now time.Time) (fire bool, again time.Duration) {
	if !i.armed() {
		return false, 0
	}
	mode := i.waitFor()
	if mode != api.WaitForNone && act.jobs > 0 {
		i.since = now
		return false, 0
	}
	if mode == api.WaitForJobsAndSSH {
		if i.sessions > 0 {
			i.since = now
			return false, 0
		}
		if act.ssh {
			i.since = now
		}
	}
	left := i.since.Add(time.Duration(i.set.IdleMinutes) * time.Minute).Sub(now)
	if left <= 0 {
		return true, 0
	}
	if mode == api.WaitForJobsAndSSH {
		left = min(left, idleCheck)
	}
	return false, left
}

func (i *idleness) setting() *agentapi.Autostop {
	if i.set == nil {
		return nil
	}
	s := *i.set
	return &s
}

func (i *idleness) sinceSeconds() float64 {
	if i.since.IsZero() {
		return 0
	}
	return seconds(i.since)
}

package cluster

import (
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
)

func TestAnAutostopOutlivesAFailedStart(t *testing.T) {
	own := agentapi.Autostop{IdleMinutes: 7, Down: true, WaitFor: api.WaitForJobs}
	none := agentapi.Autostop{IdleMinutes: -1, WaitFor: api.WaitForJobs}
	c := &state.Cluster{AutostopMinutes: 7, AutostopDown: true, AutostopWaitFor: api.WaitForJobs}
	check := func(when string, waking bool, want agentapi.Autostop) {
		t.Helper()
		if got := AutostopOf(c); got != want || Waking(c) != waking {
			t.Errorf("%s: %+v, waking: %t", when, got, Waking(c))
		}
	}
	check("stopped", false, own)
	SwitchedOn(c)
	check("switched on", true, own)
	if c.AutostopMinutes >= 0 || c.AutostopDown {
		t.Error("the record tells of an autostop that no agent has")
	}
	Awake(c)
	check("set anew", false, none)
	SwitchedOn(c)
	check("without one", false, none)

	c = &state.Cluster{AutostopMinutes: 7, AutostopDown: true, AutostopWaitFor: api.WaitForJobs}
	SwitchedOn(c)
	c.AutostopMinutes = 3 // set before it was stopped the next time
	SwitchedOn(c)
	if got := AutostopOf(c).IdleMinutes; got != 3 {
		t.Errorf("an older autostop came back: %d minutes", got)
	}
}

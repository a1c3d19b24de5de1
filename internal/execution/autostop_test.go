package execution

import (
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/task"
)

func TestAutostopBesideTheTaskIsTheTasks(t *testing.T) {
	given := &task.Autostop{Enabled: true, IdleMinutes: 7, Down: true, WaitFor: "none"}
	for _, tt := range []struct {
		name    string
		minutes *int
		down    bool
		own     *task.Autostop
		want    agentapi.Autostop
		any     bool
	}{
		{"nothing", nil, false, nil, agentapi.Autostop{}, false},
		{"a stop", new(10), false, nil, agentapi.Autostop{IdleMinutes: 10, WaitFor: api.WaitForJobsAndSSH}, true},
		{"a stop at once", new(0), false, nil, agentapi.Autostop{IdleMinutes: 1, WaitFor: api.WaitForJobsAndSSH}, true},
		{"a down", new(10), true, nil, agentapi.Autostop{IdleMinutes: 10, Down: true, WaitFor: api.WaitForJobsAndSSH}, true},
		{"a down at the end", nil, true, nil, agentapi.Autostop{IdleMinutes: 1, Down: true, WaitFor: api.WaitForJobsAndSSH}, true},
		{"never", new(-1), false, nil, agentapi.Autostop{IdleMinutes: -1, WaitFor: api.WaitForJobsAndSSH}, true},
		{"the task's own wins", new(10), false, given, agentapi.Autostop{IdleMinutes: 7, Down: true, WaitFor: "none"}, true},
	} {
		asked := &task.Task{Resources: []task.Resources{{Autostop: tt.own}, {}}}
		takeAutostop(asked, api.LaunchBody{IdleMinutesAutostop: tt.minutes, Down: tt.down})
		got, any := autostopOf(asked)
		if any != tt.any || any && got != tt.want {
			t.Errorf("%s: %+v, %t", tt.name, got, any)
		}
		// Every alternative wants it of its cloud, so that none is planned that cannot.
		if last := asked.Resources[1].Autostop; tt.own == nil && (last != nil) != tt.any {
			t.Errorf("%s: the other request has %+v", tt.name, last)
		}
	}
}

package fsm

import (
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestManagedJobLifeCycle(t *testing.T) {
	walk(t, "managed jobs", ManagedJobs(), api.ManagedStatuses)
	for _, s := range api.ManagedStatuses {
		if final := len(ManagedJobs()[s]) == 0; final != s.Terminal() {
			t.Errorf("%s: final %v, terminal %v", s, final, s.Terminal())
		}
		if s.Terminal() {
			continue
		}
		if next, ok := ManagedJobs().Next(s, ManagedCancelled); !ok || next != api.ManagedCancelled {
			t.Errorf("%s cannot be cancelled", s)
		}
	}
	for _, back := range ManagedJobs().Into(api.ManagedStarting) {
		if back != api.ManagedPending {
			t.Errorf("%s starts anew", back)
		}
	}
}

func TestScheduleLifeCycle(t *testing.T) {
	walk(t, "schedules", Schedules(), []api.ScheduleState{
		api.ScheduleWaiting, api.ScheduleLaunching, api.ScheduleAlive, api.ScheduleAliveBackoff, api.ScheduleAliveWaiting, api.ScheduleDone})
	if len(Schedules().Into(api.ScheduleWaiting)) > 0 {
		t.Error("a job that was claimed waits again")
	}
	for s := range Schedules() {
		if _, ok := Schedules().Next(s, ScheduleEnded); ok == (s == api.ScheduleDone) {
			t.Errorf("%s: every job that is not done can end", s)
		}
	}
}

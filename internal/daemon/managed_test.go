//go:build unix

package daemon

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// run lets the manager of managed jobs work, and clusters be watched, until the test
// has ended.
func (b *bed) run() {
	ctx, stop := context.WithCancel(b.ctx)
	var loops sync.WaitGroup
	loops.Go(func() { b.d.clusters.Watch(ctx) })
	loops.Go(func() { b.d.jobs.Run(ctx) })
	loops.Go(func() { b.d.services.Run(ctx) })
	b.t.Cleanup(func() {
		stop()
		loops.Wait()
	})
}

func TestRequestsLeadAManagedJobThroughItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.run()
		body := api.JobsLaunchBody{Task: "name: train\nrun: |\n  echo epoch 1\n  sleep 1m\nresources: {infra: fluffycloud, cpus: 2+}\n"}
		var launched struct {
			JobID int `json:"job_id"`
		}
		if err := b.do(reqJobsLaunch, "", body, &launched); err != nil || launched.JobID != 1 {
			t.Fatalf("%+v, %v", launched, err)
		}
		said, r := b.log("sky.jobs.logs", api.JobsLogsBody{JobID: &launched.JobID})
		if !strings.Contains(said, "epoch 1") || string(r.ReturnValue) != strconv.Itoa(api.ExitJobSucceeded) {
			t.Errorf("the log ends with %s: %q", r.ReturnValue, said)
		}
		if again := b.said(r.ID); !strings.Contains(again, "epoch 1") {
			t.Errorf("the log replayed: %q", again)
		}
		var code int
		if err := b.do("sky.jobs.wait", "", api.JobsWaitBody{JobID: &launched.JobID}, &code); err != nil || code != api.ExitJobSucceeded {
			t.Errorf("waiting for it: %d, %v", code, err)
		}
		var page struct {
			Jobs []struct {
				JobID  int               `json:"job_id"`
				Status api.ManagedStatus `json:"status"`
			} `json:"jobs"`
		}
		if err := b.do("sky.jobs.queue_v2", "", api.JobsQueueBody{}, &page); err != nil || len(page.Jobs) != 1 || page.Jobs[0].Status != api.ManagedSucceeded {
			t.Errorf("the queue: %+v, %v", page, err)
		}
		if err := b.do("sky.jobs.queue", "", api.JobsQueueBody{}, &page.Jobs); err != nil || len(page.Jobs) != 1 || page.Jobs[0].JobID != 1 {
			t.Errorf("the queue as of old: %+v, %v", page, err)
		}
		var events []any
		if err := b.do("sky.jobs.events", "", api.JobsEventsBody{JobID: launched.JobID}, &events); err != nil || len(events) == 0 {
			t.Errorf("its events: %v, %v", events, err)
		}
		var dirs map[string]string
		if err := b.do(reqJobsDownload, "", api.JobsDownloadLogsBody{JobID: &launched.JobID}, &dirs); err != nil || dirs["1"] == "" {
			t.Errorf("its logs: %v, %v", dirs, err)
		}
		time.Sleep(10 * time.Minute)
		if m := b.Machines(); len(m) != 0 {
			t.Errorf("machines: %v", m)
		}
	})
}

func TestAScheduleSubmitsJobsUntilARequestEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.run()
		task := "name: nightly\nschedule: {cron: '*/20 * * * *'}\nrun: sleep 1m\nresources: {infra: fluffycloud, cpus: 2+}\n"
		if err := b.do(reqJobsLaunch, "", api.JobsLaunchBody{Task: task}, nil); err != nil {
			t.Fatal(err)
		}
		jobs := func() int {
			page, err := b.Store.ManagedJobs().List(t.Context(), state.ManagedFilter{})
			if err != nil {
				t.Fatal(err)
			}
			return page.Total
		}
		if time.Sleep(time.Hour + time.Minute); jobs() != 3 {
			t.Errorf("after an hour there are %d jobs", jobs())
		}
		var list []api.JobsSchedule
		if err := b.do("sky.jobs.schedules", "", api.JobsSchedulesBody{}, &list); err != nil || len(list) != 1 || list[0].Runs != 3 || list[0].Name != "nightly" {
			t.Fatalf("%+v, %v", list, err)
		}
		if !b.d.busy(b.ctx) {
			t.Error("a server with a schedule counts as idle")
		}
		if err := b.do("sky.jobs.end_schedules", "", api.JobsEndSchedulesBody{ScheduleIDs: []int{list[0].ID}}, nil); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(time.Hour); jobs() != 3 {
			t.Errorf("after its end there are %d jobs", jobs())
		}
		if b.d.busy(b.ctx) {
			t.Error("there is still something to do")
		}
	})
}

// Where a controller looks after managed jobs, what is wrong with one is said before
// the controller is rented.
func TestNothingIsRentedForAJobThatWillNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "jobs: {controller: {mode: cluster, resources: {infra: fluffycloud, cpus: 2+}}}\n")
		for task, want := range map[string]string{
			"run: x\nresources: {infra: nimbus}\n":                                 "nimbus",
			"run: x\nresources: {infra: fluffycloud}\nvolumes: {/data: my-disk}\n": "olume",
		} {
			err := b.do(reqJobsLaunch, "", api.JobsLaunchBody{Task: task}, nil)
			wants(t, task, err, want)
		}
		if m := b.Machines(); len(m) != 0 || b.Cluster(b.d.jobsController.Name()) != nil {
			t.Errorf("machines: %v", m)
		}
	})
}

//go:build unix

package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/testbed"
)

// handTo makes another bed's server answer on the machines that the controller is on.
func (b *bed) handTo(far *bed) {
	b.t.Helper()
	d := far.d
	gate, err := auth.New(b.ctx, d.store, auth.Options{Owner: auth.Owner{Exposed: true}})
	if err != nil {
		b.t.Fatal(err)
	}
	handler := server.New(server.Deps{Gate: gate, Engine: d.engine, Store: d.store, Logger: d.log, Self: d.self, Config: d.settings.current, Rules: d.settings.rules,
		Metrics: d.metrics, BuildID: testbed.Build, Home: d.o.Home, Uploads: d.uploads, Downloads: d.downloads})
	b.s.Tell(func(step string) {
		if step != "agent.submit" {
			return
		}
		for _, m := range b.Cloud.Machines() {
			if node := b.Node(m.ID); node != nil {
				node.Serve("sky-jobs-controller", "sleep 100h", handler)
			}
		}
	})
	b.t.Cleanup(func() { handler.Drain() })
}

// Where the configuration says so, jobs are looked after by a server on a rented
// cluster, which is asked about them in the place of this one.
func TestAControllerLooksAfterManagedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, far := newBed(t, "jobs: {controller: {mode: cluster, resources: {infra: fluffycloud, cpus: 2+}}}\n"), newBed(t, "")
		b.handTo(far)
		far.run()
		var launched struct {
			JobID int `json:"job_id"`
		}
		body := api.JobsLaunchBody{Task: "name: train\nrun: |\n  echo epoch 1\n  sleep 1m\nresources: {infra: fluffycloud, cpus: 2+}\n"}
		if err := b.do(reqJobsLaunch, "", body, &launched); err != nil || launched.JobID != 1 {
			t.Fatalf("%+v, %v", launched, err)
		}
		if c := b.Cluster(b.d.jobsController.Name()); c == nil || c.Status != api.ClusterUp {
			t.Fatalf("the controller is %+v", c)
		}
		said, r := b.log("sky.jobs.logs", api.JobsLogsBody{JobID: &launched.JobID})
		if !strings.Contains(said, "epoch 1") || string(r.ReturnValue) != "0" {
			t.Errorf("the log ends with %s: %q", r.ReturnValue, said)
		}
		if again := b.said(r.ID); !strings.Contains(again, "epoch 1") {
			t.Errorf("the log replayed: %q", again)
		}
		// What the far server gathered is brought here, where clients fetch it.
		var dirs map[string]string
		if err := b.do(reqJobsDownload, "", api.JobsDownloadLogsBody{JobID: &launched.JobID}, &dirs); err != nil || dirs["1"] == "" {
			t.Errorf("its logs: %v, %v", dirs, err)
		}
		down := func() error { return b.do("sky.down", "", api.StopBody{ClusterName: b.d.jobsController.Name()}, nil) }
		wants(t, "ending a controller that has something to do", down(), "looks after managed jobs")
		time.Sleep(10 * time.Minute)
		wants(t, "ending one that has nothing to do", down(), "")
		if m := b.Machines(); len(m) != 0 {
			t.Errorf("machines: %v", m)
		}
	})
}

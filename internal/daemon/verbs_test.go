//go:build unix

package daemon

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/testbed"
)

// status is a cluster's, as requests tell it; "": there is no such cluster.
func (b *bed) status(name string) api.ClusterStatus {
	b.t.Helper()
	var list []struct {
		Status api.ClusterStatus `json:"status"`
	}
	if err := b.do("sky.status", "", api.StatusBody{ClusterNames: []string{name}}, &list); err != nil || len(list) > 1 {
		b.t.Fatal(list, err)
	}
	if len(list) == 0 {
		return ""
	}
	return list[0].Status
}

// From its launch to its end a cluster does what requests ask of it.
func TestRequestsLeadAClusterThroughItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.launch("box", "echo hello from the box")
		if s := b.status("box"); s != api.ClusterUp {
			t.Fatalf("after the launch it is %s", s)
		}
		said, r := b.log("sky.logs", api.LogsBody{ClusterName: "box"})
		if !strings.Contains(said, "hello from the box") || string(r.ReturnValue) != "0" {
			t.Errorf("the log of its job ends with %s: %q", r.ReturnValue, said)
		}
		var result api.LaunchResult
		if err := b.do(reqExec, "box", api.ExecBody{ClusterName: "box", Task: "run: sleep 10h"}, &result); err != nil {
			t.Errorf("exec: %v", err)
		}
		synctest.Wait() // it runs
		var jobs []api.JobRecord
		if err := b.do("sky.queue", "box", api.QueueBody{ClusterName: "box"}, &jobs); err != nil || len(jobs) != 2 || jobs[0].Status != api.JobRunning || jobs[1].Status != api.JobSucceeded {
			t.Errorf("its jobs: %+v, %v", jobs, err)
		}
		if err := b.do("sky.cancel", "box", api.CancelBody{ClusterName: "box", JobIDs: []int{2}}, nil); err != nil {
			t.Errorf("cancel: %v", err)
		}
		var states map[string]api.JobStatus
		if err := b.do("sky.job_status", "box", api.JobStatusBody{ClusterName: "box", JobIDs: []int{1, 2}}, &states); err != nil || states["1"] != api.JobSucceeded || states["2"] != api.JobCancelled {
			t.Errorf("their states: %v, %v", states, err)
		}
		if err := b.do("sky.autostop", "box", api.AutostopBody{ClusterName: "box", IdleMinutes: 30}, nil); err != nil {
			t.Errorf("autostop: %v", err)
		}
		if a := b.Head("box").Autostop(); a == nil || a.IdleMinutes != 30 {
			t.Errorf("its autostop is %+v", a)
		}
		var dirs map[string]string
		if err := b.do("sky.download_logs", "box", api.DownloadLogsBody{ClusterName: "box", JobIDs: []string{"1"}}, &dirs); err != nil || !strings.Contains(dirs["1"], "box-sky-") {
			t.Errorf("its logs are in %v, %v", dirs, err)
		}
		if said, r := b.log("sky.hook_logs", api.HookLogsBody{ClusterName: "box", Event: new("stop")}); said != "No hook has run on cluster box yet.\n" || string(r.ReturnValue) != "0" {
			t.Errorf("the log of hooks that never ran ends with %s: %q", r.ReturnValue, said)
		}
		var costs []api.CostRecord
		if err := b.do("sky.cost_report", "", api.CostReportBody{}, &costs); err != nil || len(costs) != 1 || costs[0].Name != "box" {
			t.Errorf("its costs: %+v, %v", costs, err)
		}
		var events []json.RawMessage
		if err := b.do("sky.cluster_events", "", api.ClusterEventsBody{ClusterName: new("box"), EventType: "STATUS_CHANGE"}, &events); err != nil || len(events) == 0 {
			t.Errorf("its events: %s, %v", events, err)
		}
		wants(t, "a port that was never opened", b.do("sky.endpoints", "", api.EndpointsBody{Cluster: "box"}, nil), "")
		if err := b.do("sky.stop", "box", api.StopBody{ClusterName: "box"}, nil); err != nil || b.status("box") != api.ClusterStopped {
			t.Errorf("stop: %v", err)
		}
		if err := b.do(reqStart, "box", api.StartBody{ClusterName: "box"}, nil); err != nil || b.status("box") != api.ClusterUp {
			t.Errorf("start: %v", err)
		}
		if err := b.do("sky.down", "box", api.StopBody{ClusterName: "box"}, nil); err != nil || b.status("box") != "" || len(b.Machines()) != 0 {
			t.Errorf("down: %v, machines %v", err, b.Machines())
		}
	})
}

// Two requests never work on one cluster: who ends it calls off its launch.
func TestADownCallsOffTheLaunchThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.Inject(model.Fault{ID: "slow", Kind: model.Slow, Op: "instances.create", Delay: time.Minute})
		launch := b.submit(reqLaunch, "box", api.LaunchBody{ClusterName: "box", Task: "run: sleep 10h\nresources: {infra: fluffycloud}\n"})
		time.Sleep(20 * time.Second)
		if under, err := b.d.launching(b.ctx, "box"); err != nil || !under {
			t.Fatalf("the launch is not under way: %v", err)
		}
		if err := b.do("sky.down", "box", api.StopBody{ClusterName: "box"}, nil); err != nil {
			t.Errorf("down: %v", err)
		}
		r, err := b.d.engine.Resolve(b.ctx, launch)
		if err != nil || r.Status != api.RequestCancelled {
			t.Errorf("the launch is %+v, %v", r, err)
		}
		if m := b.Machines(); len(m) != 0 || b.Cluster("box") != nil {
			t.Errorf("machines: %v", m)
		}
	})
}

// What keeps a controller alive is not for users to end by hand.
func TestUsersDoNotTouchTheClustersOfControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		const task = "run: x\nresources: {infra: fluffycloud}\n"
		for _, name := range []string{b.d.jobsController.Name(), "sky-serve-controller-0"} {
			for verb, body := range map[string]any{
				reqLaunch:      api.LaunchBody{ClusterName: name, Task: task},
				reqExec:        api.ExecBody{ClusterName: name, Task: task},
				"sky.stop":     api.StopBody{ClusterName: name},
				"sky.autostop": api.AutostopBody{ClusterName: name},
				"sky.cancel":   api.CancelBody{ClusterName: name},
			} {
				wants(t, verb+" "+name, b.do(verb, name, body, nil), "is the controller of")
			}
		}
		wants(t, "down without one", b.do("sky.down", "", api.StopBody{ClusterName: b.d.jobsController.Name()}, nil), "does not exist")
	})
}

// Whoever lost the launch's log looks it up by the cluster's name.
func TestTheLogOfAClustersLaunchIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.launch("box", "sleep 10h")
		show := func(name string) (string, error) {
			out := &testbed.Output{}
			err := b.d.provisionLogs(b.ctx, server.ProvisionLogs{Cluster: name}, out)
			return out.String(), err
		}
		if out, err := show("box"); err != nil || !strings.Contains(out, "box") {
			t.Errorf("%q, %v", out, err)
		}
		b.launch("box", "sleep 10h")
		if out, err := show("box"); err != nil || !strings.Contains(out, "Cluster launched: box") {
			t.Errorf("after another launch, which found the cluster up: %q, %v", out, err)
		}
		_, err := show("bux")
		wants(t, "a name that is none", err, "Did you mean box?")
		b.forget("box")
		_, err = show("bux")
		if wants(t, "a name that is like none", err, "No launch of cluster"); err != nil && strings.Contains(err.Error(), "Did you mean") {
			t.Error(err)
		}
	})
}

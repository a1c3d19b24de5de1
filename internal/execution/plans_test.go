//go:build unix

package execution_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

// A plan as if a cloud were enabled is made from price lists alone: it asks nobody and
// rents nothing.
func TestAPlanOverPriceListsAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "aws"), 0o700); err != nil {
			t.Fatal(err)
		}
		list := "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch\n" +
			"m6i.large,,,2,8,,0.1,0.04,us-east-1,us-east-1a,x86_64\nm6i.xlarge,,,4,16,,0.2,0.08,us-east-1,us-east-1a,x86_64\n"
		if err := os.WriteFile(filepath.Join(dir, "aws", "vms.csv"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		plan := func(task string, clouds ...string) (*api.LaunchResult, error) {
			return s.Launch(testbed.NewRequest(), "dev", task, func(l *api.LaunchBody) {
				l.Dryrun, l.AssumeEnabled, l.CatalogDir, l.WantPlan, l.Explain = true, clouds, dir, true, true
			})
		}
		got, err := plan("num_nodes: 2\nresources: {cpus: 2+}\nrun: x\n", "aws")
		if err != nil || len(got.Plan.Tasks) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		p := got.Plan.Tasks[0]
		if p.Chosen.InstanceType != "m6i.large" || p.NumNodes != 2 || p.Chosen.HourlyPrice != 0.1 || p.Chosen.TotalHourlyPrice != 0.2 || len(p.Explained) == 0 {
			t.Errorf("%+v", p)
		}
		if _, err := plan("resources: {cpus: 128+}\nrun: x\n", "aws"); !isType(err, api.ErrResourcesUnavailable) {
			t.Errorf("nothing is that large: %v", err)
		}
		if _, err := plan("run: x\n", "moon"); !isType(err, api.ErrValue) || !strings.Contains(err.Error(), "aws") {
			t.Errorf("a cloud that there is not: %v", err)
		}
		if _, err := plan("run: x\n", "gcp"); !isType(err, api.ErrRuntime) {
			t.Errorf("a cloud without a price list: %v", err)
		}
		// A list that somebody has made counts as well. Of what costs nothing the smallest does.
		if _, err := plan("run: x\n", "vsphere"); !isType(err, api.ErrValue) || !strings.Contains(err.Error(), `no price list for "vsphere"`) {
			t.Errorf("a list that nobody has made: %v", err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "vsphere"), 0o700); err != nil {
			t.Fatal(err)
		}
		list = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n" +
			"vm-16c-128g-2xT4,T4,2,16,128,T4,0,,vc,c1\nvm-16c-128g,,,16,128,,0,,vc,c1\nvm-2c-8g,,,2,8,,0,,vc,c1\nvm-8c-32g-2xT4,T4,2,8,32,T4,0,,vc,c1\n"
		if err := os.WriteFile(filepath.Join(dir, "vsphere", "vms.csv"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		for resources, want := range map[string]string{"": "vm-2c-8g", "resources: {accelerators: T4:2}\n": "vm-8c-32g-2xT4", "resources: {cpus: 8+}\n": "vm-16c-128g"} {
			got, err := plan(resources+"run: x\n", "vsphere")
			if err != nil || got.Plan.Tasks[0].Chosen.InstanceType != want {
				t.Errorf("%s%+v, %v", resources, got, err)
			}
		}
		b.WantNothingLeft("dev")
	})
}

// Volumes that a task names must be there before anything is rented; where jobs are
// looked after elsewhere they never are.
func TestVolumesThatAreNotThereAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		task := "resources: {infra: fluffycloud}\nvolumes: {/data: my-disk}\nrun: x\n"
		if err := s.Executor.CheckVolumes(s.Context(), s.Call(testbed.NewRequest()), task); !isType(err, api.ErrVolumeNotFound) || !strings.Contains(err.Error(), "my-disk") {
			t.Errorf("checked: %v", err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", task); !isType(err, api.ErrVolumeNotFound) {
			t.Errorf("launched: %v", err)
		}
		b.WantNothingLeft("dev")
		if err := execution.NoNamedVolumes(task); !isType(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "my-disk") {
			t.Errorf("elsewhere: %v", err)
		}
		if err := execution.NoNamedVolumes("run: x\n"); err != nil {
			t.Error(err)
		}
	})
}

// Hooks of a task reach the agent with its autostop, or alone beside the one that is
// set.
func TestHooksReachTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		hooks := "config: {hooks: [{run: sync, events: [stop, down], timeout: 30}]}\n"
		if _, err := s.Launch(testbed.NewRequest(), "dev", hooks+"resources: {infra: fluffycloud, autostop: 7}\nrun: x\n"); err != nil {
			t.Fatal(err)
		}
		check := func(what string, minutes int) {
			t.Helper()
			a := b.Head("dev").Autostop()
			if a == nil || a.IdleMinutes != minutes || a.Hooks == nil || len(*a.Hooks) != 1 || (*a.Hooks)[0].Run != "sync" || (*a.Hooks)[0].Timeout != 30 {
				t.Errorf("%s: %+v", what, a)
			}
		}
		check("with an autostop", 7)
		if _, err := s.Launch(testbed.NewRequest(), "dev", hooks+"resources: {infra: fluffycloud}\nrun: x\n"); err != nil {
			t.Fatal(err)
		}
		check("alone", 7)
		if _, err := s.Launch(testbed.NewRequest(), "dev", "resources: {infra: fluffycloud, autostop: false}\nrun: x\n"); err != nil {
			t.Fatal(err)
		}
		check("called off", -1)
	})
}

// An agent that dies as it takes a job is brought back and asked again, under the same
// key: the job runs once.
func TestAJobIsSentAgainToAnAgentThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		died := false
		s.Tell(func(step string) {
			if step == "agent.submit" && !died {
				died = true
				b.Head("dev").Crash()
			}
		})
		r := testbed.NewRequest()
		got, err := s.Launch(r, "dev", train(t, 1))
		if err != nil || got.JobID == nil || *got.JobID != 1 || !died || b.Head("dev").Runs(r.ID) != 1 {
			t.Errorf("%+v, %v, runs %d", got, err, b.Head("dev").Runs(r.ID))
		}
	})
}

// A cluster that somebody's launch left half made is given back and made anew by the
// next launch.
func TestALaunchReplacesWhatAnotherOneLeftHalfMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		s.Tell(func(step string) {
			if step == "agent.start" {
				s.At(1, s.Kill) // with its effect, and before its answer
			}
		})
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); err == nil {
			t.Fatal("a dead server answered")
		}
		was := b.Cluster("dev")
		if was.EverUp || len(b.Machines()) != 1 {
			t.Fatalf("%+v, %v", was, b.Machines())
		}
		if _, err := b.Boot(failpoint.Endless).Launch(testbed.NewRequest(), "dev", train(t, 1)); err != nil {
			t.Fatal(err)
		}
		b.WantMachines("dev running")
		if now := b.Cluster("dev"); now.Hash == was.Hash {
			t.Error("it was taken over")
		}
	})
}

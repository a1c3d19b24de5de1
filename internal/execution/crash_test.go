//go:build unix

package execution_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

// A job that takes ten minutes, with a folder to copy.
func train(t *testing.T, nodes int) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("print(1)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("name: train\nnum_nodes: %d\nworkdir: %s\nresources: {infra: fluffycloud, cpus: 2+, autostop: 20m}\nsetup: sleep 1s\nrun: sleep 10m\n", nodes, dir)
}

func TestALaunchSurvivesACrashAtEveryStep(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, r, yaml := testbed.New(t), testbed.NewRequest(), train(t, 2)
		var got *api.LaunchResult
		died, err := b.Resume(n, func(s *testbed.Server) (err error) {
			got, err = s.Launch(r, "dev", yaml)
			return err
		})
		if err != nil || got.JobID == nil || *got.JobID != 1 {
			t.Fatalf("%v, %+v\n%s", err, got, r.Out)
		}
		if m := b.Machines(); !slices.Equal(m, []string{"dev running", "dev running"}) {
			t.Errorf("machines: %v", m)
		}
		if c := b.Cluster("dev"); c == nil || c.Status != api.ClusterUp || c.AutostopMinutes != 20 {
			t.Errorf("record: %+v", c)
		}
		for _, node := range b.Nodes("dev") {
			if spec := node.Spec(); spec == nil || spec.Epoch != b.Cluster("dev").Epoch {
				t.Errorf("an agent knows its cluster as %+v", spec)
			}
		}
		time.Sleep(11 * time.Minute)
		head := b.Head("dev")
		if jobs := head.Jobs(); len(jobs) != 1 || jobs[0].Status != api.JobSucceeded || head.Runs(r.ID) != 1 {
			t.Errorf("jobs: %+v", jobs)
		}
		return died
	})
}

func TestALaunchOntoAClusterThatIsUpSurvivesACrashAtEveryStep(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, r, yaml := testbed.New(t), testbed.NewRequest(), train(t, 1)
		if _, err := b.Boot(failpoint.Endless).Launch(testbed.NewRequest(), "dev", yaml); err != nil {
			t.Fatal(err)
		}
		first := b.Head("dev")
		died, err := b.Resume(n, func(s *testbed.Server) error {
			_, err := s.Launch(r, "dev", yaml)
			return err
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
		if b.Head("dev") != first || len(b.Machines()) != 1 {
			t.Errorf("other machines: %v", b.Machines())
		}
		if jobs := first.Jobs(); len(jobs) != 2 || first.Runs(r.ID) != 1 || jobs[0].Status == api.JobCancelled {
			t.Errorf("jobs: %+v", jobs)
		}
		return died
	})
}

//go:build unix

package execution_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

// A job that asks for accelerators by their memory runs on the machine that was
// rented for it, and further ones run there too.
func TestAcceleratorsByTheirMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t, func(c *model.Config) {
			c.Types = append(c.Types, model.Type{Name: "fluff-l4", CPUs: 8, MemoryGiB: 32, Price: 5, Accelerators: map[string]float64{"L4": 1}})
		})
		s := b.Boot(failpoint.Endless)
		for _, gpus := range []string{"24GB+", "nvidia:20GB+:1"} {
			r, err := s.Launch(testbed.NewRequest(), "dev", "resources: {infra: fluffycloud, accelerators: '"+gpus+"'}\nrun: nvidia-smi\n")
			if err != nil || r.JobID == nil {
				t.Fatalf("%s: %+v, %v", gpus, r, err)
			}
		}
		if got := b.Cluster("dev").Offer.Accelerators; got["L4"] != 1 {
			t.Errorf("rented: %v", got)
		}
		r := testbed.NewRequest()
		if _, err := s.Executor.Exec(s.Context(), s.Call(r), api.ExecBody{ClusterName: "dev", Task: "resources: {accelerators: 24GB+}\nrun: nvidia-smi\n"}, idle); err != nil {
			t.Error(err)
		}
		r = testbed.NewRequest()
		if _, err := s.Executor.Exec(s.Context(), s.Call(r), api.ExecBody{ClusterName: "dev", Task: "resources: {accelerators: 40GB+}\nrun: nvidia-smi\n"}, idle); !isType(err, api.ErrResourcesMismatch) {
			t.Errorf("40 GB on an L4: %v", err)
		}
	})
}

// The example that asks for a GPU by its memory, as it stands there, and its option --gpus: it
// rents a machine that runs the job, and where there is none, nothing is rented.
func TestTheExampleByMemoryRuns(t *testing.T) {
	example, err := os.ReadFile("../../examples/gpu-memory.yaml")
	if err != nil {
		t.Fatal(err)
	}
	option := "resources: {accelerators: '40GB+'}\nrun: nvidia-smi\n"
	for _, task := range []string{string(example), option} {
		synctest.Test(t, func(t *testing.T) {
			var types []model.Type
			for name, price := range map[string]float64{"T4": 0.5, "L4": 0.8, "A100": 2.66, "A100-80GB": 2.9, "H100": 9} {
				types = append(types, model.Type{Name: "fluff-" + strings.ToLower(name), CPUs: 8, MemoryGiB: 32, Price: price, Accelerators: map[string]float64{name: 1}})
			}
			b := testbed.New(t, func(c *model.Config) { c.Types = append(c.Types, types...) })
			s := b.Boot(failpoint.Endless)
			r := testbed.NewRequest()
			got, err := s.Launch(r, "dev", task)
			if err != nil || got.JobID == nil {
				t.Fatalf("%+v, %v\n%s", got, err, r.Out)
			}
			if rented := b.Cluster("dev").Offer.Accelerators; rented["A100"] != 1 {
				t.Errorf("rented: %v", rented)
			}
			if got, err := s.Executor.Exec(s.Context(), s.Call(testbed.NewRequest()), api.ExecBody{ClusterName: "dev", Task: task}, idle); err != nil || got.JobID == nil {
				t.Errorf("an exec of the same: %+v, %v", got, err)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			b := testbed.New(t, func(c *model.Config) {
				c.Types = append(c.Types, model.Type{Name: "fluff-l4", CPUs: 8, MemoryGiB: 32, Price: 0.8, Accelerators: map[string]float64{"L4": 1}})
			})
			s := b.Boot(failpoint.Endless)
			if _, err := s.Launch(testbed.NewRequest(), "dev", task); !isType(err, api.ErrResourcesUnavailable) {
				t.Errorf("on an L4: %v", err)
			}
			b.WantNothingLeft("dev")
		})
	}
}

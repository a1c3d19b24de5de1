//go:build unix

package execution_test

import (
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

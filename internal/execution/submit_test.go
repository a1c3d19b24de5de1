//go:build unix

package execution_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

// The password of a docker login is a secret although it is written among the
// variables, and so is what has the name of one; one that is written among the secrets
// is the one that counts.
func TestSecretsAreSecretsWhereverTheyAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		task := "resources: {infra: fluffycloud}\nenvs: {A: '1', HF_TOKEN: hf, SKYPILOT_DOCKER_USERNAME: ann, SKYPILOT_DOCKER_PASSWORD: hush, SKYPILOT_DOCKER_SERVER: r.example}\n%srun: x\n"
		for i, c := range []struct{ secrets, want string }{{"", "hush"}, {"secrets: {SKYPILOT_DOCKER_USERNAME: ann, SKYPILOT_DOCKER_PASSWORD: hidden, SKYPILOT_DOCKER_SERVER: r.example}\n", "hidden"}} {
			if _, err := s.Launch(testbed.NewRequest(), "dev", fmt.Sprintf(task, c.secrets)); err != nil {
				t.Fatal(err)
			}
			spec := b.Head("dev").JobSpecs()[i]
			if _, open := spec.Envs["HF_TOKEN"]; open || spec.Secrets["HF_TOKEN"] != "hf" {
				t.Errorf("with %q: the token is among secrets %v, envs %v", c.secrets, spec.Secrets, spec.Envs)
			}
			if yaml := b.Cluster("dev").CreationYAML; strings.Contains(yaml, "HF_TOKEN: hf") {
				t.Errorf("the cluster's record has the token:\n%s", yaml)
			}
			if _, open := spec.Envs["SKYPILOT_DOCKER_PASSWORD"]; open || spec.Secrets["SKYPILOT_DOCKER_PASSWORD"] != c.want || spec.Envs["A"] != "1" {
				t.Errorf("with %q: secrets %v, envs %v", c.secrets, spec.Secrets, spec.Envs)
			}
		}
	})
}

// atFirstSubmit calls f when an agent has taken the first job from now on, before
// it answers.
func atFirstSubmit(s *testbed.Server, f func()) {
	var done atomic.Bool
	s.Tell(func(step string) {
		if step == "agent.submit" && !done.Swap(true) {
			s.At(1, f)
		}
	})
}

// A job whose answer was lost is sent again only to the cluster that it was sent to.
func TestAJobIsNotSentAgainToAClusterThatIsNotWhatItWas(t *testing.T) {
	for name, meanwhile := range map[string]func(b *testbed.Bed, s *testbed.Server) error{
		"it is gone": func(b *testbed.Bed, _ *testbed.Server) error {
			id := b.Cluster("dev").Nodes[0].ID
			defer b.Node(id)
			return b.Cloud.Kill(id, "taken back")
		},
		"it is off": func(b *testbed.Bed, _ *testbed.Server) error {
			id := b.Cluster("dev").Nodes[0].ID
			defer b.Node(id)
			return b.Cloud.Halt(id)
		},
		// Whoever made it works on it still, so nobody else looks at it.
		"it is another one": func(b *testbed.Bed, s *testbed.Server) error {
			_, unlock, err := s.Clusters.Lock(s.Context(), "dev")
			if err != nil {
				return err
			}
			b.T.Cleanup(unlock)
			c := b.Cluster("dev")
			defer b.Head("dev").Crash()
			if err := b.Store.Clusters().Delete(s.Context(), "dev", c.Hash); err != nil {
				return err
			}
			c.Hash = uuid.NewString()
			return b.Store.Clusters().Create(s.Context(), c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s := launched(t, 1)
				changed := make(chan time.Time, 1)
				atFirstSubmit(s, func() {
					if err := meanwhile(b, s); err != nil {
						t.Error(err)
					}
					changed <- time.Now()
				})
				_, err := s.Executor.Exec(s.Context(), s.Call(testbed.NewRequest()), api.ExecBody{Task: "run: x\n", ClusterName: "dev"}, idle)
				if took := time.Since(<-changed); !isType(err, api.ErrRuntime) || !strings.HasSuffix(err.Error(), "EOF") || took >= 500*time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// What an agent refuses once it is not asked again.
func TestAJobThatAnAgentRefusesIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		head := b.Head("dev")
		head.RefuseJobs(&agentapi.Error{Code: agentapi.CodeInternal, Message: "not now"})
		atFirstSubmit(s, func() { head.RefuseJobs(nil) })
		_, err := s.Executor.Exec(s.Context(), s.Call(testbed.NewRequest()), api.ExecBody{Task: "run: x\n", ClusterName: "dev"}, idle)
		if !isType(err, api.ErrRuntime) || len(head.Jobs()) != 1 {
			t.Errorf("%v, jobs %+v", err, head.Jobs())
		}
	})
}

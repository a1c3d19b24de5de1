package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/local"
)

func TestTheContractHolds(t *testing.T) {
	cloudtest.Run(t, func(t testing.TB) cloudtest.Harness {
		root := filepath.Join(t.TempDir(), "nodes")
		offer := cloud.Offer{Place: cloud.Place{Cloud: local.Name}, InstanceType: local.InstanceType, CPUs: 2, MemoryGiB: 4}
		provider := func(testing.TB) cloud.Provider { return local.New(local.Options{Root: root, Offer: &offer}) }
		return cloudtest.Harness{
			Provider: provider(t), Another: provider,
			Spec:            cloud.LaunchSpec{Offer: offer},
			OneInstallation: "the folder of the nodes belongs to it",
			Seed: func(t testing.TB, id cloud.ClusterID) {
				spec := cloud.LaunchSpec{ID: id, Offer: offer, Nodes: 1, Token: id.Name}
				if _, err := provider(t).Launch(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
			},
			Kill: func(t testing.TB, n cloud.Node) {
				if err := os.RemoveAll(filepath.Dir(n.Reach.Home)); err != nil {
					t.Fatal(err)
				}
			},
			Halt: func(t testing.TB, n cloud.Node) {
				if err := local.NewSelf(filepath.Dir(n.Reach.Home)).Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			Write: func(t testing.TB, n cloud.Node, name, data string) {
				if err := os.WriteFile(filepath.Join(n.Reach.Home, name), []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			Read: func(t testing.TB, n cloud.Node, name string) string {
				b, err := os.ReadFile(filepath.Join(n.Reach.Home, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			},
			Login: func(t testing.TB, n cloud.Node) error {
				c := exec.CommandContext(t.Context(), "sh", "-c", `test "$(pwd)" = "$HOME"`)
				c.Dir, c.Env = n.Reach.Home, append(os.Environ(), "HOME="+n.Reach.Home)
				return c.Run()
			},
			Inventory: func(t testing.TB) []string {
				dirs, err := filepath.Glob(filepath.Join(root, "*", "node-*"))
				if err != nil {
					t.Fatal(err)
				}
				return dirs
			},
		}
	})
}

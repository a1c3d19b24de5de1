package execution_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/testbed"
)

// A refresh says which clusters are gone, and a launch on the name which machines it had; not
// so if the user ended it.
func TestAVanishedClusterSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		if err := b.Cloud.Kill(b.Cluster("dev").Nodes[0].ID, "taken back"); err != nil {
			t.Fatal(err)
		}
		b.Node(b.Cluster("dev").Nodes[0].ID)
		time.Sleep(time.Minute)
		r := testbed.NewRequest()
		if _, err := s.Clusters.Status(t.Context(), s.Call(r), api.StatusBody{Refresh: api.RefreshForce}); err != nil {
			t.Fatal(err)
		}
		if out := r.Out.String(); !strings.Contains(out, "Cluster dev was ended outside of sky: all machines are gone") || !strings.Contains(out, ", as seen at ") || !strings.Contains(out, "taken back") {
			t.Errorf("the status says %q", out)
		}
		again := func(yaml string) string {
			r := testbed.NewRequest()
			if _, err := s.Launch(r, "dev", yaml); err != nil {
				t.Fatal(err)
			}
			return r.Out.String()
		}
		const says = "The earlier cluster dev ran on fluffycloud/"
		if out := again("run: x\n"); !strings.Contains(out, says) || !strings.Contains(out, "sky launch -c dev --infra fluffycloud/") {
			t.Errorf("a launch says %q", out)
		}
		if err := s.Down(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		if out := again("run: x\n"); strings.Contains(out, says) {
			t.Errorf("after a down, a launch says %q", out)
		}
	})
}

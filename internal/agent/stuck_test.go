package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// TestAMachineThatStaysOn: an agent that cannot switch its machine off says why,
// and goes on trying.
func TestAMachineThatStaysOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, true)
	stays := filepath.Join(c.nodes[0].home, "stays-on")
	if err := os.WriteFile(stays, []byte("sudo: a password is required"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 0, Down: true}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		info, err := c.head.Info(t.Context())
		if err == nil && strings.Contains(info.Stuck, "a password is required") && info.State == agentapi.AgentAutostopping {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody is told: %+v, %v", info, err)
		}
	}
	if err := os.Remove(stays); err != nil {
		t.Fatal(err)
	}
	machineTime(t, c.nodes[0], "terminate")
}

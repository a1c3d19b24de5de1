package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api/agentapi"
)

// Jobs have their standard streams and nothing else, whatever the agent inherited.
func TestJobsInheritNoFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, twoCPUs, false)
	stray, err := os.Create(filepath.Join(t.TempDir(), "stray"))
	if err != nil {
		t.Fatal(err)
	}
	defer stray.Close()
	c.nodes[0].stop()
	c.nodes[0].extra = []*os.File{stray, stray}
	c.nodes[0].spawn()
	id := c.submit(agentapi.JobSpec{Setup: "ls -l /proc/self/fd", Run: "ls -l /proc/self/fd"})
	if log := c.follow(id); strings.Count(log, " 2 -> ") != 2 || strings.Contains(log, "stray") {
		t.Errorf("their files:\n%s", log)
	}
}

//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// A new cluster starts with a copy of a stopped one's disk: its files are there, and nothing
// of its agent, jobs and deadlines goes on.
func TestACopyOfADisk(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 0)
	old := []string{"launch", "-y", "-d", "-c", "old", "--infra", "fluffycloud/east", "--cpus", "1", "-i", "1", "--"}
	f.sky(append(old, "cd; echo model >model.bin; ln -s model.bin link; echo one")...)
	f.sky("logs", "old", "1")
	f.sky("exec", "-d", "old", "--", "sleep 1000")
	f.fails(1, []string{"only the disk of one that is STOPPED can be copied", "sky stop old"}, "launch", "-y", "-c", "new", "--clone-disk-from", "old", "--", "true")
	f.sky("stop", "-y", "old")
	f.fails(1, []string{"cannot be used on aws"}, "launch", "-y", "-c", "new", "--infra", "aws", "--clone-disk-from", "old", "--", "true")

	out := f.sky("launch", "-y", "-c", "new", "--clone-disk-from", "old", "--", "cat $HOME/link; ls $HOME/.sky/agent/ranks $HOME")
	wants(t, out, "model", "sky_logs_old")
	queue := f.sky("queue", "new")
	if strings.Contains(queue, "sleep 1000") || strings.Count(queue, "SUCCEEDED") != 1 {
		t.Errorf("the jobs of the other cluster are there:\n%s", queue)
	}
	wants(t, f.sky("status", "-o", "json", "new"), `"autostop": -1`, `"status": "UP"`)
	wants(t, f.sky("exec", "new", "--", "cat $HOME/sky_logs_old/1-*/run.log; echo new >>$HOME/model.bin"), "one")
	wants(t, f.sky("sweep", "--grace", "0"), "No machines without a cluster")
	if images := f.cloud.Inventory().Images; len(images) > 0 {
		t.Errorf("images: %+v", images)
	}

	// The source goes on as it was, and each has its own disk.
	f.sky("start", "-y", "old", "-i", "60")
	wants(t, f.sky("exec", "old", "--", "wc -l <$HOME/model.bin"), "1")
	wants(t, f.sky("status", "old", "new"), "UP")
	f.sky("down", "-y", "old", "new")
	f.nothingLeft()
}

//go:build e2e && linux

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestConfigurationHolds: what client and server are configured to do, they do.
func TestConfigurationHolds(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	file := filepath.Join(w.home, ".sky", "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		// Servers tell a changed file by its time.
		later := time.Now().Add(time.Duration(len(text)) * time.Second)
		if err := os.Chtimes(file, later, later); err != nil {
			t.Fatal(err)
		}
	}
	write(`workspaces:
  research: {}
  closed: {local: {disabled: true}}
admin_policy:
  cel:
  - expr: task.?num_nodes.orValue(1) <= 2
    message: At most two nodes.
`)
	out := w.sky("launch", "-y", "-c", "a", "-w", "research", "--config", "allowed_clouds=[gcp]", "--", "echo hi")
	wants(t, out, "Applying client admin policy: ", "Applying server admin policy: ", "allowed_clouds differently from the API server", "hi")
	wants(t, w.sky("status", "-o", "json", "a"), `"workspace": "research"`)

	w.fails(1, []string{"UserRequestRejectedByPolicy", "At most two nodes."}, "launch", "-y", "-c", "b", "--num-nodes", "3", "--", "true")
	w.fails(1, []string{"it is disabled in the workspace closed"}, "launch", "-y", "-c", "b", "-w", "closed", "--", "true")
	w.fails(1, []string{`the workspace "nope" does not exist`}, "launch", "-y", "-c", "b", "-w", "nope", "--", "true")

	write("allowed_clouds: [aws]\nworkspaces: {research: {}}\n") // the server reads it again
	wants(t, w.sky("check"), "Local: disabled", "it is not in allowed_clouds")
	w.fails(1, []string{"NoCloudAccessError"}, "launch", "-y", "-c", "b", "--", "true")
	wants(t, w.sky("exec", "a", "--", "echo still here"), "still here")

	write("allowed_clouds: aws: [\n")
	w.fails(1, []string{"config.yaml:1"}, "config", "check")
	wants(t, w.sky("queue", "a"), "SUCCEEDED")
	write("{}\n")
	wants(t, w.sky("check"), "Local: enabled")
}

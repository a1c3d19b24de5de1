//go:build unix

package remote

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// On a copy of a disk nothing of the other cluster's agent is left, and what is the user's is.
func TestACopyOfADiskIsCleaned(t *testing.T) {
	home := filepath.Join(t.TempDir(), "it's home")
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(home, name))
		return err == nil
	}
	run := func(hash string) {
		t.Helper()
		out, err := exec.Command("/bin/sh", "-c", cleanScript(home, hash, "old one")).CombinedOutput()
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "cleaned") {
			t.Fatalf("%v: %s", err, out)
		}
	}
	secret := []string{
		".sky/agent/agent.key", ".sky/agent/jobs.db", ".sky/agent/ranks/1/script", ".sky/mounts/journal", ".sky/hooks/1", ".sky/credentials",
		".sky/api_server/owner.token", ".sky/.hidden", ".aws/credentials", ".config/gcloud/key.json",
	}
	kept := []string{".sky/runtime/build/sky", ".sky/file_mounts/data/x", ".sky/prepared-1", "model.bin", "sky_workdir/main.py", ".aws/config", ".ssh/authorized_keys", "sky_logs_old one/1-train/run.log"}
	for _, name := range append(append([]string{"sky_logs/1-train/run.log"}, secret...), kept[:7]...) {
		write(name, "x")
	}
	write(".sky/credentials", ".aws/credentials\n.config/gcloud/key.json\n../outside\n/etc/passwd\n")
	write("../outside", "x")
	run("h2")
	for _, name := range secret {
		if has(name) {
			t.Errorf("%s is there", name)
		}
	}
	for _, name := range append(kept, "../outside") {
		if !has(name) {
			t.Errorf("%s is gone", name)
		}
	}
	// What the new agent writes is not removed when the start is repeated …
	write(".sky/agent/jobs.db", "new")
	write("sky_logs/1-x/run.log", "new")
	run("h2")
	if !has(".sky/agent/jobs.db") || !has("sky_logs/1-x/run.log") {
		t.Error("the state of the new agent was removed")
	}
	// … and is on a copy of the copy.
	run("h3")
	if has(".sky/agent/jobs.db") || has(".sky/clone-h2") || !has("sky_logs_old one-h3/1-x/run.log") {
		t.Error("a copy of a copy was not cleaned")
	}
}

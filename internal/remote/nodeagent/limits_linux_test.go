package nodeagent

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// What is started afterwards has the limit, and not the one that this process began with.
func TestOpenFilesAreAllowedToWhatIsStarted(t *testing.T) {
	if os.Getenv("SKY_TEST_LIMIT") == "" {
		c := exec.Command("/bin/sh", "-c", `ulimit -S -n 100; exec "$0" -test.run '^TestOpenFilesAreAllowedToWhatIsStarted$' -test.v`, os.Args[0])
		c.Env = append(os.Environ(), "SKY_TEST_LIMIT=1", "PATH=/bin:/usr/bin")
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := allowOpenFiles(t.Context(), 200); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/bin/sh", "-c", "ulimit -S -n; ulimit -H -n").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) != 2 || words[0] != words[1] || words[0] == "100" {
		t.Errorf("%q, %v", out, err)
	}
}

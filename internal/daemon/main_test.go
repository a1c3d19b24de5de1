package daemon

import (
	"os"
	"testing"
)

// TestMain keeps the test's binary from being taken for sky: a server that
// starts an agent starts a copy of the program it runs in, which would run all
// tests again, and start agents again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

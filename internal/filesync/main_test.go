//go:build unix

package filesync

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	serveIfAsked()
	home, err := os.MkdirTemp("", "filesync-home")
	if err != nil {
		panic(err)
	}
	os.Setenv("HOME", home) // where hashes are kept
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(home)
		os.Exit(code)
	}))
}

// Package porttest gives tests ports for servers that are started later, and
// perhaps again.
//
// A port that the kernel picks will not do for that: once it is free again, the
// kernel gives it to the next who asks, or to a connection as its own end.
package porttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// The ports are below those that kernels pick by themselves, and none that a
// server of ours has by default.
const (
	first = 12000
	many  = 8000
)

// Free is a TCP port of 127.0.0.1 that nobody listens on, and that no other test
// on this machine is given until this one ends.
func Free(t testing.TB) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprint("sky-test-ports-", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		port := first + rand.N(many)
		mine := flock.New(filepath.Join(dir, fmt.Sprint(port)))
		if got, err := mine.TryLock(); err != nil {
			t.Fatal(err)
		} else if !got {
			continue
		}
		// Asked, and not listened on: a process that a test starts meanwhile would
		// have a copy of the socket after it is closed here.
		c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), time.Minute)
		if err == nil {
			c.Close()
			mine.Close()
			continue
		}
		t.Cleanup(func() { mine.Close() }) // the file stays: who removed it could lock another one
		return port
	}
	t.Fatal("no port is free")
	return 0
}

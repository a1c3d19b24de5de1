package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

// lockDir makes sure that one server works on one folder: its database has one
// writer. Who it is stands beside the lock, for the message of the next.
func lockDir(dir string) (unlock func(), err error) {
	path, who := filepath.Join(dir, "server.lock"), filepath.Join(dir, "server.pid")
	l := flock.New(path)
	mine, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if !mine {
		l.Close()
		pid, _ := os.ReadFile(who)
		return nil, fmt.Errorf("another API server (pid %s) works on %s already; end it with: sky api stop", strings.TrimSpace(string(pid)), dir)
	}
	_ = os.WriteFile(who, fmt.Appendln(nil, os.Getpid()), 0o600)
	return func() { l.Close() }, nil
}

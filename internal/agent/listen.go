//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// portTries is how many ports are tried, from the given one upwards: something
// else on the machine may have taken it. The caller finds the one in agent.json.
const portTries = 20

// listen takes the first free port from that of address upwards. If the agent
// before this one had address, it waits for up to patience first: a process that
// agent was starting when it ended has a copy of the socket until it runs its
// program, and the other nodes know this one by its port.
func listen(ctx context.Context, address string, had bool, patience time.Duration) (net.Listener, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	if had {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for {
			ln, err := net.Listen("tcp", address)
			if !errors.Is(err, syscall.EADDRINUSE) {
				return ln, err
			}
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
			break
		}
	}
	for try := 1; ; try++ {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil || port == 0 || try == portTries || !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}
		port++
	}
}

// lastAddress is where the agent before this one listened; "" if there was none.
func lastAddress(dir string) string {
	var life lifeFile
	b, err := os.ReadFile(filepath.Join(dir, "agent.json"))
	if err != nil || json.Unmarshal(b, &life) != nil {
		return ""
	}
	return life.Address
}

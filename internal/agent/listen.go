//go:build unix

package agent

import (
	"errors"
	"net"
	"strconv"
	"syscall"
)

// portTries is how many ports are tried, from the given one upwards: something
// else on the machine may have taken it. The caller finds the one in agent.json.
const portTries = 20

func listen(address string) (net.Listener, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil || port == 0 || try == portTries || !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}
		port++
	}
}

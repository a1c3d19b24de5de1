package cli

import (
	"net"
	"net/url"

	"github.com/skypilot-go/sky/internal/cloud/facts"
)

// inDocker carries out --docker: the task runs in a container on this machine and
// nowhere else, whatever its file says about a place.
func (a *app) inDocker(t *taskFlags) error {
	if asked := t.infra + t.cloud; asked != "" && asked != facts.Engine || t.region+t.zone != "" {
		return usagef("--docker runs the task in a container on this machine; it cannot be combined with another --infra, --cloud, --region or --zone.")
	}
	c, err := a.open()
	if err != nil {
		return err
	}
	if !c.Local() && !onLoopback(c.Endpoint()) {
		return usagef("--docker runs the task in a container on this machine, and the API server is at %s. For a container on the server's machine: --infra docker", c.Endpoint())
	}
	a.t.Warn("WARNING: --docker is deprecated. It is the same as: --infra docker, with --image-id docker:IMAGE for an image of your own.")
	t.infra, t.cloud = facts.Engine, ""
	return nil
}

func onLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

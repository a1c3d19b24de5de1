package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/forward"
)

// portFlags are the options of commands that forward ports.
type portFlags struct {
	texts, local []string       // of -p and of -L
	ports        *forward.Ports // open from listen on
}

func (f flags) ports(p *portFlags) {
	f.texts(&p.texts, "port-forward", "p", "Make a port of the node reachable here: PORT, LOCAL:PORT, LOCAL:HOST:PORT or BIND:LOCAL:HOST:PORT; LOCAL 0 is any free port (may be repeated).")
}

func (p *portFlags) all() []string { return slices.Concat(p.texts, p.local) }

// listen opens the ports of this machine, so that one in use is known before
// anything else is done.
func (p *portFlags) listen(ctx context.Context) error {
	type local struct {
		bind string
		port int
	}
	var specs []forward.Spec
	seen := map[local]bool{}
	for _, text := range p.all() {
		s, err := forward.Parse(text)
		if err != nil {
			return usagef("Invalid value for '--port-forward': %v.", err)
		}
		at := local{s.Bind, s.Local}
		if s.Local != 0 && seen[at] {
			return usagef("Port %d of this machine is named twice: give each forwarded port one of its own, such as 0:%d for any free one.", s.Local, s.Port)
		}
		seen[at] = true
		specs = append(specs, s)
	}
	var err error
	p.ports, err = forward.Listen(ctx, specs)
	return err
}

func (p *portFlags) close() {
	if p.ports != nil {
		p.ports.Close()
	}
}

// portsOnly is a command that does nothing for as long as it is connected. It keeps the
// node from being idle, and its end reports that the connection broke.
const portsOnly = "exec cat >/dev/null"

// shellAndPorts is a shell, or with only none, while ports are forwarded.
func (a *app) shellAndPorts(ctx context.Context, c *sky.Client, o sky.ShellOptions, p *portFlags, only bool) error {
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan struct{})
	go func() {
		defer close(served)
		p.ports.Serve(ctx, func(ctx context.Context, s forward.Spec) (forward.Conn, error) {
			conn, err := c.Forward(ctx, o.Cluster, o.Node, s.Host, s.Port)
			if err != nil { // no nil *ForwardConn in an interface
				return nil, err
			}
			return conn, nil
		}, func(err error) {
			a.t.Note("\r%v\r", err) // the terminal may be raw
		})
	}()
	defer func() {
		cancel()
		<-served
	}()
	for _, line := range p.ports.Describe() {
		a.t.Note("%s of cluster %s", line, o.Cluster)
	}
	if !only {
		return a.shell(ctx, c, o, a.t.In)
	}
	a.t.Note("Press Ctrl-C to end this.")
	o.Command = portsOnly
	silent, quiet := io.Pipe()
	defer quiet.Close()
	err := a.shell(ctx, c, o, silent)
	if _, ended := errors.AsType[exitError](err); ended || err == nil {
		return fmt.Errorf("the ports of cluster '%s' are no longer forwarded: its node has ended the session", o.Cluster)
	}
	return err
}

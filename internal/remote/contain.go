package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/registry"
	"github.com/skypilot-go/sky/internal/remote/container"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// Containers say how containers on machines are made.
type Containers struct {
	Login   *registry.Login // to the image's registry; nil: it asks for none
	Options []string        // further options of docker run, one word each
	Mounts  bool            // buckets are mounted in them
	Doing   func(string)    // is told how far it is, of the head; nil: nobody wants to know
}

const (
	// containTimeout bounds how long the image may be on its way, with what comes
	// before and after.
	containTimeout = 70 * time.Minute
	// containStall ends it when the machine says nothing; it says something every
	// ten seconds.
	containStall = 3 * time.Minute
	// containSays is how often what the machine does is passed on, and
	// containSaysMost how much of it: it ends in the request's log.
	containSays     = 5000
	containSaysMost = 500
)

// contain makes the cluster's container run on the machine, and returns its name.
// With made nil one that exists is started, and none is made.
func (t *sshTransport) contain(ctx context.Context, c *state.Cluster, n cloud.Node, target sshconn.Target, installed, home string, made *Containers) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, containTimeout, fmt.Errorf("the container did not run within %v", containTimeout))
	defer cancel()
	s := container.Spec{
		Name: fmt.Sprintf("sky-%.12s-%d", c.Hash, n.Rank), Image: c.Notes.Container, GPUs: len(c.Offer.Accelerators) > 0,
		Home: home, Machine: n.Reach.Machine,
	}
	if n.Reach.Home != "" {
		s.Node = path.Dir(home)
	}
	if made != nil {
		s.Create, s.Login, s.Options, s.Mounts = true, made.Login, made.Options, made.Mounts
	}
	conn, err := t.o.SSH.Pipe(ctx, target, sshconn.Quote(installed)+" agent --contain")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := json.NewEncoder(conn).Encode(s); err != nil {
		return "", &sshconn.UnreachableError{Host: target.Host, Step: "asking for the container", Err: err}
	}
	lines := bufio.NewScanner(conn)
	for said := 0; ; {
		conn.SetReadDeadline(time.Now().Add(containStall))
		if !lines.Scan() {
			break
		}
		var l container.Line
		switch err := json.Unmarshal(lines.Bytes(), &l); {
		case err != nil: // what login scripts print
		case l.Done && l.NoSpace:
			return "", &sshconn.NoSpaceError{Host: target.Host, Said: l.Error}
		case l.Done && l.Image:
			return "", &cloud.ImageError{Err: fmt.Errorf("%s: %s", target.Host, l.Error)}
		case l.Done && l.Error != "":
			return "", fmt.Errorf("%s: %s", target.Host, l.Error)
		case l.Done:
			return s.Name, nil
		case l.Doing != "" && made != nil && made.Doing != nil && n.Rank == 0 && said < containSays:
			said++
			made.Doing(l.Doing[:min(len(l.Doing), containSaysMost)])
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	err = lines.Err()
	if err == nil {
		err = errors.New("the connection ended before the container ran")
	}
	return "", &sshconn.UnreachableError{Host: target.Host, Step: "making the container", Err: err}
}

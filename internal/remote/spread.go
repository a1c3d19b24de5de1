package remote

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/nodeagent"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

const (
	// spreadAbove is the number of nodes up to which the server brings the agent
	// to each by itself.
	spreadAbove = 8
	// spreadFirst is to how many it does with more nodes than that. From then on
	// each node that has the agent brings it to the next one, so that their number
	// doubles with every round.
	spreadFirst = 4
	// errandTimeout bounds one node's bringing it to another.
	errandTimeout = 3 * time.Minute
)

// spread is who can bring the agent to the nodes of one cluster.
type spread struct {
	senders chan sender
}

// sender is a node that has the agent; the zero value is the server.
type sender struct {
	target    sshconn.Target
	installed string
	hash      string
}

func (s sender) server() bool { return s.installed == "" }

// newSpread is for the nodes of one cluster.
func newSpread(nodes []cloud.Node) *spread {
	s := &spread{senders: make(chan sender, 2*len(nodes))}
	first := len(nodes)
	if first > spreadAbove && !slices.ContainsFunc(nodes, alone) {
		first = spreadFirst
	}
	for range first {
		s.senders <- sender{}
	}
	return s
}

// take waits for somebody who is free.
func (s *spread) take(ctx context.Context) (sender, error) {
	select {
	case from := <-s.senders:
		return from, nil
	case <-ctx.Done():
		return sender{}, context.Cause(ctx)
	}
}

// free makes a sender available. The server is asked so often and no more, so
// that its line is for the first ones only.
func (s *spread) free(from sender) {
	if !from.server() {
		s.senders <- from
	}
}

// relay lets a node that has the agent bring it to another one, which takes it
// in with that command.
func (t *sshTransport) relay(ctx context.Context, from sender, to sshconn.Target, addresses []string, command string) error {
	ctx, cancel := context.WithTimeout(ctx, errandTimeout)
	defer cancel()
	keys, err := t.o.SSH.HostKeys(to)
	if err != nil {
		return err
	}
	line, err := json.Marshal(nodeagent.Errand{Addresses: addresses, User: to.User, HostKeys: keys, Command: command})
	if err != nil {
		return err
	}
	said, err := t.o.SSH.Lend(ctx, from.target, sshconn.Quote(from.installed)+" agent --send", append(line, '\n'), to, nodeagent.SentExtension)
	if err != nil {
		return err
	}
	var sent nodeagent.Sent
	if err := json.Unmarshal(said, &sent); err != nil {
		return err
	}
	if sent.Error != "" {
		return errors.New(strings.TrimSpace(sent.Error))
	}
	return nil
}

// alone reports whether other nodes have nothing to do with this one. They log in
// with the key that sky made for the user's machines, never with one of the
// user's own.
func alone(n cloud.Node) bool {
	r := n.Reach
	return r.Method != "ssh" || r.OwnKeys || r.IdentityFile != "" || r.ProxyJump != "" || r.ProxyCommand != ""
}

// addressesOf are where another node of the cluster finds a node's sshd.
func addressesOf(internal string, to sshconn.Target) []string {
	addresses := []string{to.Addr()}
	if internal != "" && internal != to.Host {
		port := to.Port
		if port == 0 {
			port = 22
		}
		addresses = append([]string{net.JoinHostPort(internal, strconv.Itoa(port))}, addresses...)
	}
	return addresses
}

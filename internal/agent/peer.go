//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
)

// Routes between the agents of a cluster; {key} is a rank's.
const (
	pathRankPrepare = "PUT /v1/ranks/{key}"        // rankSpec
	pathRankStart   = "POST /v1/ranks/{key}/start" // rankSpec -> rankStatus
	pathRankWait    = "GET /v1/ranks/{key}/wait"   // -> rankStatus, when it is over or after waitPoll; query exit=1: when its own process is
	pathRankEnd     = "POST /v1/ranks/{key}/end"   // endRequest -> rankStatus, when it is over
	pathRankForget  = "DELETE /v1/ranks/{key}"     //
	pathFlush       = "POST /v1/mounts/flush"      // flushRequest -> flushStatus
	pathRankOutput  = "GET /v1/ranks/{key}/output" // raw bytes from query offset until it is over
)

// waitPoll bounds one wait, so that a node that is gone is noticed.
const waitPoll = 20 * time.Second

// endRequest says how long processes get between TERM and KILL.
type endRequest struct {
	GraceSeconds float64 `json:"grace_seconds"`
}

// flushRequest asks for what the ranks wrote to mounted buckets; for everything if there
// are none.
type flushRequest struct {
	Ranks   []string `json:"ranks,omitempty"`
	Seconds float64  `json:"seconds"` // to wait at most
}

// peer is a node as the head uses it. Calls may be repeated after an error.
type peer interface {
	prepare(ctx context.Context, s *rankSpec) error
	start(ctx context.Context, s *rankSpec) (rankStatus, error)
	// wait returns when the rank is over, and from other nodes after a while, too.
	wait(ctx context.Context, key string) (rankStatus, error)
	// waitExit is wait that does not wait for what the rank left behind.
	waitExit(ctx context.Context, key string) (rankStatus, error)
	end(ctx context.Context, key string, grace time.Duration) (rankStatus, error)
	forget(ctx context.Context, key string) error
	// flush waits, up to a limit, until the node's mounted buckets have what the ranks
	// wrote.
	flush(ctx context.Context, ranks []string, limit time.Duration) (flushStatus, error)
}

// localPeer is the head itself.
type localPeer struct {
	r *ranks
	m *mounts
}

func (p localPeer) prepare(_ context.Context, s *rankSpec) error { return p.r.prepare(s) }

func (p localPeer) start(_ context.Context, s *rankSpec) (rankStatus, error) { return p.r.start(s) }

func (p localPeer) wait(ctx context.Context, key string) (rankStatus, error) {
	return p.r.wait(ctx, key)
}

func (p localPeer) waitExit(ctx context.Context, key string) (rankStatus, error) {
	return p.r.waitExit(ctx, key)
}

func (p localPeer) end(ctx context.Context, key string, grace time.Duration) (rankStatus, error) {
	return p.r.end(ctx, key, grace)
}

func (p localPeer) forget(_ context.Context, key string) error { return p.r.forget(key) }

func (p localPeer) flush(ctx context.Context, ranks []string, limit time.Duration) (flushStatus, error) {
	return p.m.flush(ctx, ranks, limit)
}

// remotePeer is another node.
type remotePeer struct{ c *agentclient.Client }

func (p remotePeer) prepare(ctx context.Context, s *rankSpec) error {
	ctx, cancel := context.WithTimeout(ctx, waitPoll)
	defer cancel()
	return p.c.Call(ctx, pathRankPrepare, s, nil, s.Key)
}

func (p remotePeer) start(ctx context.Context, s *rankSpec) (st rankStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitPoll)
	defer cancel()
	err = p.c.Call(ctx, pathRankStart, s, &st, s.Key)
	return st, err
}

func (p remotePeer) wait(ctx context.Context, key string) (rankStatus, error) {
	return p.poll(ctx, key, nil)
}

func (p remotePeer) waitExit(ctx context.Context, key string) (rankStatus, error) {
	return p.poll(ctx, key, url.Values{"exit": {"1"}})
}

func (p remotePeer) poll(ctx context.Context, key string, q url.Values) (st rankStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*waitPoll)
	defer cancel()
	err = p.c.Get(ctx, pathRankWait, q, &st, key)
	return st, err
}

func (p remotePeer) end(ctx context.Context, key string, grace time.Duration) (st rankStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, grace+waitPoll)
	defer cancel()
	err = p.c.Call(ctx, pathRankEnd, endRequest{grace.Seconds()}, &st, key)
	return st, err
}

func (p remotePeer) forget(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, waitPoll)
	defer cancel()
	return p.c.Call(ctx, pathRankForget, nil, nil, key)
}

func (p remotePeer) flush(ctx context.Context, ranks []string, limit time.Duration) (st flushStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+mountsCall+waitPoll)
	defer cancel()
	err = p.c.Call(ctx, pathFlush, flushRequest{ranks, limit.Seconds()}, &st)
	return st, err
}

// output streams what the rank prints from a byte on; it ends when all is there.
func (p remotePeer) output(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	resp, err := p.c.Open(ctx, pathRankOutput, url.Values{"offset": {strconv.FormatInt(offset, 10)}}, key)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// errNodeGone says that a node is no longer part of the cluster, so its ranks
// do not run any more.
var errNodeGone = errors.New("the node is no longer part of the cluster")

// peer finds a node of the cluster by its id.
func (a *Agent) peer(id string) (peer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spec == nil {
		return nil, errNodeGone
	}
	for i, n := range a.spec.Nodes {
		if n.ID != id {
			continue
		}
		if i == a.spec.Self {
			return localPeer{a.ranks, a.mounts}, nil
		}
		return remotePeer{a.clientLocked(n.Address)}, nil
	}
	return nil, errNodeGone
}

// clientLocked returns the client for another agent's address.
func (a *Agent) clientLocked(address string) *agentclient.Client {
	c := a.clients[address]
	if c == nil {
		c = agentclient.New(address, a.dialTLS, nil)
		a.clients[address] = c
	}
	return c
}

// nodeName is how people see a node: "head", "worker1", ...
func nodeName(index int) string {
	if index == 0 {
		return "head"
	}
	return fmt.Sprintf("worker%d", index)
}

// temporary reports whether a call to a peer may succeed later. What a node
// refuses as wrong stays wrong.
func temporary(err error) bool {
	if errors.Is(err, errNodeGone) {
		return false
	}
	if e, ok := errors.AsType[*agentapi.Error](err); ok {
		return e.Code != agentapi.CodeInvalid && e.Code != agentapi.CodeNotFound
	}
	return true
}

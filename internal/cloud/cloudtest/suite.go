package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

const (
	patience = 2 * time.Minute // of one call that may take its time
	prompt   = 5 * time.Second // of one that was cancelled
)

// suite is a behaviour being asked for.
type suite struct {
	testing.TB
	Harness
	p            cloud.Provider
	installation string
}

var installations atomic.Int64

func newSuite(t testing.TB, h Harness) *suite {
	return &suite{TB: t, Harness: h, p: h.Provider, installation: fmt.Sprintf("inst%d", installations.Add(1))}
}

// id is a cluster of this installation, which is given back in the end.
func (s *suite) id(name string) cloud.ClusterID {
	return s.in(s.installation, name, "h1")
}

func (s *suite) in(installation, name, hash string) cloud.ClusterID {
	s.Helper()
	id := cloud.ClusterID{Installation: installation, Name: name, Hash: hash}
	s.Cleanup(func() {
		if s.Restore != nil {
			s.Restore(s)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), patience)
		defer cancel()
		if err := s.p.Terminate(ctx, id); err != nil {
			s.Errorf("giving back %s in the end: %v", name, err)
		}
	})
	return id
}

var tokens atomic.Int64

// spec asks for n nodes with a token of its own.
func (s *suite) spec(id cloud.ClusterID, n int) cloud.LaunchSpec {
	spec := s.Spec
	spec.ID, spec.Nodes = id, n
	spec.Token = fmt.Sprintf("token-%d", tokens.Add(1))
	return spec
}

// ctx is for one call.
func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

// try prepares and launches, as the engine does.
func (s *suite) try(spec cloud.LaunchSpec) ([]cloud.Node, error) { return tryWith(s.ctx(), s.p, spec) }

func tryWith(ctx context.Context, p cloud.Provider, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := p.Prepare(ctx, spec); err != nil {
		return nil, err
	}
	return p.Launch(ctx, spec)
}

// launch must succeed with exactly the nodes asked for.
func (s *suite) launch(spec cloud.LaunchSpec) []cloud.Node {
	s.Helper()
	nodes, err := s.try(spec)
	if err != nil {
		s.Fatalf("launching %d nodes of %s: %v", spec.Nodes, spec.ID.Name, err)
	}
	s.complete(nodes, spec.Nodes)
	return nodes
}

// complete wants n running nodes in rank order, with all machines of each.
func (s *suite) complete(nodes []cloud.Node, n int) {
	s.Helper()
	if n = s.Spec.Offer.Machines(n); len(nodes) != n {
		s.Fatalf("there are %d nodes, want %d: %v", len(nodes), n, brief(nodes))
	}
	for rank, node := range nodes {
		if node.Rank != rank || node.State != cloud.NodeRunning {
			s.Fatalf("want ranks in order and all running: %v", brief(nodes))
		}
	}
}

func (s *suite) nodes(id cloud.ClusterID) []cloud.Node {
	s.Helper()
	nodes, err := s.p.Nodes(s.ctx(), id)
	if err != nil {
		s.Fatalf("listing %s: %v", id.Name, err)
	}
	return nodes
}

// alive lists the nodes that are not gone.
func (s *suite) alive(id cloud.ClusterID) []cloud.Node {
	s.Helper()
	return slices.DeleteFunc(s.nodes(id), func(n cloud.Node) bool { return n.State == cloud.NodeGone })
}

func (s *suite) terminate(id cloud.ClusterID) {
	s.Helper()
	if err := s.p.Terminate(s.ctx(), id); err != nil {
		s.Fatalf("terminating %s: %v", id.Name, err)
	}
}

func (s *suite) stopper() cloud.Stopper {
	s.Helper()
	st, ok := cloud.As[cloud.Stopper](s.p)
	if !ok {
		s.Fatal("the provider says that it can stop machines, but is no Stopper")
	}
	return st
}

func (s *suite) stop(id cloud.ClusterID) {
	s.Helper()
	if err := s.stopper().Stop(s.ctx(), id); err != nil {
		s.Fatalf("stopping %s: %v", id.Name, err)
	}
}

// inventory is what exists in the cloud's own view, if that can be asked.
func (s *suite) inventory() []string {
	if s.Inventory == nil {
		return nil
	}
	return s.Inventory(s)
}

// nothingLeft wants the cluster to be gone without a trace.
func (s *suite) nothingLeft(id cloud.ClusterID) {
	s.Helper()
	if left := s.alive(id); len(left) > 0 {
		s.Errorf("left: %v", brief(left))
	}
	for _, thing := range s.inventory() {
		if strings.Contains(thing, id.Name) {
			s.Errorf("the cloud still has %s", thing)
		}
	}
}

// eventually waits for what the cloud does in its own time.
func (s *suite) eventually(what string, f func() bool) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for !f() {
		if time.Now().After(deadline) {
			s.Fatalf("waited %v: %s; the cloud has %v", patience, what, s.inventory())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// promptly wants f to return soon after its context was cancelled.
func (s *suite) promptly(what string, after time.Duration, f func(context.Context) error) error {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	if after == 0 {
		cancel()
	} else {
		defer time.AfterFunc(after, cancel).Stop()
	}
	start := time.Now()
	err := f(ctx)
	if took := time.Since(start) - after; took > prompt {
		s.Errorf("%s returned %v after it was cancelled", what, took)
	}
	return err
}

func ids(nodes []cloud.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.ID
	}
	return out
}

func (s *suite) same(what string, got, want []string) {
	s.Helper()
	if !slices.Equal(got, want) {
		s.Errorf("%s: %v, want %v", what, got, want)
	}
}

func brief(nodes []cloud.Node) string {
	var b strings.Builder
	for i, n := range nodes {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s/%s#%d %s %s", n.Cluster, n.Hash, n.Rank, n.ID, n.State)
	}
	return b.String()
}

// want asks for an error of type E.
func want[E error](s *suite, err error) E {
	s.Helper()
	var e E
	switch {
	case err == nil:
		s.Fatalf("no error, want %T", e)
	case !errors.As(err, &e):
		s.Fatalf("error %T (%v), want %T", err, err, e)
	}
	if errors.Unwrap(e) == nil || errors.Unwrap(e).Error() == "" {
		s.Errorf("%T has lost the cloud's own words", e)
	}
	return e
}

package buckets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/nodestorage"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/scoped"
	"github.com/skypilot-go/sky/internal/storage/transfer"
	"github.com/skypilot-go/sky/task"
)

// Bring copies what a task takes from buckets to all nodes of a cluster at once. What is
// there already is not copied again. place makes a path of a node of a task's destination.
func (m *Manager) Bring(ctx context.Context, call cluster.Call, cl *state.Cluster, t *task.Task, place func(dst string) string) error {
	uses, err := read(t)
	uses = slices.DeleteFunc(uses, func(u mount) bool { return u.mounted() })
	if err != nil || len(uses) == 0 {
		return err
	}
	c := m.configOf(call)
	// Node by node the same: one grant for each copy, as the same bucket twice is rare.
	spec := nodestorage.CopySpec{}
	var sources []storage.Bucket
	var names []string
	for _, u := range uses {
		b, from, err := m.source(ctx, call, c, t, u)
		if err != nil {
			return failed(api.ErrStorageGet, u.where(), err)
		}
		sources = append(sources, b)
		names = append(names, fmt.Sprintf("%s -> %s", from, u.dst))
		spec.Copies = append(spec.Copies, nodestorage.Copy{Grant: len(sources) - 1, Key: from.Key, Dst: place(u.dst), Folder: u.folder, AsRoot: !facts.SharesFiles(cl.Offer.Cloud)})
	}
	b := &bringing{m: m, call: call, cluster: cl, sources: sources, spec: spec, names: names, nodes: make([]nodestorage.Event, len(cl.Nodes)), done: make([]int, len(names))}
	g, gctx := errgroup.WithContext(ctx)
	for rank := range cl.Nodes {
		g.Go(func() error { return b.node(gctx, rank) })
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// bringing is the copies to all nodes of one cluster.
type bringing struct {
	m       *Manager
	call    cluster.Call
	cluster *state.Cluster
	sources []storage.Bucket
	spec    nodestorage.CopySpec
	names   []string // of the copies, for people

	mu    sync.Mutex
	nodes []nodestorage.Event // how far each node is
	done  []int               // on how many nodes each copy is complete
}

// A nodeError is what sky-mount says about a copy.
type nodeError struct {
	event nodestorage.Event
}

func (e *nodeError) Error() string { return e.event.Error }

const (
	// futile is how often a copy is tried that does not get any further.
	futile     = 4
	copyPause  = 2 * time.Second
	renewCheck = 30 * time.Second
)

// node copies to one node. It tries again when the connection breaks or the store has
// trouble: what has arrived stays.
func (b *bringing) node(ctx context.Context, rank int) error {
	first, far, failures := 0, int64(0), 0
	for {
		begun, before := first, far
		err := b.once(ctx, rank, &first, &far)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if first > begun || far > before {
			failures = 0
		}
		if failures++; failures >= futile || !worthAnother(err) {
			return b.failed(rank, first, err)
		}
		b.m.Log.WarnContext(ctx, "copying a bucket to a node was interrupted; it goes on", "cluster", b.cluster.Name, "node", remote.NodeName(rank), "err", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(failures) * copyPause):
		}
	}
}

// worthAnother reports whether the same copy may succeed a moment later.
func worthAnother(err error) bool {
	if e, ok := errors.AsType[*nodeError](err); ok {
		return e.event.Fault == nodestorage.FaultCredentials || e.event.Fault == nodestorage.FaultStore
	}
	return is[*agentclient.UnreachableError](err)
}

// failed is the error of a copy that did not reach a node.
func (b *bringing) failed(rank, n int, err error) error {
	what := "what to copy"
	if n < len(b.names) {
		what = b.names[n]
	}
	e := &api.Error{Type: api.ErrRuntime, Err: err, Message: fmt.Sprintf("Copying %s failed on %s of cluster %q: %v", what, remote.NodeName(rank), b.cluster.Name, err),
		Hint: "What was copied stays: the same launch goes on from there."}
	if said, ok := errors.AsType[*nodeError](err); ok {
		switch said.event.Fault {
		case nodestorage.FaultMissing, nodestorage.FaultDenied, nodestorage.FaultCredentials:
			e.Type = api.ErrStorageGet
		case nodestorage.FaultSpace:
			e.Hint = fmt.Sprintf("Make room on it (sky ssh %s) and run this again.", b.cluster.Name)
		}
	}
	return e
}

// once runs sky-mount on a node for the copies from *first on, which it counts up.
func (b *bringing) once(ctx context.Context, rank int, first *int, far *int64) error {
	grants, err := b.grants(ctx)
	if err != nil {
		return failed(api.ErrStorageGet, "credentials for the nodes", err)
	}
	spec := nodestorage.CopySpec{Grants: grants, Copies: b.spec.Copies[*first:]}
	head, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	in, more := io.Pipe()
	defer in.Close()
	tctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if _, err := more.Write(append(head, '\n')); err == nil {
			b.renew(tctx, more, grants)
		}
		<-tctx.Done() // the end of the input would end the program
		more.Close()
	}()
	base := *first
	var last error
	err = b.m.Remote.TalkToMount(ctx, b.cluster, rank, "copy", in, func(line []byte) error {
		var e nodestorage.Event
		if !bytes.HasPrefix(line, []byte(`{"sky_mount"`)) || json.Unmarshal(line, &e) != nil {
			return nil // the login shell's
		}
		n := base + e.Copy
		if n < 0 || n >= len(b.names) {
			return fmt.Errorf("sky-mount says something about copy %d of %d", n, len(b.names))
		}
		switch e.Mark {
		case nodestorage.Progress:
			*far = max(*far, e.Bytes)
			b.show(rank, n, e)
		case nodestorage.Done:
			*first, *far = n+1, 0
			b.complete(n, e)
		case nodestorage.Failed:
			last = &nodeError{e}
		}
		return nil
	})
	if last != nil {
		return last
	}
	if err == nil && *first < len(b.names) {
		return fmt.Errorf("sky-mount ended before it had copied everything")
	}
	return err
}

// grants are the credentials that nodes get now.
func (b *bringing) grants(ctx context.Context) ([]storage.Grant, error) {
	out := make([]storage.Grant, len(b.sources))
	for i, s := range b.sources {
		g, err := b.m.scoped.Grant(ctx, s, scoped.Use{ReadOnly: true, Prefix: b.spec.Copies[i].Key})
		if err != nil {
			return nil, err
		}
		out[i] = g
	}
	return out, nil
}

// renew hands over new credentials as long as some run out.
func (b *bringing) renew(ctx context.Context, to io.Writer, have []storage.Grant) {
	lasting := true
	for _, g := range have {
		lasting = lasting && g.Expires.IsZero()
	}
	if lasting {
		return
	}
	t := time.NewTicker(renewCheck)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		fresh, err := b.grants(ctx)
		if err != nil {
			continue // those that nodes have may still hold
		}
		changed := false
		for i := range fresh {
			changed = changed || fresh[i] != have[i]
		}
		if !changed {
			continue
		}
		line, err := json.Marshal(nodestorage.Renewal{Grants: fresh})
		if err != nil {
			return
		}
		if _, err := to.Write(append(line, '\n')); err != nil {
			return
		}
		have = fresh
	}
}

// show is one line for all nodes.
func (b *bringing) show(rank, n int, e nodestorage.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[rank] = e
	var p transfer.Progress
	p.Counted = true
	for _, e := range b.nodes {
		p.Files, p.Bytes, p.TotalFiles, p.TotalBytes = p.Files+e.Files, p.Bytes+e.Bytes, p.TotalFiles+e.TotalFiles, p.TotalBytes+e.TotalBytes
		p.Rate += e.Rate
		p.Left = max(p.Left, time.Duration(e.Left*float64(time.Second)))
		p.Counted = p.Counted && (e.Counted || e.Mark == "")
	}
	what := b.names[n]
	if len(b.nodes) > 1 {
		what += fmt.Sprintf(" on %d nodes", len(b.nodes))
	}
	b.call.Out.Spin("Copying " + what + ": " + howFar(p))
	tell(b.call.Out, "copy", what, p)
}

// complete notes that a copy is complete on a node, and says so when all have it.
func (b *bringing) complete(n int, e nodestorage.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done[n]++; b.done[n] < len(b.nodes) {
		return
	}
	on := ""
	if len(b.nodes) > 1 {
		on = fmt.Sprintf(" on %d nodes", len(b.nodes))
	}
	b.call.Out.StopSpin()
	fmt.Fprintf(b.call.Out, "✓ Copied %s%s (%s)\n", b.names[n], on, summary(e.Files, e.Bytes, e.Same))
	for _, note := range e.Notes {
		fmt.Fprintln(b.call.Out, "  "+note)
	}
}

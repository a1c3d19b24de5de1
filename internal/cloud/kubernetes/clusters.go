package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

// Nodes lists the pods. A cluster is looked for where it was put; one that
// nobody remembers is looked for everywhere. With all clusters come those of
// which only something else is left.
func (p *Provider) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	places, err := p.places(ctx, id)
	if err != nil {
		return nil, err
	}
	found := make([][]cloud.Node, len(places))
	errs := make([]error, len(places))
	var wg sync.WaitGroup
	for i, w := range places {
		wg.Go(func() {
			found[i], errs[i] = w.nodes(ctx, id)
			if errs[i] == nil && id.Name == "" {
				var left []cloud.Node
				left, errs[i] = w.leftovers(ctx, id, found[i])
				found[i] = append(found[i], left...)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := errors.Join(errs...); err != nil && (id.Name != "" || !slices.Contains(errs, nil)) {
		return nil, firstProof(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
	}
	nodes := slices.Concat(found...)
	slices.SortFunc(nodes, func(a, b cloud.Node) int {
		if a.Cluster != b.Cluster {
			return strings.Compare(a.Cluster, b.Cluster)
		}
		return a.Rank - b.Rank
	})
	return nodes, nil
}

// places are where a cluster is, or where it may be; for no name, where any may
// be. What is remembered here may be lost, or be another server's: then the
// settings of every workspace say where to look, and pods are found in every
// namespace that the account may see.
func (p *Provider) places(ctx context.Context, id cloud.ClusterID) ([]*target, error) {
	if id.Name != "" && validName(id.Name) != nil {
		return nil, nil // no such cluster can exist
	}
	known, err := p.remembered(id)
	if err != nil {
		return nil, err
	}
	var out places
	for _, k := range known {
		w, err := p.at(k.Context, nil)
		if is[*cloud.InvalidError](err) && id.Name == "" {
			continue // a context that was removed from the kubeconfig
		}
		if err != nil {
			return nil, err
		}
		w.namespace = k.Namespace
		out.add(w)
	}
	if id.Name != "" && len(out) > 0 {
		return out, nil
	}
	for i, sections := range p.everywhere() {
		names, err := p.contexts(sections)
		if errors.Is(err, errNone) {
			continue // nothing was ever here, as far as can be told
		}
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			w, err := p.at(name, sections(name))
			if i > 0 && is[*cloud.InvalidError](err) {
				continue // a workspace of others allows a context that is not there
			}
			if err != nil {
				return nil, err
			}
			out.add(w)
		}
	}
	return out.spread(ctx, id)
}

// everywhere are the settings by which clusters may have been made, those that
// hold where no task's are given first.
func (p *Provider) everywhere() []catalog.Sections {
	all := []catalog.Sections{p.sections()}
	if p.o.Everywhere != nil {
		all = append(all, p.o.Everywhere()...)
	}
	return all
}

// places are different from each other.
type places []*target

func (ps *places) add(w *target) {
	if !slices.ContainsFunc(*ps, func(o *target) bool { return o.context == w.context && o.namespace == w.namespace }) {
		*ps = append(*ps, w)
	}
}

// spread adds the namespaces in which the cluster has pods, in each context whose
// account may see all pods. For no name a context that does not answer adds none.
func (ps places) spread(ctx context.Context, id cloud.ClusterID) (places, error) {
	var contexts []*target
	for _, w := range ps {
		if !slices.ContainsFunc(contexts, func(o *target) bool { return o.context == w.context }) {
			contexts = append(contexts, w)
		}
	}
	found := make([][]pod, len(contexts))
	errs := make([]error, len(contexts))
	var wg sync.WaitGroup
	for i, w := range contexts {
		wg.Go(func() {
			found[i], _, errs[i] = list[pod](ctx, w.client, podsResource, "", metav1.ListOptions{LabelSelector: nodesOf(id)})
			errs[i] = refused(ctx, w.place(), errs[i])
		})
	}
	wg.Wait()
	for i, w := range contexts {
		if err := errs[i]; err != nil && id.Name != "" && !is[*cloud.PermissionError](err) {
			return nil, err
		}
		for _, p := range found[i] {
			ps.add(&target{client: w.client, conf: w.conf, namespace: p.Metadata.Namespace})
		}
	}
	return ps, nil
}

// nodes are a cluster's pods in this place.
func (w *target) nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	pods, _, err := w.pods(ctx, id)
	if err != nil {
		return nil, refused(ctx, w.place(), err)
	}
	nodes := make([]cloud.Node, 0, len(pods))
	for i := range pods {
		n, err := pods[i].node(w.place())
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b cloud.Node) int { return a.Rank - b.Rank })
	return nodes, nil
}

// node is the pod as its cluster's node.
func (p *pod) node(place cloud.Place) (cloud.Node, error) {
	m := &p.Metadata
	n := cloud.Node{
		ID: m.Name + "-" + m.UID[:min(len(m.UID), 8)], Cluster: m.Labels[cloud.TagCluster], Hash: m.Labels[cloud.TagHash], Rank: p.rank(),
		Place: place, InternalIP: p.Status.PodIP, Created: m.CreationTimestamp.Time,
		Reach: cloud.Reach{Method: "kubernetes", Host: place.Region + "/" + m.Namespace + "/" + m.Name, Machine: "container", Shell: p.shell()},
	}
	switch p.Status.Phase {
	case "Pending", "":
		n.State = cloud.NodePending
	case "Running":
		n.State = cloud.NodeRunning
	case "Succeeded", "Failed":
		n.State, n.Reason = cloud.NodeGone, obituary(p)
	case "Unknown": // its machine does not answer, which proves nothing
		n.State, n.Reason = cloud.NodeRunning, "its machine "+p.Spec.NodeName+" does not answer"
	default:
		return n, fmt.Errorf("the API server calls pod %s %q, and we do not know what that means", m.Name, p.Status.Phase)
	}
	// To be deleted is not to be gone: only the machine knows when the processes
	// have ended, and one that is silent says nothing. The API server lists the
	// pod until the machine has confirmed it, or until there is no such machine.
	if m.DeletionTimestamp != nil && n.State == cloud.NodeRunning {
		n.Reason = "it is to be deleted, and its machine " + p.Spec.NodeName + " has not said yet that it ended: " + obituary(p)
	}
	return n, nil
}

// Terminate removes the pods and what belongs to them, waits until their nodes
// have said that they are gone, and forgets the cluster.
func (p *Provider) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if id.Name == "" || validName(id.Name) != nil {
		return nil
	}
	done, err := p.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	places, err := p.places(ctx, id)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, w := range places {
		g.Go(func() error { return refused(gctx, w.place(), w.clear(gctx, id)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return p.forget(id)
}

func (w *target) clear(ctx context.Context, id cloud.ClusterID) error {
	pods, _, err := w.pods(ctx, id)
	if err != nil {
		return err
	}
	if err := w.remove(ctx, nodesOf(id), pods); err != nil {
		return err
	}
	for _, of := range []schema.GroupVersionResource{servicesResource, ingressesResource} {
		if err := w.clearKind(ctx, of, id); err != nil {
			return err
		}
	}
	if err := w.dropLogin(ctx, id); err != nil {
		return err
	}
	return w.clearClaims(ctx, id)
}

// clearKind removes what carries the cluster's labels. What the account may not
// even see, it has not made.
func (w *target) clearKind(ctx context.Context, of schema.GroupVersionResource, id cloud.ClusterID) error {
	have, _, err := list[object](ctx, w.client, of, w.namespace, metav1.ListOptions{LabelSelector: selector(id.Tags())})
	if absent(err) || is[*cloud.PermissionError](refused(ctx, w.place(), err)) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, o := range have {
		err := w.Resource(of).Namespace(w.namespace).Delete(ctx, o.Metadata.Name, metav1.DeleteOptions{})
		if err != nil && !absent(err) {
			return err
		}
	}
	return nil
}

// soon is the grace of pods that are given back: their first process ends at
// once when it is told to.
const soon = 1

// remove deletes pods, which a selector chooses, and waits until their machines
// have said that they are gone. They are followed together for a while; then each that is left
// is looked into.
func (w *target) remove(ctx context.Context, by string, pods []pod) error {
	if len(pods) == 0 {
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, p := range pods {
		g.Go(func() error { return w.delete(gctx, &p, soon) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	cloud.ReportWait(ctx, "the pods to end")
	left, err := w.leave(ctx, by, pods, time.Now().Add(silentPatience))
	if err != nil {
		return err
	}
	if len(left) > 0 {
		what := fmt.Sprintf("pod %s on machine %s to end", left[0].Metadata.Name, left[0].Spec.NodeName)
		if more := len(left) - 1; more > 0 {
			what += fmt.Sprintf(", and %d more", more)
		}
		cloud.ReportWait(ctx, what)
	}
	ends, ectx := errgroup.WithContext(ctx)
	ends.SetLimit(atOnce)
	for _, p := range left {
		ends.Go(func() error { return w.ends(ectx, &p) })
	}
	return ends.Wait()
}

// leave follows deleted pods until none of them is there any more, or limit. It
// returns those that are, or that nobody knows of.
func (w *target) leave(ctx context.Context, by string, pods []pod, limit time.Time) ([]pod, error) {
	f := w.follow(by, "")
	defer f.stop()
	left := slices.Clone(pods)
	for {
		if f.synced {
			left = slices.DeleteFunc(left, func(p pod) bool { return f.have[p.Metadata.UID] == nil })
		}
		if len(left) == 0 || !time.Now().Before(limit) {
			return left, nil
		}
		if err := f.next(ctx, limit, false); err != nil {
			return nil, err
		}
	}
}

func (w *target) delete(ctx context.Context, p *pod, grace int64) error {
	uid := types.UID(p.Metadata.UID)
	err := w.Resource(podsResource).Namespace(w.namespace).Delete(ctx, p.Metadata.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if absent(err) || conflictOf(err) {
		return nil // another pod has the name by now
	}
	return err
}

// ends waits until a deleted pod is gone. A machine that works gets a minute to
// say so; then the API server is asked to forget the pod. What a silent machine
// may still run is never forgotten.
func (w *target) ends(ctx context.Context, p *pod) error {
	return w.endsWithin(ctx, p, silentPatience, goingPatience)
}

func (w *target) endsWithin(ctx context.Context, p *pod, silent, going time.Duration) error {
	forced := false
	limit := time.Now().Add(going)
	for {
		there, err := w.still(ctx, p, time.Now().Add(min(silent, time.Until(limit))))
		if err != nil || !there {
			return err
		}
		noAnswer, err := w.silent(ctx, p.Spec.NodeName)
		if err != nil {
			return err
		}
		switch {
		case noAnswer && !p.ended():
			return &cloud.UnreachableError{Err: fmt.Errorf("pod %s may still run: its machine %s does not answer; it ends when the machine is back, or when somebody who knows that it is off says so (kubectl taint nodes %[2]s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or kubectl delete node %[2]s)",
				p.Metadata.Name, p.Spec.NodeName)}
		case time.Now().Before(limit):
			continue
		case forced:
			return &cloud.UnreachableError{Err: fmt.Errorf("pod %s does not go away: something in the cluster holds it (a finalizer?)", p.Metadata.Name)}
		}
		if err := w.delete(ctx, p, 0); err != nil {
			return err
		}
		forced, limit = true, time.Now().Add(going)
	}
}

// silent reports whether a machine exists and does not answer.
func (w *target) silent(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	nodes, _, err := list[node](ctx, w.client, nodesResource, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return false, err
	}
	return len(nodes) > 0 && !nodes[0].ready(), nil
}

// still watches one pod until it is gone or limit.
func (w *target) still(ctx context.Context, p *pod, limit time.Time) (bool, error) {
	pods := w.Resource(podsResource).Namespace(w.namespace)
	for {
		u, err := pods.Get(ctx, p.Metadata.Name, metav1.GetOptions{})
		if absent(err) || err == nil && string(u.GetUID()) != p.Metadata.UID {
			return false, nil
		}
		if err != nil {
			return true, err
		}
		left := time.Until(limit)
		if left <= 0 {
			return true, nil
		}
		wctx, cancel := context.WithTimeout(ctx, left)
		err = func() error {
			defer cancel()
			wt, err := pods.Watch(wctx, metav1.ListOptions{FieldSelector: "metadata.name=" + p.Metadata.Name, ResourceVersion: u.GetResourceVersion()})
			if err != nil {
				return err
			}
			defer wt.Stop()
			for {
				select {
				case e, ok := <-wt.ResultChan():
					if !ok || e.Type == "DELETED" || e.Type == "ERROR" {
						return nil
					}
				case <-wctx.Done():
					return nil
				}
			}
		}()
		if ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
		if err != nil && wctx.Err() == nil {
			if perr := pause(ctx, awayPause); perr != nil {
				return true, perr
			}
		}
	}
}

// gone waits until no pod has the name.
func (w *target) gone(ctx context.Context, name string) error {
	u, err := w.Resource(podsResource).Namespace(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	p, err := as[pod](u)
	if err != nil {
		return err
	}
	cloud.ReportWait(ctx, "pod "+name+", which is there already, to end")
	return w.ends(ctx, p)
}

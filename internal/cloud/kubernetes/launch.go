package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skypilot-go/sky/internal/cloud"
)

const (
	// atOnce bounds how many pods are created or deleted in parallel.
	atOnce = 32
	// goingPatience is how long a pod may take to end before it is removed
	// without proof from its node.
	goingPatience = 60 * time.Second
	// silentPatience is how long a machine may take before it is asked whether it
	// answers at all.
	silentPatience = 10 * time.Second
	// startPatience bounds images, volumes and the network of a pod that has a
	// node.
	startPatience = 30 * time.Minute
)

// Prepare checks what is asked for, keeps the login to the image's registry, makes
// the volumes that go with the cluster, and opens its ports.
func (p *Provider) Prepare(ctx context.Context, spec cloud.LaunchSpec) error {
	w, _, err := p.valid(spec)
	if w != nil { // also of what is refused: it is given back, and nobody is to be asked for it elsewhere
		if rerr := p.remember(spec.ID, w); rerr != nil {
			return rerr
		}
	}
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	volumes := ownVolumes(&spec)
	if volumes {
		if err := w.keepVolumes(ctx, &spec); err != nil {
			return refused(ctx, w.place(), err)
		}
	}
	if spec.Login.Complete() {
		if err := w.keepLogin(ctx, spec.ID, spec.User, spec.Login); err != nil {
			return refused(ctx, w.place(), err)
		}
	}
	if len(spec.Ports) == 0 {
		return nil
	}
	return refused(ctx, w.place(), w.open(ctx, spec.ID, spec.User, spec.Ports))
}

// valid refuses what can never work, without asking anybody. It says where also
// then, if that is known.
func (p *Provider) valid(spec cloud.LaunchSpec) (w *target, size podSize, err error) {
	place := spec.Offer.Place
	invalid := func(err error) (*target, podSize, error) {
		return w, size, &cloud.InvalidError{Place: place, Err: err}
	}
	if err := validName(spec.ID.Name); err != nil {
		return invalid(err)
	}
	if spec.Offer.Zone != "" {
		return invalid(errors.New("Kubernetes contexts have no zones"))
	}
	if size, err = sizeOf(spec.Offer); err != nil {
		return invalid(err)
	}
	if w, err = p.at(place.Region, spec.Settings); err != nil {
		return nil, size, err
	}
	if docker, _ := w.conf.EnableDocker.(bool); docker || w.conf.EnableDocker != nil && w.conf.EnableDocker != false {
		return invalid(errors.New("kubernetes.enable_docker is not supported: run a container builder as a container of kubernetes.pod_config"))
	}
	if err := w.checkMounts(&spec); err != nil {
		return invalid(err)
	}
	return w, size, nil
}

// Launch makes the pods that are missing, all at once, and waits until every
// one runs.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	w, size, err := p.valid(spec)
	if err != nil {
		return nil, err
	}
	done, err := p.turns.Lock(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := p.onlyHere(ctx, spec.ID, w); err != nil {
		return nil, err
	}
	if err := p.remember(spec.ID, w); err != nil {
		return nil, err
	}
	l := &launch{target: w, spec: spec, trouble: &p.trouble, times: cmp.Or(p.times, defaultGangTimes), pod: podRequest{spec: spec, conf: w.conf, size: size, shell: w.conf.bringsShell()}}
	err = l.run(ctx)
	if is[*shellError](err) && !l.pod.shell {
		l.pod.shell = true
		err = l.run(ctx)
	}
	if err != nil {
		return nil, refused(ctx, w.place(), err)
	}
	return w.nodes(ctx, spec.ID)
}

// onlyHere refuses a cluster that has pods in another context.
func (p *Provider) onlyHere(ctx context.Context, id cloud.ClusterID, here *target) error {
	known, err := p.remembered(id)
	if err != nil {
		return err
	}
	for _, k := range known {
		if k.Context == here.context && k.Namespace == here.namespace {
			continue
		}
		other, err := p.at(k.Context, nil)
		if err != nil {
			continue // that context is gone, and its pods with it
		}
		other.namespace = k.Namespace
		nodes, err := other.nodes(ctx, id)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(nodes, func(n cloud.Node) bool { return n.State != cloud.NodeGone }) {
			return &cloud.InvalidError{Place: here.place(), Err: fmt.Errorf("the cluster has pods in namespace %s of context %s, and a cluster is in one place", k.Namespace, k.Context)}
		}
	}
	return nil
}

// launch is one call of Launch.
type launch struct {
	*target
	spec    cloud.LaunchSpec
	pod     podRequest
	trouble *trouble
	times   gangTimes
	// slowVolumes are shared ones and those that are yet to be made.
	slowVolumes bool
}

// trouble is since when pods have waited for what may never come. It outlives a
// call, as calls are repeated: patience is for a pod, not for each look at it.
type trouble struct {
	mu    sync.Mutex
	begun map[string]time.Time // by pod
}

// troubleAge is when the trouble of a pod that nobody has asked for since is
// forgotten.
const troubleAge = time.Hour

// since is when a pod's trouble began; now if it has none.
func (t *trouble) since(uid string, troubled bool, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !troubled {
		delete(t.begun, uid)
		return now
	}
	if at, ok := t.begun[uid]; ok {
		return at
	}
	maps.DeleteFunc(t.begun, func(_ string, at time.Time) bool { return now.Sub(at) > troubleAge })
	if t.begun == nil {
		t.begun = map[string]time.Time{}
	}
	t.begun[uid] = now
	return now
}

func (l *launch) run(ctx context.Context) error {
	have, version, err := l.pods(ctx, l.spec.ID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(have, func(p pod) bool { return p.shell() != "" }) {
		l.pod.shell = true
	}
	var missing []int
	var dead []pod
	for rank := range l.spec.Nodes {
		if !slices.ContainsFunc(have, func(p pod) bool { return p.rank() == rank && l.good(&p) }) {
			missing = append(missing, rank)
		}
	}
	for i := range have {
		if !l.good(&have[i]) {
			dead = append(dead, have[i])
		}
	}
	if len(missing) > 0 || slices.ContainsFunc(have, func(p pod) bool { return p.Status.Phase == "Pending" }) {
		if err := l.readyVolumes(ctx); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		if err := l.survey(ctx); err != nil {
			return err
		}
		if err := l.remove(ctx, nodesOf(l.spec.ID), dead); err != nil {
			return err
		}
		if err := l.create(ctx, missing); err != nil {
			return err
		}
		if len(dead) > 0 { // what was removed since must not be taken for the new
			version = ""
		}
	}
	return l.wait(ctx, version)
}

// good reports whether a pod is, or may become, what this launch wants.
func (l *launch) good(p *pod) bool {
	hopeless := l.pod.shell && p.shell() == "" && p.Status.Phase != "Running"
	return !p.ended() && p.Metadata.DeletionTimestamp == nil && !hopeless
}

// choice is which nodes this launch may use.
func (l *launch) choice() choice {
	return choice{allowedNodes: l.conf.AllowedNodes, spot: l.spec.Offer.Spot, fast: l.spec.NetworkTier == "best"}
}

// survey finds out which nodes have what the pods want.
func (l *launch) survey(ctx context.Context) error {
	size, conf := l.pod.size, l.conf
	best := l.spec.NetworkTier == "best"
	if size.accelerator == "" && len(conf.AllowedNodes.IPs) == 0 && !best {
		return nil
	}
	inv, err := l.target.survey(ctx, false)
	if err != nil {
		return err
	}
	for i := range inv.nodes {
		if slices.Contains(conf.AllowedNodes.IPs, inv.nodes[i].address()) {
			l.pod.conf.AllowedNodes.Names = append(slices.Clone(l.pod.conf.AllowedNodes.Names), inv.nodes[i].Metadata.Name)
		}
	}
	if best {
		l.pod.network, l.pod.adapters = join(inv.matching(size, l.choice()), size)
		if l.pod.network == nil {
			_, why := inv.fit(size, l.choice())
			return &cloud.CapacityError{Place: l.place(), Err: errors.New(why)}
		}
	}
	if size.accelerator == "" {
		return nil
	}
	d := placement{resource: deviceKey(size.accelerator), extra: map[string]string{}}
	for _, m := range inv.matching(size, l.choice()) {
		d.label, d.resource = m.label, m.deviceKey
		if !slices.Contains(d.values, m.value) {
			d.values = append(d.values, m.value)
		}
	}
	if f := growthFormatter(conf, inv.formatter); f != nil && f.write != nil {
		key := f.keys[0]
		if strings.HasPrefix(size.accelerator, "tpu-") && len(f.keys) > 1 {
			key = f.keys[1]
		}
		if d.label == "" || d.label == key {
			d.label = key
			if v := f.write(size.accelerator); !slices.Contains(d.values, v) {
				d.values = append(d.values, v)
			}
		}
	}
	if d.label == "" {
		_, why := inv.fit(size, l.choice())
		return &cloud.CapacityError{Place: l.place(), Err: errors.New(why)}
	}
	slices.Sort(d.values)
	if t := topologies[size.accelerator][int(size.accelerators)]; t != "" {
		d.extra[gkeTopology] = t
	}
	l.pod.devices = d
	if d.resource == nvidiaKey {
		_, err := l.Resource(runtimesResource).Get(ctx, "nvidia", metav1.GetOptions{ResourceVersion: cached})
		switch {
		case err == nil:
			l.pod.runtime = "nvidia"
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		default:
			return err
		}
	}
	return nil
}

// create makes the pods of these ranks. After a refusal none is begun.
func (l *launch) create(ctx context.Context, ranks []int) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, rank := range ranks {
		g.Go(func() error { return l.createOne(gctx, rank) })
	}
	return g.Wait()
}

// conflicts is how often a create is repeated that met another's change, as of
// a quota.
const conflicts = 5

func (l *launch) createOne(ctx context.Context, rank int) error {
	spare := false
	for try := 1; ; try++ {
		name := podName(l.spec.ID, rank, spare)
		err := cloud.Settled(ctx, func(ctx context.Context) error {
			return l.make(ctx, podsResource, l.pod.describe(rank, name))
		})
		switch {
		case err == nil:
			return nil
		case taken(err):
			whose, oerr := l.owner(ctx, name)
			if oerr != nil {
				return oerr
			}
			switch whose {
			case ours:
				return nil // another attempt, or one of ours whose answer was lost
			case going, nobody:
				if err := l.gone(ctx, name); err != nil {
					return err
				}
			case theirs:
				if spare {
					return &cloud.InvalidError{Place: l.place(), Err: fmt.Errorf("pods of others have the names that the cluster's would have: %w", err)}
				}
				spare = true
			}
		case apierrors.IsConflict(err) && try < conflicts:
			if err := pause(ctx, time.Duration(try)*50*time.Millisecond); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// make creates an object.
func (w *target) make(ctx context.Context, of schema.GroupVersionResource, o obj) error {
	b, err := json.Marshal(o)
	if err != nil {
		return &cloud.InvalidError{Place: w.place(), Err: fmt.Errorf("what the configuration patches into it cannot be sent: %w", err)}
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(b); err != nil {
		return &cloud.InvalidError{Place: w.place(), Err: err}
	}
	_, err = w.Resource(of).Namespace(w.namespace).Create(ctx, u, metav1.CreateOptions{FieldManager: "sky"})
	return err
}

// whose says to whom a pod of a name that we want belongs.
type whose int

const (
	nobody whose = iota // there is none any more
	ours
	going // it is about to go
	theirs
)

func (l *launch) owner(ctx context.Context, name string) (whose, error) {
	u, err := l.Resource(podsResource).Namespace(l.namespace).Get(ctx, name, metav1.GetOptions{})
	if absent(err) {
		return nobody, nil
	}
	if err != nil {
		return nobody, err
	}
	p, err := as[pod](u)
	if err != nil {
		return nobody, err
	}
	mine := true
	for key, value := range l.spec.ID.Tags() {
		mine = mine && p.Metadata.Labels[key] == value
	}
	switch {
	case p.Metadata.DeletionTimestamp != nil:
		return going, nil
	case mine && !p.ended():
		return ours, nil
	case mine:
		return going, l.remove(ctx, nodesOf(l.spec.ID), []pod{*p})
	}
	return theirs, nil
}

func (p *pod) rank() int {
	rank, err := strconv.Atoi(p.Metadata.Labels[cloud.TagRank])
	if err != nil {
		return -1
	}
	return rank
}

// pods lists a cluster's pods, or everything of an installation.
func (w *target) pods(ctx context.Context, id cloud.ClusterID) ([]pod, string, error) {
	return w.chosen(ctx, nodesOf(id))
}

// nodesOf selects the pods that are a cluster's nodes.
func nodesOf(id cloud.ClusterID) string {
	labels := id.Tags()
	labels[cloud.TagRank] = "" // whatever it is
	return selector(labels)
}

// chosen lists the pods that a selector of labels chooses.
func (w *target) chosen(ctx context.Context, by string) ([]pod, string, error) {
	return list[pod](ctx, w.client, podsResource, w.namespace, metav1.ListOptions{LabelSelector: by})
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

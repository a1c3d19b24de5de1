package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skypilot-go/sky/internal/cloud"
)

// event is what something in the cluster said about an object.
type event struct {
	Metadata metadata `json:"metadata"`
	About    struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"involvedObject"`
	Type    string      `json:"type"` // Normal, Warning
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Last    metav1.Time `json:"lastTimestamp"`
	Time    metav1.Time `json:"eventTime"` // where Last is missing
	Series  *struct {
		Last metav1.Time `json:"lastObservedTime"`
	} `json:"series"`
}

// at is when it was said last.
func (e *event) at() time.Time {
	t := e.Metadata.CreationTimestamp.Time
	for _, u := range []time.Time{e.Last.Time, e.Time.Time} {
		if u.After(t) {
			t = u
		}
	}
	if e.Series != nil && e.Series.Last.After(t) {
		t = e.Series.Last.Time
	}
	return t
}

func (e *event) String() string {
	return strings.TrimSuffix(e.Reason+": "+strings.TrimSpace(e.Message), ": ")
}

// tries reports whether an event says no more than that a volume is being made.
func (e *event) tries() bool {
	return e.Type != "Warning" && (e.Reason == "Provisioning" || e.Reason == "ExternalProvisioning")
}

// claimEvents are the last event of each claim by its UID that says anything:
// while making a volume fails again and again, so does the news that it is tried.
// What the account may not see, nobody said.
func (w *target) claimEvents(ctx context.Context) (map[string]*event, error) {
	events, _, err := list[event](ctx, w.client, eventsResource, w.namespace, metav1.ListOptions{FieldSelector: "involvedObject.kind=PersistentVolumeClaim"})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	last := map[string]*event{}
	for i := range events {
		e := &events[i]
		if e.About.Kind != "PersistentVolumeClaim" {
			continue
		}
		had := last[e.About.UID]
		if had == nil || had.tries() && !e.tries() || had.tries() == e.tries() && !e.at().Before(had.at()) {
			last[e.About.UID] = e
		}
	}
	return last, err
}

// claimYoung is how long a claim may have no volume before that counts as a
// trouble, if nothing else is said: to make one takes its time, and pods that
// mount it wait as long.
const claimYoung = 3 * time.Minute

// readiness reports whether a claim can be mounted, or will be when something
// mounts it; why not, if not. waits is whether its storage class makes disks
// then; said is the claim's last event, age how long it is there. It is pure.
func readiness(c *claim, waits bool, said *event, age time.Duration) (ready bool, why string) {
	if why := unusable(c); why != "" {
		return false, why
	}
	switch {
	case c.bound():
		return true, ""
	case said != nil && said.Type == "Warning":
		return false, said.String()
	case waits, said != nil && said.Reason == "WaitForFirstConsumer", age < claimYoung:
		return true, ""
	case said == nil:
		return false, "it has no volume yet, and nothing was said about it"
	}
	return false, said.String()
}

// LookAtVolumes asks each namespace once for its claims and pods.
func (p *Provider) LookAtVolumes(ctx context.Context, vs []cloud.Volume) ([]cloud.VolumeState, error) {
	out := make([]cloud.VolumeState, len(vs))
	type group struct {
		*target
		of []int
	}
	groups := map[[2]string]*group{}
	for i := range vs {
		w, err := p.whereOf(&vs[i])
		if err != nil {
			out[i].Unknown = err
			continue
		}
		key := [2]string{w.context, w.namespace}
		if groups[key] == nil {
			groups[key] = &group{target: w}
		}
		groups[key].of = append(groups[key].of, i)
	}
	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() {
			limited, cancel := context.WithTimeout(ctx, surveyTimeout)
			defer cancel()
			if err := g.lookAt(limited, vs, out, g.of); err != nil {
				for _, i := range g.of {
					out[i] = cloud.VolumeState{Unknown: refused(ctx, g.place(), err)}
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var errs []error
	for i := range out {
		if out[i].Unknown != nil {
			errs = append(errs, out[i].Unknown)
		}
	}
	if len(errs) > 0 && len(errs) == len(out) {
		return nil, firstProof(errs)
	}
	return out, nil
}

// lookAt fills in what those of the volumes are that are in this namespace.
func (w *target) lookAt(ctx context.Context, vs []cloud.Volume, out []cloud.VolumeState, of []int) error {
	asked := time.Now()
	var claims []claim
	var pods []pod
	g, gctx := errgroup.WithContext(ctx)
	if slices.ContainsFunc(of, func(i int) bool { return vs[i].Type == cloud.VolumeClaim }) {
		g.Go(func() (err error) {
			claims, _, err = list[claim](gctx, w.client, claimsResource, w.namespace, metav1.ListOptions{})
			return err
		})
	}
	g.Go(func() (err error) {
		pods, err = w.allPods(gctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	byName := map[string]*claim{}
	for i := range claims {
		byName[claims[i].Metadata.Name] = &claims[i]
	}
	users := usersOf(pods)
	waits, said, err := w.pending(ctx, vs, of, byName)
	if err != nil {
		return err
	}
	for _, i := range of {
		v, s := &vs[i], &out[i]
		*s = cloud.VolumeState{Asked: asked}
		var by []*pod
		if v.Type == cloud.VolumeHostPath {
			s.Exists, s.Ready = true, true
			by = users.folders[v.HostPath]
		} else {
			c := byName[claimName(v)]
			if s.Exists = c != nil && (v.Existing || c.ours(v)); !s.Exists {
				s.Reason = "there is no such claim in namespace " + w.namespace
				if c != nil {
					s.Reason = "the claim " + c.Metadata.Name + " in namespace " + w.namespace + " has not the labels that sky gave it"
				}
				continue
			}
			s.SizeGB = c.sizeGB()
			s.Ready, s.Reason = readiness(c, waits[c.Spec.Class], said[c.Metadata.UID], asked.Sub(c.Metadata.CreationTimestamp.Time))
			by = users.claims[claimName(v)]
		}
		for _, p := range by {
			s.Pods = append(s.Pods, p.Metadata.Name)
			if p.rank() >= 0 && v.Installation != "" && p.Metadata.Labels[cloud.TagInstallation] == v.Installation {
				n, err := p.node(w.place())
				if err != nil {
					return err
				}
				s.Nodes = append(s.Nodes, n)
			}
		}
	}
	return nil
}

// pending finds out about claims that have no volume yet: which storage classes
// make disks when a pod wants them, and what was said last of each claim.
func (w *target) pending(ctx context.Context, vs []cloud.Volume, of []int, claims map[string]*claim) (waits map[string]bool, said map[string]*event, err error) {
	if !slices.ContainsFunc(of, func(i int) bool {
		c := claims[claimName(&vs[i])]
		return c != nil && !c.bound()
	}) {
		return nil, nil, nil
	}
	classes, _, err := w.classes(ctx)
	if err != nil {
		return nil, nil, err
	}
	waits = map[string]bool{}
	for i := range classes {
		waits[classes[i].Metadata.Name] = classes[i].waits()
	}
	said, err = w.claimEvents(ctx)
	return waits, said, err
}

// using is which pods mount what, in the order of their names.
type using struct {
	claims, folders map[string][]*pod
}

func usersOf(pods []pod) using {
	u := using{map[string][]*pod{}, map[string][]*pod{}}
	slices.SortFunc(pods, func(a, b pod) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	note := func(m map[string][]*pod, key string, p *pod) {
		if key != "" && !slices.Contains(m[key], p) {
			m[key] = append(m[key], p)
		}
	}
	for i := range pods {
		if pods[i].ended() || pods[i].Metadata.Labels[labelCleans] != "" {
			continue
		}
		for _, v := range pods[i].Spec.Volumes {
			note(u.claims, v.Claim.Name, &pods[i])
			note(u.folders, v.HostPath.Path, &pods[i])
		}
	}
	return u
}

// claimTroubles says of each of these claims that has no volume yet why; of those
// that have one, on which machines it can be used only.
func (w *target) claimTroubles(ctx context.Context, names []string) (unbound, fixed []string, err error) {
	said, err := w.claimEvents(ctx)
	var errs []error
	errs = append(errs, err)
	for _, name := range names {
		c, err := w.claim(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if c != nil && c.bound() {
			if at := w.fixedTo(ctx, c); at != "" {
				fixed = append(fixed, "the volume of claim "+name+" can be used on "+at+" only")
			}
			continue
		}
		why := unusable(c)
		if why == "" {
			why = "it has no volume yet, and nothing was said about it"
			if e := said[c.Metadata.UID]; e != nil {
				why = cmp.Or(e.String(), why)
			}
		}
		unbound = append(unbound, "claim "+name+": "+why)
	}
	return unbound, fixed, errors.Join(errs...)
}

// persistent is a PersistentVolume.
type persistent struct {
	Spec struct {
		Affinity struct {
			Required struct {
				Terms []struct {
					Expressions []struct {
						Key      string   `json:"key"`
						Operator string   `json:"operator"`
						Values   []string `json:"values"`
					} `json:"matchExpressions"`
				} `json:"nodeSelectorTerms"`
			} `json:"required"`
		} `json:"nodeAffinity"`
	} `json:"spec"`
}

// fixedTo is where alone a bound claim can be mounted, as far as the account may
// know; "": anywhere.
func (w *target) fixedTo(ctx context.Context, c *claim) string {
	u, err := w.Resource(volumesResource).Get(ctx, c.Spec.Volume, metav1.GetOptions{})
	if err != nil {
		if node := c.Metadata.Annotations[selectedNode]; node != "" {
			return "the machine that it was made for, " + node + ", or near it,"
		}
		return ""
	}
	v, err := as[persistent](u)
	if err != nil {
		return ""
	}
	var terms []string
	for _, t := range v.Spec.Affinity.Required.Terms {
		var all []string
		for _, e := range t.Expressions {
			what := e.Key + " " + e.Operator
			switch {
			case e.Operator == "In" && e.Key == "kubernetes.io/hostname":
				what = "machine"
			case e.Operator == "In" && strings.HasSuffix(e.Key, "/zone"):
				what = "machines in zone"
			}
			all = append(all, what+" "+strings.Join(e.Values, ", "))
		}
		terms = append(terms, strings.Join(all, " and "))
	}
	return strings.Join(terms, " or ")
}

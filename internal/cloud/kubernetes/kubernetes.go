// Package kubernetes rents pods. A context of the kubeconfig is a region, a
// node is a pod of any image that has a shell, and what identifies it are
// labels. Pods are reached through the API server alone: no port is opened,
// and nothing needs to be installed in the image or in the cluster.
//
// A pod cannot be stopped. It gives itself back by ending its first process with
// a code of its own, so that no pod needs rights in the cluster.
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

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
)

// Name is what users write after "infra:".
const Name = "kubernetes"

// MaxNameLength leaves room in a pod's name for its rank.
const MaxNameLength = 42

// DefaultImage is what runs when a task names none.
const DefaultImage = "ubuntu:24.04"

// Options say what the provider works with.
type Options struct {
	Contexts *Contexts
	// Dir is where it is remembered in which context each cluster is.
	Dir string
	// Sections are the settings that hold where no task's are given; nil: none.
	Sections func() catalog.Sections
	// Everywhere are the settings of every workspace: where clusters may be of which
	// nobody remembers where they are. nil: Sections say enough.
	Everywhere func() []catalog.Sections
}

// Provider rents pods.
type Provider struct {
	o       Options
	turns   cloud.KeyedLock
	trouble trouble
	times   gangTimes // zero: the default

	mu      sync.Mutex
	surveys map[string]*surveyed // by context, of nodes and pods
}

// surveyed is a survey that is made or was made lately.
type surveyed struct {
	done chan struct{}
	inv  *inventory
	err  error
	at   time.Time // when it was done
}

// surveyAge is how old a list for people may be: what they ask for at once is
// counted once.
const surveyAge = 2 * time.Second

// lately is what a context looked like within surveyAge, with what is free.
func (p *Provider) lately(ctx context.Context, w *target) (*inventory, error) {
	for {
		p.mu.Lock()
		s, mine := p.surveys[w.context], false
		if s == nil || !s.at.IsZero() && time.Since(s.at) > surveyAge {
			s, mine = &surveyed{done: make(chan struct{})}, true
			if p.surveys == nil {
				p.surveys = map[string]*surveyed{}
			}
			p.surveys[w.context] = s
		}
		p.mu.Unlock()
		if mine {
			inv, err := w.survey(ctx, true)
			p.mu.Lock()
			s.inv, s.err, s.at = inv, err, time.Now()
			if err != nil {
				delete(p.surveys, w.context)
			}
			p.mu.Unlock()
			close(s.done)
			return inv, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.done:
		}
		if s.err == nil {
			return s.inv, nil // nobody changes it
		}
	}
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider { return &Provider{o: o} }

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "Kubernetes" }

// Features says what pods cannot be asked for.
func (p *Provider) Features() cloud.Features {
	const pods = "the nodes are pods"
	return cloud.Features{Containers: true, PortsMade: true, MaxNameLength: MaxNameLength, Lacks: map[cloud.Feature]string{
		cloud.FeatureStop:      pods + ", which cannot be stopped; sky down gives them back",
		cloud.FeatureAutostop:  pods + ", which cannot be stopped; use autodown (--down)",
		cloud.FeatureDiskTier:  pods + " and use the disks of their machines",
		cloud.FeatureLocalDisk: pods + " and use the disks of their machines",
		cloud.FeatureCloneDisk: pods + " and have no disks to clone",
		cloud.FeatureImage:     pods + ", which run container images: image_id: docker:NAME",
		cloud.FeatureStorage: pods + ", which can mount nothing: kubernetes.pod_config gives their container no right to (privileged, or the capability SYS_ADMIN and a fuse device of a device plugin), and " +
			"kubernetes.mount_broker does not say that the broker of sky-mount is on their machines; mode: COPY works",
	}}
}

func (p *Provider) sections() catalog.Sections {
	if p.o.Sections == nil {
		return func(string) map[string]any { return nil }
	}
	return p.o.Sections()
}

// errNone says that there is nothing to talk to.
var errNone = errors.New("there is no Kubernetes context to use")

// contexts are those that may be used.
func (p *Provider) contexts(sections catalog.Sections) ([]string, error) {
	names, err := p.o.Contexts.usable(sections("")["allowed_contexts"])
	if err != nil {
		return nil, &cloud.AuthError{Cloud: Name, Err: err, Fix: "mend the file, or point KUBECONFIG at another"}
	}
	if len(names) == 0 {
		return nil, &cloud.AuthError{Cloud: Name, Err: errNone, Fix: "put the cluster's kubeconfig into ~/.kube/config and choose a context: kubectl config use-context NAME", NotSetUp: true}
	}
	return names, nil
}

// target is one context, with the settings that hold in it.
type target struct {
	*client
	conf      settings
	namespace string
}

func (w *target) place() cloud.Place { return cloud.Place{Cloud: Name, Region: w.context} }

// at finds a context and what holds there.
func (p *Provider) at(context string, section map[string]any) (*target, error) {
	place := cloud.Place{Cloud: Name, Region: context}
	if section[config.OnlyAllowedContexts] == true {
		// Its credentials are not even looked at: that may run a program.
		names, err := p.o.Contexts.usable(section["allowed_contexts"])
		if err == nil && !slices.Contains(names, context) {
			err = fmt.Errorf("context %q is not one of those that kubernetes.allowed_contexts of the server lets you use: %s", context, strings.Join(names, ", "))
		}
		if err != nil {
			return nil, &cloud.InvalidError{Place: place, Err: err}
		}
	}
	k, err := p.o.Contexts.client(context)
	if err != nil {
		if is[*contextError](err) {
			return nil, &cloud.InvalidError{Place: place, Err: err}
		}
		return nil, &cloud.AuthError{Cloud: Name, Region: context, Err: err, Fix: "mend the kubeconfig; try: kubectl --context " + quoted(context) + " get pods"}
	}
	conf, err := newSettings(section)
	if err != nil {
		return nil, &cloud.InvalidError{Place: place, Err: err}
	}
	w := &target{client: k, conf: conf, namespace: conf.Namespace}
	if w.namespace == "" {
		w.namespace = k.namespace
	}
	return w, nil
}

// checkTimeout is how long a cluster may take to answer when it is asked whether
// it is there.
const checkTimeout = 5 * time.Second

// Check succeeds when one context lets us see nodes and pods.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	places, err := p.CheckPlaces(ctx, "", p.sections())
	if err != nil {
		return nil, err
	}
	var id cloud.Identity
	var errs []error
	for _, c := range places {
		if c.Err == nil {
			id = append(id, c.Who)
		} else {
			errs = append(errs, c.Err)
		}
	}
	if len(id) == 0 {
		return nil, firstProof(errs)
	}
	return id, nil
}

// CheckPlaces tries the contexts in use.
func (p *Provider) CheckPlaces(ctx context.Context, only string, sections func(string) map[string]any) ([]cloud.CheckedPlace, error) {
	names := []string{only}
	if only == "" {
		var err error
		if names, err = p.contexts(sections); err != nil {
			return nil, err
		}
	}
	places := make([]cloud.CheckedPlace, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			places[i].Region = name
			places[i].Who, places[i].Err = p.checkOne(ctx, name, sections(name))
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return places, nil
}

// CheckContext succeeds when that context could be used with these settings, and
// says who we are there. used reports whether the settings let it be used.
func (p *Provider) CheckContext(ctx context.Context, name string, sections catalog.Sections) (who string, used bool, err error) {
	if who, err = p.checkOne(ctx, name, sections(name)); err != nil {
		return "", false, err
	}
	names, err := p.contexts(sections)
	if err != nil && !errors.Is(err, errNone) {
		return "", false, err
	}
	return who, slices.Contains(names, name), nil
}

// firstProof prefers what says something about the credentials.
func firstProof(errs []error) error {
	for _, err := range errs {
		if !is[*cloud.UnreachableError](err) {
			return err
		}
	}
	return errs[0]
}

func (p *Provider) checkOne(ctx context.Context, name string, section map[string]any) (string, error) {
	w, err := p.at(name, section)
	if err != nil {
		return "", err
	}
	if err := unlessBusy(ctx, func() error { return w.check(ctx) }); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s_%s", p.o.Contexts.owner(w.context), w.namespace), nil
}

// check succeeds when the context lets us see nodes and pods, and make pods.
func (w *target) check(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	g, gctx := errgroup.WithContext(limited)
	see := func(of schema.GroupVersionResource, namespace string) {
		g.Go(func() error {
			_, err := w.Resource(of).Namespace(namespace).List(gctx, metav1.ListOptions{Limit: 1})
			return err
		})
	}
	see(podsResource, w.namespace)
	see(nodesResource, "")
	g.Go(func() error { return w.mayRent(gctx) })
	if err := g.Wait(); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			if w.busy.lately(checkTimeout) {
				return throttled(w.place(), errors.New("its last answer was 429 Too Many Requests"))
			}
			return &cloud.UnreachableError{Err: &cloud.OverdueError{Err: fmt.Errorf("the API server of context %s (%s) did not answer within %v", quoted(w.context), w.rest.Host, checkTimeout)}}
		}
		return refused(ctx, w.place(), err)
	}
	return nil
}

// look is what one context looks like.
type look struct {
	*target
	inv *inventory
	err error
}

// look surveys the contexts in use, or the one named. The error is about all of
// them.
func (p *Provider) look(ctx context.Context, sections catalog.Sections, only string, free bool) ([]look, error) {
	names := []string{only}
	if only == "" {
		var err error
		if names, err = p.contexts(sections); err != nil {
			return nil, err
		}
	}
	looks := make([]look, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			l := &looks[i]
			if l.target, l.err = p.at(name, sections(name)); l.err != nil {
				return
			}
			limited, cancel := context.WithTimeout(ctx, surveyTimeout)
			defer cancel()
			l.err = unlessBusy(limited, func() (err error) {
				if free {
					l.inv, err = p.lately(limited, l.target)
				} else {
					l.inv, err = l.survey(limited, false)
				}
				return refused(ctx, l.place(), err)
			})
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return looks, nil
}

// surveyTimeout is how long a context may take to list its nodes and pods.
const surveyTimeout = 15 * time.Second

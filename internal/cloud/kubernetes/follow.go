package kubernetes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skypilot-go/sky/internal/cloud"
)

const (
	// awayPatience is how long an API server may be away, as when it restarts,
	// while something is waited for.
	awayPatience = time.Minute
	// awayPause is between two tries to reach it.
	awayPause = 500 * time.Millisecond
	// watchLeast is what a watch lasts at least, on average: behind a proxy that
	// ends them at once the API server is not asked faster than this.
	watchLeast = time.Second
	// lookAgain bounds how long nothing is judged while time alone matters.
	lookAgain = 5 * time.Second
)

// follower keeps pods as the API server tells of them.
type follower struct {
	*target
	by      string          // the selector that chooses them
	have    map[string]*pod // by UID
	synced  bool            // have is complete
	shrank  bool            // one of them went
	version string
	watch   watch.Interface
	away    time.Time // since when the API server does not answer
	begun   time.Time // when the last watch began
}

// follow begins with a list. version is what an earlier list was of; it saves
// nothing yet but is where the API server's memory must reach to.
func (w *target) follow(by, version string) *follower {
	return &follower{target: w, by: by, have: map[string]*pod{}, version: version}
}

func (f *follower) stop() {
	if f.watch != nil {
		f.watch.Stop()
		f.watch = nil
	}
}

// next returns when something changed, at limit, or soon if time alone may
// change what is to be done.
func (f *follower) next(ctx context.Context, limit time.Time, restless bool) error {
	if f.watch == nil {
		if early := time.Until(f.begun.Add(watchLeast)); early > 0 && !f.begun.IsZero() {
			if err := pause(ctx, early); err != nil {
				return err
			}
		}
		f.begun = time.Now()
		err := f.begin(ctx)
		if err == nil {
			f.away = time.Time{}
			return nil
		}
		return f.missing(ctx, err)
	}
	d := time.Until(limit)
	if limit.IsZero() {
		d = time.Hour
	}
	if restless {
		d = min(d, lookAgain)
	}
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	case e, ok := <-f.watch.ResultChan():
		if !ok {
			f.stop() // the API server went, or ends watches now and then
			return nil
		}
		return f.take(e)
	}
	return nil
}

// begin lists, and watches from there.
func (f *follower) begin(ctx context.Context) error {
	pods, version, err := f.chosen(ctx, f.by)
	if err != nil {
		return err
	}
	w, err := f.Resource(podsResource).Namespace(f.namespace).Watch(ctx, metav1.ListOptions{
		LabelSelector: f.by, ResourceVersion: version, AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	had := f.have
	f.have, f.version, f.watch = map[string]*pod{}, version, w
	for i := range pods {
		f.have[pods[i].Metadata.UID] = &pods[i]
	}
	for uid := range had {
		if f.have[uid] == nil {
			f.shrank = true
		}
	}
	f.synced = true
	return nil
}

// missing waits for an API server that does not answer, for a while.
func (f *follower) missing(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	translated := refused(ctx, f.place(), err)
	if !is[*cloud.UnreachableError](translated) && !is[*cloud.ThrottledError](translated) {
		return translated
	}
	now := time.Now()
	if f.away.IsZero() {
		f.away = now
	}
	if now.Sub(f.away) >= awayPatience {
		return fmt.Errorf("the API server is away since %v: %w", awayPatience, translated)
	}
	return pause(ctx, awayPause)
}

func (f *follower) take(e watch.Event) error {
	if e.Type == watch.Error {
		f.stop()
		if err := apierrors.FromObject(e.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsInternalError(err) {
			return err
		}
		return nil
	}
	u, ok := e.Object.(*unstructured.Unstructured)
	if !ok || e.Type == watch.Bookmark {
		return nil
	}
	p, err := as[pod](u)
	if err != nil {
		return err
	}
	switch e.Type {
	case watch.Deleted:
		f.shrank = true
		delete(f.have, p.Metadata.UID)
	default:
		f.have[p.Metadata.UID] = p
	}
	return nil
}

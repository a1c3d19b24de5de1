package kubernetes

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// stuckAfter is how long a pod that has a node may start before it is looked
	// up what its machine says of it.
	stuckAfter = 10 * time.Second
	// stuckPause is between two such looks.
	stuckPause = 10 * time.Second
	// stuckTimeout bounds one.
	stuckTimeout = 5 * time.Second
)

// stuck finds out why a pod does not start although it has a node: the volume
// that cannot be attached, the network that is not there. Its status does not
// say, only events do.
type stuck struct {
	*launch
	pod    string // UID of the one that is asked about
	begun  time.Time
	looked time.Time
	said   string
}

// why is what was said last about the pod, " (FailedMount: ...)"; "" is nothing.
// A look that fails is made again later.
func (s *stuck) why(ctx context.Context, p *pod, now time.Time) string {
	if s.pod != p.Metadata.UID {
		*s = stuck{launch: s.launch, pod: p.Metadata.UID, begun: now}
	}
	if now.Sub(s.begun) < stuckAfter || now.Sub(s.looked) < stuckPause {
		return s.said
	}
	s.looked = now
	ctx, cancel := context.WithTimeout(ctx, stuckTimeout)
	defer cancel()
	events, _, err := list[event](ctx, s.client, eventsResource, s.namespace, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Pod,involvedObject.uid=" + p.Metadata.UID,
	})
	if err != nil {
		return s.said
	}
	s.said = ""
	if e := complaint(events); e != nil {
		said := e.String()
		if e.Type != "Warning" {
			said = e.Message
		}
		s.said = " (" + said + ")"
	}
	return s.said
}

// complaint is the latest warning about a pod that has a node, or that an image
// is being pulled; nil is nothing.
func complaint(events []event) *event {
	events = slices.DeleteFunc(slices.Clone(events), func(e event) bool {
		if e.Type == "Warning" {
			return e.Reason == "FailedScheduling" // that is over
		}
		return e.Reason != "Pulling" && e.Reason != "Pulled"
	})
	if len(events) == 0 {
		return nil
	}
	e := slices.MaxFunc(events, func(a, b event) int {
		return cmp.Or(a.at().Compare(b.at()), strings.Compare(a.Type, b.Type)) // in one second a Warning counts
	})
	if e.Reason == "Pulled" {
		return nil
	}
	return &e
}

package aws

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// What is made is not known everywhere in AWS at once: a call that names it may
// not find it for a while, and a list may lack it.

const (
	// settleTries is how often something new is looked for before it counts as
	// missing, a poll apart.
	settleTries = 15
	// settledBy is after what time lists are believed.
	settledBy = time.Minute
)

// known makes a call about something that sky has made, again while AWS says
// that it does not know the thing. what is waited for then, for people.
func (p *Provider) known(ctx context.Context, what string, young func(error) bool, call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if err == nil || try == settleTries || !young(err) {
			return err
		}
		cloud.Waits(ctx, what)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(p.o.Poll):
		}
	}
}

// What is waited for with known.
const (
	groupKnown = "EC2 to know the security group " // and its id
	roleKnown  = "IAM to know the role " + roleName
)

func newGroup(err error) bool {
	code := codeOf(err)
	return code == "InvalidGroup.NotFound" || code == "InvalidGroupId.NotFound" || code == "InvalidSecurityGroupID.NotFound"
}

func newEntity(err error) bool { return codeOf(err) == "NoSuchEntity" }

// newParts tells that instances could not be had for want of something that sky
// itself makes.
func newParts(profile string) func(error) bool {
	return func(err error) bool {
		return newGroup(err) || codeOf(err) == "InvalidPlacementGroup.Unknown" ||
			profile == roleName && codeOf(err) == "InvalidParameterValue" &&
				(strings.Contains(err.Error(), "Invalid IAM Instance Profile") || strings.Contains(err.Error(), "has no associated IAM Roles"))
	}
}

// refused tells that AWS said no to a call, which therefore made nothing.
func refused(err error) bool {
	api, ok := apiError(err)
	if !ok {
		return false
	}
	m := meaningOf(api)
	return m != theirs && (m != other || status(err) < 500)
}

// fresh remembers what was lately made for clusters, so that it is given back
// although no list has it yet. The zero value is ready.
type fresh struct {
	mu sync.Mutex
	of map[cloud.ClusterID]*making
}

// making is what was made for one cluster. Its maps say in which region each
// thing is.
type making struct {
	instances, groups, placements map[string]string
	lost                          time.Time // when a call's answer was lost that may have made more
	last                          time.Time
}

// with lets f change what is remembered of a cluster.
func (r *fresh) with(id cloud.ClusterID, f func(*making)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[cloud.ClusterID]*making{}
	}
	for other, m := range r.of {
		if other != id && time.Since(m.last) > settledBy { // every list has it
			delete(r.of, other)
		}
	}
	m := r.of[id]
	if m == nil {
		m = &making{instances: map[string]string{}, groups: map[string]string{}, placements: map[string]string{}}
		r.of[id] = m
	}
	m.last = time.Now()
	f(m)
}

func (r *fresh) lost(id cloud.ClusterID) { r.with(id, func(m *making) { m.lost = time.Now() }) }

// forget is for clusters that are gone.
func (r *fresh) forget(id cloud.ClusterID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, id)
}

// things are what was made for a cluster.
func (r *fresh) things(id cloud.ClusterID) (m making) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.of[id]; have != nil {
		m = making{instances: maps.Clone(have.instances), groups: maps.Clone(have.groups), placements: maps.Clone(have.placements), lost: have.lost, last: have.last}
	}
	return m
}

// unsure tells that lists may lack something of the cluster's.
func (m making) unsure() bool { return time.Since(m.lost) < settledBy }

// young tells that something of the cluster's was made so lately that a call may
// not know it.
func (m making) young() bool { return time.Since(m.last) < settledBy }

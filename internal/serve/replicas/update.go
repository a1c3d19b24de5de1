package replicas

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/skypilot-go/sky/internal/serve/spec"
	"github.com/skypilot-go/sky/task"
)

// Mode is how a version replaces the one before.
type Mode string

// Modes of updates.
const (
	Rolling   Mode = "rolling"    // replica by replica
	BlueGreen Mode = "blue_green" // all at once, when enough are ready
	Canary    Mode = "canary"     // a share of the requests, until it is promoted or rolled back
)

// Version is a version of a service's task.
type Version struct {
	Number int
	Spec   *spec.Spec
}

// Update is where a service stands between its versions. It is stored.
type Update struct {
	Mode   Mode           `json:"mode,omitempty"`
	Weight float64        `json:"weight,omitempty"` // of a canary, in percent; 0: as its task says
	Stable int            `json:"stable,omitempty"` // the version that has taken over last; 0: none was ever ready
	Failed map[int]string `json:"failed,omitempty"` // versions that were rolled back, and why
	Proven []int          `json:"proven,omitempty"` // versions of which a replica was ready
}

// Begin is the state when a version was added. Traffic of versions is counted
// from now on.
func (s State) Begin(mode Mode, weight float64) State {
	s.Update.Mode, s.Update.Weight = mode, weight
	return s
}

// Promote lets a canary take over.
func (s State) Promote() (State, error) {
	if s.Update.Mode != Canary {
		return s, fmt.Errorf("no canary is running; update the service in the mode canary first")
	}
	s.Update.Mode, s.Update.Weight = Rolling, 0
	return s, nil
}

// Rollback gives up a version that has not taken over.
func (s State) Rollback(version int, why string) (State, error) {
	switch {
	case version <= s.Update.Stable:
		return s, fmt.Errorf("version %d has taken over already; update the service to what it was before", version)
	case s.Update.Stable == 0:
		return s, fmt.Errorf("there is no version to go back to")
	}
	s.Update.Failed = maps.Clone(s.Update.Failed)
	if s.Update.Failed == nil {
		s.Update.Failed = map[int]string{}
	}
	s.Update.Failed[version] = why
	s.Update.Mode, s.Update.Weight = Rolling, 0
	return s, nil
}

// wanted is the newest version that was not rolled back.
func (u *Update) wanted(versions []Version) int {
	for i := len(versions) - 1; i >= 0; i-- {
		if _, failed := u.Failed[versions[i].Number]; !failed {
			return versions[i].Number
		}
	}
	return 0
}

// Needed reports whether anything may still need a version: those that came before the one
// that has taken over are only needed by the replicas that they have.
func (u *Update) Needed(version int, rows []Replica) bool {
	return version >= u.Stable || slices.ContainsFunc(rows, func(r Replica) bool { return r.Version == version })
}

func (u *Update) proven(version int) bool { return slices.Contains(u.Proven, version) }

// prove notes versions of which a replica is, or was, ready. The first of all to
// be ready needs nothing to take over from.
func (u *Update) prove(rows []Replica) {
	if u.Stable == 0 {
		for i := range rows {
			if r := &rows[i]; r.Ready() {
				u.Stable = max(u.Stable, r.Version)
			}
		}
	}
	for i := range rows {
		if r := &rows[i]; !r.FirstReady.IsZero() && !u.proven(r.Version) {
			u.Proven = append(slices.Clone(u.Proven), r.Version)
			slices.Sort(u.Proven)
		}
	}
}

// hopeless says why a version is not launched again: none of its replicas was
// ever ready, and one has failed in a way that others will, too.
func (u *Update) hopeless(rows []Replica, version int) string {
	if u.proven(version) {
		return ""
	}
	for i := range rows {
		if r := &rows[i]; r.Version == version && r.Failure.Final() {
			return fmt.Sprintf("replica %d of version %d: %s", r.ID, version, r.Reason)
		}
	}
	return ""
}

// worse says why a canary is to be rolled back; "" if it is not.
func worse(l *Load, u spec.Update, old, canary int) string {
	a, b := l.Versions[old], l.Versions[canary]
	if text := exceeds("requests", a.Errors, a.Requests, b.Errors, b.Requests, u, old, canary); text != "" {
		return text
	}
	return exceeds("probes", a.ProbeFailures, a.Probes, b.ProbeFailures, b.Probes, u, old, canary)
}

// exceeds judges a canary once it has had enough requests, or before as soon as it
// failed so many that the rest cannot make up for it: a balancer keeps requests from
// replicas that fail, so these would not get enough of them for long.
func exceeds(what string, oldBad, oldAll, newBad, newAll int, u spec.Update, old, canary int) string {
	if newAll == 0 {
		return ""
	}
	was, least := 0.0, float64(newBad)/float64(max(newAll, u.MinRequests))
	if oldAll > 0 {
		was = float64(oldBad) / float64(oldAll)
	}
	if least <= was+u.ErrorMargin {
		return ""
	}
	return fmt.Sprintf("%d of %d %s of version %d failed, and %.1f%% of those of version %d; at most %.1f%% more are let pass (service.update.error_margin)",
		newBad, newAll, what, canary, 100*was, old, 100*u.ErrorMargin)
}

// canaries is how many replicas a canary gets, beside those of the old version.
func canaries(final int, weight float64) int {
	if final == 0 {
		return 0
	}
	return max(1, int(math.Ceil(float64(final)*weight/100-1e-9)))
}

// notLaunched are the fields of a task that a running replica does not depend on. A
// mapping without files to mount is that of the service's certificate.
var notLaunched = []string{"Service", "Pool", "UserYAML", "Metadata", "FileMountsMapping"}

// SameReplicas reports that two tasks differ in nothing that a running replica was
// launched with, so that its replicas become the new version's as they are. A
// task with files is never the same: their content may have changed.
func SameReplicas(a, b *task.Task) bool {
	for _, t := range []*task.Task{a, b} {
		if len(t.FileMounts) > 0 || len(t.StorageMounts) > 0 || t.Workdir != "" || t.Git != nil {
			return false
		}
	}
	if (a.Service == nil) != (b.Service == nil) || a.Service != nil && a.Service.Ports != b.Service.Ports {
		return false
	}
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		f := x.Type().Field(i)
		if f.IsExported() && !slices.Contains(notLaunched, f.Name) && !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			return false
		}
	}
	return true
}

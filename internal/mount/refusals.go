//go:build linux

package mount

import (
	"slices"
	"sync"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/owner"
)

// refusals are the calls of jobs that failed on a mount, for the logs of the jobs: programs
// show no more than the number of an error.
type refusals struct {
	mu   sync.Mutex
	list []mountapi.Refusal // the oldest first
}

// add keeps a call of a process, if it belongs to a job. Of calls that fail for the same
// reason the first one is kept.
func (r *refusals) add(pid int, call, path string, err error) {
	rank := owner.Of(pid)
	if rank == "" {
		return
	}
	x := mountapi.Refusal{Rank: rank, Call: call, Path: path, Error: err.Error()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.list, func(y mountapi.Refusal) bool { return y.Rank == x.Rank && y.Error == x.Error }) {
		return
	}
	r.list = append(r.list, x)
	if n := len(r.list) - mountapi.MaxRefusals; n > 0 {
		r.list = slices.Delete(r.list, 0, n)
	}
}

func (r *refusals) all() []mountapi.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

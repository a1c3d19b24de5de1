package aws

import (
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skypilot-go/sky/internal/cloud"
)

// step is what a launch does next.
type step struct {
	start  []string       // ids to switch on
	create []int          // ranks that no instance has, asked for in one call
	seat   map[string]int // ranks to be written onto instances, by id
	done   bool           // every rank runs and is written
}

// notStarted says why an instance that was made ended before it ran.
func notStarted(at cloud.Place, i instance) error {
	err := fmt.Errorf("%s was lost while it started (%s)", i.id, i.why())
	region := cloud.Place{Cloud: at.Cloud, Region: at.Region}
	switch i.reasonCode {
	case "Client.VolumeLimitExceeded":
		return &cloud.QuotaError{Place: region, Err: err}
	case "Client.InternalError", "Client.InvalidParameterValue":
		return &cloud.InvalidError{Place: region, Err: fmt.Errorf("%w; AWS ends machines so whose disk is encrypted with a key that these credentials may not use", err)}
	case "Client.InvalidSnapshot.NotFound":
		return &cloud.InvalidError{Place: region, Err: fmt.Errorf("%w; the snapshot of its image is gone", err)}
	}
	return &cloud.CapacityError{Place: at, Err: err}
}

// waitsFor says what a launch waits for, for people.
func waitsFor(spec cloud.LaunchSpec, list []instance) string {
	running := func(i instance) bool { return i.state == types.InstanceStateNameRunning }
	on := 0
	for _, i := range list {
		if running(i) {
			on++
		}
	}
	if on == spec.Nodes {
		return "AWS to list the ranks of the machines"
	}
	return machinesTo("run", spec.Nodes, list, running)
}

// next decides how to get from the cluster's instances to what spec asks for.
// Stopped ones are resumed before any is created, and what is on its way to
// stop is waited for. mine are the instances that this launch has started or
// made: one of them that is gone was not to be had, and one that is not listed
// yet exists all the same.
func next(spec cloud.LaunchSpec, list []instance, mine map[string]bool) (step, error) {
	list = slices.Clone(list)
	unlisted := 0
	for id := range mine {
		if !slices.ContainsFunc(list, func(i instance) bool { return i.id == id }) {
			unlisted++
		}
	}
	var s step
	existing, running := 0, 0
	settled := unlisted == 0
	for _, i := range list {
		switch i.state {
		case types.InstanceStateNameTerminated, types.InstanceStateNameShuttingDown:
			if mine[i.id] {
				return step{}, notStarted(spec.Offer.Place, i)
			}
			continue
		case types.InstanceStateNameRunning:
			running++
		case types.InstanceStateNamePending:
		case types.InstanceStateNameStopping:
			settled = false
		case types.InstanceStateNameStopped:
			s.start = append(s.start, i.id)
		default:
			return step{}, unknownState(i)
		}
		existing++
		if i.region != spec.Offer.Region || !i.inZone(spec.Offer.Zone) {
			return step{}, &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("the cluster has machines in %s already; a cluster is in one zone", i.zone)}
		}
	}
	if existing > spec.Nodes {
		return step{}, fmt.Errorf("%d machines carry this cluster's tags, but %d were asked for; they may be leaking. To remove them all, run: sky down %s",
			existing, spec.Nodes, spec.ID.Name)
	}
	byRank := map[int]string{}
	unwritten := 0
	for _, i := range list {
		switch {
		case !i.exists():
		case i.rank < 0:
			unwritten++
		case i.rank >= spec.Nodes || byRank[i.rank] != "":
			return step{}, fmt.Errorf("machines of this cluster hold the ranks of another: %s has rank %d of %d. To remove them all, run: sky down %s",
				i.id, i.rank, spec.Nodes, spec.ID.Name)
		default:
			byRank[i.rank] = i.id
		}
	}
	var missing []int
	for rank := range spec.Nodes {
		if byRank[rank] == "" {
			missing = append(missing, rank)
		}
	}
	switch {
	case !settled || len(s.start) > 0:
	case unwritten >= len(missing):
		s.seat = seated(list)
	default:
		// Some of those that a call made may not be listed yet. The call for all
		// ranks that nobody is known to have, made again, tells.
		s.create = missing
	}
	slices.Sort(s.start)
	s.done = running == spec.Nodes && len(s.seat) == 0
	return s, nil
}

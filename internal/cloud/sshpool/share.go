package sshpool

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
)

// request is what one node of a cluster needs of a machine.
type request struct {
	size
	// whole asks for a machine that no other cluster has a part of. Else the node gets
	// a share of the machine's size, and others may have the rest.
	whole bool
	ports []string // that it listens on, which no other share of the machine may
}

// sharePrefix begins the instance type of a share: share-4CPU--16GB--H100:1. Without
// it the type is that of a machine.
const sharePrefix = "share-"

func (r request) name() string {
	if r.whole {
		return r.size.name()
	}
	return sharePrefix + r.size.name()
}

func parseRequest(name string) (request, error) {
	rest, share := strings.CutPrefix(name, sharePrefix)
	s, err := parseSize(rest)
	return request{size: s, whole: !share}, err
}

func (r request) offer(pool string) cloud.Offer {
	o := r.size.offer(pool)
	o.InstanceType = r.name()
	return o
}

// room is what is left of a machine.
type room struct {
	size         // of the whole machine
	cpus, memory float64
	devices      []int    // free accelerators, by index
	ports        []string // that clusters listen on
	shares       int      // that clusters have of it
	taken        bool     // a cluster has the whole machine
}

// slack forgives what sums of fractions lose.
const slack = 1e-6

// roomOf subtracts from a machine what clusters have of it. A share that is bigger
// than what is left, as on a machine that has shrunk, leaves nothing.
func roomOf(machine size, taken []*folder.Share) room {
	r := room{size: machine, cpus: machine.cpus, memory: machine.memoryGiB, devices: slices.Clone(machine.devices)}
	for _, t := range taken {
		if t == nil {
			return room{size: machine, taken: true, shares: len(taken)}
		}
		r.shares++
		r.cpus, r.memory = max(0, r.cpus-t.CPUs), max(0, r.memory-t.MemoryGiB)
		r.ports = append(r.ports, t.Ports...)
		r.devices = slices.DeleteFunc(r.devices, func(i int) bool { return slices.Contains(t.GPUs, i) })
	}
	return r
}

// fit is the share that a request gets of what is left, nil for the whole machine;
// ok is false if there is no room.
func (r *room) fit(want request) (share *folder.Share, ok bool) {
	switch {
	case r.taken || !r.size.holds(want.size):
		return nil, false
	case want.whole:
		return nil, r.shares == 0
	case r.cpus+slack < want.cpus, r.memory+slack < want.memoryGiB, float64(len(r.devices)) < want.accelerators:
		return nil, false
	case r.meets(want.ports) != "":
		return nil, false
	}
	share = &folder.Share{CPUs: want.cpus, MemoryGiB: want.memoryGiB, Ports: want.ports}
	if n := int(want.accelerators); n > 0 {
		share.Accelerator, share.GPUs = r.accelerator, slices.Clone(r.devices[:n])
	}
	return share, true
}

// meets is the first of the ports that a cluster on the machine listens on already; "":
// none is.
func (r *room) meets(ports []string) string {
	for _, p := range ports {
		for _, o := range r.ports {
			a, b, err1 := cloud.PortRange(p)
			c, d, err2 := cloud.PortRange(o)
			if err1 == nil && err2 == nil && a <= d && c <= b {
				return p
			}
		}
	}
	return ""
}

// compare orders machines for one more node: those that are shared already first, so
// that whole ones stay free, then those with the fewest accelerators left, then small ones.
func (r *room) compare(o *room) int {
	shared := func(r *room) int { return min(r.shares, 1) }
	return cmp.Or(cmp.Compare(shared(o), shared(r)), cmp.Compare(len(r.devices), len(o.devices)), r.size.compare(o.size), cmp.Compare(r.cpus, o.cpus))
}

// free says what is left, for users.
func (r *room) free() string {
	if r.taken {
		return "nothing free"
	}
	text := fmt.Sprintf("%s of %s CPUs, %s of %s GB", number(round(r.cpus)), number(r.size.cpus), number(round(r.memory)), number(r.size.memoryGiB))
	if r.accelerator != "" {
		text += fmt.Sprintf(", %d of %s %s", len(r.devices), number(r.accelerators), r.accelerator)
	}
	return text + " free"
}

func round(f float64) float64 { return math.Round(f*100) / 100 }

// sized is the share of a machine for what a task names. What it does not name is the
// same part of the machine as the largest part that it does. ok is false if the
// machine is too small.
func sized(machine size, cpus, memory, accelerators float64, memoryPerCPU bool) (s size, ok bool) {
	part := 0.0
	of := func(n, all float64) {
		if all > 0 {
			part = max(part, n/all)
		}
	}
	of(cpus, machine.cpus)
	of(accelerators, machine.accelerators)
	if !memoryPerCPU {
		of(memory, machine.memoryGiB)
	}
	down := func(f float64) float64 { // never more than the part, and no long fractions
		if f >= 1 {
			return math.Floor(f + slack)
		}
		return math.Floor(f*100+slack) / 100
	}
	s = size{cpus: cpus, memoryGiB: memory, accelerators: accelerators}
	if s.cpus == 0 {
		s.cpus = down(part * machine.cpus)
	}
	switch {
	case memoryPerCPU:
		s.memoryGiB = memory * s.cpus
	case memory == 0:
		s.memoryGiB = down(part * machine.memoryGiB)
	}
	if accelerators > 0 {
		s.accelerator = machine.accelerator
	}
	return s, s.cpus > 0 && accelerators <= machine.accelerators && machine.holds(s)
}

package sshpool

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// size is what a machine has.
type size struct {
	cpus         float64
	memoryGiB    float64 // whole ones: no two machines have quite the same
	accelerator  string
	accelerators float64
	devices      []int // the accelerators' indexes on the machine; of machines only
	limits       bool  // what a share has of CPUs and memory can be enforced; of machines only
}

// name is the size as an instance type, in the same way as for pods.
func (s size) name() string {
	return cloud.Size{CPUs: s.cpus, MemoryGiB: s.memoryGiB, Accelerator: s.accelerator, Accelerators: s.accelerators}.String()
}

func parseSize(name string) (size, error) {
	s, ok := cloud.ParseSize(name)
	if !ok {
		return size{}, fmt.Errorf("%q is no machine of a pool; they are called like 8CPU--32GB or 8CPU--32GB--H100:2", name)
	}
	return size{cpus: s.CPUs, memoryGiB: s.MemoryGiB, accelerator: s.Accelerator, accelerators: s.Accelerators}, nil
}

// holds reports whether a machine has at least what another has.
func (s size) holds(o size) bool {
	return s.cpus >= o.cpus && s.memoryGiB >= o.memoryGiB &&
		(o.accelerator == "" || strings.EqualFold(s.accelerator, o.accelerator) && s.accelerators >= o.accelerators)
}

// compare orders from small to large: what has accelerators is taken last.
func (s size) compare(o size) int {
	return cmp.Or(cmp.Compare(s.accelerators, o.accelerators), cmp.Compare(s.accelerator, o.accelerator),
		cmp.Compare(s.cpus, o.cpus), cmp.Compare(s.memoryGiB, o.memoryGiB))
}

func (s size) offer(pool string) cloud.Offer {
	o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: region(pool)}, InstanceType: s.name(), CPUs: s.cpus, MemoryGiB: s.memoryGiB}
	if s.accelerator != "" {
		o.Accelerators = map[string]float64{s.accelerator: s.accelerators}
	}
	return o
}

// newSize is that of a machine, with what nvidia-smi lists. Of several kinds of
// accelerators the most numerous counts.
func newSize(cpus, memoryKiB float64, gpus string) size {
	s := size{cpus: cpus, memoryGiB: math.Floor(memoryKiB / (1 << 20))}
	if s.memoryGiB == 0 {
		s.memoryGiB = math.Floor(memoryKiB/(1<<20)*10) / 10
	}
	for name, n := range cloud.NVIDIAAccelerators(gpus) {
		s.accelerator, s.accelerators = name, n
	}
	for i, line := range slices.Collect(strings.Lines(gpus)) {
		if s.accelerator != "" && cloud.NVIDIAAccelerators(line)[s.accelerator] > 0 {
			s.devices = append(s.devices, i)
		}
	}
	return s
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

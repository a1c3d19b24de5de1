package sshpool

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// shape is what a machine has.
type shape struct {
	cpus         float64
	memoryGiB    float64 // whole ones: no two machines have quite the same
	accelerator  string
	accelerators float64
	devices      []int // the accelerators' indexes on the machine; of machines only
	limits       bool  // what a share has of CPUs and memory can be enforced; of machines only
}

// name is how the shape is written as an instance type, in the same way as for
// the virtual machines of Kubernetes: 8CPU--32GB--H100:2.
func (s shape) name() string {
	n := number(s.cpus) + "CPU--" + number(s.memoryGiB) + "GB"
	if s.accelerator != "" {
		n += "--" + s.accelerator + ":" + number(s.accelerators)
	}
	return n
}

var shapeName = lazyregexp.New(`^(\d+(?:\.\d+)?)CPU--(\d+(?:\.\d+)?)GB(?:--([\w.-]+):(\d+(?:\.\d+)?))?$`)

func parseShape(name string) (shape, error) {
	m := shapeName.FindStringSubmatch(name)
	if m == nil {
		return shape{}, fmt.Errorf("%q is no machine of a pool; they are called like 8CPU--32GB or 8CPU--32GB--H100:2", name)
	}
	s := shape{accelerator: m[3]}
	s.cpus, _ = strconv.ParseFloat(m[1], 64)
	s.memoryGiB, _ = strconv.ParseFloat(m[2], 64)
	s.accelerators, _ = strconv.ParseFloat(m[4], 64)
	return s, nil
}

// holds reports whether a machine has at least what another has.
func (s shape) holds(o shape) bool {
	return s.cpus >= o.cpus && s.memoryGiB >= o.memoryGiB &&
		(o.accelerator == "" || strings.EqualFold(s.accelerator, o.accelerator) && s.accelerators >= o.accelerators)
}

// compare orders from small to large: what has accelerators is taken last.
func (s shape) compare(o shape) int {
	return cmp.Or(cmp.Compare(s.accelerators, o.accelerators), cmp.Compare(s.accelerator, o.accelerator),
		cmp.Compare(s.cpus, o.cpus), cmp.Compare(s.memoryGiB, o.memoryGiB))
}

func (s shape) offer(pool string) cloud.Offer {
	o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: region(pool)}, InstanceType: s.name(), CPUs: s.cpus, MemoryGiB: s.memoryGiB}
	if s.accelerator != "" {
		o.Accelerators = map[string]float64{s.accelerator: s.accelerators}
	}
	return o
}

// newShape is that of a machine, with what nvidia-smi lists. Of several kinds of
// accelerators the most numerous counts.
func newShape(cpus, memoryKiB float64, gpus string) shape {
	s := shape{cpus: cpus, memoryGiB: math.Floor(memoryKiB / (1 << 20))}
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

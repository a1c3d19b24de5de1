package sshpool

import (
	"cmp"
	"fmt"
	"maps"
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

// holds tells whether a machine has at least what another has.
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

// newShape takes the accelerators that are most numerous.
func newShape(cpus, memoryKiB float64, gpus map[string]float64) shape {
	s := shape{cpus: cpus, memoryGiB: math.Floor(memoryKiB / (1 << 20))}
	if s.memoryGiB == 0 {
		s.memoryGiB = math.Floor(memoryKiB/(1<<20)*10) / 10
	}
	for _, name := range slices.Sorted(maps.Keys(gpus)) {
		if gpus[name] > s.accelerators {
			s.accelerator, s.accelerators = name, gpus[name]
		}
	}
	return s
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

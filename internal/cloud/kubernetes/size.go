package kubernetes

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/skypilot-go/sky/internal/cloud"
)

// podSize is the size of a pod, or of what a node has.
type podSize struct {
	cpus         float64
	memoryGB     float64
	accelerator  string
	accelerators float64
}

// name is the size as an instance type.
func (s podSize) name() string {
	return cloud.Size{CPUs: s.cpus, MemoryGiB: s.memoryGB, Accelerator: s.accelerator, Accelerators: s.accelerators}.String()
}

func (s podSize) String() string {
	text := fmt.Sprintf("%s CPUs and %s GB of memory", number(round(s.cpus)), number(round(s.memoryGB)))
	if s.accelerators > 0 {
		name := s.accelerator
		if name == "" {
			name = "GPU"
		}
		text = fmt.Sprintf("%s:%s, %s", name, number(s.accelerators), text)
	}
	return text
}

func parseSize(name string) (podSize, error) {
	s, ok := cloud.ParseSize(name)
	if !ok || s.Accelerators != math.Trunc(s.Accelerators) {
		return podSize{}, fmt.Errorf("%q is no size of a pod; they are written like 4CPU--16GB or 8CPU--32GB--H100:2", name)
	}
	return podSize{s.CPUs, s.MemoryGiB, s.Accelerator, s.Accelerators}, nil
}

// sizeOf is the size that an offer stands for.
func sizeOf(o cloud.Offer) (podSize, error) {
	if o.InstanceType != "" {
		return parseSize(o.InstanceType)
	}
	s := podSize{cpus: o.CPUs, memoryGB: o.MemoryGiB}
	for _, name := range slices.Sorted(maps.Keys(o.Accelerators)) {
		s.accelerator, s.accelerators = name, math.Ceil(o.Accelerators[name])
	}
	return s, nil
}

// offer is a pod of this size in a context.
func (s podSize) offer(context string, prices pricing) cloud.Offer {
	o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: context}, InstanceType: s.name(), CPUs: s.cpus, MemoryGiB: s.memoryGB, HourlyPrice: prices.of(s)}
	if s.accelerator != "" {
		o.Accelerators = map[string]float64{s.accelerator: s.accelerators}
	}
	return o
}

func number(f float64) string  { return strconv.FormatFloat(f, 'f', -1, 64) }
func round(f float64) float64  { return math.Round(f*10) / 10 }
func floor1(f float64) float64 { return math.Floor(f*10) / 10 }

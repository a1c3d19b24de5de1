package kubernetes

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// shape is the size of a pod, or of what a node has.
type shape struct {
	cpus         float64
	memoryGB     float64
	accelerator  string
	accelerators float64
}

// name is how the shape is written as an instance type: 4CPU--16GB--H100:1.
func (s shape) name() string {
	n := number(s.cpus) + "CPU--" + number(s.memoryGB) + "GB"
	if s.accelerator != "" {
		n += "--" + s.accelerator + ":" + number(s.accelerators)
	}
	return n
}

func (s shape) String() string {
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

var shapeName = lazyregexp.New(`^(\d+(?:\.\d+)?)CPU--(\d+(?:\.\d+)?)GB(?:--([\w.-]+):(\d+))?$`)

func parseShape(name string) (shape, error) {
	m := shapeName.FindStringSubmatch(name)
	if m == nil {
		return shape{}, fmt.Errorf("%q is no size of a pod; they are written like 4CPU--16GB or 8CPU--32GB--H100:2", name)
	}
	s := shape{accelerator: m[3]}
	s.cpus, _ = strconv.ParseFloat(m[1], 64)
	s.memoryGB, _ = strconv.ParseFloat(m[2], 64)
	s.accelerators, _ = strconv.ParseFloat(m[4], 64)
	return s, nil
}

// shapeOf is the size that an offer stands for.
func shapeOf(o cloud.Offer) (shape, error) {
	if o.InstanceType != "" {
		return parseShape(o.InstanceType)
	}
	s := shape{cpus: o.CPUs, memoryGB: o.MemoryGiB}
	for _, name := range slices.Sorted(maps.Keys(o.Accelerators)) {
		s.accelerator, s.accelerators = name, math.Ceil(o.Accelerators[name])
	}
	return s, nil
}

// offer is a pod of this size in a context.
func (s shape) offer(context string, prices pricing) cloud.Offer {
	o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: context}, InstanceType: s.name(), CPUs: s.cpus, MemoryGiB: s.memoryGB, HourlyPrice: prices.of(s)}
	if s.accelerator != "" {
		o.Accelerators = map[string]float64{s.accelerator: s.accelerators}
	}
	return o
}

func number(f float64) string  { return strconv.FormatFloat(f, 'f', -1, 64) }
func round(f float64) float64  { return math.Round(f*10) / 10 }
func floor1(f float64) float64 { return math.Floor(f*10) / 10 }

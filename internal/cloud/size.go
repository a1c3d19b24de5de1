package cloud

import (
	"strconv"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Size is what a machine or a pod has, where no cloud names kinds of machines.
type Size struct {
	CPUs         float64
	MemoryGiB    float64
	Accelerator  string
	Accelerators float64
}

// String is the size as an instance type: 4CPU--16GB or 8CPU--32GB--H100:2.
func (s Size) String() string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	n := number(s.CPUs) + "CPU--" + number(s.MemoryGiB) + "GB"
	if s.Accelerator != "" {
		n += "--" + s.Accelerator + ":" + number(s.Accelerators)
	}
	return n
}

var sizes = lazyregexp.New(`^(\d+(?:\.\d+)?)CPU--(\d+(?:\.\d+)?)GB(?:--([\w.-]+):(\d+(?:\.\d+)?))?$`)

// ParseSize reads what [Size.String] writes; false if the text is nothing of the kind.
func ParseSize(text string) (s Size, ok bool) {
	m := sizes.FindStringSubmatch(text)
	if m == nil {
		return s, false
	}
	s.Accelerator = m[3]
	s.CPUs, _ = strconv.ParseFloat(m[1], 64)
	s.MemoryGiB, _ = strconv.ParseFloat(m[2], 64)
	s.Accelerators, _ = strconv.ParseFloat(m[4], 64)
	return s, true
}

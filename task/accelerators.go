package task

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// memoryName matches accelerators asked for by their memory: 80GB, 80GB+.
var memoryName = lazyregexp.New(`^([0-9]+)([GgMmTt])[Bb](\+)?$`)

// ParseAccelerator reads "A100", "A100:8", "80GB+:4", "nvidia:80GB+:4".
func ParseAccelerator(s string) (Accelerator, error) {
	text := strings.TrimSpace(s)
	parts := strings.Split(text, ":")
	bad := fmt.Errorf("should be NAME or NAME:COUNT, such as A100:8; not %q", s)
	name, count := parts[0], ""
	switch len(parts) {
	case 1:
	case 2:
		if memoryName.MatchString(parts[1]) {
			name = text
		} else {
			count = parts[1]
			if count == "" {
				return Accelerator{}, bad
			}
		}
	case 3:
		if !memoryName.MatchString(parts[1]) {
			return Accelerator{}, bad
		}
		name, count = parts[0]+":"+parts[1], parts[2]
		if count == "" {
			return Accelerator{}, bad
		}
	default:
		return Accelerator{}, bad
	}
	if name == "" || strings.HasPrefix(name, ":") || strings.ContainsAny(name, "\t\n\r,{}[]") {
		return Accelerator{}, bad
	}
	a := Accelerator{Name: name, Count: 1}
	if count != "" {
		n, ok := parseDecimal(strings.TrimSpace(count))
		if !ok && !strings.HasPrefix(count, "-") {
			return Accelerator{}, bad
		}
		if n <= 0 || math.IsInf(n, 0) {
			return Accelerator{}, fmt.Errorf("should ask for more than 0 of %s, not %s", name, count)
		}
		a.Count = n
	}
	return a, nil
}

// String is the canonical text: "A100:8".
func (a Accelerator) String() string { return a.Name + ":" + formatNumber(a.Count) }

// DeviceMemory is an accelerator named by what it holds instead of what it is.
type DeviceMemory struct {
	Maker   string // "nvidia"; "" any
	GB      float64
	AtLeast bool
}

// Memory reports whether a asks for any accelerator with some memory, such as
// "80GB+"; the catalog then knows the names.
func (a Accelerator) Memory() (DeviceMemory, bool) {
	maker, size, ok := strings.Cut(a.Name, ":")
	if !ok {
		maker, size = "", a.Name
	}
	m := memoryName.FindStringSubmatch(size)
	if m == nil {
		return DeviceMemory{}, false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return DeviceMemory{}, false
	}
	return DeviceMemory{Maker: strings.ToLower(maker), GB: n * gbPerUnit[strings.ToLower(m[2])[0]], AtLeast: m[3] != ""}, true
}

func checkAccelerator(s string) error {
	_, err := ParseAccelerator(s)
	return err
}

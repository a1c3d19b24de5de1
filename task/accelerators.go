package task

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// memoryName matches accelerators asked for by their memory: 80GB, 80GB+.
var memoryName = lazyregexp.New(`^([0-9]+)([GgMmTt])[Bb](\+)?$`)

// ParseAccelerator reads "A100", "A100:8", "80GB+:4", "nvidia:80GB+:4". Spaces around
// each part do not count.
func ParseAccelerator(s string) (Accelerator, error) {
	a, _, err := readAccelerator(s)
	return a, err
}

// readAccelerator is ParseAccelerator; counted reports whether s gives a count.
func readAccelerator(s string) (a Accelerator, counted bool, err error) {
	bad := fmt.Errorf("should be NAME or NAME:COUNT, such as A100:8; not %q", s)
	parts := strings.Split(s, ":")
	for i := range parts {
		if parts[i] = strings.TrimSpace(parts[i]); parts[i] == "" {
			return a, false, bad
		}
	}
	a = Accelerator{Name: parts[0], Count: 1}
	rest := parts[1:]
	if len(rest) > 0 && memoryName.MatchString(rest[0]) {
		a.Name += ":" + rest[0]
		rest = rest[1:]
	}
	if len(rest) > 1 || strings.ContainsAny(a.Name, "\t\n\r,{}[]") {
		return Accelerator{}, false, bad
	}
	if len(rest) == 0 {
		return a, false, nil
	}
	n, ok := parseDecimal(rest[0])
	if !ok && !strings.HasPrefix(rest[0], "-") {
		return Accelerator{}, false, bad
	}
	if n <= 0 || math.IsInf(n, 0) {
		return Accelerator{}, false, fmt.Errorf("should ask for more than 0 of %s, not %s", a.Name, rest[0])
	}
	a.Count = n
	return a, true, nil
}

// String is the canonical text: "A100:8".
func (a Accelerator) String() string { return a.Name + ":" + yaml11.FormatNumber(a.Count) }

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

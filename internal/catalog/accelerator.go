package catalog

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/task"
)

//go:embed data/accelerators.csv
var acceleratorCSV string

// Accelerator is what is known of a GPU or TPU wherever it is rented.
type Accelerator struct {
	Name     string
	MemoryGB float64 // of one device; 0: unknown
	Maker    string  // lower case
}

// Accelerators lists the devices that sky knows by name. Clouds may offer more.
func Accelerators() []Accelerator { return knownAccelerators() }

var (
	knownAccelerators = sync.OnceValue(func() []Accelerator { return parseAccelerators(acceleratorCSV) })
	acceleratorIndex  = sync.OnceValue(func() map[string]int { return indexAccelerators(knownAccelerators()) })
)

func parseAccelerators(text string) []Accelerator {
	var out []Accelerator
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Split(line, ",")
		if i == 0 || len(f) != 3 {
			continue
		}
		mem, _ := strconv.ParseFloat(f[1], 64)
		out = append(out, Accelerator{Name: f[0], MemoryGB: mem, Maker: f[2]})
	}
	return out
}

func indexAccelerators(all []Accelerator) map[string]int {
	m := make(map[string]int, len(all))
	for i, a := range all {
		m[strings.ToLower(a.Name)] = i
	}
	return m
}

// FindAccelerator looks a device up by its exact name in any case.
func FindAccelerator(name string) (Accelerator, bool) {
	i, ok := acceleratorIndex()[strings.ToLower(name)]
	if !ok {
		return Accelerator{}, false
	}
	return knownAccelerators()[i], true
}

// CanonicalAccelerator gives the name that catalogs use for what a user wrote.
// offered adds the names that the clouds in question have. When the text is
// part of several names, those come back and the name is "". A name nobody
// knows stays as it is.
func CanonicalAccelerator(name string, offered []string) (canonical string, matches []string) {
	if a, ok := FindAccelerator(name); ok {
		return a.Name, nil
	}
	low := strings.ToLower(name)
	for _, o := range offered {
		if strings.EqualFold(o, name) {
			return o, nil
		}
	}
	if strings.HasPrefix(low, "tpu-") {
		return low, nil
	}
	seen := map[string]bool{}
	consider := func(n string) {
		if key := strings.ToLower(n); strings.Contains(key, low) && !seen[key] {
			seen[key] = true
			matches = append(matches, n)
		}
	}
	for _, o := range offered {
		consider(o)
	}
	if len(offered) == 0 {
		for _, a := range knownAccelerators() {
			consider(a.Name)
		}
	}
	switch len(matches) {
	case 0:
		return name, nil
	case 1:
		return matches[0], nil
	}
	slices.Sort(matches)
	return "", matches
}

// MemoryRequest is an accelerator asked for by its memory, such as "80GB+" or
// "nvidia:80GB".
type MemoryRequest task.DeviceMemory

// ParseMemoryRequest reads an accelerator name as a request by memory; ok is
// false when it is an ordinary name.
func ParseMemoryRequest(name string) (r MemoryRequest, ok bool) {
	m, ok := task.Accelerator{Name: name}.Memory()
	return MemoryRequest(m), ok
}

// Accelerators lists the known devices that answer the request.
func (r MemoryRequest) Accelerators() []Accelerator {
	var out []Accelerator
	for _, a := range knownAccelerators() {
		if a.MemoryGB == 0 || r.Maker != "" && a.Maker != r.Maker {
			continue
		}
		if a.MemoryGB == r.GB || r.AtLeast && a.MemoryGB > r.GB {
			out = append(out, a)
		}
	}
	return out
}

func (r MemoryRequest) String() string {
	s := strconv.FormatFloat(r.GB, 'f', -1, 64) + "GB"
	if r.AtLeast {
		s += "+"
	}
	if r.Maker != "" {
		s = r.Maker + ":" + s
	}
	return s
}

// FormatCount writes an accelerator with its count: "A100:8", "T4:0.5".
func FormatCount(name string, count float64) string {
	return fmt.Sprintf("%s:%s", name, strconv.FormatFloat(count, 'f', -1, 64))
}

package facts

import (
	"strconv"
	"strings"
)

// TPUHosts is how many machines a TPU slice has, by the name of its accelerator, such as
// "tpu-v5litepod-16"; 0: the name is no slice's. Up to v4, and for v5p, the number in the name
// is of cores, two a chip; for the others of chips. A host has four chips, and up to eight in
// the slices of one host of v5e and v6e.
//
// https://cloud.google.com/tpu/docs/v4, /v5p, /v5e, /v6e: "VM types"
func TPUHosts(name string) int {
	slice, ok := strings.CutPrefix(name, "tpu-")
	kind, size, sized := strings.Cut(slice, "-")
	if !ok || !sized {
		return 0
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 1 {
		return 0
	}
	switch kind {
	case "v2", "v3", "v4", "v5p":
		return (n + 7) / 8
	case "v5litepod", "v6e":
		if n <= 8 {
			return 1
		}
		return (n + 3) / 4
	}
	return 0
}

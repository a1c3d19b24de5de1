package task

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Requested is what a task asks for, as lists show it: 2x[A100:8][Spot].
func (t *Task) Requested() string {
	parts := make([]string, 0, len(t.Resources))
	for _, r := range t.Resources {
		what := "CPU:" + cmp.Or(r.CPUs, "1+")
		if len(r.Accelerators) > 0 {
			what = r.Accelerators[0].Name + ":" + strconv.FormatFloat(r.Accelerators[0].Count, 'f', -1, 64)
		}
		s := "[" + what + "]"
		if r.UseSpot != nil && *r.UseSpot {
			s += "[Spot]"
		}
		if len(parts) == 0 || parts[len(parts)-1] != s {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		parts = []string{"[CPU:1+]"}
	}
	return fmt.Sprintf("%dx%s", max(t.NumNodes, 1), strings.Join(parts, "|"))
}

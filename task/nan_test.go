package task

import (
	"fmt"
	"strings"
	"testing"
)

// NaN is neither below a minimum nor above a maximum.
func TestNaNPassesNoRange(t *testing.T) {
	for _, field := range []string{"num_nodes: %s", "resources: {disk_size: %s}", "resources: {autostop: {idle_minutes: %s}}", "resources: {priority: %s}", "resources: {max_hourly_cost: %s}"} {
		for _, nan := range []string{".nan", ".NaN", ".NAN"} {
			text := fmt.Sprintf(field, nan) + "\nrun: true\n"
			if _, err := Parse("t.yaml", []byte(text)); err == nil {
				t.Errorf("%s was taken", strings.TrimSpace(text))
			}
		}
	}
}

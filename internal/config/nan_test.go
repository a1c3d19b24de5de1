package config

import (
	"math"
	"testing"
)

// NaN is neither below a minimum nor above a maximum.
func TestNaNPassesNoRange(t *testing.T) {
	for _, key := range []string{"hedge_price", "retry_hours", "availability_half_life_minutes"} {
		if _, err := FromMap(Server, Origin{}, map[string]any{"provision": map[string]any{key: math.NaN()}}); err == nil {
			t.Errorf("provision.%s: NaN was taken", key)
		}
		if _, err := FromMap(Server, Origin{}, map[string]any{"provision": map[string]any{key: 2.0}}); err != nil {
			t.Errorf("provision.%s: %v", key, err)
		}
	}
}

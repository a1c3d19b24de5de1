package cloud

import (
	"slices"
	"testing"
)

func TestEachPort(t *testing.T) {
	if got, err := EachPort([]string{"22", "8000-8002"}); err != nil || !slices.Equal(got, []int{22, 8000, 8001, 8002}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"0", "9-8", "65536", "x", ""} {
		if got, err := EachPort([]string{"22", bad}); err == nil || got != nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

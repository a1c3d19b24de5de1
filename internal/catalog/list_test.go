package catalog

import "testing"

// A list can be asked for by the memory of the accelerator, as tasks can.
func TestListByMemory(t *testing.T) {
	for _, c := range []struct {
		filter, name string
		want         bool
	}{
		{"40GB+", "A100", true}, {"40GB+", "H100", true}, {"40GB+", "T4", false},
		{"80GB", "H100", true}, {"80GB", "A100", false}, {"nvidia:16GB", "t4", true},
		{"A100", "A100-80GB", true}, {"^A100$", "A100-80GB", false}, {"a100", "A100", false},
	} {
		q := ListQuery{Name: c.filter, CaseSensitive: true}
		if got := q.matcher()(c.name); got != c.want {
			t.Errorf("%s lists %s: %v", c.filter, c.name, got)
		}
	}
}

package vm

import "testing"

func TestSettingsByRegionAndCluster(t *testing.T) {
	for _, tt := range []struct {
		setting      any
		region, want string
	}{
		{nil, "r", ""}, {"ssh x", "r", "ssh x"}, {map[string]any{"r": "one", "s": nil}, "r", "one"}, {map[string]any{"r": "one", "s": nil}, "s", ""}, {7, "r", ""},
	} {
		if got := ByRegion(tt.setting, tt.region); got != tt.want {
			t.Errorf("%v in %s: %q, want %q", tt.setting, tt.region, got, tt.want)
		}
	}
	list := []any{map[string]any{"train-*": "a"}, map[string]any{"*": "b"}, "odd"}
	for _, tt := range []struct {
		setting       any
		cluster, want string
	}{
		{nil, "c", ""}, {"role", "c", "role"}, {list, "train-1", "a"}, {list, "web", "b"}, {[]any{}, "web", ""},
	} {
		if got := ByCluster(tt.setting, tt.cluster); got != tt.want {
			t.Errorf("%v of %s: %q, want %q", tt.setting, tt.cluster, got, tt.want)
		}
	}
}

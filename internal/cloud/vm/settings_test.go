package vm

import "testing"

func TestSettingsByRegionAndCluster(t *testing.T) {
	for _, tt := range []struct {
		setting      any
		region, want string
	}{
		{nil, "r", ""}, {"ssh x", "r", "ssh x"}, {map[string]any{"r": "one", "s": nil}, "r", "one"}, {map[string]any{"r": "one", "s": nil}, "s", ""}, {7, "r", ""},
		{map[string]any{"": "rest", "s": "one"}, "r", "rest"}, {map[string]any{"": "rest", "s": "one"}, "s", "one"}, {map[string]any{"": "rest", "s": nil}, "s", ""},
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

func TestLabelsAreTexts(t *testing.T) {
	for _, none := range []any{nil, "text", map[string]any{}} {
		if got := Labels(none); got == nil || len(got) > 0 {
			t.Errorf("%v: %v", none, got)
		}
	}
	if got := Labels(map[string]any{"team": "vision", "floor": 3}); len(got) != 2 || got["team"] != "vision" || got["floor"] != "3" {
		t.Errorf("%v", got)
	}
}

func TestSettingsOfOneKind(t *testing.T) {
	settings := map[string]any{"text": "x", "whole": 3, "large": uint64(4), "long": int64(5), "part": 0.5}
	for name, want := range map[string]float64{"text": 7, "none": 7, "whole": 3, "large": 4, "long": 5, "part": 0.5} {
		if got := Number(settings, name, 7); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]string{"text": "x", "whole": "", "none": ""} {
		if got := Setting(settings, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

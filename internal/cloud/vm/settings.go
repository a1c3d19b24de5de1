package vm

import (
	"maps"
	"path"
	"slices"
)

// ByRegion is the text that a setting has for a region: one for all, or a map.
func ByRegion(setting any, region string) string {
	switch v := setting.(type) {
	case string:
		return v
	case map[string]any:
		text, _ := v[region].(string)
		return text
	}
	return ""
}

// ByCluster is the text that a setting has for a cluster: one for all, or a list of
// {pattern: text}, of which the first counts whose pattern fits the cluster's name. A
// pattern is as in "train-*".
func ByCluster(setting any, cluster string) string {
	switch v := setting.(type) {
	case string:
		return v
	case []any:
		for _, entry := range v {
			of, _ := entry.(map[string]any)
			for _, pattern := range slices.Sorted(maps.Keys(of)) {
				if ok, err := path.Match(pattern, cluster); ok && err == nil {
					text, _ := of[pattern].(string)
					return text
				}
			}
		}
	}
	return ""
}

// Setting is the text of a setting of a launch; "": it has none.
func Setting(settings map[string]any, name string) string {
	text, _ := settings[name].(string)
	return text
}

// Number is that of a setting, or the standard where nobody set it.
func Number(settings map[string]any, name string, standard float64) float64 {
	switch v := settings[name].(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return standard
}

// Texts are those of a setting that is one text or a list of them.
func Texts(setting any) []string {
	switch v := setting.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, e := range v {
			if t, ok := e.(string); ok {
				out = append(out, t)
			}
		}
		return out
	}
	return nil
}

package vm

import (
	"fmt"
	"maps"
	"path"
	"slices"
)

// Regional is a text by region; that of "" is for all that are not named.
type Regional map[string]string

// ReadRegional reads a setting that is one text for all regions, or a map.
func ReadRegional(setting any) Regional {
	all := Regional{}
	switch v := setting.(type) {
	case string:
		all[""] = v
	case map[string]any:
		for region, text := range v {
			all[region], _ = text.(string)
		}
	}
	return all
}

// In is the text for a region; "": there is none.
func (r Regional) In(region string) string {
	if text, ok := r[region]; ok {
		return text
	}
	return r[""]
}

// ByRegion is the text that a setting has for a region.
func ByRegion(setting any, region string) string { return ReadRegional(setting).In(region) }

// Labels are those of a setting that is a map. What is no text, such as a number, becomes one.
func Labels(setting any) map[string]string {
	all := map[string]string{}
	labels, _ := setting.(map[string]any)
	for k, v := range labels {
		all[k] = fmt.Sprint(v)
	}
	return all
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

package kubernetes

import (
	"maps"
	"slices"
)

// The rules by which kubernetes.pod_config and custom_metadata are laid over
// what sky makes: maps merge key by key, lists are appended, except for lists
// whose items are known by one of their fields and those that are replaced.
var keyedBy = map[string]string{
	"containers": "name", "initContainers": "name", "ephemeralContainers": "name", "volumes": "name", "resourceClaims": "name",
	"env": "name", "claims": "name", "volumeMounts": "mountPath", "ports": "containerPort", "volumeDevices": "devicePath",
	"hostAliases": "ip", "topologySpreadConstraints": "topologyKey",
}

// merge lays over base and returns the result; neither is changed.
func merge(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for key, v := range over {
		out[key] = mergeValue(key, out[key], v)
	}
	return out
}

func mergeValue(key string, base, over any) any {
	switch o := over.(type) {
	case map[string]any:
		if b, ok := base.(map[string]any); ok {
			return merge(b, o)
		}
	case []any:
		if b, ok := base.([]any); ok {
			return mergeList(key, b, o)
		}
	}
	return over
}

func mergeList(key string, base, over []any) []any {
	switch key {
	case "command", "args":
		return over
	case "imagePullSecrets": // the first goes into the first
		if len(base) > 0 && len(over) > 0 {
			return append([]any{mergeValue("", base[0], over[0])}, append(slices.Clone(base[1:]), over[1:]...)...)
		}
		return append(slices.Clone(base), over...)
	}
	by, keyed := keyedBy[key]
	if !keyed {
		return append(slices.Clone(base), over...)
	}
	out := slices.Clone(base)
	for _, item := range over {
		o, _ := item.(map[string]any)
		i := slices.IndexFunc(out, func(b any) bool {
			m, ok := b.(map[string]any)
			return ok && o != nil && o[by] != nil && same(m[by], o[by])
		})
		if i < 0 && key == "containers" && o != nil && o["name"] == nil && len(out) > 0 {
			i = 0 // a container without a name is the one there is
		}
		if i < 0 {
			out = append(out, item)
			continue
		}
		out[i] = mergeValue("", out[i], item)
	}
	return out
}

// same compares scalars of YAML and of Go.
func same(a, b any) bool {
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		return ok && x == y
	}
	return a == b
}

func asFloat(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

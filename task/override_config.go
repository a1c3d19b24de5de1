package task

import (
	"maps"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// setConfig lays config over the task's.
func (t *Task) setConfig(config map[string]any) error {
	config = known(config, language().Key("config"))
	if len(config) == 0 {
		return nil
	}
	merged := mergeMaps(t.Config, config)
	b := &builder{validator: validator{source: &source{}}}
	b.check(yaml11.Of(merged), language().Key("config"), "config")
	if len(b.errs) > 0 {
		return flagError("--config", "%s", b.errs[0].Message)
	}
	t.Config = merged
	b.hooks(t)
	return nil
}

// known keeps the keys that s has.
func known(m map[string]any, s *schema.Spec) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		f := s.Key(k)
		if f == nil {
			if s.Others != nil {
				out[k] = v
			}
			continue
		}
		if sub, ok := v.(map[string]any); ok && len(f.Keys) > 0 {
			if v = known(sub, f); len(v.(map[string]any)) == 0 {
				continue
			}
		}
		out[k] = v
	}
	return out
}

// mergeMaps lays over on base: maps are merged, all else is replaced.
func mergeMaps(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		a, okA := out[k].(map[string]any)
		b, okB := v.(map[string]any)
		if okA && okB {
			v = mergeMaps(a, b)
		}
		out[k] = v
	}
	return out
}

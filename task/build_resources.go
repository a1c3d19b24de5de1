package task

import (
	"fmt"
	"slices"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// resources reads the candidates of a task.
func (b *builder) resources(t *Task, n *yaml11.Node) {
	t.Preference = AnyOf
	base, items, path := n, []*yaml11.Node(nil), "resources"
	switch {
	case n == nil:
		t.Resources = []Resources{{}}
		return
	case n.Kind == yaml11.List: // a bare list: candidates in order
		base, items, path = &yaml11.Node{Kind: yaml11.Map, Place: n.Place}, n.Items, "resources"
		t.Preference = Ordered
	default:
		anyOf, ordered := n.Get("any_of"), n.Get("ordered")
		if anyOf != nil && ordered != nil {
			b.at(n.Key("ordered"), "resources", "any_of and ordered cannot both be given; any_of takes the cheapest, ordered the first that can be had")
			return
		}
		if anyOf != nil {
			items, path = anyOf.Items, "resources.any_of"
		}
		if ordered != nil {
			items, path = ordered.Items, "resources.ordered"
			t.Preference = Ordered
		}
	}
	base = withoutKeys(base, "any_of", "ordered")
	before := len(b.errs)
	b.checkPlace(base, nil, "resources")
	for i, item := range items {
		p := fmt.Sprintf("%s[%d]", path, i)
		b.checkPlace(item, nil, p)
		b.checkPlace(base, item, p)
	}
	if len(b.errs) > before {
		return
	}
	if len(items) == 0 {
		var pref Preference
		t.Resources, pref = b.candidates(base, "resources")
		t.Preference = pref
	}
	for i, item := range items {
		p := fmt.Sprintf("%s[%d]", path, i)
		merged := overlay(base, item)
		rs, pref := b.candidates(merged, p)
		if acc := acceleratorNode(merged); len(rs) > 1 && acc != nil {
			if t.Preference == Ordered {
				b.at(acc, "resources.accelerators", "several accelerators cannot be combined with ordered; name one per candidate")
				return
			}
			if pref == Ordered {
				b.at(acc, "resources.accelerators", "a list of accelerators (an order) cannot be combined with any_of (the cheapest); write a map, or name one per candidate")
				return
			}
		}
		t.Resources = append(t.Resources, rs...)
	}
	if len(t.Resources) <= 1 {
		t.Preference = AnyOf
	}
	b.liftConfig(t)
	for _, m := range append([]*yaml11.Node{base}, items...) {
		b.autostopHook(t, m.Get("autostop"))
	}
}

// autostopHook moves a hook from its old place, autostop, to config.hooks.
func (b *builder) autostopHook(t *Task, autostop *yaml11.Node) {
	hook := autostop.Get("hook")
	if hook == nil {
		return
	}
	event := "stop"
	if down := boolOf(autostop.Get("down")); down != nil && *down {
		event = "down"
	}
	entry := map[string]any{"run": hook.Text, "events": []any{event}}
	if timeout := autostop.Get("hook_timeout"); timeout != nil {
		entry["timeout"] = intOf(timeout)
	}
	b.warn("%s:%d: autostop.hook now goes under config.hooks, as {run: …, events: [%s]}; it is read as that", b.Name, hook.Line, event)
	if t.Config == nil {
		t.Config = map[string]any{}
	}
	list, _ := t.Config["hooks"].([]any)
	for _, other := range list {
		if m := other.(map[string]any); m["run"] == hook.Text {
			return
		}
	}
	t.Config["hooks"] = append(list, entry)
}

// liftConfig moves configuration that travelled inside resources to the task.
func (b *builder) liftConfig(t *Task) {
	for i := range t.Resources {
		r := &t.Resources[i]
		over, ok := r.Internal["_cluster_config_overrides"].(map[string]any)
		if !ok {
			continue
		}
		delete(r.Internal, "_cluster_config_overrides")
		if len(r.Internal) == 0 {
			r.Internal = nil
		}
		if t.Config == nil && len(over) > 0 {
			t.Config = map[string]any{}
		}
		for k, v := range over {
			if _, has := t.Config[k]; !has {
				t.Config[k] = v
			}
		}
	}
}

func withoutKeys(n *yaml11.Node, keys ...string) *yaml11.Node {
	out := *n
	out.Entries = slices.DeleteFunc(slices.Clone(n.Entries), func(e yaml11.Entry) bool { return slices.Contains(keys, e.Key.Text) })
	return &out
}

func acceleratorNode(n *yaml11.Node) *yaml11.Node {
	if a := n.Get("accelerators"); a != nil {
		return a
	}
	return n.Get("gpus")
}

// overlay lays a candidate over the base: its keys win, labels are merged.
func overlay(base, item *yaml11.Node) *yaml11.Node {
	out := *item
	out.Entries = nil
	drop := []string{}
	for _, e := range item.Entries {
		drop = append(drop, e.Key.Text)
		switch e.Key.Text {
		case "gpus":
			drop = append(drop, "accelerators")
		case "accelerators":
			drop = append(drop, "gpus")
		}
	}
	for _, e := range base.Entries {
		if !slices.Contains(drop, e.Key.Text) {
			out.Entries = append(out.Entries, e)
		}
	}
	for _, e := range item.Entries {
		if under := base.Get("labels"); e.Key.Text == "labels" && under != nil && e.Value.Kind == yaml11.Map {
			e.Value = overlay(under, e.Value)
		}
		out.Entries = append(out.Entries, e)
	}
	return &out
}

var placeKeys = []string{"cloud", "region", "zone"}

// checkPlace refuses infra together with cloud, region or zone: within one
// map (item nil), or between the base and a candidate.
func (b *builder) checkPlace(base, item *yaml11.Node, path string) {
	for _, k := range placeKeys {
		switch {
		case item == nil:
			if base.Get("infra") != nil && base.Get(k) != nil {
				b.at(base.Key(k), join(path, k), "%s says a place a second time, beside infra; put it into infra, as cloud/region/zone", k)
				return
			}
		case base.Get("infra") != nil && item.Get(k) != nil:
			b.at(item.Key(k), join(path, k), "%s cannot be given here because resources.infra already says the place; write infra in the candidate too", k)
			return
		case item.Get("infra") != nil && base.Get(k) != nil:
			b.at(item.Key("infra"), join(path, "infra"), "infra cannot be given here because resources.%s already says the place; write infra in the candidates only", k)
			return
		}
	}
}

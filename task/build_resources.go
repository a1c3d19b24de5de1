package task

import (
	"fmt"
	"slices"
)

// resources reads the candidates of a task.
func (b *builder) resources(t *Task, n *node) {
	t.Preference = AnyOf
	base, items, path := n, []*node(nil), "resources"
	switch {
	case n == nil:
		t.Resources = []Resources{{}}
		return
	case n.kind == sequenceNode: // a bare list: candidates in order
		base, items, path = &node{kind: mappingNode, line: n.line, col: n.col}, n.items, "resources"
		t.Preference = Ordered
	default:
		anyOf, ordered := n.get("any_of"), n.get("ordered")
		if anyOf != nil && ordered != nil {
			b.at(n.keyNode("ordered"), "resources", "any_of and ordered cannot both be given; any_of takes the cheapest, ordered the first that can be had")
			return
		}
		if anyOf != nil {
			items, path = anyOf.items, "resources.any_of"
		}
		if ordered != nil {
			items, path = ordered.items, "resources.ordered"
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
	for _, m := range append([]*node{base}, items...) {
		b.autostopHook(t, m.get("autostop"))
	}
}

// autostopHook moves a hook from its old place, autostop, to config.hooks.
func (b *builder) autostopHook(t *Task, autostop *node) {
	hook := autostop.get("hook")
	if hook == nil {
		return
	}
	event := "stop"
	if down := boolOf(autostop.get("down")); down != nil && *down {
		event = "down"
	}
	entry := map[string]any{"run": hook.text, "events": []any{event}}
	if timeout := autostop.get("hook_timeout"); timeout != nil {
		entry["timeout"] = intOf(timeout)
	}
	b.warn("%s:%d: autostop.hook now goes under config.hooks, as {run: …, events: [%s]}; it is read as that", b.name, hook.line, event)
	if t.Config == nil {
		t.Config = map[string]any{}
	}
	list, _ := t.Config["hooks"].([]any)
	for _, other := range list {
		if m := other.(map[string]any); m["run"] == hook.text {
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

func withoutKeys(n *node, keys ...string) *node {
	out := *n
	out.entries = slices.DeleteFunc(slices.Clone(n.entries), func(e entry) bool { return slices.Contains(keys, e.key.text) })
	return &out
}

func acceleratorNode(n *node) *node {
	if a := n.get("accelerators"); a != nil {
		return a
	}
	return n.get("gpus")
}

// overlay lays a candidate over the base: its keys win, labels are merged.
func overlay(base, item *node) *node {
	out := *item
	out.entries = nil
	drop := []string{}
	for _, e := range item.entries {
		drop = append(drop, e.key.text)
		switch e.key.text {
		case "gpus":
			drop = append(drop, "accelerators")
		case "accelerators":
			drop = append(drop, "gpus")
		}
	}
	for _, e := range base.entries {
		if !slices.Contains(drop, e.key.text) {
			out.entries = append(out.entries, e)
		}
	}
	for _, e := range item.entries {
		if under := base.get("labels"); e.key.text == "labels" && under != nil && e.val.kind == mappingNode {
			e.val = overlay(under, e.val)
		}
		out.entries = append(out.entries, e)
	}
	return &out
}

var placeKeys = []string{"cloud", "region", "zone"}

// checkPlace refuses infra together with cloud, region or zone: within one
// map (item nil), or between the base and a candidate.
func (b *builder) checkPlace(base, item *node, path string) {
	for _, k := range placeKeys {
		switch {
		case item == nil:
			if base.get("infra") != nil && base.get(k) != nil {
				b.at(base.keyNode(k), join(path, k), "%s says a place a second time, beside infra; put it into infra, as cloud/region/zone", k)
				return
			}
		case base.get("infra") != nil && item.get(k) != nil:
			b.at(item.keyNode(k), join(path, k), "%s cannot be given here because resources.infra already says the place; write infra in the candidate too", k)
			return
		case item.get("infra") != nil && base.get(k) != nil:
			b.at(item.keyNode("infra"), join(path, "infra"), "infra cannot be given here because resources.%s already says the place; write infra in the candidates only", k)
			return
		}
	}
}

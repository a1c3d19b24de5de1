package task

import (
	"slices"
	"strings"
)

// ParseSent is [Parse] for the text of a task that a client sends. Programs write
// more loosely than people: a field that is null, empty text or an empty collection
// was not set, numbers come as text and as floats, and a set is a map of nulls.
func ParseSent(name string, data []byte) (*Dag, error) { return parse(name, data, true) }

// asSent is a document with the values that its schema takes, where they are there in
// another form. What has no such form stays as it is, for the validator.
func asSent(doc *node, s *schema) *node {
	if doc.kind != mappingNode {
		return doc
	}
	out := sentValue(doc, s)
	for i, e := range out.entries {
		if e.key.text == "service" {
			out.entries[i].val = sentPool(e.val)
		}
	}
	return out
}

func sentValue(n *node, s *schema) *node {
	if s == nil || n.isNull() || n.pending {
		return n
	}
	out := *n
	switch n.kind {
	case mappingNode:
		if !s.takes("object") && s.takes("array") && isSet(n) {
			list := &node{kind: sequenceNode, line: n.line, col: n.col}
			for _, e := range n.entries {
				list.items = append(list.items, e.key)
			}
			return sentValue(list, s)
		}
		out.entries = nil
		for _, e := range n.entries {
			f := s.field(e.key.text)
			if f == nil {
				out.entries = append(out.entries, entry{e.key, sentValue(e.val, s.values)})
				continue
			}
			if v := sentValue(e.val, f.is); f.required || !unset(v, f.is) {
				out.entries = append(out.entries, entry{e.key, v})
			}
		}
	case sequenceNode:
		out.items = nil
		for _, item := range n.items {
			out.items = append(out.items, sentValue(item, s.items))
		}
	default:
		sentScalar(&out, s)
	}
	return &out
}

// sentScalar makes numbers and booleans of texts, and whole numbers of floats, where
// the schema takes nothing else.
func sentScalar(n *node, s *schema) {
	switch x := n.value.(type) {
	case string:
		if s.takes("string") || len(s.types) == 0 {
			return
		}
		plain := node{value: resolve(strings.TrimSpace(x)), text: strings.TrimSpace(x)}
		if t := plain.typeOf(); t != "null" && s.takes(t) {
			n.value, n.text = plain.value, plain.text
		}
	case float64:
		if n.typeOf() == "integer" && slices.Contains(s.types, "integer") {
			n.value, n.text = int(x), formatNumber(x)
		}
	}
}

// unset reports whether a value means that its field was not set.
func unset(v *node, s *schema) bool {
	switch v.kind {
	case mappingNode:
		return len(v.entries) == 0
	case sequenceNode:
		return len(v.items) == 0
	}
	return v.value == nil && !s.takes("null") || v.value == ""
}

func isSet(n *node) bool {
	return len(n.entries) > 0 && !slices.ContainsFunc(n.entries, func(e entry) bool { return !e.val.isNull() })
}

// takes reports whether values of that JSON type are allowed.
func (s *schema) takes(t string) bool {
	return slices.Contains(s.types, t) || t == "integer" && slices.Contains(s.types, "number")
}

// sentPool reads the form in which clients of early API versions send a pool: a
// service whose pool is true, with the workers among its replicas.
func sentPool(service *node) *node {
	flag := service.get("pool")
	if flag == nil || flag.typeOf() != "boolean" {
		return service
	}
	out := withoutKeys(service, "pool")
	if on, _ := flag.value.(bool); !on {
		return out
	}
	pool := &node{kind: mappingNode, line: flag.line, col: flag.col}
	for _, at := range []struct {
		in       *node
		key, new string
	}{
		{out, "workers", "workers"}, {out, "replicas", "workers"},
		{out.get("replica_policy"), "min_replicas", "min_workers"}, {out.get("replica_policy"), "max_replicas", "max_workers"},
	} {
		if v := at.in.get(at.key); v != nil && pool.get(at.new) == nil {
			pool.entries = append(pool.entries, entry{&node{text: at.new, value: at.new, line: v.line, col: v.col}, v})
		}
	}
	if low, high := pool.get("min_workers"), pool.get("max_workers"); pool.get("workers") == nil && low != nil && (high == nil || intOf(low) == intOf(high)) {
		pool.entries = []entry{{&node{text: "workers", value: "workers", line: low.line, col: low.col}, low}}
	}
	return &node{kind: mappingNode, line: service.line, col: service.col,
		entries: []entry{{&node{text: "pool", value: "pool", line: flag.line, col: flag.col}, pool}}}
}

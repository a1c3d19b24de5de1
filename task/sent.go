package task

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// ParseSent is [Parse] for the text of a task that a client sends. Programs write
// more loosely than people: a field that is null, empty text or an empty collection
// was not set, numbers come as text and as floats, and a set is a map of nulls.
func ParseSent(name string, data []byte) (*Dag, error) { return parse(name, data, true) }

// asSent is a document with the values that its schema takes, where they are there in
// another form. What has no such form stays as it is, for the validator.
func asSent(doc *yaml11.Node, s *schema.Spec) *yaml11.Node {
	if doc.Kind != yaml11.Map {
		return doc
	}
	out := sentValue(doc, s)
	for i, e := range out.Entries {
		if e.Key.Text == "service" {
			out.Entries[i].Value = sentPool(e.Value)
		}
	}
	return out
}

func sentValue(n *yaml11.Node, s *schema.Spec) *yaml11.Node {
	if s == nil || n.IsNull() || n.Pending {
		return n
	}
	out := *n
	switch n.Kind {
	case yaml11.Map:
		if s.Kinds&(yaml11.Map|yaml11.List) == yaml11.List && isSet(n) {
			list := &yaml11.Node{Kind: yaml11.List, Place: n.Place}
			for _, e := range n.Entries {
				list.Items = append(list.Items, e.Key)
			}
			return sentValue(list, s)
		}
		out.Entries = nil
		for _, e := range n.Entries {
			if e.Key.Text == "image_id" {
				e.Value = sentImages(e.Value)
			}
			f := s.Key(e.Key.Text)
			if f == nil {
				out.Entries = append(out.Entries, yaml11.Entry{Key: e.Key, Value: sentValue(e.Value, s.Others)})
				continue
			}
			if v := sentValue(e.Value, f); slices.Contains(s.Required, e.Key.Text) || !unset(v, f) {
				out.Entries = append(out.Entries, yaml11.Entry{Key: e.Key, Value: v})
			}
		}
	case yaml11.List:
		out.Items = nil
		for _, item := range n.Items {
			out.Items = append(out.Items, sentValue(item, s.Items))
		}
	default:
		sentScalar(&out, s)
	}
	return &out
}

// sentScalar makes numbers and booleans of texts, and whole numbers of floats, where
// the schema takes nothing else.
func sentScalar(n *yaml11.Node, s *schema.Spec) {
	switch x := n.Value.(type) {
	case string:
		if s.Kinds&yaml11.Text != 0 {
			return
		}
		text := strings.TrimSpace(x)
		plain := yaml11.NewScalar(yaml11.Resolve(text))
		if !plain.IsNull() && s.Kinds.Takes(plain) {
			n.Kind, n.Value, n.Text = plain.Kind, plain.Value, text
		}
	case float64:
		if s.Kinds&yaml11.Number == yaml11.Int && s.Kinds.Takes(n) {
			n.Kind, n.Value, n.Text = yaml11.Int, int(x), yaml11.FormatNumber(x)
		}
	}
}

// sentImages are images by region without the regions that have none: {null: null} is how
// some clients send no image at all.
func sentImages(n *yaml11.Node) *yaml11.Node {
	if n.Kind != yaml11.Map {
		return n
	}
	out := *n
	out.Entries = slices.DeleteFunc(slices.Clone(n.Entries), func(e yaml11.Entry) bool { return e.Value.IsNull() || e.Value.Value == "" })
	return &out
}

// unset reports whether a value means that its field was not set.
func unset(v *yaml11.Node, s *schema.Spec) bool {
	switch v.Kind {
	case yaml11.Map:
		return len(v.Entries) == 0
	case yaml11.List:
		return len(v.Items) == 0
	}
	return v.Value == nil && s.Kinds&yaml11.Null == 0 || v.Value == ""
}

func isSet(n *yaml11.Node) bool {
	return len(n.Entries) > 0 && !slices.ContainsFunc(n.Entries, func(e yaml11.Entry) bool { return !e.Value.IsNull() })
}

// sentPool reads the form in which clients of early API versions send a pool: a
// service whose pool is true, with the workers among its replicas.
func sentPool(service *yaml11.Node) *yaml11.Node {
	flag := service.Get("pool")
	if flag == nil || flag.Kind != yaml11.Bool {
		return service
	}
	out := withoutKeys(service, "pool")
	if on, _ := flag.Value.(bool); !on {
		return out
	}
	pool := &yaml11.Node{Kind: yaml11.Map, Place: flag.Place}
	for _, at := range []struct {
		in       *yaml11.Node
		key, new string
	}{
		{out, "workers", "workers"}, {out, "replicas", "workers"},
		{out.Get("replica_policy"), "min_replicas", "min_workers"}, {out.Get("replica_policy"), "max_replicas", "max_workers"},
	} {
		if v := at.in.Get(at.key); v != nil && pool.Get(at.new) == nil {
			pool.Entries = append(pool.Entries, yaml11.Entry{Key: yaml11.KeyNode(at.new, v.Place), Value: v})
		}
	}
	if low, high := pool.Get("min_workers"), pool.Get("max_workers"); pool.Get("workers") == nil && low != nil && (high == nil || intOf(low) == intOf(high)) {
		pool.Entries = []yaml11.Entry{{Key: yaml11.KeyNode("workers", low.Place), Value: low}}
	}
	return &yaml11.Node{Kind: yaml11.Map, Place: service.Place,
		Entries: []yaml11.Entry{{Key: yaml11.KeyNode("pool", flag.Place), Value: pool}}}
}

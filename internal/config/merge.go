package config

import "github.com/skypilot-go/sky/internal/yaml11"

// overlay lays the layer over on base: maps key by key, everything else
// replaced, except below keys that the description marks as patches.
func overlay(base, over *yaml11.Node, s *Spec) *yaml11.Node {
	switch {
	case base == nil:
		return over
	case over == nil:
		return base
	case s != nil && s.Patch:
		return patch(base, over)
	case base.Kind != Map || over.Kind != Map:
		return over
	}
	out := *over
	out.Entries = append(make([]yaml11.Entry, 0, len(base.Entries)+len(over.Entries)), base.Entries...)
	for _, e := range over.Entries {
		var below *Spec
		if s != nil {
			below = s.Find(e.Key.Text)
		}
		put(&out, e, func(old *yaml11.Node) *yaml11.Node { return overlay(old, e.Value, below) })
	}
	return &out
}

// put adds e to the map n, or replaces what is under its key by merge of it.
// n's entries must be its own.
func put(n *yaml11.Node, e yaml11.Entry, merge func(old *yaml11.Node) *yaml11.Node) {
	for i := range n.Entries {
		if n.Entries[i].Key.Text == e.Key.Text {
			n.Entries[i] = yaml11.Entry{Key: e.Key, Value: merge(n.Entries[i].Value)}
			return
		}
	}
	n.Entries = append(n.Entries, e)
}

// identifying is, for lists in pod specifications whose elements are patched
// one by one, the key that reports which element is meant. Elements of other
// lists are appended.
var identifying = map[string]string{
	"containers":                "name",
	"initContainers":            "name",
	"ephemeralContainers":       "name",
	"volumes":                   "name",
	"resourceClaims":            "name",
	"env":                       "name",
	"claims":                    "name",
	"volumeMounts":              "mountPath",
	"ports":                     "containerPort",
	"volumeDevices":             "devicePath",
	"hostAliases":               "ip",
	"topologySpreadConstraints": "topologyKey",
}

// patch lays over on base the way pod specifications are layered: maps key by
// key; lists element by element where elements have an identity, else
// appended.
func patch(base, over *yaml11.Node) *yaml11.Node {
	if base.Kind != Map || over.Kind != Map {
		return over
	}
	out := *over
	out.Entries = append(make([]yaml11.Entry, 0, len(base.Entries)+len(over.Entries)), base.Entries...)
	for _, e := range over.Entries {
		put(&out, e, func(old *yaml11.Node) *yaml11.Node {
			if old.Kind == List && e.Value.Kind == List {
				return patchList(e.Key.Text, old, e.Value)
			}
			return patch(old, e.Value)
		})
	}
	return &out
}

func patchList(key string, base, over *yaml11.Node) *yaml11.Node {
	if key == "args" || key == "command" {
		return over
	}
	out := *over
	out.Items = append(make([]*yaml11.Node, 0, len(base.Items)+len(over.Items)), base.Items...)
	for i, item := range over.Items {
		if at := counterpart(key, base.Items, item, i); at >= 0 {
			out.Items[at] = patch(out.Items[at], item)
		} else {
			out.Items = append(out.Items, item)
		}
	}
	return &out
}

// counterpart returns which element of base the i-th element of a patch means,
// or -1 if it is a new one.
func counterpart(key string, base []*yaml11.Node, item *yaml11.Node, i int) int {
	if key == "imagePullSecrets" && i == 0 && len(base) > 0 {
		return 0
	}
	id, ok := identifying[key]
	if !ok {
		return -1
	}
	name := item.Lookup(id)
	if name == nil {
		if key == "containers" && len(base) > 0 && item.Kind == Map {
			return 0
		}
		return -1
	}
	for at, b := range base {
		if other := b.Lookup(id); other != nil && yaml11.Equal(other, name) {
			return at
		}
	}
	return -1
}

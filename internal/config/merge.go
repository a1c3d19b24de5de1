package config

// overlay lays the layer over on base: maps key by key, everything else
// replaced, except below keys that the description marks as patches.
func overlay(base, over *node, s *Spec) *node {
	switch {
	case base == nil:
		return over
	case over == nil:
		return base
	case s != nil && s.Patch:
		return patch(base, over)
	case base.kind != Map || over.kind != Map:
		return over
	}
	out := *over
	out.entries = append(make([]entry, 0, len(base.entries)+len(over.entries)), base.entries...)
	for _, e := range over.entries {
		var below *Spec
		if s != nil {
			below = s.Find(e.key)
		}
		out.put(e, func(old *node) *node { return overlay(old, e.node, below) })
	}
	return &out
}

// put adds e to the map n, or replaces what is under its key by merge of it.
// n's entries must be its own.
func (n *node) put(e entry, merge func(old *node) *node) {
	for i := range n.entries {
		if n.entries[i].key == e.key {
			n.entries[i] = entry{e.key, e.at, merge(n.entries[i].node)}
			return
		}
	}
	n.entries = append(n.entries, e)
}

// identifying is, for lists in pod specifications whose elements are patched
// one by one, the key that tells which element is meant. Elements of other
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
func patch(base, over *node) *node {
	if base.kind != Map || over.kind != Map {
		return over
	}
	out := *over
	out.entries = append(make([]entry, 0, len(base.entries)+len(over.entries)), base.entries...)
	for _, e := range over.entries {
		out.put(e, func(old *node) *node {
			if old.kind == List && e.node.kind == List {
				return patchList(e.key, old, e.node)
			}
			return patch(old, e.node)
		})
	}
	return &out
}

func patchList(key string, base, over *node) *node {
	if key == "args" || key == "command" {
		return over
	}
	out := *over
	out.list = append(make([]*node, 0, len(base.list)+len(over.list)), base.list...)
	for i, item := range over.list {
		if at := counterpart(key, base.list, item, i); at >= 0 {
			out.list[at] = patch(out.list[at], item)
		} else {
			out.list = append(out.list, item)
		}
	}
	return &out
}

// counterpart returns which element of base the i-th element of a patch means,
// or -1 if it is a new one.
func counterpart(key string, base []*node, item *node, i int) int {
	if key == "imagePullSecrets" && i == 0 && len(base) > 0 {
		return 0
	}
	id, ok := identifying[key]
	if !ok {
		return -1
	}
	name := item.get(id)
	if name == nil {
		if key == "containers" && len(base) > 0 && item.kind == Map {
			return 0
		}
		return -1
	}
	for at, b := range base {
		if other := b.get(id); other != nil && same(other, name) {
			return at
		}
	}
	return -1
}

package config

import "encoding/json"

// Setting is one value as a person should see it.
type Setting struct {
	Path   string `json:"path"`  // dotted
	Value  any    `json:"value"` // a scalar, a list or an empty section; secrets redacted
	Text   string `json:"-"`     // Value as one line of YAML
	Origin Origin `json:"origin"`
}

// Show returns every value with its origin, in the order in which it was
// written.
func (c *Config) Show() []Setting {
	var out []Setting
	var walk func(path []string, n *node)
	walk = func(path []string, n *node) {
		if n.kind != Map || len(n.entries) == 0 {
			out = append(out, Setting{dotted(path), n.plain(), flowText(n), n.at.origin()})
			return
		}
		for _, e := range n.entries {
			walk(append(path[:len(path):len(path)], e.key), e.node)
		}
	}
	if c.db != nil {
		walk([]string{"db"}, &node{kind: Text, value: Redacted, at: c.db.at})
	}
	if c.root != nil {
		for _, e := range redact(c.root, Keys()).entries {
			walk([]string{e.key}, e.node)
		}
	}
	return out
}

// YAML returns the whole configuration as text, secrets redacted.
func (c *Config) YAML() []byte { return emit(c.shown()) }

// JSON returns the whole configuration as text, secrets redacted.
func (c *Config) JSON() []byte {
	text, _ := json.MarshalIndent(c.shown().plain(), "", "  ")
	return append(text, '\n')
}

func (c *Config) shown() *node {
	n := redact(c.root, Keys())
	if n == nil {
		n = &node{kind: Map}
	}
	if c.db != nil {
		n = n.with("db", c.db.at, &node{kind: Text, value: Redacted, at: c.db.at})
	}
	return n
}

// EncodeYAML writes maps, slices and scalars as YAML that reads back the same
// everywhere. Keys are sorted.
func EncodeYAML(v any) []byte { return emit(fromPlain(v, place{})) }

// DecodeYAML reads one YAML document by the rules of configurations (YAML 1.1)
// into maps, slices and scalars; nil for an empty text. name is what errors
// call the text.
func DecodeYAML(text []byte, name string) (any, error) {
	n, err := parse(text, &source{name: name})
	if err != nil {
		return nil, asError(err)
	}
	return n.plain(), nil
}

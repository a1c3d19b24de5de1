package config

import (
	"encoding/json"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

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
	var walk func(path []string, n *yaml11.Node)
	walk = func(path []string, n *yaml11.Node) {
		if n.Kind != Map || len(n.Entries) == 0 {
			out = append(out, Setting{schema.Dotted(path), n.Any(), yaml11.FlowText(n), originOf(n.Place)})
			return
		}
		for _, e := range n.Entries {
			walk(append(path[:len(path):len(path)], e.Key.Text), e.Value)
		}
	}
	if c.db != nil {
		walk([]string{"db"}, yaml11.NewScalar(Redacted).At(c.db.Place))
	}
	if c.root != nil {
		for _, e := range redact(c.root, Keys()).Entries {
			walk([]string{e.Key.Text}, e.Value)
		}
	}
	return out
}

// YAML returns the whole configuration as text, secrets redacted.
func (c *Config) YAML() []byte { return emit(c.shown()) }

// JSON returns the whole configuration as text, secrets redacted.
func (c *Config) JSON() []byte {
	text, _ := json.MarshalIndent(c.shown().Any(), "", "  ")
	return append(text, '\n')
}

func (c *Config) shown() *yaml11.Node {
	n := redact(c.root, Keys())
	if n == nil {
		n = yaml11.NewMap()
	}
	if c.db != nil {
		n = n.With("db", c.db.Place, yaml11.NewScalar(Redacted).At(c.db.Place))
	}
	return n
}

// EncodeYAML writes maps, slices and scalars as YAML that reads back the same
// everywhere. Keys are sorted.
func EncodeYAML(v any) []byte { return emit(fromPlain(v, yaml11.Place{})) }

// DecodeYAML reads one YAML document by the rules of configurations (YAML 1.1)
// into maps, slices and scalars; nil for an empty text. name is what errors
// call the text.
func DecodeYAML(text []byte, name string) (any, error) {
	n, err := parse(text, newSource("", name))
	if err != nil {
		return nil, asError(err)
	}
	return n.Any(), nil
}

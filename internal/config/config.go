// Package config is sky's layered configuration: the files, flags and
// variables that settings come from, the rules by which one lays over the
// other, and the description of every key.
//
// [Load] reads the layers of one side, a client or the API server. A client
// sends [Config.ForRequest] along with each request; the server answers it
// under [Config.Request] and looks at single tasks through [Config.ForTask].
// Values are read by path with [Config.Text] and its siblings, or, for settings
// that differ between workspaces, regions, contexts or clusters, through
// [Config.For]. Every value knows where it was written.
//
// A Config never changes and may be used by many goroutines.
package config

import (
	"slices"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Config is a merged, valid configuration.
type Config struct {
	side     Side
	home     string
	root     *yaml11.Node      // every layer; nil when all are empty
	own      *yaml11.Node      // less the environment: what a client sends
	db       *yaml11.Node      // taken out of the layers, since it never travels
	removed  map[string]bool   // workspaces that only [Config.WithRemoved] brought
	withheld map[string]string // clouds that are not to be used, and why
	confined bool              // see [Config.Confined]
	warnings []Warning
}

// Warnings returns what should be shown to the user of the configuration.
func (c *Config) Warnings() []Warning { return slices.Clone(c.warnings) }

// Get returns the value under a path of keys as maps, slices and scalars that
// the caller may change. Defaults are not considered.
func (c *Config) Get(path ...string) (any, bool) {
	n := c.root.Find(path...)
	return n.Any(), n != nil
}

// Origin says where the value under a path was written; the zero Origin if it
// was not.
func (c *Config) Origin(path ...string) Origin {
	n := c.root.Find(path...)
	if len(path) == 1 && path[0] == "db" {
		n = c.db
	}
	if n == nil {
		return Origin{}
	}
	return originOf(n.Place)
}

// Map returns the whole configuration, less the database's address, secrets
// included.
func (c *Config) Map() map[string]any {
	m, _ := c.root.Any().(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	return m
}

// FromMap checks values that did not come from a file, such as those a
// dashboard or an admin policy answers with, and returns them as a
// configuration. The error is an [*Error].
func FromMap(side Side, from Origin, values map[string]any) (*Config, error) {
	root := fromPlain(values, yaml11.Place{Source: newSource(from.Layer, from.Source)})
	problems, warnings := validate(root, side)
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	c := &Config{side: side, home: homeFolder(), root: root.Without("db"), db: root.Lookup("db"), warnings: warnings}
	c.own = c.root
	return c, nil
}

// Check reads the text of a single configuration file, called name in messages,
// and says what is wrong with it. The error is an [*Error].
func Check(side Side, text []byte, name string) ([]Warning, error) {
	n, err := parse(text, newSource(LayerUser, name))
	if err != nil {
		return nil, asError(err)
	}
	problems, warnings := validate(n, side)
	if problems = append(problems, unusable(n)...); len(problems) > 0 {
		return warnings, &Error{Problems: problems}
	}
	return warnings, nil
}

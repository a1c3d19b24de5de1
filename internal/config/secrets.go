package config

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Redacted stands where a secret was.
const Redacted = "<redacted>"

// secretName says whether a key that nobody described sounds like a secret.
func secretName(key string) bool {
	k := strings.ToLower(key)
	for _, word := range []string{"password", "passwd", "secret", "token", "api_key", "apikey", "access_key", "private_key"} {
		if strings.Contains(k, word) {
			return true
		}
	}
	return false
}

// isSecret says whether the value of a key must not be shown.
func isSecret(key string, s *Spec) bool {
	return s != nil && s.Secret || (s == nil || s == schema.Free) && secretName(key)
}

// redact returns n with every secret replaced.
func redact(n *yaml11.Node, s *Spec) *yaml11.Node {
	if n == nil {
		return nil
	}
	if s == nil {
		s = schema.Free
	}
	out := *n
	switch n.Kind {
	case Text:
		out.Text = Mask(n.Value.(string))
		out.Value = out.Text
	case List:
		out.Items = make([]*yaml11.Node, len(n.Items))
		for i, item := range n.Items {
			out.Items[i] = redact(item, s.Items)
		}
	case Map:
		out.Entries = make([]yaml11.Entry, len(n.Entries))
		// A variable in a pod specification: {name: HF_TOKEN, value: …}.
		named := secretName(asText(n.Lookup("name")))
		for i, e := range n.Entries {
			below := s.Find(e.Key.Text)
			switch {
			case e.Value.Kind == Null:
			case isSecret(e.Key.Text, below), named && e.Key.Text == "value":
				e.Value = yaml11.NewScalar(Redacted).At(e.Value.Place)
			default:
				e.Value = redact(e.Value, below)
			}
			out.Entries[i] = e
		}
	}
	return &out
}

var (
	assignedSecret = lazyregexp.New(`(?i)([a-z0-9_]*(?:token|secret|password|passwd|api_?key|access_?key)[a-z0-9_]*=)[^\s&"']+`)
	urlPassword    = lazyregexp.New(`(://[^/\s:@]*:)[^/\s@]+@`)
)

// Mask hides secrets inside of a text: passwords in URLs, NAME_TOKEN=value.
func Mask(s string) string {
	if strings.Contains(s, "=") {
		s = assignedSecret.ReplaceAllString(s, "${1}"+Redacted)
	}
	if strings.Contains(s, "://") {
		s = urlPassword.ReplaceAllString(s, "${1}"+Redacted+"@")
	}
	return s
}

// hasPassword says whether a value is a URL with a password.
func hasPassword(n *yaml11.Node) bool {
	s, ok := n.Value.(string)
	return ok && strings.Contains(s, "://") && urlPassword.MatchString(s)
}

// Secrets returns the values that must not be shown, wherever they stand in the
// configuration, the database's connection string included.
func (c *Config) Secrets() []string {
	var out []string
	var walk func(n *yaml11.Node, s *Spec, hidden bool)
	walk = func(n *yaml11.Node, s *Spec, hidden bool) {
		if n == nil {
			return
		}
		if s == nil {
			s = schema.Free
		}
		switch n.Kind {
		case List:
			for _, item := range n.Items {
				walk(item, s.Items, hidden)
			}
		case Map:
			named := secretName(asText(n.Lookup("name")))
			for _, e := range n.Entries {
				below := s.Find(e.Key.Text)
				walk(e.Value, below, hidden || isSecret(e.Key.Text, below) || named && e.Key.Text == "value")
			}
		case Null, Bool:
		default:
			if text := asText(n); hidden || hasPassword(n) {
				out = append(out, text)
			}
		}
	}
	walk(c.root, Keys(), false)
	walk(c.db, schema.Free, true)
	return out
}

// WithoutSecrets returns the whole configuration less every value that is a
// secret, as it may be shown to others. [Config.Replace] brings them back.
func (c *Config) WithoutSecrets() map[string]any {
	m, _ := withoutSecrets(c.root, Keys()).Any().(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	return m
}

func withoutSecrets(n *yaml11.Node, s *Spec) *yaml11.Node {
	if n == nil || n.Kind != Map || s == nil {
		return n
	}
	out := *n
	out.Entries = nil
	for _, e := range n.Entries {
		below := s.Find(e.Key.Text)
		if !isSecret(e.Key.Text, below) && !hasPassword(e.Value) {
			out.Entries = append(out.Entries, yaml11.Entry{Key: e.Key, Value: withoutSecrets(e.Value, below)})
		}
	}
	return &out
}

// Replace returns a configuration made of values, such as an admin policy
// answers with, and of the secrets of c, which [Config.WithoutSecrets] kept
// back. The error is an [*Error].
func (c *Config) Replace(from Origin, values map[string]any) (*Config, error) {
	out, err := FromMap(c.side, from, values)
	if err != nil {
		return nil, err
	}
	out.home, out.db = c.home, c.db
	out.root, out.own = keepOrigins(out.root, c.root), keepOrigins(out.own, c.own)
	out.root = overlay(out.root, secretsOnly(c.root, Keys()), Keys())
	out.own = overlay(out.own, secretsOnly(c.own, Keys()), Keys())
	return out, nil
}

// keepOrigins returns n with what did not change taken from old.
func keepOrigins(n, old *yaml11.Node) *yaml11.Node {
	switch {
	case n == nil || old == nil:
		return n
	case yaml11.Equal(n, old):
		return old
	case n.Kind != Map || old.Kind != Map:
		return n
	}
	out := *n
	out.Entries = slices.Clone(n.Entries)
	for i, e := range out.Entries {
		out.Entries[i].Value = keepOrigins(e.Value, old.Lookup(e.Key.Text))
	}
	return &out
}

// secretsOnly is what withoutSecrets takes away, nil for nothing.
func secretsOnly(n *yaml11.Node, s *Spec) *yaml11.Node {
	if n == nil || n.Kind != Map || s == nil {
		return nil
	}
	out := *n
	out.Entries = nil
	for _, e := range n.Entries {
		below := s.Find(e.Key.Text)
		v := e.Value
		if !isSecret(e.Key.Text, below) && !hasPassword(e.Value) {
			v = secretsOnly(e.Value, below)
		}
		if v != nil {
			out.Entries = append(out.Entries, yaml11.Entry{Key: e.Key, Value: v})
		}
	}
	if len(out.Entries) == 0 {
		return nil
	}
	return &out
}

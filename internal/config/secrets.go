package config

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/config/keys"
	"github.com/skypilot-go/sky/internal/lazyregexp"
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
	return s != nil && s.Secret || (s == nil || s == keys.Free) && secretName(key)
}

// redact returns n with every secret replaced.
func redact(n *node, s *Spec) *node {
	if n == nil {
		return nil
	}
	if s == nil {
		s = keys.Free
	}
	out := *n
	switch n.kind {
	case Text:
		out.value = Mask(n.value.(string))
	case List:
		out.list = make([]*node, len(n.list))
		for i, item := range n.list {
			out.list[i] = redact(item, s.Items)
		}
	case Map:
		out.entries = make([]entry, len(n.entries))
		// A variable in a pod specification: {name: HF_TOKEN, value: …}.
		named := secretName(asText(n.get("name")))
		for i, e := range n.entries {
			below := s.Find(e.key)
			switch {
			case e.node.kind == Null:
			case isSecret(e.key, below), named && e.key == "value":
				e.node = &node{kind: Text, value: Redacted, at: e.node.at}
			default:
				e.node = redact(e.node, below)
			}
			out.entries[i] = e
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
func hasPassword(n *node) bool {
	s, ok := n.value.(string)
	return ok && strings.Contains(s, "://") && urlPassword.MatchString(s)
}

// Secrets returns the values that must not be shown, wherever they stand in the
// configuration, the database's connection string included.
func (c *Config) Secrets() []string {
	var out []string
	var walk func(n *node, s *Spec, hidden bool)
	walk = func(n *node, s *Spec, hidden bool) {
		if n == nil {
			return
		}
		if s == nil {
			s = keys.Free
		}
		switch n.kind {
		case List:
			for _, item := range n.list {
				walk(item, s.Items, hidden)
			}
		case Map:
			named := secretName(asText(n.get("name")))
			for _, e := range n.entries {
				below := s.Find(e.key)
				walk(e.node, below, hidden || isSecret(e.key, below) || named && e.key == "value")
			}
		case Null, Bool:
		default:
			if text := asText(n); hidden || hasPassword(n) {
				out = append(out, text)
			}
		}
	}
	walk(c.root, Keys(), false)
	walk(c.db, keys.Free, true)
	return out
}

// WithoutSecrets returns the whole configuration less every value that is a
// secret, as it may be shown to others. [Config.Replace] brings them back.
func (c *Config) WithoutSecrets() map[string]any {
	m, _ := withoutSecrets(c.root, Keys()).plain().(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	return m
}

func withoutSecrets(n *node, s *Spec) *node {
	if n == nil || n.kind != Map || s == nil {
		return n
	}
	out := *n
	out.entries = nil
	for _, e := range n.entries {
		below := s.Find(e.key)
		if !isSecret(e.key, below) && !hasPassword(e.node) {
			out.entries = append(out.entries, entry{e.key, e.at, withoutSecrets(e.node, below)})
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
func keepOrigins(n, old *node) *node {
	switch {
	case n == nil || old == nil:
		return n
	case same(n, old):
		return old
	case n.kind != Map || old.kind != Map:
		return n
	}
	out := *n
	out.entries = slices.Clone(n.entries)
	for i, e := range out.entries {
		out.entries[i].node = keepOrigins(e.node, old.get(e.key))
	}
	return &out
}

// secretsOnly is what withoutSecrets takes away, nil for nothing.
func secretsOnly(n *node, s *Spec) *node {
	if n == nil || n.kind != Map || s == nil {
		return nil
	}
	out := *n
	out.entries = nil
	for _, e := range n.entries {
		below := s.Find(e.key)
		v := e.node
		if !isSecret(e.key, below) && !hasPassword(e.node) {
			v = secretsOnly(e.node, below)
		}
		if v != nil {
			out.entries = append(out.entries, entry{e.key, e.at, v})
		}
	}
	if len(out.entries) == 0 {
		return nil
	}
	return &out
}

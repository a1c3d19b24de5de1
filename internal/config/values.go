package config

import (
	"path/filepath"
	"strings"
)

// Value returns what is in force under a path of keys: the value given, else
// the key's default, else nil. Like its siblings it panics for a key that does
// not exist, which is a bug in the caller.
func (c *Config) Value(path ...string) any { return c.inForce(path).plain() }

// Text returns a text, "" if there is none.
func (c *Config) Text(path ...string) string { return asText(c.inForce(path)) }

// Bool returns a boolean, false if there is none.
func (c *Config) Bool(path ...string) bool { return asBool(c.inForce(path)) }

// Int returns a whole number, 0 if there is none.
func (c *Config) Int(path ...string) int { return int(c.inForce(path).asNumber()) }

// Float returns a number, 0 if there is none.
func (c *Config) Float(path ...string) float64 { return c.inForce(path).asNumber() }

// Texts returns a list of texts; a single text is a list of one.
func (c *Config) Texts(path ...string) []string { return asTexts(c.inForce(path)) }

// Path returns a file name with a leading "~" expanded.
func (c *Config) Path(path ...string) string { return expand(c.Text(path...), c.home) }

func (c *Config) inForce(path []string) *node {
	s := Keys().At(path...)
	if s == nil {
		panic("config: there is no key " + strings.Join(path, "."))
	}
	return orDefault(c.root.find(path...), s)
}

func orDefault(n *node, s *Spec) *node {
	if n != nil && n.kind != Null || s == nil || s.Default == nil {
		return n
	}
	return fromPlain(s.Default, place{})
}

func asText(n *node) string {
	if n == nil || n.kind&(Scalar) == 0 {
		return ""
	}
	return scalarText(n)
}

func asBool(n *node) bool {
	if n == nil {
		return false
	}
	b, _ := n.value.(bool)
	return b
}

func (n *node) asNumber() float64 {
	if n == nil {
		return 0
	}
	return n.number()
}

func asTexts(n *node) []string {
	if n == nil || n.kind == Null {
		return nil
	}
	if n.kind != List {
		return []string{asText(n)}
	}
	out := make([]string, len(n.list))
	for i, item := range n.list {
		out[i] = asText(item)
	}
	return out
}

// Endpoint returns the API server's address; "" means a local one that is
// started when needed.
func (c *Config) Endpoint() string {
	return strings.TrimRight(c.Text("api_server", "endpoint"), "/")
}

// Token returns the service account token to log in with. It is a secret.
func (c *Config) Token() string { return c.Text("api_server", "service_account_token") }

// DatabaseURI returns the connection string of the server's database, "" for
// files. It is a secret.
func (c *Config) DatabaseURI() string { return asText(c.db) }

// AdminPolicyURL returns the address of the policy service or the class name
// of an earlier kind of policy; "" if there is none or it is made of rules.
func (c *Config) AdminPolicyURL() string {
	if n := c.root.find("admin_policy"); n != nil && n.kind == Text {
		return asText(n)
	}
	return ""
}

// SkyFolder returns ~/.sky, where the product keeps its files.
func (c *Config) SkyFolder() string { return filepath.Join(c.home, ".sky") }

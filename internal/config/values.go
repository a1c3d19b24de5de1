package config

import (
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Value returns what is in force under a path of keys: the value given, else
// the key's default, else nil. Like its siblings it panics for a key that does
// not exist, which is a bug in the caller.
func (c *Config) Value(path ...string) any { return c.inForce(path).Any() }

// Text returns a text, "" if there is none.
func (c *Config) Text(path ...string) string { return asText(c.inForce(path)) }

// Bool returns a boolean, false if there is none.
func (c *Config) Bool(path ...string) bool { return c.inForce(path).IsTrue() }

// Int returns a whole number, 0 if there is none.
func (c *Config) Int(path ...string) int { return int(c.inForce(path).Number()) }

// Float returns a number, 0 if there is none.
func (c *Config) Float(path ...string) float64 { return c.inForce(path).Number() }

// Texts returns a list of texts; a single text is a list of one.
func (c *Config) Texts(path ...string) []string { return asTexts(c.inForce(path)) }

// Path returns a file name with a leading "~" expanded.
func (c *Config) Path(path ...string) string { return expand(c.Text(path...), c.home) }

func (c *Config) inForce(path []string) *yaml11.Node {
	s := Keys().At(path...)
	if s == nil {
		panic("config: there is no key " + strings.Join(path, "."))
	}
	return orDefault(c.root.Find(path...), s)
}

func orDefault(n *yaml11.Node, s *Spec) *yaml11.Node {
	if n != nil && n.Kind != Null || s == nil || s.Default == nil {
		return n
	}
	return fromPlain(s.Default, yaml11.Place{})
}

func asText(n *yaml11.Node) string {
	if n == nil || n.Kind&(Scalar) == 0 {
		return ""
	}
	return yaml11.NewScalar(n.Value).Text
}

func asTexts(n *yaml11.Node) []string {
	if n == nil || n.Kind == Null {
		return nil
	}
	if n.Kind != List {
		return []string{asText(n)}
	}
	out := make([]string, len(n.Items))
	for i, item := range n.Items {
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
	if n := c.root.Find("admin_policy"); n != nil && n.Kind == Text {
		return asText(n)
	}
	return ""
}

// SkyFolder returns ~/.sky, where the product keeps its files.
func (c *Config) SkyFolder() string { return filepath.Join(c.home, ".sky") }

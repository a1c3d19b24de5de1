package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// ForRequest returns what a client sends along with a request: everything of
// its own, less what only concerns client or server. Nil means nothing.
func (c *Config) ForRequest() map[string]any {
	n := c.own
	for _, key := range []string{"api_server", "admin_policy"} {
		if n != nil {
			n = n.Without(key)
		}
	}
	m, _ := n.Any().(map[string]any)
	return m
}

// Sender says whose configuration comes along with a request.
type Sender int

const (
	// Admin administers the server, as everybody does where nobody logs in.
	Admin Sender = iota
	// User logs in and is no administrator. Keys that make the server execute,
	// open or connect to something, or that choose whose rights it uses, are not
	// theirs to set: see [Spec.Admins].
	User
)

// takes reports whether a request of that sender may set the key, as far as the
// key itself is concerned: what is above or below it may say otherwise.
func takes(s *Spec, from Sender) bool {
	return !s.ServerOnly && (s.Admins == "" || from == Admin)
}

// Request returns the configuration under which a server answers a request:
// its own, with sent, the client's, laid over it. Keys that the sender may not
// set are dropped from sent, with a warning where the client's value differs.
// The result's warnings are those of this request. The error is an [*Error].
func (c *Config) Request(sent map[string]any, from Sender) (*Config, error) {
	d := dropped{own: c, from: from}
	over := d.clean(fromPlain(sent, yaml11.Place{Source: newSource(LayerRequest, "your configuration")}), Keys(), nil)
	out := *c
	out.warnings = nil
	if len(d.server) > 0 {
		out.warnings = append(out.warnings, Warning{slog.LevelWarn, Problem{Text: fmt.Sprintf(
			"your configuration sets %s differently from the API server; the server's values hold, since only it decides them", strings.Join(d.server, ", "))}})
	}
	if len(d.admins) > 0 {
		out.warnings = append(out.warnings, Warning{slog.LevelWarn, Problem{Text: fmt.Sprintf(
			"your configuration sets %s differently from the API server; the server's values hold, since only its administrators may set them", strings.Join(d.admins, ", "))}})
	}
	out.root = overlay(c.root, over, Keys())
	if problems, _ := validate(out.root, Server); len(problems) > 0 {
		return nil, &Error{Head: "the API server cannot use your configuration:", Problems: problems}
	}
	if p := out.missingWorkspace(); p != nil {
		return nil, &Error{Problems: []Problem{*p}}
	}
	return &out, nil
}

// dropped takes out of a client's configuration what its sender may not set.
type dropped struct {
	own    *Config
	from   Sender
	server []string // paths that only the server decides and that differ there
	admins []string // paths that only administrators may set and that differ
}

// clean returns n, which s describes, less what the sender may not set; nil if
// nothing is left. Entries of a map with names of the user's are looked into,
// too.
func (d *dropped) clean(n *yaml11.Node, s *Spec, path []string) *yaml11.Node {
	if n == nil || n.Kind != Map || s == nil || s == schema.Free {
		return n
	}
	out := n
	for _, e := range n.Entries {
		below := s.Find(e.Key.Text)
		if below == nil {
			continue // refused later, or passed on
		}
		at := append(slices.Clip(path), e.Key.Text)
		if takes(below, d.from) {
			if rest := d.clean(e.Value, below, at); rest == nil {
				out = out.Without(e.Key.Text)
			} else if rest != e.Value {
				out = out.With(e.Key.Text, e.Key.Place, rest)
			}
		} else {
			d.tell(below, at, e.Value)
			out = out.Without(e.Key.Text)
		}
		if out == nil {
			return nil
		}
	}
	return out
}

// tell notes a value that is dropped, if it differs from the server's.
func (d *dropped) tell(s *Spec, path []string, n *yaml11.Node) {
	if own := d.own.root.Find(path...); s.Quiet || own != nil && yaml11.Equal(own, n) {
		return
	}
	if s.ServerOnly {
		d.server = append(d.server, schema.Dotted(path))
	} else {
		d.admins = append(d.admins, schema.Dotted(path))
	}
}

package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/config/keys"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Side is where a configuration is read.
type Side int

const (
	// Client passes unknown keys of some sections on, since the server that
	// acts on them may be newer.
	Client Side = iota
	// Server refuses every key it does not know.
	Server
)

// checker compares values with their specs and collects what is wrong.
type checker struct {
	side     Side
	problems []Problem
	warnings []Warning
	path     []string
}

// validate checks a whole configuration.
func validate(root *yaml11.Node, side Side) ([]Problem, []Warning) {
	if root == nil {
		return nil, nil
	}
	c := &checker{side: side}
	c.value(root, Keys())
	if mode, section := onCluster(root); mode != nil && root.Lookup("db") != nil {
		c.under(section, func() {
			c.under("controller", func() { c.problem(mode.Place, "%s", NoClusterBesideDatabase(section)) })
		})
	}
	return c.problems, c.warnings
}

func (c *checker) problem(at yaml11.Place, format string, args ...any) {
	c.problems = append(c.problems, Problem{Origin: originOf(at), Path: dotted(c.path), Text: fmt.Sprintf(format, args...)})
}

func (c *checker) note(at yaml11.Place, level slog.Level, text string) {
	c.warnings = append(c.warnings, Warning{level, Problem{originOf(at), dotted(c.path), text}.String()})
}

func (c *checker) under(key string, f func()) {
	c.path = append(c.path, key)
	f()
	c.path = c.path[:len(c.path)-1]
}

func (c *checker) value(n *yaml11.Node, s *Spec) {
	if s == keys.Free {
		return
	}
	if !s.Kinds.Takes(n) {
		c.wrongKind(n, s)
		return
	}
	if s.Deprecated != "" {
		c.note(n.Place, slog.LevelWarn, "deprecated: "+s.Deprecated)
	}
	if s.Inert != "" {
		c.note(n.Place, slog.LevelInfo, "this changes nothing: "+s.Inert)
	}
	switch n.Kind {
	case Text:
		c.text(n, s)
	case Int, Float:
		if s.Min != nil && !(n.Number() >= *s.Min) {
			c.problem(n.Place, "%s is below the minimum of %s", show(s, n), strconv.FormatFloat(*s.Min, 'g', -1, 64))
		}
	case List:
		for i, item := range n.Items {
			if s.Items != nil {
				c.under("["+strconv.Itoa(i)+"]", func() { c.value(item, s.Items) })
			}
		}
	case Map:
		c.section(n, s)
	}
	if s.Check != nil {
		if wrong := s.Check(n.Value); wrong != "" {
			c.problem(n.Place, "%s", wrong)
		}
	}
}

func (c *checker) wrongKind(n *yaml11.Node, s *Spec) {
	expected := s.Describe()
	switch {
	case n.Kind == Null:
		c.problem(n.Place, "is empty; give it %s or remove the key", expected)
	case s.Kinds&Text != 0 && n.Kind&(Bool|Number) != 0 && len(s.Enum) == 0:
		c.problem(n.Place, "must be %s, not %s; put it in quotes", expected, show(s, n))
	default:
		c.problem(n.Place, "must be %s, not %s", expected, show(s, n))
	}
}

func (c *checker) text(n *yaml11.Node, s *Spec) {
	value := n.Value.(string)
	if len(s.Enum) > 0 && !s.Enumerates(value) {
		c.problem(n.Place, "%s is not one of %s%s", show(s, n), strings.Join(s.Enum, ", "), didYouMean(similar.Names(value, s.Enum)))
	}
	if s.Pattern != nil && !s.Pattern.Match(value) {
		c.problem(n.Place, "must be %s, not %s", s.Pattern.Means, show(s, n))
	}
}

func (c *checker) section(n *yaml11.Node, s *Spec) {
	if s.Single && len(n.Entries) != 1 {
		c.problem(n.Place, "must hold one key, a cluster name; it has %d: start a new list entry for each", len(n.Entries))
	}
	for _, e := range n.Entries {
		c.under(e.Key.Text, func() { c.entry(e, s) })
	}
	for _, key := range s.Required {
		if n.Lookup(key) == nil {
			c.problem(n.Place, "needs the key %s", key)
		}
	}
}

func (c *checker) entry(e yaml11.Entry, s *Spec) {
	if why, ok := s.Banned[e.Key.Text]; ok {
		c.problem(e.Key.Place, "cannot be set here: %s", why)
		return
	}
	if i := slices.IndexFunc(s.Keys, func(k keys.Key) bool { return k.Name == e.Key.Text }); i >= 0 {
		c.value(e.Value, s.Keys[i].Spec)
		return
	}
	if today, ok := s.Renamed[e.Key.Text]; ok {
		c.problem(e.Key.Place, "is a key of an earlier version; write %s", today)
		return
	}
	if s.Others != nil {
		if s.OthersNamed != nil && !s.OthersNamed.Match(e.Key.Text) {
			c.problem(e.Key.Place, "is not a valid name: it must be %s", s.OthersNamed.Means)
		}
		c.value(e.Value, s.Others)
		return
	}
	text := "unknown key" + c.suggest(e.Key.Text, s)
	if s.OpenToNewer && c.side == Client {
		c.note(e.Key.Place, slog.LevelWarn, text+"; the server decides whether it means anything")
		return
	}
	c.problem(e.Key.Place, "%s", text)
}

// suggest completes "unknown key" with the likely intention.
func (c *checker) suggest(key string, s *Spec) string {
	top := len(c.path) == 1
	if top && slices.Contains(Clouds(), key) {
		return fmt.Sprintf("; %s is set up by its own credential files, and only allowed_clouds and workspaces.<name>.%s.disabled mention it", key, key)
	}
	if near := similar.Names(key, s.Names()); len(near) > 0 {
		return didYouMean(near)
	}
	if below := elsewhere(key); top && len(below) > 0 && len(below) <= 3 {
		return didYouMean(below)
	}
	return "; known here: " + strings.Join(s.Names(), ", ")
}

// elsewhere returns the paths at which a key exists.
func elsewhere(key string) []string {
	var found []string
	Keys().Walk(nil, func(path []string, _ *Spec) bool {
		if len(path) > 1 && path[len(path)-1] == key && !slices.Contains(path, "[]") {
			found = append(found, strings.Join(path, "."))
		}
		return true
	})
	return found
}

// show describes a value in a message, without telling secrets.
func show(s *Spec, n *yaml11.Node) string {
	switch n.Kind {
	case Null:
		return "nothing"
	case List:
		return "a list"
	case Map:
		return "a section"
	}
	if s.Secret {
		return "what was given"
	}
	if n.Kind == Text {
		text := n.Value.(string)
		if len(text) > 80 {
			text = text[:80] + "…"
		}
		return strconv.Quote(text)
	}
	return asText(n)
}

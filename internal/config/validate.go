package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
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

// validate checks a whole configuration.
func validate(root *yaml11.Node, side Side) ([]Problem, []Warning) {
	if root == nil {
		return nil, nil
	}
	problems, warnings := judge(Keys(), root, schema.Options{Newer: side == Client, Suggest: suggest})
	if mode, section := onCluster(root); mode != nil && root.Lookup("db") != nil {
		problems = append(problems, ProblemAt(originOf(mode.Place), section+".controller", NoClusterBesideDatabase(section)))
	}
	return problems, warnings
}

// judge compares a value with its description.
func judge(s *Spec, n *yaml11.Node, o schema.Options, path ...string) (problems []Problem, warnings []Warning) {
	if n == nil {
		return nil, nil
	}
	for _, p := range s.Problems(n, o, path...) {
		found := Problem{Origin: originOf(p.Place), Path: p.Path, Text: p.Text, Hint: p.Hint}
		if p.Level < slog.LevelError {
			warnings = append(warnings, Warning{p.Level, found})
		} else {
			problems = append(problems, found)
		}
	}
	return problems, warnings
}

// suggest completes "unknown field …" at the top, where more than spelling is known.
func suggest(path []string) string {
	if len(path) != 1 {
		return ""
	}
	key := path[0]
	if slices.Contains(Clouds(), key) {
		return fmt.Sprintf("; %s is set up by its own credential files, and only allowed_clouds and workspaces.<name>.%s.disabled mention it", key, key)
	}
	if len(similar.Names(key, Keys().Names())) > 0 {
		return ""
	}
	if below := elsewhere(key); len(below) > 0 && len(below) <= 3 {
		return "; did you mean " + strings.Join(below, " or ") + "?"
	}
	return ""
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

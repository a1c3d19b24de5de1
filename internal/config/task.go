package config

import (
	"log/slog"
	"strings"

	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// ForTask returns the configuration with a task's config section laid over it.
// The section may only set what a task may; hooks are not looked at. The error
// is an [*Error].
func (c *Config) ForTask(values map[string]any) (*Config, error) {
	if len(values) == 0 {
		return c, nil
	}
	over := fromPlain(values, yaml11.Place{Source: newSource(LayerTask, "config section of the task")}).Without("hooks")
	check := &checker{side: c.side}
	if over != nil {
		check.taskSection(over, Keys())
	}
	if len(check.problems) > 0 {
		return nil, &Error{Problems: check.problems}
	}
	out := *c
	out.root = overlay(c.root, over, Keys())
	out.warnings = check.warnings
	if c.side == Server {
		if p := out.missingWorkspace(); p != nil {
			return nil, &Error{Problems: []Problem{*p}}
		}
	}
	return &out, nil
}

// TaskPart returns what of values, such as those of --config, a task may set,
// or nil. It is what goes into a task's config section.
func TaskPart(values map[string]any) map[string]any {
	return taskPart(values, Keys())
}

func taskPart(values map[string]any, s *Spec) map[string]any {
	var out map[string]any
	for key, v := range values {
		below := s.Find(key)
		if below == nil {
			continue
		}
		if section, ok := v.(map[string]any); ok && !below.TaskMay {
			part := taskPart(section, below)
			if part == nil {
				continue
			}
			v = part
		} else if !below.TaskMay {
			continue
		}
		if out == nil {
			out = map[string]any{}
		}
		out[key] = v
	}
	return out
}

// taskSection checks a section of which a task may set some keys.
func (c *checker) taskSection(n *yaml11.Node, s *Spec) {
	for _, e := range n.Entries {
		c.under(e.Key.Text, func() {
			below := s.Find(e.Key.Text)
			switch {
			case below == nil && s.OpenToNewer && c.side == Client:
				c.note(e.Key.Place, slog.LevelWarn, "unknown key; the server decides whether it means anything")
			case below == nil:
				c.problem(e.Key.Place, "unknown key%s", didYouMean(similar.Names(e.Key.Text, taskNames(s))))
			case below.TaskMay:
				c.value(e.Value, below)
			case e.Value.Kind == Map && len(taskNames(below)) > 0:
				c.taskSection(e.Value, below)
			default:
				c.problem(e.Key.Place, "a task cannot set it; set it in ~/.sky/config.yaml or with --config. Tasks can set here: %s", strings.Join(taskNames(s), ", "))
			}
		})
	}
}

// taskNames returns the keys of a section that a task may set, or set
// something in.
func taskNames(s *Spec) []string {
	var names []string
	for _, k := range s.Keys {
		if k.TaskMay || len(taskNames(k.Spec)) > 0 {
			names = append(names, k.Name)
		}
	}
	if s == Keys() {
		names = append(names, "hooks")
	}
	return names
}

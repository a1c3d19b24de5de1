package config

import (
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/schema"
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
	problems, warnings := judge(taskKeys(), over, schema.Options{Newer: c.side == Client}, "config")
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	out := *c
	out.root = overlay(c.root, over, Keys())
	out.warnings = warnings
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

// taskKeys describes the config section of a task: of [Keys], what a task may set.
var taskKeys = sync.OnceValue(func() *Spec {
	s := forTasks(Keys())
	s.Keys = append(s.Keys, schema.New("hooks", schema.Anything("Checked where tasks are.")))
	return s
})

func forTasks(s *Spec) *Spec {
	out := *s
	out.Keys, out.Others, out.Required = nil, nil, nil
	answer := "a task cannot set it; set it in ~/.sky/config.yaml or with --config. Tasks can set here: " + strings.Join(taskNames(s), ", ")
	for _, k := range s.Keys {
		switch {
		case k.TaskMay:
			out.Keys = append(out.Keys, k)
		case len(taskNames(k.Spec)) > 0:
			out.Keys = append(out.Keys, schema.New(k.Name, forTasks(k.Spec)))
		default:
			out.Without(answer, k.Name)
		}
	}
	return &out
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

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/skypilot-go/sky/task"
)

// entrypoint reads what is to be run: a task file, a recipe of the server, or
// else a shell command; nothing is a task that only brings up machines.
func (a *app) entrypoint(ctx context.Context, words []string, yes bool) (*task.Dag, error) {
	text := strings.Join(words, " ")
	if name, ok := strings.CutPrefix(text, "recipes:"); ok {
		return a.recipe(ctx, name)
	}
	path := expandHome(text, a.home)
	switch problem := fileProblem(path); {
	case text == "":
		return task.Command(""), nil
	case problem == "":
		a.say("YAML to run: " + text)
		dag, err := task.Load(path)
		if err == nil && dag.Execution == task.Parallel {
			a.say("Detected JobGroup YAML")
		}
		return dag, err
	case looksLikeYAML(text):
		if yes {
			return nil, fmt.Errorf("'%s' looks like a task file but %s", text, problem)
		}
		err := a.t.Confirm(ctx, fmt.Sprintf("'%s' looks like a yaml path but %s\nIt will be treated as a command to be run remotely. Continue?", text, problem), false)
		if err != nil {
			return nil, err
		}
	}
	a.say("Command to run: " + text)
	return task.Command(text), nil
}

// looksLikeYAML: one word with the ending of a task file.
func looksLikeYAML(text string) bool {
	return !strings.ContainsAny(text, " \t\n") && (strings.HasSuffix(text, "yaml") || strings.HasSuffix(text, ".yml"))
}

// fileProblem says why path is no task file; "" if it is one. A file that holds
// only a text is a script, not a task. YAML that is broken counts as a task file
// if its name says so, so that the error names the line.
func fileProblem(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "does not exist. Please check if the path is correct."
	case info.IsDir():
		return "is not a file. Please check if the path is correct."
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "cannot be read: " + err.Error()
	}
	var doc any
	first, _, _ := strings.Cut(string(data), "\n---")
	if err := yaml.Unmarshal([]byte(first), &doc); err != nil {
		if strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml") {
			return ""
		}
		return "contains an invalid configuration. Please check syntax."
	}
	if _, plain := doc.(string); plain {
		return "holds only a text, no task."
	}
	return ""
}

// recipe fetches a task that the server keeps.
func (a *app) recipe(ctx context.Context, name string) (*task.Dag, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	req, err := c.Recipe(ctx, name)
	r, err := quiet(ctx, req, err)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("Recipe not found: %s", name) //nolint:staticcheck // shown as is
	}
	a.t.Println("Recipe to run: " + name)
	return task.Parse("recipes:"+name, []byte(r.Content))
}

// expandHome turns "~" and "~/x" into paths below home.
func expandHome(path, home string) string {
	if path == "~" {
		return home
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return path
}

// absolutePaths makes the local paths of a Dag independent of the working folder
// and of "~", so that the server can find them.
func absolutePaths(d *task.Dag, cwd, home string) {
	abs := func(p string) string {
		if p == "" || strings.Contains(p, "://") {
			return p
		}
		if p = expandHome(p, home); !filepath.IsAbs(p) {
			p = filepath.Join(cwd, p)
		}
		return filepath.Clean(p)
	}
	for _, t := range d.Tasks {
		t.Workdir = abs(t.Workdir)
		for dst, src := range t.FileMounts {
			t.FileMounts[dst] = abs(src)
		}
		for dst, m := range t.StorageMounts {
			for i, s := range m.Sources {
				m.Sources[i] = abs(s)
			}
			t.StorageMounts[dst] = m
		}
		if t.Service != nil {
			t.Service.TLSKeyfile, t.Service.TLSCertfile = abs(t.Service.TLSKeyfile), abs(t.Service.TLSCertfile)
		}
	}
}

// missingPaths lists the local files that a Dag names and that do not exist.
func missingPaths(d *task.Dag) error {
	var problems []error
	need := func(what, path string) {
		if path == "" || strings.Contains(path, "://") || strings.HasPrefix(path, "skypilot:") {
			return
		}
		if _, err := os.Stat(path); err != nil {
			problems = append(problems, fmt.Errorf("%s %s does not exist on this machine", what, path))
		}
	}
	for _, t := range d.Tasks {
		need("workdir", t.Workdir)
		if info, err := os.Stat(t.Workdir); t.Workdir != "" && err == nil && !info.IsDir() {
			problems = append(problems, fmt.Errorf("workdir %s is not a folder", t.Workdir))
		}
		for dst, src := range t.FileMounts {
			need("file_mounts: the source of "+dst+",", src)
		}
		for dst, m := range t.StorageMounts {
			for _, s := range m.Sources {
				need("file_mounts: the source of "+dst+",", s)
			}
		}
	}
	return errors.Join(problems...)
}

// load reads the entry point, lays the options over it and makes it ready to be
// sent.
func (a *app) load(ctx context.Context, words []string, t *taskFlags, yes bool) (*task.Dag, error) {
	o, err := t.overrides(a)
	if err != nil {
		return nil, err
	}
	dag, err := a.entrypoint(ctx, words, yes)
	if err != nil {
		return nil, err
	}
	for _, w := range dag.Warnings() {
		a.t.Warn("%s", w)
	}
	warnings, err := dag.Override(o)
	for _, w := range warnings {
		a.t.Warn("%s", w)
	}
	if err != nil {
		return nil, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	absolutePaths(dag, cwd, a.home)
	return dag, missingPaths(dag)
}

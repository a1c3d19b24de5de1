package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/yaml11"
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
	docs, err := (&yaml11.Source{Text: string(data)}).Read()
	if err != nil {
		if strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml") {
			return ""
		}
		return "contains an invalid configuration. Please check syntax."
	}
	if len(docs) > 0 && docs[0].Kind == yaml11.Text {
		return "holds only a text, no task."
	}
	return ""
}

// recipe fetches a task that the server keeps.
func (a *app) recipe(ctx context.Context, name string) (*task.Dag, error) {
	if err := a.able(ctx, "recipes.get", "recipes:NAME"); err != nil {
		return nil, err
	}
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

// load reads the entry point, lays the options over it and makes it ready to be
// sent: what is wrong with it is found here, with its place in the file.
func (a *app) load(ctx context.Context, words []string, t *taskFlags, yes bool) (*task.Dag, error) {
	d, err := a.read(ctx, words, t, yes)
	if err != nil {
		return nil, err
	}
	return a.ready(d)
}

// draft is a Dag that was read and not checked yet, but for its config sections:
// those are looked at before options are laid over them.
type draft struct {
	*task.Dag
	settings error
}

// read reads the entry point and lays the options over it.
func (a *app) read(ctx context.Context, words []string, t *taskFlags, yes bool) (draft, error) {
	o, err := t.overrides(a)
	if err != nil {
		return draft{}, err
	}
	e := entry{words: words, command: typedAgain(t.command, a.given), copying: typedAgain(t.command, a.given, "workdir"), synced: t.workdir != "" || strings.HasPrefix(t.command, "sky exec "), kind: a.kindOf, installed: a.installedHere}
	if mistake := e.mistake(); mistake != "" {
		return draft{}, usagef("%s", mistake)
	}
	dag, err := a.entrypoint(ctx, words, yes)
	if err != nil {
		return draft{}, err
	}
	return a.overridden(dag, t, o)
}

// typedAgain is a command with the options that it was given, but for those named.
func typedAgain(command string, given *pflag.FlagSet, but ...string) string {
	return strings.TrimSpace(command + " " + givenOptions(given, but...))
}

// overridden lays options over a Dag that was read.
func (a *app) overridden(dag *task.Dag, t *taskFlags, o task.Overrides) (draft, error) {
	doubts, settings := checkSettings(dag)
	for _, e := range doubts {
		a.t.Warn("%s", e)
	}
	for _, w := range dag.Warnings() {
		a.t.Warn("%s", w)
	}
	warnings, err := dag.Override(o)
	for _, w := range warnings {
		a.t.Warn("%s", w)
	}
	if err == nil {
		err = t.checkPriority(dag)
	}
	return draft{dag, settings}, err
}

// ready checks a Dag as `sky task check` does and makes its paths absolute.
func (a *app) ready(d draft) (*task.Dag, error) {
	o := task.CheckOptions{Home: a.home}
	wrong := append(task.AllErrors(d.Check(o)), task.AllErrors(d.settings)...)
	if len(wrong) > 0 {
		return nil, task.Errors(wrong)
	}
	d.AbsolutePaths(o)
	a.dag = d.Dag
	return d.Dag, d.settings
}

// checkSettings says what is wrong with the config sections of tasks, which
// must be as their files have them. What only a newer server may understand is
// a warning.
func checkSettings(dag *task.Dag) (warnings task.Errors, err error) {
	client, err := config.FromMap(config.Client, config.Origin{}, nil)
	if err != nil {
		return nil, err
	}
	server, err := config.FromMap(config.Server, config.Origin{}, nil)
	if err != nil {
		return nil, err
	}
	var wrong task.Errors
	for _, t := range dag.Tasks {
		if len(t.Config) == 0 {
			continue
		}
		found := settingsProblems(client, t)
		wrong = append(wrong, found...)
		for _, e := range settingsProblems(server, t) {
			known := slices.ContainsFunc(found, func(x *task.Error) bool { return x.Field == e.Field })
			if !known && e.Field != "config.active_workspace" { // which workspaces there are, the real server knows
				warnings = append(warnings, e)
			}
		}
	}
	if len(wrong) > 0 {
		return warnings, wrong
	}
	return warnings, nil
}

// settingsProblems lays a task's config section over c.
func settingsProblems(c *config.Config, t *task.Task) task.Errors {
	_, err := c.ForTask(t.Config)
	wrong, ok := errors.AsType[*config.Error](err)
	if !ok {
		return nil
	}
	var out task.Errors
	for _, p := range wrong.Problems {
		e := t.ErrorAt(p.Path, "%s", p.Text)
		e.Hint = p.Hint
		out = append(out, e)
	}
	return out
}

package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/task"
)

func (a *app) taskCommand() *cobra.Command {
	return a.build(command{
		name: "task", short: "Task files: check them, format them, describe them to editors.",
		example: "sky task check *.yaml\nsky task format -w task.yaml\nsky task schema > task.schema.json",
		group:   []*cobra.Command{a.taskCheckCommand(), a.taskFormatCommand(), a.taskSchemaCommand()},
	})
}

// taskCheckOptions are the flags of sky task check.
type taskCheckOptions struct {
	taskFlags
	noFiles bool
}

func (a *app) taskCheckCommand() *cobra.Command {
	var o taskCheckOptions
	return a.build(command{
		name: "check", args: "FILES...", short: "Say what is wrong with task files, and where.", min: 1, max: -1, noConfig: true,
		long: "Every mistake is shown with file, line and column. Nothing is sent anywhere; - reads standard input.\n" +
			"Paths in a task start at the current folder, as with sky launch.\n\n" +
			"The exit code is 1 if any file is wrong.",
		example: "sky task check task.yaml\n" +
			"sky task check --no-files jobs/*.yaml          # on a machine that lacks the task's files\n" +
			"sky task check --env MODEL=small train.yaml    # variables that the file leaves open\n" +
			"sky task check -o json - < task.yaml           # for editors and scripts",
		flags: func(f flags) {
			f.on(&o.noFiles, "no-files", "", "Leave out whether workdir and the sources of file_mounts exist.")
			f.variables(&o.taskFlags)
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, files []string) error { return a.taskCheck(ctx, files, o) },
	})
}

// variables are the options that give a task's variables their values.
func (f flags) variables(t *taskFlags) {
	f.text(&t.envFile, "env-file", "", "File of KEY=VALUE lines for the tasks' environment.")
	f.texts(&t.envs, "env", "", "KEY=VALUE for the tasks' environment; KEY alone takes the value here (may be repeated).")
	f.text(&t.secretFile, "secret-file", "", "File of KEY=VALUE lines that are secrets.")
	f.texts(&t.secrets, "secret", "", "KEY=VALUE that is a secret; KEY alone takes the value here (may be repeated).")
}

func (a *app) taskCheck(ctx context.Context, files []string, o taskCheckOptions) error {
	over, err := o.overrides(a)
	if err != nil {
		return err
	}
	c := taskChecker{over, task.CheckOptions{NoFiles: o.noFiles, Home: a.home}, a.readFile}
	found := make([][]problem, len(files))
	// Files are independent of each other; results keep the order given.
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return
				}
				found[i] = c.check(files[i])
			}
		})
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	var v verdict
	for _, f := range found {
		v.add(f)
	}
	return a.report(v, "task")
}

// taskChecker checks task files, several at the same time if asked.
type taskChecker struct {
	over task.Overrides
	how  task.CheckOptions
	read func(file string) ([]byte, error)
}

func (c taskChecker) check(file string) []problem {
	name := fileTitle(file)
	data, err := c.read(file)
	if err != nil {
		return taskProblems(name, err)
	}
	dag, err := task.Parse(name, data)
	if err != nil {
		return taskProblems(name, err)
	}
	var out []problem
	warn := func(texts []string) {
		for _, w := range texts {
			out = append(out, problem{File: name, Severity: severityWarning, Message: w})
		}
	}
	warn(dag.Warnings())
	doubts, settings := checkSettings(dag)
	for _, e := range doubts {
		for _, p := range taskProblems(name, e) {
			p.Severity = severityWarning
			out = append(out, p)
		}
	}
	warnings, err := dag.Override(c.over)
	warn(warnings)
	if err == nil {
		err = dag.Check(c.how)
	}
	return append(append(out, taskProblems(name, err)...), taskProblems(name, settings)...)
}

// fileTitle is what messages call a file.
func fileTitle(file string) string {
	if file == "-" {
		return "<stdin>"
	}
	return file
}

// readFile reads a file, or standard input for "-". The error does not repeat
// the name.
func (a *app) readFile(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(a.p.Stdin)
	}
	data, err := os.ReadFile(file)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("this file does not exist")
	}
	return data, err
}

func (a *app) taskSchemaCommand() *cobra.Command {
	return a.build(command{
		name: "schema", short: "Print the JSON Schema of task files, for editors.", noConfig: true,
		long: "It is of draft 2020-12. Editors complete and check fields while you write if a task file begins with\n" +
			"    # yaml-language-server: $schema=task.schema.json",
		example: "sky task schema > task.schema.json",
		run: func(context.Context, *cobra.Command, []string) error {
			a.t.Print(string(task.JSONSchema()))
			return nil
		},
	})
}

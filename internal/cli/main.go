package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// Main runs one command and returns the exit code of the process.
func Main(p Program) (code int) {
	if len(p.Args) > 0 && p.Args[0] == "agent" && p.Agent != nil {
		return p.Agent(p.Args[1:])
	}
	if len(p.Args) > 0 && p.Args[0] == "sky-mount" && p.Mount != nil {
		return p.Mount(p.Args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := newApp(p)
	defer func() {
		if r := recover(); r != nil {
			a.t.Note("%s sky stumbled over its own mistake: %v. Please report it with what you did.", a.t.ErrStyle(term.Red, "Error:"), r)
			if a.debug() {
				a.t.Note("%s", debug.Stack())
			}
			code = 1
		}
	}()
	go func() { // a second Ctrl-C ends the process at once
		<-ctx.Done()
		stop()
	}()
	return a.exitCode(a.run(ctx))
}

// app is the state of one run of the command line.
type app struct {
	p       Program
	environ []string
	t       *term.Term
	home    string
	now     func() time.Time

	configs   []string       // values of --config
	workspace string         // value of --workspace
	output    string         // value of --output: table, json, yaml
	typed     string         // the command as typed
	given     *pflag.FlagSet // options of the command that runs; nil: none does
	timeline  *timeline      // nil: none is wanted

	settings *settings
	client   *sky.Client
	health   *api.Health
	dag      *task.Dag // that the command has read; nil: it reads none
}

func newApp(p Program) *app {
	a := &app{p: p, environ: p.Environ, now: time.Now, output: "table"}
	if a.environ == nil {
		a.environ = os.Environ()
	}
	a.t = term.New(p.Stdin, p.Stdout, p.Stderr, a.env)
	if a.home = a.env("HOME"); a.home == "" {
		a.home, _ = os.UserHomeDir()
	}
	a.typed = "sky " + shellJoin(withoutSecrets(p.Args))
	return a
}

// env is the last value of a variable, "" if it is not set.
func (a *app) env(key string) string {
	v, _ := a.lookupEnv(key)
	return v
}

func (a *app) lookupEnv(key string) (string, bool) {
	for _, kv := range slices.Backward(a.environ) {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}

func (a *app) debug() bool { return config.Debug.On(a.lookupEnv) }

func (a *app) run(ctx context.Context) error {
	root := a.root()
	if shell, ok := strings.CutSuffix(a.env("_SKY_COMPLETE"), "_source"); ok { // as rc files of earlier versions ask
		script, err := completionScript(root, shell)
		a.t.Print(script)
		return err
	}
	args := rewrite(a.p.Args)
	if err := unknownCommand(root, args); err != nil {
		return err
	}
	root.SetArgs(args)
	root.SetIn(a.p.Stdin)
	root.SetOut(a.p.Stdout)
	root.SetErr(a.p.Stderr)
	err := root.ExecuteContext(ctx)
	a.t.NoteLeftOut()
	if werr := a.writeTimeline(); werr != nil {
		a.t.Warn("%v", werr)
		if err == nil {
			err = exitError(1)
		}
	}
	return err
}

// exitError ends the process with a code, silently.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a wrong use of a command.
type usageError struct {
	cmd  *cobra.Command
	text string
}

func (e *usageError) Error() string { return e.text }

// exitCode shows err as its kind demands and returns the process's exit code.
func (a *app) exitCode(err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	if u, ok := errors.AsType[*usageError](err); ok {
		a.showUsageError(u)
		return 2
	}
	switch {
	case errors.Is(err, term.ErrAborted), errors.Is(err, context.Canceled):
		a.t.Note("Aborted!")
		return 1
	case errors.Is(err, syscall.EPIPE):
		return 1 // the reader of a pipe went away
	}
	a.showError(err)
	return 1
}

func (a *app) showError(err error) {
	if e, ok := errors.AsType[*api.Error](err); ok {
		if at := a.placed(e); at != nil {
			for _, p := range taskProblems(at.File, at) {
				a.t.Note("%s", a.plainErr(strings.TrimSuffix(p.text(a.t.ErrStyle), "\n")))
			}
			return
		}
		a.t.Note("%s", a.t.ErrStyle(term.Red, className(e.Type)+": ")+a.plainErr(e.Message))
		if e.Hint != "" {
			a.t.Note("Hint: %s", a.plainErr(e.Hint))
		}
		if trace, ok := e.Attributes["stacktrace"].(string); ok && a.debug() {
			a.t.Note("%s", trace)
		}
		return
	}
	if all := task.AllErrors(err); len(all) > 0 && all[0].File != "" {
		for _, e := range all { // as sky task check shows them
			for _, p := range taskProblems(e.File, e) {
				a.t.Note("%s", strings.TrimSuffix(p.text(a.t.ErrStyle), "\n"))
			}
		}
		return
	}
	text := err.Error()
	if advice := a.lostAdvice(err); advice != "" {
		text = strings.TrimSuffix(text, ".") + ". " + advice
	}
	a.t.Note("%s", a.t.ErrStyle(term.Red, "Error: ")+text)
}

func (a *app) plainErr(s string) string {
	if a.t.ErrColor {
		return s
	}
	return plainText(s)
}

// builtins are the classes that clients know without a module path.
var builtins = map[string]bool{
	"Exception": true, "ValueError": true, "RuntimeError": true, "TypeError": true, "KeyError": true, "IndexError": true,
	"AttributeError": true, "FileNotFoundError": true, "FileExistsError": true, "PermissionError": true, "OSError": true,
	"NotImplementedError": true, "TimeoutError": true, "ConnectionError": true, "AssertionError": true, "ImportError": true,
	"NotADirectoryError": true, "IsADirectoryError": true, "InterruptedError": true, "KeyboardInterrupt": true,
}

// className is how a class of error is shown.
func className(class string) string {
	if class == "" {
		return "RuntimeError"
	}
	if builtins[class] || strings.Contains(class, ".") {
		return class
	}
	return "sky.exceptions." + class
}

// withoutSecrets hides the values of options that hold secrets, since the command
// as typed is shown to others.
func withoutSecrets(args []string) []string {
	out := slices.Clone(args)
	for i, arg := range out {
		if arg == "--" {
			break
		}
		name, v, joined := strings.Cut(arg, "=")
		if !secretOptions[name] {
			continue
		}
		if joined {
			out[i] = name + "=" + hideValue(name, v)
		} else if i+1 < len(out) {
			out[i+1] = hideValue(name, out[i+1])
		}
	}
	return out
}

var secretOptions = map[string]bool{"--secret": true, "--env": true, "--token": true, "--service-account-token": true}

// hideValue keeps the name in NAME=VALUE.
func hideValue(option, v string) string {
	if option == "--secret" || option == "--env" {
		name, _, ok := strings.Cut(v, "=")
		if !ok || option == "--env" && !task.SecretName(name) {
			return v // the name of a variable, or one that may be seen
		}
		return name + "=" + task.Redacted
	}
	return task.Redacted
}

// shellJoin quotes arguments so that a shell would read them as given.
func shellJoin(args []string) string {
	quoted := make([]string, len(args))
	for i, s := range args {
		quoted[i] = shellQuote(s)
	}
	return strings.Join(quoted, " ")
}

func shellQuote(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%_-+=:,./", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}

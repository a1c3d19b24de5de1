package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:embed testdata/commands.txt
var commandsText string

// TestEveryCommandAndOption compares the tree of commands with the table of what
// people's scripts use. A line that goes is a promise broken.
func TestEveryCommandAndOption(t *testing.T) {
	root := newApp(Program{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Environ: []string{"HOME=/nowhere"}}).root()
	for line := range strings.Lines(commandsText) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		columns := strings.SplitN(line, " |", 3)
		name, hidden := strings.CutPrefix(columns[0], "~")
		args, options := strings.TrimSpace(columns[1]), columns[2]
		t.Run(name, func(t *testing.T) {
			cmd, concealed := root, false
			if name != "sky" {
				for w := range strings.FieldsSeq(name) {
					if cmd = find(cmd, w); cmd == nil {
						t.Fatalf("there is no %q", name)
					}
					concealed = concealed || cmd.Hidden
				}
			}
			if concealed != hidden {
				t.Errorf("hidden is %v", concealed)
			}
			if got, want := cmd.Annotations["args"], args; got != want && name != "sky" {
				t.Errorf("the arguments are %q, want %q", got, want)
			}
			for o := range strings.FieldsSeq(options) {
				checkOption(t, cmd, o)
			}
		})
	}
}

func checkOption(t *testing.T, cmd *cobra.Command, spec string) {
	spec, hidden := strings.CutPrefix(spec, "~")
	spec, switchable := strings.CutSuffix(spec, "!")
	spec, optional := strings.CutSuffix(spec, "?")
	names, value, takes := strings.Cut(spec, "=")
	long, short, _ := strings.Cut(strings.TrimPrefix(names, "--"), "/-")
	f := cmd.Flags().Lookup(long)
	if f == nil {
		t.Errorf("there is no --%s", long)
		return
	}
	if f.Hidden != hidden {
		t.Errorf("--%s: hidden is %v", long, f.Hidden)
	}
	if f.Shorthand != short {
		t.Errorf("--%s: the short form is %q, want %q", long, f.Shorthand, short)
	}
	if (f.NoOptDefVal == "") != takes {
		t.Errorf("--%s: takes a value: %v", long, !takes)
	}
	if f.Usage == "" && !hidden {
		t.Errorf("--%s has no help", long)
	}
	if no := cmd.Flags().Lookup("no-" + long); (no != nil) != switchable && !optional {
		t.Errorf("--no-%s: %v", long, no != nil)
	}
	switch number, isNumber := strings.CutPrefix(value, "#"); {
	case isNumber:
		refused(t, f, "x")
		if number != "" && f.DefValue != number && !strings.Contains(f.Usage, number) {
			t.Errorf("--%s: the default is %q, want %s", long, f.DefValue, number)
		}
	case value == "*":
		_, repeats := f.Value.(pflag.SliceValue)
		if !repeats && !strings.Contains(f.Usage, "repeated") {
			t.Errorf("--%s cannot be repeated", long)
		}
	case strings.Contains(value, "|"):
		values := strings.Split(value, "|")
		for _, v := range values {
			if err := f.Value.Set(strings.ToUpper(v)); err != nil {
				t.Errorf("--%s %s: %v", long, v, err)
			}
		}
		refused(t, f, "nonsense")
		if i := slices.Index(values, "json"); i >= 0 && f.Value.Set("yaml") != nil {
			t.Errorf("--%s yaml is refused", long)
		}
	}
}

func refused(t *testing.T, f *pflag.Flag, value string) {
	if f.Value.Set(value) == nil {
		t.Errorf("--%s takes %q", f.Name, value)
	}
}

// TestEveryHelpHasAnExample: a command that people find has at least one line to
// copy. Those of earlier versions say what to type today instead.
func TestEveryHelpHasAnExample(t *testing.T) {
	root := newApp(Program{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Environ: []string{"HOME=/nowhere"}}).root()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		old := strings.HasPrefix(cmd.Short, "Removed") || strings.HasPrefix(cmd.Short, "Deprecated")
		if cmd.Example == "" && !old {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if line != "" && !works(root, line) {
				t.Errorf("%s: %q does not work", cmd.CommandPath(), line)
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
}

// works reports whether the last sky command of an example exists with its
// options.
func works(root *cobra.Command, line string) bool {
	line, _, _ = strings.Cut(line, " #")
	_, line, ok := strings.Cut(" "+strings.NewReplacer("<(", " ", "$(", " ").Replace(line), " sky ")
	if !ok {
		return false
	}
	line, _, _ = strings.Cut(line, " -- ")
	args := rewrite(strings.Fields(strings.TrimRight(line, ")")))
	if unknownCommand(root, args) != nil {
		return false
	}
	cmd, rest, err := root.Find(args)
	return err == nil && cmd.ParseFlags(rest) == nil
}

// The help of a command that does nothing without arguments which its usage line shows
// as optional says what it needs, and no other help does.
func TestHelpSaysWhatIsNeeded(t *testing.T) {
	srv := httptest.NewServer(newFakeAPI())
	defer srv.Close()
	t.Chdir(t.TempDir())
	home := t.TempDir()
	program := func(args ...string) Program {
		return Program{Args: args, Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{},
			Environ: []string{"HOME=" + home, "SKYPILOT_API_SERVER_ENDPOINT=" + srv.URL}}
	}
	tried := 0
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		for _, c := range cmd.Commands() {
			walk(c, append(slices.Clone(path), c.Name()))
		}
		args := cmd.Annotations["args"]
		if cmd.HasSubCommands() || !strings.Contains(args, "[") || strings.Contains(args, "--") || cmd.Hidden {
			return
		}
		words := slices.Clone(path)
		for name := range strings.FieldsSeq(args) {
			if !strings.HasPrefix(name, "[") {
				words = append(words, "1")
			}
		}
		tried++
		err := newApp(program(words...)).run(t.Context())
		_, refused := errors.AsType[*usageError](err)
		if says := strings.HasPrefix(cmd.Long, "Needs "); says != refused {
			t.Errorf("sky %s: help says that it needs something: %v; it does: %v (%v)", strings.Join(words, " "), says, refused, err)
		}
	}
	walk(newApp(program()).root(), nil)
	if tried < 20 {
		t.Errorf("only %d commands were tried", tried)
	}
}

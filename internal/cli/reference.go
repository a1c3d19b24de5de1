package cli

import (
	"bytes"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CommandDoc is what the reference says about one command.
type CommandDoc struct {
	Path     string // "sky jobs launch"
	Usage    string
	Short    string // one line
	Long     string // more, after Short; lines that begin with spaces are shown as they are
	Example  string // lines of shell
	Aliases  []string
	Options  []OptionDoc
	Commands []string // names of what is below it
}

// OptionDoc is one option as the help shows it.
type OptionDoc struct{ Names, Text string }

// Reference lists every command that the help shows, in its order; what is above
// comes before what is below.
func Reference() []CommandDoc {
	a := newApp(Program{Stdin: &bytes.Buffer{}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Environ: []string{}})
	var out []CommandDoc
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		d := CommandDoc{
			Path: cmd.CommandPath(), Usage: usageLine(cmd), Short: cmd.Short, Long: cmd.Long, Example: cmd.Example, Aliases: cmd.Aliases,
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				d.Options = append(d.Options, OptionDoc{strings.TrimSpace(optionColumn(f)), optionHelp(f)})
			}
		})
		shown := shownCommands(cmd)
		for _, c := range shown {
			d.Commands = append(d.Commands, c.Name())
		}
		out = append(out, d)
		for _, c := range shown {
			walk(c)
		}
	}
	walk(a.root())
	return out
}

// shownCommands are the subcommands that the help lists.
func shownCommands(cmd *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range cmd.Commands() {
		if !c.Hidden && !strings.HasPrefix(c.Name(), "__") {
			out = append(out, c)
		}
	}
	return out
}

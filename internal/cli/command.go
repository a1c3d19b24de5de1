package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/table"
)

// command describes one command; group and run exclude each other.
type command struct {
	name  string
	args  string // of the usage line: "[CLUSTERS]..."
	short string // one line
	long  string // more, after short
	// needs says which of args and options must be there although each may be left out:
	// "CLUSTERS or --all".
	needs   string
	example string
	hidden  bool
	aliases []string

	min, max int // number of arguments; max < 0: any number
	noConfig bool
	flags    func(f flags)
	run      func(ctx context.Context, cmd *cobra.Command, args []string) error
	// complete lists candidates for an argument; nil completes file names.
	complete func(prefix string, args []string) []string

	group []*cobra.Command
}

// build makes the cobra command.
func (a *app) build(c command) *cobra.Command {
	if c.needs != "" {
		c.long = strings.TrimSpace("Needs " + c.needs + ".\n" + c.long)
	}
	cmd := &cobra.Command{
		Use: c.name, Short: c.short, Long: c.long, Example: c.example, Hidden: c.hidden, Aliases: c.aliases,
		Annotations:           map[string]string{"args": c.args},
		SilenceErrors:         true,
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	if c.flags != nil {
		c.flags(flags{fs})
	}
	if !c.noConfig && c.run != nil {
		fs.StringArrayVar(&a.configs, "config", nil, "Settings for this command: a file, or KEY.SUB=VALUE (may be repeated).")
	}
	fs.BoolP("help", "h", false, "Show this help and exit.")
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { a.t.Print(helpPage(cmd)) })
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err) })
	cmd.AddCommand(c.group...)
	if c.run == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		return cmd
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return countArgs(cmd, c, args) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.given = cmd.Flags()
		err := c.run(cmd.Context(), cmd, args)
		if u, ok := errors.AsType[*usageError](err); ok && u.cmd == nil {
			u.cmd = cmd
		}
		return err
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if c.complete == nil {
			if c.max == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		}
		return c.complete(prefix, args), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// usagef is a usage error of the command that runs.
func usagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

func countArgs(cmd *cobra.Command, c command, args []string) error {
	names := strings.Fields(c.args)
	switch {
	case len(args) < c.min:
		return &usageError{cmd, fmt.Sprintf("Missing argument '%s'.", names[min(len(args), len(names)-1)])}
	case c.max >= 0 && len(args) > c.max:
		return &usageError{cmd, fmt.Sprintf("Got unexpected extra %s (%s)", pluralArgs(len(args)-c.max), strings.Join(args[c.max:], " "))}
	}
	return nil
}

func pluralArgs(n int) string {
	if n == 1 {
		return "argument"
	}
	return "arguments"
}

// flagError turns pflag's errors into usage errors.
func flagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := e.GetSpecifiedName()
		if short := e.GetSpecifiedShortnames(); short != "" {
			return &usageError{cmd, "No such option: -" + name}
		}
		return &usageError{cmd, "No such option: --" + name + suggestOptions(cmd, name)}
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return &usageError{cmd, fmt.Sprintf("Option '%s' requires an argument.", optionName(e.GetFlag(), e.GetSpecifiedName()))}
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return &usageError{cmd, fmt.Sprintf("Invalid value for '%s': %s.", optionNames(e.GetFlag()), strings.TrimSuffix(e.Unwrap().Error(), "."))}
	}
	return &usageError{cmd, err.Error()}
}

func optionName(f *pflag.Flag, typed string) string {
	if f != nil && len(typed) == 1 && f.Shorthand == typed {
		return "-" + typed
	}
	return "--" + typed
}

func optionNames(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand + "' / '--" + f.Name
	}
	return "--" + f.Name
}

func suggestOptions(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	close := similar.Names(name, names)
	for i, n := range close {
		close[i] = "--" + n
	}
	return didYouMean(close)
}

// didYouMean is the end of an error text; "" without names.
func didYouMean(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return " Did you mean " + names[0] + "?"
	}
	return " Possible: " + strings.Join(names, ", ")
}

// unknownCommand finds a word that should name a subcommand and does not.
func unknownCommand(root *cobra.Command, args []string) error {
	cmd := root
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return nil // an option before the subcommand, left to the parser
		}
		if !cmd.HasSubCommands() || strings.HasPrefix(arg, "__complete") {
			return nil
		}
		next := find(cmd, arg)
		if next == nil {
			if cmd.Annotations["open"] != "" { // takes arguments of its own
				return nil
			}
			var names []string
			for _, c := range cmd.Commands() {
				if !c.Hidden {
					names = append(names, c.Name())
				}
			}
			return &usageError{cmd, fmt.Sprintf("No such command '%s'.", arg) + didYouMean(similar.Names(arg, names))}
		}
		cmd = next
	}
	return nil
}

func find(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name || slices.Contains(c.Aliases, name) {
			return c
		}
	}
	return nil
}

func plainText(s string) string { return table.Plain(s) }

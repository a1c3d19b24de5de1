package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

const helpWidth = 100

// usageLine is "sky launch [OPTIONS] [ENTRYPOINT]...".
func usageLine(cmd *cobra.Command) string {
	parts := []string{cmd.CommandPath(), "[OPTIONS]"}
	if args := cmd.Annotations["args"]; args != "" {
		parts = append(parts, args)
	} else if cmd.HasSubCommands() {
		parts = append(parts, "COMMAND [ARGS]...")
	}
	return strings.Join(parts, " ")
}

func (a *app) showUsageError(e *usageError) {
	if e.cmd != nil {
		a.t.Note("Usage: %s", usageLine(e.cmd))
		a.t.Note("Try '%s -h' for help.\n", e.cmd.CommandPath())
	}
	a.t.Note("%s %s", a.t.ErrStyle(term.Red, "Error:"), e.text)
}

// helpPage is what -h shows.
func helpPage(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString("Usage: " + usageLine(cmd) + "\n")
	for _, text := range [...]string{cmd.Short, cmd.Long} {
		if text != "" {
			b.WriteString("\n" + indent(text, "  ") + "\n")
		}
	}
	if cmd.Example != "" {
		b.WriteString("\nExamples:\n" + indent(cmd.Example, "  ") + "\n")
	}
	var rows [][2]string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if everywhere := cmd.HasParent() && cmd.Root().PersistentFlags().Lookup(f.Name) == f; !f.Hidden && !everywhere {
			rows = append(rows, [2]string{optionColumn(f), optionHelp(f)})
		}
	})
	writeList(&b, "Options:", rows)
	rows = nil
	for _, c := range shownCommands(cmd) {
		rows = append(rows, [2]string{c.Name(), c.Short})
	}
	writeList(&b, "Commands:", rows)
	return b.String()
}

func optionColumn(f *pflag.Flag) string {
	s := "    --" + f.Name
	if f.Shorthand != "" {
		s = "-" + f.Shorthand + ", --" + f.Name
	}
	if off := f.Annotations[noteOff]; off != nil {
		return s + " / --" + off[0]
	}
	if meta := f.Annotations[noteMeta]; meta != nil {
		return s + " " + meta[0]
	}
	if f.NoOptDefVal != "" {
		return s
	}
	if f.Value.Type() == "INTEGER" || f.Value.Type() == "int" {
		return s + " INTEGER"
	}
	return s + " TEXT"
}

func optionHelp(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "[]":
		return f.Usage
	}
	return f.Usage + " [default: " + f.DefValue + "]"
}

// writeList writes two columns; the right one wraps, and starts on its own line
// when the left one is long.
func writeList(b *strings.Builder, title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n" + title + "\n")
	left := 0
	for _, r := range rows {
		if w := table.Width(r[0]); w <= 34 {
			left = max(left, w)
		}
	}
	margin := strings.Repeat(" ", left+4)
	for _, r := range rows {
		b.WriteString("  " + r[0])
		if w := table.Width(r[0]); w > left {
			b.WriteString("\n" + margin)
		} else {
			b.WriteString(strings.Repeat(" ", left-w+2))
		}
		b.WriteString(wrap(r[1], helpWidth-len(margin), margin) + "\n")
	}
}

// wrap breaks text at spaces; lines after the first begin with margin.
func wrap(text string, width int, margin string) string {
	var b strings.Builder
	line := 0
	for i, w := range strings.Fields(text) {
		n := table.Width(w)
		switch {
		case i == 0:
		case line+1+n > width:
			b.WriteString("\n" + margin)
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(w)
		line += n
	}
	return b.String()
}

func indent(text, by string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = by + l
		}
	}
	return strings.Join(lines, "\n")
}

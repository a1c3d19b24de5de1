package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/wholefile"
	"github.com/skypilot-go/sky/task"
)

func (a *app) taskFormatCommand() *cobra.Command {
	var check, write bool
	return a.build(command{
		name: "format", args: "FILES...", short: "Write task files in one canonical layout.", min: 1, max: -1, noConfig: true,
		long: "Comments and the order of keys stay. Without options the result is printed; - reads standard input.\n\n" +
			"With --check the exit code is 1 if any file is laid out differently.",
		example: "sky task format task.yaml\nsky task format -w jobs/*.yaml\nsky task format --check jobs/*.yaml\nsky task format - < task.yaml",
		flags: func(f flags) {
			f.on(&check, "check", "", "Only list the files whose layout would change.")
			f.on(&write, "write", "w", "Write the result back into the files.")
		},
		run: func(_ context.Context, _ *cobra.Command, files []string) error {
			switch {
			case check && write:
				return usagef("--check changes nothing, so it goes without -w.")
			case !check && !write && len(files) > 1:
				return usagef("Several files are not printed one after the other: pass -w to write them back, or --check to compare.")
			}
			return a.taskFormat(files, check, write)
		},
	})
}

// taskFormat formats every file that can be; the others are named at the end.
func (a *app) taskFormat(files []string, check, write bool) error {
	failed, changed := false, 0
	for _, file := range files {
		old, err := a.readFile(file)
		var text []byte
		if err == nil {
			text, err = task.Format(old)
		}
		if err != nil {
			failed = true
			for _, p := range taskProblems(fileTitle(file), err) {
				a.t.Note("%s", strings.TrimSuffix(p.text(a.t.ErrStyle), "\n"))
			}
			continue
		}
		same := bytes.Equal(old, text)
		if !same {
			changed++
		}
		switch {
		case check && !same:
			a.t.Println(fileTitle(file))
		case check:
		case !write || file == "-":
			a.t.Print(string(text))
		case !same:
			if err := wholefile.Edit(file, text, 0o644); err != nil {
				return fmt.Errorf("writing %s: %w", file, err)
			}
			a.t.Note("Formatted %s", file)
		}
	}
	if failed || check && changed > 0 {
		return exitError(1)
	}
	return nil
}

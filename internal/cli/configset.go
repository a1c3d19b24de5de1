package cli

import (
	"bytes"
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/similar"
)

func (a *app) configSetCommand() *cobra.Command {
	var project bool
	return a.build(command{
		name: "set", args: "KEY=VALUE...", short: "Write values into a configuration file.", min: 1, max: -1, noConfig: true,
		long: "A value is YAML: 3, true, text, [a, b]. Comments and everything else in the file stay. What is not\n" +
			"valid is refused and changes nothing. Keys that hold dots are quoted.",
		example: "sky config set jobs.bucket=s3://my-bucket\n" +
			"sky config set --project active_workspace=research\n" +
			"sky config set 'aws.labels={team: vision}'\n" +
			`sky config set 'kubernetes.context_configs."my.cluster".namespace=ml'`,
		flags: func(f flags) { f.project(&project) },
		run: func(_ context.Context, _ *cobra.Command, args []string) error {
			type change struct {
				keys  []string
				value any
				name  string
			}
			var changes []change
			for _, arg := range args { // all are read before the first is written
				name, text, ok := strings.Cut(arg, "=")
				if !ok || strings.TrimSpace(text) == "" {
					return usagef("'%s' is not of the form KEY=VALUE. An empty text is written KEY='', and a key is removed by: sky config unset", arg)
				}
				keys, err := splitKey(strings.TrimSpace(name))
				if err != nil {
					return usagef("%v", err)
				}
				value, err := config.DecodeYAML([]byte(text), "the value of "+name)
				if err != nil {
					return err
				}
				changes = append(changes, change{keys, value, name})
			}
			return a.editConfig(project, func(file string) error {
				for _, c := range changes {
					if err := config.Set(file, c.keys, c.value); err != nil {
						return err
					}
					a.warnUnknownKey(c.name)
				}
				return nil
			})
		},
	})
}

func (a *app) configUnsetCommand() *cobra.Command {
	var project bool
	return a.build(command{
		name: "unset", args: "KEY...", short: "Remove values from a configuration file.", min: 1, max: -1, noConfig: true,
		example:  "sky config unset jobs.bucket\nsky config unset --project active_workspace",
		flags:    func(f flags) { f.project(&project) },
		complete: completeKeys,
		run: func(_ context.Context, _ *cobra.Command, args []string) error {
			var paths [][]string
			for _, arg := range args {
				keys, err := splitKey(arg)
				if err != nil {
					return usagef("%v", err)
				}
				a.warnUnknownKey(arg)
				paths = append(paths, keys)
			}
			return a.editConfig(project, func(file string) error {
				for _, keys := range paths {
					if err := config.Unset(file, keys); err != nil {
						return err
					}
				}
				return nil
			})
		},
	})
}

func (f flags) project(p *bool) {
	f.on(p, "project", "", "Change .sky.yaml in the current folder instead of the user's file.")
}

// editConfig changes a configuration file and says whether anything changed.
func (a *app) editConfig(project bool, edit func(file string) error) error {
	file := a.configFile(project)
	before, _ := os.ReadFile(file) // an unreadable file is edit's error
	if err := edit(file); err != nil {
		return err
	}
	after, _ := os.ReadFile(file)
	if bytes.Equal(before, after) {
		a.t.Note("%s says so already; nothing changed", tilde(file, a.home))
		return nil
	}
	a.t.Note("Changed %s", tilde(file, a.home))
	return nil
}

// warnUnknownKey tells of a key that this version does not know; a server may be
// newer.
func (a *app) warnUnknownKey(key string) {
	if !keyExists(key) {
		a.t.Warn("There is no key '%s'.%s", key, didYouMean(similar.Names(key, keyNames())))
	}
}

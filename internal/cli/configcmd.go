package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/table"
)

func (a *app) configCommand() *cobra.Command {
	return a.build(command{
		name: "config", short: "Configuration: what holds and where it comes from; check and change it.",
		example: "sky config show\nsky config set jobs.bucket=s3://my-bucket\nsky config check",
		group: []*cobra.Command{
			a.configShowCommand(), a.configSetCommand(), a.configUnsetCommand(), a.configCheckCommand(), a.configSchemaCommand(),
		},
	})
}

// disableUsage is a variable of earlier versions that nothing has to obey.
const disableUsage = "SKYPILOT_DISABLE_USAGE_COLLECTION"

func (a *app) configShowCommand() *cobra.Command {
	var defaults, merged bool
	return a.build(command{
		name: "show", args: "[KEY]", short: "Show every value and where it was written.", max: 1,
		long: "Later layers win: the file of the user (~/.sky/config.yaml), of the project (.sky.yaml), --config,\n" +
			"and variables of the environment. Secrets are not shown.",
		example: "sky config show\nsky config show kubernetes\nsky config show --defaults -o json\nsky config show --merged > config.yaml",
		flags: func(f flags) {
			f.on(&defaults, "defaults", "", "Also show keys that nobody set.")
			f.on(&merged, "merged", "", "Show values only, as one configuration file.")
			f.text(&a.workspace, "workspace", "w", "Show what holds with this workspace.")
			f.out(a)
		},
		complete: completeKeys,
		run: func(_ context.Context, _ *cobra.Command, args []string) error {
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			if merged {
				if defaults || len(args) > 0 {
					return usagef("--merged shows the whole configuration, without a key or --defaults.")
				}
				text := c.YAML()
				if a.output == "json" {
					text = c.JSON()
				}
				a.t.Print(string(text))
				return nil
			}
			settings := c.Show()
			if defaults {
				settings = append(settings, defaultSettings(c)...)
			}
			if len(args) > 0 && strings.EqualFold(args[0], disableUsage) {
				a.t.Note(disableUsage + " is accepted without effect: no usage is collected or sent.")
				_, err := a.emit([]config.Setting{})
				return err
			}
			if len(args) > 0 {
				if settings, err = below(settings, args[0]); err != nil {
					return err
				}
			}
			if settings == nil {
				settings = []config.Setting{}
			}
			if done, err := a.emit(settings); done {
				return err
			}
			if len(settings) == 0 {
				a.t.Note("Nothing is set; defaults hold. They are shown by: sky config show --defaults")
				return nil
			}
			a.t.Print(a.t.Table(settingsTable(settings)))
			return nil
		},
	})
}

func settingsTable(settings []config.Setting) *table.Table {
	tab := table.New("KEY", "VALUE", "FROM").Prose("VALUE", "FROM")
	for _, s := range settings {
		from := s.Origin.String()
		if from == "" {
			from = "default"
		}
		tab.Add(s.Path, s.Text, from)
	}
	return tab
}

// defaultSettings are the keys that nobody set and that have a value all the
// same.
func defaultSettings(c *config.Config) []config.Setting {
	var out []config.Setting
	section := "" // whose default says it all
	for _, d := range config.Docs() {
		if d.Default == nil || strings.ContainsAny(d.Path, "<[") || section != "" && strings.HasPrefix(d.Path, section) {
			continue
		}
		if d.Kinds&config.Map != 0 {
			section = d.Path + "."
		}
		if _, set := c.Get(strings.Split(d.Path, ".")...); !set {
			text, _ := json.Marshal(d.Default)
			out = append(out, config.Setting{Path: d.Path, Value: d.Default, Text: string(text)})
		}
	}
	return out
}

// below picks the settings of a key or section; a key that cannot exist is an
// error.
func below(settings []config.Setting, key string) ([]config.Setting, error) {
	key = strings.TrimSuffix(key, ".")
	var out []config.Setting
	for _, s := range settings {
		if s.Path == key || strings.HasPrefix(s.Path, key+".") {
			out = append(out, s)
		}
	}
	if len(out) > 0 || keyExists(key) {
		return out, nil
	}
	return nil, usagef("There is no key '%s'.%s", key, didYouMean(similar.Names(key, keyNames())))
}

func keyNames() []string {
	var out []string
	for _, d := range config.Docs() {
		out = append(out, d.Path)
	}
	return out
}

// keyExists says whether a path can be in a configuration.
func keyExists(key string) bool {
	s := config.Keys()
	path, err := splitKey(key)
	if err != nil {
		return false
	}
next:
	for _, name := range path {
		for _, k := range s.Keys {
			if k.Name == name {
				s = k.Spec
				continue next
			}
		}
		if s = s.Others; s == nil {
			return false
		}
	}
	return true
}

func completeKeys(prefix string, args []string) []string {
	var out []string
	for _, k := range keyNames() {
		if len(args) == 0 && strings.HasPrefix(k, prefix) && !strings.ContainsAny(k, "<[") {
			out = append(out, k)
		}
	}
	return out
}

func (a *app) configSchemaCommand() *cobra.Command {
	return a.build(command{
		name: "schema", short: "Print the JSON Schema of configuration files, for editors.", noConfig: true,
		example: "sky config schema > config.schema.json",
		run: func(context.Context, *cobra.Command, []string) error {
			a.t.Print(string(config.Schema()))
			return nil
		},
	})
}

// configFile is the file that holds the user's or the project's configuration.
func (a *app) configFile(project bool) string {
	env, file := config.EnvGlobalConfig, filepath.Join(a.home, ".sky", "config.yaml")
	if project {
		env, file = config.EnvProjectConfig, ".sky.yaml"
	}
	if only := a.env(config.EnvOnlyConfig); only != "" {
		file = only
	} else if named := a.env(env); named != "" {
		file = named
	}
	return expandHome(file, a.home)
}

func (a *app) configCheckCommand() *cobra.Command {
	var server bool
	return a.build(command{
		name: "check", args: "[FILES]...", short: "Say what is wrong with configuration files, and where.", max: -1, noConfig: true,
		long:    "Without FILES the user's and the project's configuration are checked; - reads standard input.\nThe exit code is 1 if any is wrong.",
		example: "sky config check\nsky config check server.yaml --server\nsky config check -o json .sky.yaml",
		flags: func(f flags) {
			f.on(&server, "server", "", "Check as an API server does, which takes no unknown keys at all.")
			f.out(a)
		},
		run: func(_ context.Context, _ *cobra.Command, files []string) error {
			side := config.Client
			if server {
				side = config.Server
			}
			if len(files) == 0 {
				if files = a.configFiles(); len(files) == 0 {
					a.t.Note("There is no configuration file; defaults hold. It would be %s", tilde(a.configFile(false), a.home))
				}
			}
			var v verdict
			for _, file := range files {
				v.add(a.checkConfig(side, file))
			}
			return a.report(v, "configuration")
		},
	})
}

// configFiles are those that exist.
func (a *app) configFiles() []string {
	var out []string
	for _, project := range []bool{false, true} {
		file := a.configFile(project)
		if _, err := os.Stat(file); err == nil && (len(out) == 0 || out[0] != file) {
			out = append(out, file)
		}
	}
	return out
}

func (a *app) checkConfig(side config.Side, file string) []problem {
	name := fileTitle(file)
	text, err := a.readFile(file)
	if err != nil {
		return []problem{{File: name, Severity: severityError, Message: err.Error()}}
	}
	warnings, err := config.Check(side, text, name)
	var out []problem
	for _, w := range warnings {
		out = append(out, configProblem(name, severityWarning, w.Problem))
	}
	return append(out, configProblems(name, err)...)
}

// splitKey reads a path as sky config show writes it: keys between dots, those
// with dots of their own in double quotes.
func splitKey(s string) ([]string, error) {
	var out []string
	for rest := s; ; {
		var key string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			var closed bool
			if key, rest, closed = strings.Cut(quoted, `"`); !closed || rest != "" && rest[0] != '.' {
				return nil, fmt.Errorf("%s: a quoted part ends in a quotation mark before the next dot", s)
			}
		} else {
			end := strings.IndexByte(rest+".", '.')
			key, rest = rest[:end], rest[end:]
		}
		if key == "" {
			return nil, fmt.Errorf("%q has an empty part between its dots", s)
		}
		out = append(out, key)
		if rest == "" {
			return out, nil
		}
		rest = rest[1:]
	}
}

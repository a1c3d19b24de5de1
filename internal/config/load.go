package config

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Variables that name configuration files and stand for keys.
const (
	EnvGlobalConfig  = "SKYPILOT_GLOBAL_CONFIG"
	EnvProjectConfig = "SKYPILOT_PROJECT_CONFIG"
	EnvOnlyConfig    = "SKYPILOT_CONFIG"
	EnvEndpoint      = "SKYPILOT_API_SERVER_ENDPOINT"
	EnvToken         = "SKYPILOT_SERVICE_ACCOUNT_TOKEN"
	EnvDatabase      = "SKYPILOT_DB_CONNECTION_URI"
)

// Options say where to look. The zero value is a client in the current folder.
type Options struct {
	Side      Side
	Home      string                      // what "~" means; default: the user's home
	Dir       string                      // folder of .sky.yaml; default: the current one
	Env       func(string) (string, bool) // default: os.LookupEnv
	Overrides []string                    // values of --config, clients only
	Workspace string                      // value of --workspace, clients only
	// Stored reads the configuration that a server keeps in its database; nil
	// text: none. It is called only when a database is configured, with its
	// address, and lies over the server's file.
	Stored func(db string) ([]byte, error)
}

func (o Options) withDefaults() Options {
	if o.Home == "" {
		o.Home = homeFolder()
	}
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	return o
}

// loading is a Load in progress.
type loading struct {
	Options
	root     *yaml11.Node
	problems []Problem
	warnings []Warning
}

// Load reads, checks and merges the layers of one side. An absent file is
// empty unless a variable names it. A client's file that is not YAML is empty,
// too, with a warning of level error; a server's is an error, since it holds
// who may do what.
func Load(o Options) (*Config, error) {
	l := &loading{Options: o.withDefaults()}
	if err := l.files(); err != nil {
		return nil, err
	}
	if len(l.problems) > 0 {
		return nil, &Error{Problems: l.problems}
	}
	c := &Config{side: o.Side, home: l.Home, db: l.root.Lookup("db")}
	if v, ok := l.Env(EnvDatabase); ok && v != "" {
		c.db = fromPlain(v, yaml11.Place{Source: newSource(LayerEnvironment, EnvDatabase)})
	}
	if l.root != nil {
		l.root = l.root.Without("db")
	}
	if o.Side == Server {
		if err := l.stored(c); err != nil {
			return nil, err
		}
	} else if err := l.flags(); err != nil {
		return nil, err
	}
	c.own = l.root
	l.variables()
	if len(l.problems) > 0 {
		return nil, &Error{Problems: l.problems}
	}
	c.root, c.warnings = l.root, l.warnings
	return c, nil
}

func (l *loading) files() error {
	type file struct {
		layer Layer
		env   string
		path  string
	}
	files := []file{{LayerServer, EnvGlobalConfig, "~/.sky/config.yaml"}}
	if l.Side == Client {
		project := ".sky.yaml"
		if l.Dir != "" {
			project = l.Dir + string(os.PathSeparator) + project
		}
		files = []file{{LayerUser, EnvGlobalConfig, "~/.sky/config.yaml"}, {LayerProject, EnvProjectConfig, project}}
	}
	if path, ok := l.Env(EnvOnlyConfig); ok && path != "" {
		files = []file{{files[0].layer, EnvOnlyConfig, ""}}
	}
	for _, f := range files {
		named := false
		if path, ok := l.Env(f.env); ok && path != "" {
			f.path, named = path, true
		}
		text, err := readFile(expand(f.path, l.Home))
		switch {
		case os.IsNotExist(err) && !named:
			continue
		case os.IsNotExist(err):
			return missingFile(f.env, f.path)
		case err != nil:
			return fmt.Errorf("reading the configuration %s: %w", f.path, err)
		}
		l.add(text, newSource(f.layer, f.path))
	}
	return nil
}

// add lays one file over what is there.
func (l *loading) add(text []byte, src *yaml11.Source) {
	n, err := parse(text, src)
	if broken := notYAML(err); broken != "" && l.Side == Client {
		l.warnings = append(l.warnings, Warning{slog.LevelError, Problem{Text: broken + "; the whole file is ignored"}})
		return
	}
	if err != nil {
		l.problems = append(l.problems, asError(err).Problems...)
		return
	}
	l.lay(n)
}

// lay checks one layer and merges it.
func (l *loading) lay(n *yaml11.Node) {
	if n == nil {
		return
	}
	problems, warnings := validate(n, l.Side)
	l.problems = append(l.problems, problems...)
	l.warnings = append(l.warnings, warnings...)
	l.root = overlay(l.root, n, Keys())
}

// stored adds the configuration kept in the database.
func (l *loading) stored(c *Config) error {
	if c.db == nil {
		return nil
	}
	if l.root != nil && len(l.root.Entries) > 1 {
		extra := l.root.Entries[1]
		return &Error{Problems: []Problem{ProblemAt(originOf(extra.Key.Place), extra.Key.Text,
			"beside a database the file may hold one other key at most; the rest of the configuration is kept in the database")}}
	}
	if l.Stored == nil {
		return nil
	}
	text, err := l.Stored(c.DatabaseURI())
	if err != nil {
		return fmt.Errorf("reading the configuration in the database: %w", err)
	}
	n, err := parse(text, newSource(LayerServer, "database"))
	if err != nil {
		return asError(err)
	}
	if n != nil {
		n = n.Without("db")
	}
	l.lay(n)
	return nil
}

// flags adds the command line.
func (l *loading) flags() error {
	n, err := overrides(l.Overrides, l.Options)
	if err != nil {
		return err
	}
	if n != nil {
		l.lay(n.Without("db"))
	}
	if l.Workspace != "" {
		at := yaml11.Place{Source: newSource(LayerCommandLine, "--workspace")}
		l.lay(yaml11.Nest([]string{"active_workspace"}, at, fromPlain(l.Workspace, at)))
	}
	return nil
}

// variables adds what the environment says in place of keys.
func (l *loading) variables() {
	for _, v := range []struct{ name, key string }{{EnvEndpoint, "endpoint"}, {EnvToken, "service_account_token"}} {
		if text, ok := l.Env(v.name); ok && text != "" {
			at := yaml11.Place{Source: newSource(LayerEnvironment, v.name)}
			l.lay(yaml11.Nest([]string{"api_server", v.key}, at, fromPlain(text, at)))
		}
	}
}

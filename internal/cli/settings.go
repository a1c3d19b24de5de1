package cli

import (
	"log/slog"
	"strings"

	"github.com/skypilot-go/sky/internal/config"
)

// settings are what the command line needs of the configuration.
type settings struct {
	all                    *config.Config
	endpoint, endpointFrom string // "" if not set
	token                  string
	forRequest             map[string]any // goes along with every request
	paths                  string         // JSON list of the files it came from
	workspace              string         // active_workspace; "" if not set
}

// config reads the configuration once.
func (a *app) config() (*settings, error) {
	if a.settings != nil {
		return a.settings, nil
	}
	c, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	text := func(path ...string) string {
		v, _ := c.Get(path...)
		s, _ := v.(string)
		return strings.TrimSpace(s)
	}
	s := &settings{
		all:      c,
		endpoint: text("api_server", "endpoint"), token: text("api_server", "service_account_token"),
		workspace: text("active_workspace"), forRequest: c.ForRequest(), paths: "[null, null]",
	}
	if s.endpoint != "" {
		s.endpointFrom = c.Origin("api_server", "endpoint").Source
	}
	a.settings = s
	return s, nil
}

// loadConfig reads the configuration and shows its warnings.
func (a *app) loadConfig() (*config.Config, error) {
	c, err := config.Load(config.Options{
		Side: config.Client, Home: a.home, Env: a.lookupEnv, Overrides: a.configs, Workspace: a.workspace,
	})
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings() {
		if w.Level >= slog.LevelWarn {
			a.t.Warn("%v", w)
		}
	}
	return c, nil
}

package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhereJobsAreLookedAfter(t *testing.T) {
	mode := func(m any) map[string]any {
		return map[string]any{"jobs": map[string]any{"controller": map[string]any{"mode": m}}}
	}
	for _, tt := range []struct {
		text string
		sent map[string]any
		want string
	}{
		{"", nil, OnServer},
		{"jobs: {controller: {mode: cluster}}", nil, OnCluster},
		{"jobs: {controller: {consolidation_mode: true}}", nil, OnServer},
		{"jobs: {controller: {consolidation_mode: false}}", nil, OnCluster},
		{"jobs: {controller: {consolidation_mode: false, mode: server}}", nil, OnServer},
		{"jobs: {controller: {mode: cluster}}", mode("server"), OnServer},
		{"", mode("cluster"), OnCluster},
		{"", mode("moon"), OnServer},
		{"", mode(3), OnServer},
		{"", map[string]any{"jobs": "x"}, OnServer},
	} {
		home := t.TempDir()
		if err := os.MkdirAll(filepath.Join(home, ".sky"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, ".sky", "config.yaml"), []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Options{Side: Server, Home: home, Env: func(string) (string, bool) { return "", false }})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ControllerOn("jobs", tt.sent, Admin); got != tt.want {
			t.Errorf("%q with %v: %s", tt.text, tt.sent, got)
		}
	}
}

// Servers that share a database look after managed jobs themselves, whichever way
// the database and the cluster are named.
func TestNoClusterForJobsBesideADatabase(t *testing.T) {
	const says = "managed jobs cannot be looked after by a cluster where the servers' state is in a database"
	for _, tt := range []struct {
		text, variable string
		want           string
	}{
		{"jobs: {controller: {mode: cluster}}", "", ""},
		{"jobs: {controller: {mode: server}}", "postgres://h/d", ""},
		{"jobs: {controller: {mode: cluster}}", "postgres://h/d", "1:27: jobs.controller: " + says},
		{"jobs: {controller: {consolidation_mode: false}}", "postgres://h/d", "1:41: jobs.controller: " + says},
		{"db: postgres://h/d\njobs: {controller: {mode: cluster}}", "", "2:27: jobs.controller: " + says},
		{"db: postgres://h/d\njobs: {controller: {consolidation_mode: false, mode: server}}", "", ""},
	} {
		home := t.TempDir()
		file := filepath.Join(home, ".sky", "config.yaml")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Options{Side: Server, Home: home, Env: func(name string) (string, bool) {
			return tt.variable, name == EnvDatabase && tt.variable != ""
		}})
		if err == nil {
			err = c.CheckControllersBesideDatabase()
		}
		if tt.want != "" {
			wantErr(t, err, tt.want)
		} else if err != nil {
			t.Errorf("%q: %v", tt.text, err)
		}
		if _, err := Check(Client, []byte(tt.text), "f"); (err != nil) != (tt.want != "" && tt.variable == "") {
			t.Errorf("checking %q alone: %v", tt.text, err)
		}
	}
}

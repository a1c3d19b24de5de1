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
		{"", nil, JobsOnServer},
		{"jobs: {controller: {mode: cluster}}", nil, JobsOnCluster},
		{"jobs: {controller: {consolidation_mode: true}}", nil, JobsOnServer},
		{"jobs: {controller: {consolidation_mode: false}}", nil, JobsOnCluster},
		{"jobs: {controller: {consolidation_mode: false, mode: server}}", nil, JobsOnServer},
		{"jobs: {controller: {mode: cluster}}", mode("server"), JobsOnServer},
		{"", mode("cluster"), JobsOnCluster},
		{"", mode("moon"), JobsOnServer},
		{"", mode(3), JobsOnServer},
		{"", map[string]any{"jobs": "x"}, JobsOnServer},
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
		if got := c.JobsOn(tt.sent); got != tt.want {
			t.Errorf("%q with %v: %s", tt.text, tt.sent, got)
		}
	}
}

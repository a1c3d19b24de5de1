package controller

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/config"
)

// configured is a server's configuration with that text.
func configured(t *testing.T, text string) *config.Config {
	t.Helper()
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".sky"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".sky", "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Options{Side: config.Server, Home: home, Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A chain of controllers, each of which rents the next, would cost without end:
// every way into one is shut.
func TestNoControllerRentsTheNext(t *testing.T) {
	c := configured(t, "jobs: {controller: {mode: cluster, consolidation_mode: false, unreachable_minutes: 9}}\nallowed_clouds: [aws]\napi_server: {requests_retention_hours: 2}\n")
	near := New(Deps{Kind: Jobs, Config: func() *config.Config { return c }})
	if !near.Wanted(nil, config.Admin) {
		t.Error("the mode is cluster, and jobs stay here")
	}
	sent := map[string]any{"jobs": map[string]any{"controller": map[string]any{"mode": "cluster"}}}
	far := New(Deps{Kind: Jobs, Config: func() *config.Config { return c }, Far: true})
	if far.Wanted(nil, config.Admin) || far.Wanted(sent, config.Admin) {
		t.Error("the far server hands jobs on")
	}
	taken := configured(t, string(c.ForController()))
	if taken.ControllerOn("jobs", nil, config.Admin) != config.OnServer {
		t.Errorf("the configuration that is taken along has the mode, too:\n%s", c.ForController())
	}
	if taken.Int("jobs", "controller", "unreachable_minutes") != 9 || len(taken.Texts("allowed_clouds")) != 1 {
		t.Errorf("the rest of the configuration is lost:\n%s", c.ForController())
	}
	if taken.Int("api_server", "requests_retention_hours") == 2 {
		t.Error("what is about this server alone is taken along")
	}
	for _, s := range []string{Jobs.script(), Services.script(), program} {
		if !strings.Contains(s, EnvFar+"=1") {
			t.Errorf("the far server is not told what it is:\n%s", s)
		}
	}
}

func TestACallSaysNothingAboutTheControllerOnTheFarSide(t *testing.T) {
	for body, want := range map[string]string{
		`{}`: `{}`,
		`{"task":"x","override_skypilot_config":null}`:                                                   `{"task":"x","override_skypilot_config":null}`,
		`{"override_skypilot_config":{"jobs":{"bucket":"s3://b"},"aws":{}}}`:                             `{"override_skypilot_config":{"jobs":{"bucket":"s3://b"},"aws":{}}}`,
		`{"override_skypilot_config":{"aws":{},"jobs":{"controller":{"mode":"cluster","a":1}}},"x":2}`:   `{"override_skypilot_config":{"aws":{},"jobs":{"controller":{"a":1}}},"x":2}`,
		`{"override_skypilot_config":{"jobs":{"controller":{"resources":{"cpus":1},"autostop":false}}}}`: `{"override_skypilot_config":{"jobs":{"controller":{}}}}`,
	} {
		got, err := New(Deps{Kind: Jobs}).ownAffairs([]byte(body))
		if err != nil || string(got) != want {
			t.Errorf("%s became %s (%v), not %s", body, got, err, want)
		}
	}
}

func TestThePlanFollowsTheConfiguration(t *testing.T) {
	for _, tt := range []struct {
		text, cpus string
		idle       string
		down       bool
	}{
		{"", "4+", "9", false},
		{"jobs: {controller: {resources: {infra: aws, cpus: 2}, autostop: 1h}}", "2", "59", false},
		{"jobs: {controller: {autostop: {idle_minutes: 1, down: true}}}", "4+", "1", true},
		{"jobs: {controller: {autostop: false}}", "4+", "", false},
	} {
		text, rest, err := Jobs.plan(configured(t, tt.text), false)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		var task struct {
			Resources map[string]any `json:"resources"`
		}
		if err := json.Unmarshal([]byte(text), &task); err != nil {
			t.Fatal(err)
		}
		cpus, _ := json.Marshal(task.Resources["cpus"])
		if strings.Trim(string(cpus), `"`) != tt.cpus || task.Resources["autostop"] != nil {
			t.Errorf("%s: the task is %s", tt.text, text)
		}
		if got := string(rest.idle()); got != tt.idle || rest.down != tt.down {
			t.Errorf("%s: idle for %q, down %v", tt.text, got, rest.down)
		}
		if text, _, err = Jobs.plan(configured(t, tt.text), true); err != nil || strings.Contains(text, "cpus") {
			t.Errorf("%s: a controller that exists is asked for again: %s (%v)", tt.text, text, err)
		}
	}
}

func TestNobodyElseReadsTheKit(t *testing.T) {
	k := kit{files: map[string][]byte{"sky": []byte(program), "home/.aws/credentials": []byte("secret")}}
	dir := t.TempDir()
	if err := k.write(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"sky": 0o700, "home": 0o700, "home/.aws": 0o700, "home/.aws/credentials": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has the mode %o, not %o", name, got, want)
		}
	}
	same := kit{files: map[string][]byte{"sky": []byte(program), "home/.aws/credentials": []byte("secret")}}
	other := kit{files: map[string][]byte{"sky": []byte(program), "home/.aws/credentials": []byte("Secret")}}
	if k.stamp() != same.stamp() || k.stamp() == other.stamp() {
		t.Error("stamps do not tell kits apart")
	}
}

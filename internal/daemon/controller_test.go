package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/state/statetest"
)

// TestControllersAnswerEveryRoute keeps the tables of what is forwarded equal to the
// server's routes about managed jobs and services. Pools are refused everywhere, and
// balancers belong to the server that they ask.
func TestControllersAnswerEveryRoute(t *testing.T) {
	answersEvery(t, controller.Jobs.Forwarded(), "/jobs/", "/jobs/pool_")
	answersEvery(t, controller.Services.Forwarded(), "/serve/", "/serve/balancer/")
}

func answersEvery(t *testing.T, forwarded map[string]string, prefix, but string) {
	for _, r := range server.Routes() {
		if !strings.HasPrefix(r.Path, prefix) || strings.HasPrefix(r.Path, but) {
			continue
		}
		name := "sky." + r.Name
		if forwarded[name] != r.Path {
			t.Errorf("%s is forwarded to %q, not to %s", name, forwarded[name], r.Path)
		}
		delete(forwarded, name)
	}
	if len(forwarded) > 0 {
		t.Errorf("forwarded, but no routes: %v", forwarded)
	}
}

// A server with a database does not start while its configuration wants managed
// jobs on a cluster: it does not even look for the database.
func TestAServerWithADatabaseLooksAfterJobsItself(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, ".sky", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("jobs: {controller: {mode: cluster}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv(config.EnvDatabase, "postgres://nobody@127.0.0.1:1/none")
	err := Run(t.Context(), Options{Home: home, Host: "127.0.0.1", Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), config.NoClusterBesideDatabase("jobs")) {
		t.Errorf("started, or refused for another reason: %v", err)
	}
}

// Nor does a client get one by asking for it.
func TestNobodyAsksForAClusterBesideADatabase(t *testing.T) {
	store, err := state.OpenPostgres(t.Context(), statetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d := &daemon{store: store, jobsController: controller.New(controller.Deps{Kind: controller.Jobs, Config: func() *config.Config { return &config.Config{} }})}
	asks := func(mode string) error {
		_, wanted, err := d.farCall(d.jobsController, &requests.Call{Body: []byte(`{"override_skypilot_config": {"jobs": {"controller": {"mode": "` + mode + `"}}}}`)})
		if wanted {
			t.Errorf("%s: it is wanted", mode)
		}
		return err
	}
	if err := asks(config.OnServer); err != nil {
		t.Error(err)
	}
	if err := asks(config.OnCluster); err == nil || !strings.Contains(err.Error(), config.NoClusterBesideDatabase("jobs")) {
		t.Errorf("%v", err)
	}
}

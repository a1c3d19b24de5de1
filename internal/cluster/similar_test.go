package cluster

import (
	"path/filepath"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

func TestAMisspeltNameGivesThoseThatAreClose(t *testing.T) {
	store, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, name := range []string{"dev", "train-1", "train-2", "other"} {
		if err := store.Clusters().Create(t.Context(), &state.Cluster{Name: name, Hash: name, Status: api.ClusterInit}); err != nil {
			t.Fatal(err)
		}
	}
	m := &Manager{Deps: Deps{Store: store}}
	for name, want := range map[string]string{
		"dve":     `Cluster "dve" does not exist. Did you mean dev?`,
		"train_1": `Cluster "train_1" does not exist. Did you mean train-1 or train-2?`,
		"zzzzzzz": `Cluster "zzzzzzz" does not exist.`,
	} {
		if _, err := m.Get(t.Context(), name); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := m.Get(t.Context(), "dev"); err != nil {
		t.Error(err)
	}
}

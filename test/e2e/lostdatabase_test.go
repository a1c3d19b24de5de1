//go:build e2e && linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// TestMachinesOfALostDatabaseAreTakenBack loses the database while clusters exist on
// a cloud. The server refuses to begin without it; started anew, it takes the
// machines back by their tags, and they can be used and given back as before.
func TestMachinesOfALostDatabaseAreTakenBack(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		f := newFluffy(t, 50*time.Millisecond)
		takenBack(t, f, []string{"is missing", "sky api restore"}, func() {
			for _, name := range []string{"sky.db", "sky.db-wal", "sky.db-shm"} {
				if err := os.Remove(filepath.Join(f.home, ".sky/api_server", name)); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
		})
	})
	if os.Getenv("SKY_TEST_POSTGRES") != "" {
		t.Run("PostgreSQL", func(t *testing.T) {
			t.Parallel()
			database := harness.NewDatabase(t)
			f := newFluffy(t, 50*time.Millisecond)
			f.write(".sky/config.yaml", "db: "+database.URL.String()+"\n")
			takenBack(t, f, []string{"is empty", "Restore a dump"}, func() {
				database.Drop()
				database.SQL("CREATE DATABASE " + database.Name())
			})
		})
	}
}

func takenBack(t *testing.T, f *fluffy, refusal []string, lose func()) {
	w := f.workstation
	for _, name := range []string{"two", "one"} {
		w.sky("launch", "-y", "-d", "-c", name, "--infra", "fluffycloud", "--num-nodes", map[string]string{"two": "2", "one": "1"}[name], "--", "echo before > ~/kept")
	}
	w.sky("stop", "-y", "one")
	eventually(t, "the job has run", time.Minute, func() bool { return strings.Contains(w.sky("queue", "two"), "SUCCEEDED") })
	machines := func() string {
		var all []string
		for _, m := range f.machines() {
			all = append(all, fmt.Sprint(m.ID, " ", m.State))
		}
		return strings.Join(all, "\n")
	}
	were := machines()
	w.killServer()
	lose()

	w.fails(1, append(refusal, "--start-anew", "sky sweep --adopt"), "api", "start")
	w.sky("api", "start", "--start-anew")
	if out := w.sky("status"); strings.Contains(out, "two") {
		t.Errorf("a database that was begun anew knows a cluster:\n%s", out)
	}
	w.fails(1, []string{"two", "one", "sky sweep --adopt"}, "sweep", "--grace", "0")
	wants(t, w.sky("sweep", "--adopt", "-y"), "two", "one")
	if now := machines(); now != were {
		t.Errorf("machines were\n%s\nand are\n%s", were, now)
	}
	var records []struct {
		Name, Status string
		Nodes        int
	}
	if err := w.of().JSON(&records, "status", "-r", "-o", "json"); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range records {
		got[r.Name] = fmt.Sprint(r.Status, " ", r.Nodes)
	}
	if len(got) != 2 || got["two"] != "UP 2" || got["one"] != "STOPPED 1" {
		t.Errorf("taken back are %v", got)
	}
	wants(t, w.sky("exec", "two", "--num-nodes", "2", "--", "echo rank $SKYPILOT_NODE_RANK has $(cat ~/kept)"), "rank 0 has before", "rank 1 has before")
	wants(t, w.sky("start", "-y", "one"), "one")
	wants(t, w.sky("exec", "one", "--", "cat ~/kept"), "before")
	if out := w.sky("sweep", "--grace", "0"); strings.Contains(out, "two") || strings.Contains(out, "one-") {
		t.Errorf("what was taken back is still a stray:\n%s", out)
	}
	w.sky("down", "-y", "two", "one")
	if left := machines(); left != "" {
		t.Errorf("after sky down there are\n%s", left)
	}
	if left := f.cloud.Inventory().Firewalls; len(left) > 0 {
		t.Errorf("after sky down there are %+v", left)
	}
}

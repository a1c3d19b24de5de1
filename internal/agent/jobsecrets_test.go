//go:build unix

package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/skypilot-go/sky/api/agentapi"
)

const planted = "hunter2-planted-secret"

// plantedBelow lists the files below a folder that hold the secret.
func plantedBelow(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(planted)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTheQueueKeepsSecretsEncryptedAndForgetsThemForGood(t *testing.T) {
	dir := t.TempDir()
	q, err := openQueue(dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := &agentapi.JobSpec{Run: "true", Secrets: map[string]string{"A": planted}}
	rec, _, err := q.submit("k1", spec, func(*record) {})
	if err != nil {
		t.Fatal(err)
	}
	if again, fresh, err := q.submit("k1", spec, func(*record) {}); fresh || err != nil || again.Job.ID != rec.Job.ID {
		t.Fatal(again, fresh, err)
	}
	if _, _, err := q.submit("k2", &agentapi.JobSpec{Run: "true"}, func(*record) {}); err != nil {
		t.Fatal(err)
	}
	keys := func() int {
		entries, _ := os.ReadDir(filepath.Join(dir, "job-keys"))
		return len(entries)
	}
	if n := keys(); n != 1 {
		t.Errorf("%d keys for one job with secrets", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "job-keys", "0123456789abcdef"), nil, 0o600); err != nil { // a crash left it
		t.Fatal(err)
	}
	if err := q.close(); err != nil {
		t.Fatal(err)
	}
	if found := plantedBelow(t, dir); len(found) > 0 {
		t.Errorf("in clear: %v", found)
	}
	if q, err = openQueue(dir); err != nil {
		t.Fatal(err)
	}
	defer q.close()
	if n := keys(); n != 1 {
		t.Errorf("%d keys after a restart", n)
	}
	if got, err := q.spec(rec.Job.ID); err != nil || got.Secrets["A"] != planted {
		t.Errorf("%v %v", got, err)
	}
	if _, err := q.update(rec.Job.ID, func(r *record) error { r.Settled = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if n := keys(); n != 0 {
		t.Errorf("%d keys when the job is settled", n)
	}
}

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
)

// What the server cannot do is refused at once: nothing is read, planned or sent. The
// server of this test does not answer any call.
func TestWhatTheServerCannotDoIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "task.yaml")
	if err := os.WriteFile(file, []byte("run: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ line, says string }{
		{"jobs pool apply -y -p gpus pool.yaml", "`sky jobs pool apply` cannot be used yet"},
		{"jobs launch -y -p gpus true", "--pool cannot be used yet"},
		{"gpus label", "`sky gpus label` cannot be used yet"},
		{"launch -y recipes:x", "recipes:NAME cannot be used yet"},
		{"launch -y --docker " + file, "--docker is not available"},
		{"launch -y --priority banana " + file, "banana is no number"},
		{"jobs launch -y --priority banana " + file, "banana is no number"},
		{"exec dev --network-tier best " + file, "--network-tier chooses machines when they are rented"},
	} {
		a := newApp(Program{Stdin: &bytes.Buffer{}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{},
			Environ: []string{"HOME=" + dir, "SKYPILOT_API_SERVER_ENDPOINT=http://127.0.0.1:1"}})
		a.health = &api.Health{NotYet: []string{"jobs.pool_apply", "kubernetes_label_gpus", "recipes.get"}}
		root := a.root()
		root.SetArgs(rewrite(strings.Fields(tt.line)))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.line, err, tt.says)
		}
	}
}

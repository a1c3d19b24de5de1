package cli

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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
	for _, tt := range []struct{ line, says, at string }{
		{line: "jobs pool apply -y -p gpus pool.yaml", says: "`sky jobs pool apply` cannot be used yet"},
		{line: "jobs launch -y -p gpus true", says: "--pool cannot be used yet"},
		{line: "gpus label", says: "`sky gpus label` cannot be used yet"},
		{line: "launch -y recipes:x", says: "recipes:NAME cannot be used yet"},
		{line: "launch -y --docker --infra aws " + file, says: "cannot be combined with another --infra"},
		{line: "launch -y --docker " + file, says: "the API server is at https://sky.example.com", at: "https://sky.example.com"},
		{line: "launch -y --priority banana " + file, says: "banana is no number"},
		{line: "jobs launch -y --priority banana " + file, says: "banana is no number"},
		{line: "exec dev --network-tier best " + file, says: "--network-tier chooses machines when they are rented"},
	} {
		a := newApp(Program{Stdin: &bytes.Buffer{}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{},
			Environ: []string{"HOME=" + dir, "SKYPILOT_API_SERVER_ENDPOINT=" + cmp.Or(tt.at, "http://127.0.0.1:1")}})
		a.health = &api.Health{NotYet: []string{"jobs.pool_apply", "kubernetes_label_gpus", "recipes.get"}}
		root := a.root()
		root.SetArgs(rewrite(strings.Fields(tt.line)))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.line, err, tt.says)
		}
	}
}

// The help of every option that names a pool says that there are none yet.
func TestHelpOfPoolsSaysNotYet(t *testing.T) {
	checked := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		said := strings.Contains(cmd.Short, "Not available yet")
		for p := cmd.Parent(); p != nil; p = p.Parent() {
			said = said || strings.Contains(p.Short, "Not available yet")
		}
		if f := cmd.Flags().Lookup("pool"); f != nil {
			checked++
			if !said && !strings.Contains(f.Usage, "Not available yet") {
				t.Errorf("%s --pool: %s", cmd.CommandPath(), f.Usage)
			}
		}
		if !said && strings.Contains(cmd.Example, "--pool") {
			t.Errorf("an example of %s needs a pool: %s", cmd.CommandPath(), cmd.Example)
		}
	}
	walk(newApp(Program{Stdin: &bytes.Buffer{}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}).root())
	if checked < 3 {
		t.Errorf("only %d commands have --pool", checked)
	}
}

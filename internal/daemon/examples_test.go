package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/all"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/task"
)

// later says why this version cannot run a task; "" if it can.
func later(t *testing.T, dag *task.Dag) string {
	t.Helper()
	text, err := dag.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := new(execution.Executor).Validate(t.Context(), api.DagBody{Dag: string(text)}); err != nil {
		return err.Error()
	}
	providers := all.Providers(all.Options{})
	for _, one := range dag.Tasks {
		switch {
		case one.Service != nil && one.Service.TLSKeyfile != "":
			return "no certificate"
		case one.Pool != nil:
			return "pools"
		case len(one.Resources) > 0 && !slices.ContainsFunc(one.Resources, func(r task.Resources) bool {
			_, ok := providers.Get(r.Cloud)
			return ok || r.Cloud == ""
		}):
			return "it runs on " + one.Resources[0].Cloud
		}
	}
	return ""
}

// The examples run as they are, in a fresh clone; those that cannot yet are in a
// folder of their own, with the reason on their first line.
func TestExamplesRunOrSayThatTheyCannotYet(t *testing.T) {
	home := t.TempDir()
	for _, dir := range []string{"../../examples", "../../examples/later"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no examples in %s: %v", dir, err)
		}
		for _, file := range files {
			dag, err := task.Load(file)
			if err != nil {
				t.Error(err)
				continue
			}
			why := later(t, dag)
			if strings.HasSuffix(dir, "later") {
				text, _ := os.ReadFile(file)
				if why == "" {
					t.Errorf("%s can run: move it to examples", file)
				}
				if !strings.HasPrefix(string(text), "# Not yet: ") {
					t.Errorf("%s does not begin with \"# Not yet: \" and the reason (%s)", file, why)
				}
				continue
			}
			if why != "" {
				t.Errorf("%s cannot run (%s): move it to examples/later", file, why)
			}
			wd, _ := os.Getwd()
			t.Chdir("../..") // paths in tasks are of the folder where the command runs
			if err := dag.Check(task.CheckOptions{Home: home}); err != nil {
				t.Errorf("in a fresh clone: %v", err)
			}
			t.Chdir(wd)
		}
	}
}

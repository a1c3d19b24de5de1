// Package reference writes the reference documentation from what the code is
// made of: the fields of tasks, the keys of the configuration, the commands and
// their options. A test compares the files in docs with what it writes.
package reference

//go:generate go test . -run TestReferenceIsFresh -update

import (
	"github.com/skypilot-go/sky/internal/cli"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// Files returns the text of every generated file by its path below docs.
func Files() map[string][]byte {
	out := map[string][]byte{
		"reference/task.md":            taskPage(task.Reference()),
		"reference/task.schema.json":   task.JSONSchema(),
		"reference/config.md":          configPage(config.Docs()),
		"reference/config.schema.json": config.Schema(),
	}
	nouns := byNoun(cli.Reference())
	out["reference/cli/README.md"] = commandIndex(nouns)
	for _, n := range nouns {
		out["reference/cli/"+n.file()+".md"] = commandPage(n)
		out["man/"+n.manual()+".1"] = manPage(n)
	}
	return out
}

// Folders are the folders below docs that hold generated files only.
func Folders() []string { return []string{"reference", "man"} }

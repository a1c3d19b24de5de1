package optimizer

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/task"
)

// goldenTask parses a request as a user would write it (JSON is YAML).
// Accelerator names with spaces are restored after parsing.
func goldenTask(g *golden) (*task.Task, error) {
	const space = "_SPACE_"
	text := string(g.Request)
	for _, name := range []string{"Qualcomm AI100", "Radeon MI25", "Radeon Pro V520", "radeon pro v520", "Gaudi HL-205", "Virtex UltraScale (VU9P)"} {
		text = strings.ReplaceAll(text, name, strings.NewReplacer(" ", space, "(", "_OPEN_", ")", "_CLOSE_").Replace(name))
	}
	dag, err := task.Parse("golden.yaml", fmt.Appendf(nil, "name: t\nnum_nodes: %d\nresources: %s\n", g.NumNodes, text))
	if err != nil {
		return nil, err
	}
	t := dag.Tasks[0]
	for i := range t.Resources {
		for j := range t.Resources[i].Accelerators {
			a := &t.Resources[i].Accelerators[j]
			a.Name = strings.NewReplacer(space, " ", "_OPEN_", "(", "_CLOSE_", ")").Replace(a.Name)
		}
	}
	return t, nil
}

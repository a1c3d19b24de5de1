package policy

import (
	"context"
	"strings"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// ApplyDag is Apply for a Dag, and returns what it becomes in the form that travels.
// r.Tasks is filled in. The policy judges what was read of the tasks, not their text: a
// text could hide a task from it, behind a header that is none, or a line that only
// another reader takes for the end of a document.
func (p *Policy) ApplyDag(ctx context.Context, c *config.Config, r Request, dag *task.Dag) (string, *config.Config, error) {
	text, err := dag.YAML()
	if err != nil {
		return "", nil, err
	}
	header, tasks := documents(string(text))
	r.Tasks = tasks
	tasks, c, err = p.Apply(ctx, c, r)
	if err != nil {
		return "", nil, err
	}
	return strings.Join(append([]string{strings.TrimRight(header, "\n")}, tasks...), "\n---\n"), c, nil
}

// documents splits the form of a Dag that travels. A line of three dashes cannot occur
// inside a document: everything in one is indented or begins with a key.
func documents(dag string) (header string, tasks []string) {
	var docs []string
	var b strings.Builder
	for line := range strings.Lines(dag) {
		if strings.TrimRight(line, "\r\n") == "---" {
			docs = append(docs, b.String())
			b.Reset()
			continue
		}
		b.WriteString(line)
	}
	docs = append(docs, b.String())
	return docs[0], docs[1:]
}

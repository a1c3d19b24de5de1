package policy

import (
	"context"
	"strings"

	"github.com/skypilot-go/sky/internal/config"
)

// ApplyDag is Apply for a Dag in its wire form: documents, of which the first
// is a header. r.Tasks is filled in.
func (p *Policy) ApplyDag(ctx context.Context, c *config.Config, r Request, dag string) (string, *config.Config, error) {
	header, tasks := documents(dag)
	r.Tasks = tasks
	tasks, c, err := p.Apply(ctx, c, r)
	if err != nil {
		return "", nil, err
	}
	return strings.Join(append([]string{strings.TrimRight(header, "\n")}, tasks...), "\n---\n"), c, nil
}

// documents splits the wire form of a Dag. A line of three dashes cannot occur
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

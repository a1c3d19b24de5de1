package task

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Parse reads task text; name stands in its errors. Variables that were
// declared without a value are only missed by [Dag.Override], [Dag.Check] and
// [Dag.YAML], so that flags can still fill them. The error is an [*Error], or
// [Errors] when several things are wrong.
func Parse(name string, data []byte) (*Dag, error) { return parse(name, data, false) }

func parse(name string, data []byte, sent bool) (*Dag, error) {
	src := newSource(name, data)
	docs, err := src.documents()
	if err != nil {
		return nil, err
	}
	b := &builder{validator: validator{source: src}, sent: sent}
	d := b.dag(docs)
	if len(b.errs) > 0 {
		slices.SortStableFunc(b.errs, func(x, y *Error) int {
			if x.Line != y.Line {
				return x.Line - y.Line
			}
			return x.Column - y.Column
		})
		return nil, joined(b.errs)
	}
	d.warnings = b.warnings
	return d, nil
}

// Load reads a task file and keeps its text, without secrets, in each task's
// UserYAML.
func Load(path string) (*Dag, error) {
	file := path
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			file = filepath.Join(home, rest)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			err = pe.Err
		}
		return nil, &Error{File: path, Message: "cannot read the task file: " + err.Error()}
	}
	d, err := Parse(path, data)
	if err != nil {
		return nil, err
	}
	for _, t := range d.Tasks {
		if t.UserYAML == "" && t.origin != nil {
			t.UserYAML = t.origin.display()
		}
	}
	return d, nil
}

// dag reads the documents: one task, a pipeline or a job group.
func (b *builder) dag(docs []*yaml11.Node) *Dag {
	if !slices.ContainsFunc(docs, func(n *yaml11.Node) bool { return !n.IsNull() }) {
		b.errs = append(b.errs, &Error{File: b.Name, Message: `there is no task in it; write at least "run:" with what to run`})
		return nil
	}
	first := docs[0]
	if mode := first.Get("execution"); len(docs) > 1 && mode != nil && mode.Text == string(Parallel) {
		return b.group(first, docs[1:])
	}
	d := &Dag{Execution: Serial}
	header := isHeader(first)
	if header {
		b.pipelineHeader(d, first)
		docs = docs[1:]
	}
	single := !header && len(docs) == 1
	for _, doc := range docs {
		if !doc.IsNull() {
			if t := b.task(doc); t != nil {
				d.Tasks = append(d.Tasks, t)
			}
		}
	}
	if header && len(d.Tasks) == 0 && len(b.errs) == 0 {
		t := b.task(&yaml11.Node{Place: first.Place})
		t.Name = d.Name
		d.Tasks = append(d.Tasks, t)
	}
	if single && len(d.Tasks) == 1 {
		d.Name = d.Tasks[0].Name
	}
	b.schedule(d, docs, single)
	if len(b.errs) == 0 {
		b.checkOrder(d)
	}
	return d
}

// schedule reads the schedule that a file of one task has beside its fields.
func (b *builder) schedule(d *Dag, docs []*yaml11.Node, single bool) {
	for _, doc := range docs {
		at := doc.Get("schedule")
		switch {
		case at == nil || at.IsNull():
		case single && d.Execution == Serial:
			d.Schedule = scheduleOf(at)
		default:
			b.at(at, "schedule", "the schedule of several tasks goes into the header, the first document")
		}
	}
}

// isHeader: there is a name, and else at most execution and schedule.
func isHeader(n *yaml11.Node) bool {
	if n.Kind != yaml11.Map || n.Lookup("name") == nil {
		return false
	}
	return !slices.ContainsFunc(n.Entries, func(e yaml11.Entry) bool {
		return e.Key.Text != "name" && e.Key.Text != "execution" && e.Key.Text != "schedule"
	})
}

func (b *builder) pipelineHeader(d *Dag, n *yaml11.Node) {
	if name := n.Get("name"); name != nil {
		b.check(name, language().Key("name"), "name")
		d.Name = name.Text
	}
	if at := n.Get("schedule"); at != nil {
		b.check(at, language().Key("schedule"), "schedule")
		d.Schedule = scheduleOf(at)
	}
	mode := n.Get("execution")
	switch {
	case mode == nil || mode.Text == string(Serial):
	case mode.Text == string(Parallel):
		b.at(mode, "execution", "a job group needs its jobs: one document each, after the header")
	default:
		b.at(mode, "execution", "execution should be serial (one task after the other) or parallel (a job group), not %s", yaml11.Quote(mode.Text))
	}
}

// group reads a job group: a header and one document per job.
func (b *builder) group(header *yaml11.Node, docs []*yaml11.Node) *Dag {
	b.check(header, headerLanguage())
	d := &Dag{Name: textOf(header.Get("name")), Execution: Parallel, Schedule: scheduleOf(header.Get("schedule"))}
	names := map[string]int{}
	jobs := 0
	for _, doc := range docs {
		if doc.IsNull() {
			continue
		}
		jobs++
		if doc.Kind == yaml11.Map {
			b.jobName(doc, jobs, names)
		}
		if t := b.task(doc); t != nil {
			d.Tasks = append(d.Tasks, t)
		}
	}
	if jobs == 0 {
		b.at(header, "", "a job group needs its jobs: one document each, after the header")
	}
	if len(b.errs) > 0 {
		return d
	}
	known := make([]string, len(d.Tasks))
	for i, t := range d.Tasks {
		known[i] = t.Name
	}
	missing := func(n *yaml11.Node, path string) bool {
		if slices.Contains(known, n.Text) {
			return false
		}
		e := b.at(n, path, "there is no job %q in this group; it has %s", n.Text, strings.Join(known, ", "))
		if near := similar.Names(n.Text, known); len(near) > 0 {
			e.Message += fmt.Sprintf("; did you mean %q?", near[0])
		}
		return true
	}
	if list := header.Get("primary_tasks"); list != nil {
		for i, item := range list.Items {
			missing(item, fmt.Sprintf("primary_tasks[%d]", i))
			d.PrimaryTasks = append(d.PrimaryTasks, item.Text)
		}
	}
	if delay := header.Get("termination_delay"); delay != nil {
		d.TerminationDelay = map[string]int{}
		if delay.IsScalar() {
			d.TerminationDelay["default"], _ = ParseSeconds(delay.NumberText())
		}
		for _, e := range delay.Entries {
			if e.Key.Text == "default" || !missing(e.Key, "termination_delay") {
				d.TerminationDelay[e.Key.Text], _ = ParseSeconds(e.Value.NumberText())
			}
		}
	}
	b.schedule(d, docs, false)
	b.checkOrder(d)
	for _, e := range header.Entries {
		if headerLanguage().Key(e.Key.Text) == nil {
			b.warn("%s:%d: %q is not a field of a job group's header and is ignored", b.Name, e.Key.Line, e.Key.Text)
		}
	}
	return d
}

func (b *builder) jobName(doc *yaml11.Node, index int, seen map[string]int) {
	name := doc.Get("name")
	if name == nil {
		b.at(doc, "name", "job %d of the group needs a name", index)
		return
	}
	if strings.Contains(name.Text, ".") {
		b.at(name, "name", "the name of a job in a group may have letters, digits, - and _; not %s", yaml11.Quote(name.Text))
	}
	if line, twice := seen[name.Text]; twice {
		b.at(name, "name", "the group already has a job %q, on line %d", name.Text, line)
		return
	}
	seen[name.Text] = name.Line
}

// FillNames gives names to what has none: a Dag of one task shares its
// task's, otherwise it is generated for user; tasks are numbered after it.
func (d *Dag) FillNames(user string) {
	if len(d.Tasks) == 1 {
		if d.Name == "" {
			d.Name = d.Tasks[0].Name
		}
		if d.Name == "" {
			d.Name = GeneratedClusterName(user)
		}
		d.Tasks[0].Name = d.Name
		return
	}
	if d.Name == "" {
		d.Name = GeneratedClusterName(user)
	}
	for i, t := range d.Tasks {
		if t.Name == "" {
			t.Name = fmt.Sprintf("%s-%d", d.Name, i)
		}
	}
}

// CommandName is the name of tasks made of a shell command.
const CommandName = "sky-cmd"

// Command is the task that runs a shell command; "" makes a task that only
// brings up its machines.
func Command(text string) *Dag {
	return &Dag{Name: CommandName, Execution: Serial, Tasks: []*Task{{
		Name: CommandName, NumNodes: 1, Run: text, Envs: map[string]string{}, FileMounts: map[string]string{},
		Resources: []Resources{{}}, Preference: AnyOf,
	}}}
}

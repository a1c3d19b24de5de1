package task

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Parse reads task text; name stands in its errors. Variables that were
// declared without a value are only missed by [Dag.Override], [Dag.Check] and
// [Dag.YAML], so that flags can still fill them. The error is an [*Error], or
// [Errors] when several things are wrong.
func Parse(name string, data []byte) (*Dag, error) { return parse(name, data, false) }

func parse(name string, data []byte, sent bool) (*Dag, error) {
	src := &source{name: name, text: string(data)}
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
func (b *builder) dag(docs []*node) *Dag {
	if !slices.ContainsFunc(docs, func(n *node) bool { return !n.isNull() }) {
		b.errs = append(b.errs, &Error{File: b.name, Message: `there is no task in it; write at least "run:" with what to run`})
		return nil
	}
	first := docs[0]
	if mode := first.get("execution"); len(docs) > 1 && mode != nil && mode.text == string(Parallel) {
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
		if !doc.isNull() {
			if t := b.task(doc); t != nil {
				d.Tasks = append(d.Tasks, t)
			}
		}
	}
	if header && len(d.Tasks) == 0 && len(b.errs) == 0 {
		t := b.task(&node{line: first.line, col: first.col})
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
func (b *builder) schedule(d *Dag, docs []*node, single bool) {
	for _, doc := range docs {
		at := doc.get("schedule")
		switch {
		case at == nil || at.isNull():
		case single && d.Execution == Serial:
			d.Schedule = scheduleOf(at)
		default:
			b.at(at, "schedule", "the schedule of several tasks goes into the header, the first document")
		}
	}
}

// isHeader: there is a name, and else at most execution and schedule.
func isHeader(n *node) bool {
	if n.kind != mappingNode || n.lookup("name") == nil {
		return false
	}
	return !slices.ContainsFunc(n.entries, func(e entry) bool {
		return e.key.text != "name" && e.key.text != "execution" && e.key.text != "schedule"
	})
}

func (b *builder) pipelineHeader(d *Dag, n *node) {
	if name := n.get("name"); name != nil {
		b.check(name, language().field("name").is, "name")
		d.Name = name.text
	}
	if at := n.get("schedule"); at != nil {
		b.check(at, language().field("schedule").is, "schedule")
		d.Schedule = scheduleOf(at)
	}
	mode := n.get("execution")
	switch {
	case mode == nil || mode.text == string(Serial):
	case mode.text == string(Parallel):
		b.at(mode, "execution", "a job group needs its jobs: one document each, after the header")
	default:
		b.at(mode, "execution", "execution should be serial (one task after the other) or parallel (a job group), not %s", quoteShort(mode.text))
	}
}

// group reads a job group: a header and one document per job.
func (b *builder) group(header *node, docs []*node) *Dag {
	b.check(header, headerLanguage(), "")
	d := &Dag{Name: textOf(header.get("name")), Execution: Parallel, Schedule: scheduleOf(header.get("schedule"))}
	names := map[string]int{}
	jobs := 0
	for _, doc := range docs {
		if doc.isNull() {
			continue
		}
		jobs++
		if doc.kind == mappingNode {
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
	missing := func(n *node, path string) bool {
		if slices.Contains(known, n.text) {
			return false
		}
		e := b.at(n, path, "there is no job %q in this group; it has %s", n.text, strings.Join(known, ", "))
		if near, ok := closest(n.text, known); ok {
			e.Message += fmt.Sprintf("; did you mean %q?", near)
		}
		return true
	}
	if list := header.get("primary_tasks"); list != nil {
		for i, item := range list.items {
			missing(item, fmt.Sprintf("primary_tasks[%d]", i))
			d.PrimaryTasks = append(d.PrimaryTasks, item.text)
		}
	}
	if delay := header.get("termination_delay"); delay != nil {
		d.TerminationDelay = map[string]int{}
		if delay.kind == scalarNode {
			d.TerminationDelay["default"], _ = ParseSeconds(delay.numberText())
		}
		for _, e := range delay.entries {
			if e.key.text == "default" || !missing(e.key, "termination_delay") {
				d.TerminationDelay[e.key.text], _ = ParseSeconds(e.val.numberText())
			}
		}
	}
	b.schedule(d, docs, false)
	b.checkOrder(d)
	for _, e := range header.entries {
		if headerLanguage().field(e.key.text) == nil {
			b.warn("%s:%d: %q is not a field of a job group's header and is ignored", b.name, e.key.line, e.key.text)
		}
	}
	return d
}

func (b *builder) jobName(doc *node, index int, seen map[string]int) {
	name := doc.get("name")
	if name == nil {
		b.at(doc, "name", "job %d of the group needs a name", index)
		return
	}
	if strings.Contains(name.text, ".") {
		b.at(name, "name", "the name of a job in a group may have letters, digits, - and _; not %s", quoteShort(name.text))
	}
	if line, twice := seen[name.text]; twice {
		b.at(name, "name", "the group already has a job %q, on line %d", name.text, line)
		return
	}
	seen[name.text] = name.line
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

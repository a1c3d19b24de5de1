package task

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// After tells, for each task, the indexes of the tasks that must have succeeded
// before it begins. In a job group none must. If a task says depends_on, that
// alone orders the tasks; otherwise they run one after the other.
func (d *Dag) After() [][]int {
	after := make([][]int, len(d.Tasks))
	switch {
	case d.Execution == Parallel:
	case !slices.ContainsFunc(d.Tasks, func(t *Task) bool { return t.DependsOn != nil }):
		for i := 1; i < len(d.Tasks); i++ {
			after[i] = []int{i - 1}
		}
	default:
		for i, t := range d.Tasks {
			for _, name := range t.DependsOn {
				if j := slices.IndexFunc(d.Tasks, func(o *Task) bool { return o.Name == name }); j >= 0 {
					after[i] = append(after[i], j)
				}
			}
		}
	}
	return after
}

// namesOf reads one name or a list of them; nil if there is no field.
func namesOf(n *yaml11.Node) []string {
	if n == nil {
		return nil
	}
	if n.IsScalar() {
		return []string{n.Text}
	}
	names := []string{}
	for _, item := range n.Items {
		if !slices.Contains(names, item.Text) {
			names = append(names, item.Text)
		}
	}
	return names
}

// checkOrder checks depends_on: every name is a task of the Dag, and no task
// waits for itself, directly or not.
func (b *builder) checkOrder(d *Dag) {
	var known []string
	for _, t := range d.Tasks {
		if t.Name != "" {
			known = append(known, t.Name)
		}
	}
	for _, t := range d.Tasks {
		field := t.origin.doc.Get("depends_on")
		if t.DependsOn == nil || field == nil {
			continue
		}
		if d.Execution == Parallel {
			b.at(field, "depends_on", "the jobs of a group begin together; remove depends_on, or execution: parallel from the header")
			continue
		}
		items := field.Items
		if field.IsScalar() {
			items = []*yaml11.Node{field}
		}
		for _, item := range items {
			switch n := count(known, item.Text); {
			case item.Text == t.Name && n == 1:
				b.at(item, "depends_on", "task %q waits for itself", t.Name)
			case n > 1:
				b.at(item, "depends_on", "there are %d tasks named %q; give each its own name", n, item.Text)
			case n == 0:
				e := b.at(item, "depends_on", "there is no task %q to depend on; %s", item.Text, others(known, t.Name))
				if near := similar.Names(item.Text, known); len(near) > 0 {
					e.Message += fmt.Sprintf("; did you mean %q?", near[0])
				}
			}
		}
	}
	if len(b.errs) > 0 {
		return
	}
	if ring := circle(d.After()); ring != nil {
		names := make([]string, 0, len(ring)+1)
		for _, i := range append(ring, ring[0]) {
			names = append(names, d.Tasks[i].Name)
		}
		at := d.Tasks[ring[0]].origin.doc
		b.at(at.Get("depends_on"), "depends_on", "the tasks wait for each other in a circle: %s (read → as \"waits for\")", strings.Join(names, " → "))
	}
}

func others(known []string, self string) string {
	rest := slices.DeleteFunc(slices.Clone(known), func(n string) bool { return n == self })
	if len(rest) == 0 {
		return "no other task has a name"
	}
	return "there is " + strings.Join(rest, ", ")
}

func count(list []string, s string) int {
	n := 0
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}

// circle is tasks of which each waits for the next and the last for the first;
// nil if there are none.
func circle(after [][]int) []int {
	const (
		unseen = iota
		open
		done
	)
	mark := make([]int, len(after))
	var path []int
	var visit func(i int) []int
	visit = func(i int) []int {
		switch mark[i] {
		case done:
			return nil
		case open:
			return slices.Clone(path[slices.Index(path, i):])
		}
		mark[i] = open
		path = append(path, i)
		for _, j := range after[i] {
			if ring := visit(j); ring != nil {
				return ring
			}
		}
		path = path[:len(path)-1]
		mark[i] = done
		return nil
	}
	for i := range after {
		if ring := visit(i); ring != nil {
			return ring
		}
	}
	return nil
}

// Package fsm keeps life cycles as tables: which event moves what to where.
// Transitions that a table does not list are invalid. A table is made on first use and
// never changes: code asks it, tests walk it and the documentation prints it.
package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table maps a state and an event to the next state.
type Table[S, E ~string] map[S]map[E]S

// Next is the state after event e in state s; false if e cannot happen then.
func (t Table[S, E]) Next(s S, e E) (S, bool) {
	next, ok := t[s][e]
	return next, ok
}

// From lists, in order, the states in which event e can happen.
func (t Table[S, E]) From(e E) []S {
	var from []S
	for _, s := range t.States() {
		if _, ok := t[s][e]; ok {
			from = append(from, s)
		}
	}
	return from
}

// Into lists, in order, the states from which one event leads to state to.
func (t Table[S, E]) Into(to S) []S {
	var from []S
	for _, s := range t.States() {
		for _, next := range t[s] {
			if next == to {
				from = append(from, s)
				break
			}
		}
	}
	return from
}

// States lists every state that the table names, in order.
func (t Table[S, E]) States() []S {
	set := map[S]bool{}
	for s, row := range t {
		set[s] = true
		for _, next := range row {
			set[next] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Events lists every event that the table names, in order.
func (t Table[S, E]) Events() []E {
	set := map[E]bool{}
	for _, row := range t {
		for e := range row {
			set[e] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Final reports whether nothing can happen in state s any more.
func (t Table[S, E]) Final(s S) bool { return len(t[s]) == 0 }

// Diagram is the table as a Mermaid state diagram, the same text each time.
func (t Table[S, E]) Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	for _, s := range t.States() {
		for _, e := range slices.Sorted(maps.Keys(t[s])) {
			fmt.Fprintf(&b, "    %s --> %s: %s\n", node(s), node(t[s][e]), e)
		}
		if t.Final(s) {
			fmt.Fprintf(&b, "    %s --> [*]\n", node(s))
		}
	}
	return b.String()
}

// node is how a diagram writes a state; the empty state is "not there".
func node[S ~string](s S) string {
	if s == "" {
		return "absent"
	}
	return string(s)
}

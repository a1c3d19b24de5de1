// Package fsm keeps life cycles as tables: which event moves what to where.
// Transitions that a table does not list are invalid. A table is made on first use and
// never changes.
package fsm

import (
	"maps"
	"slices"
)

// Table maps a state and an event to the next state.
type Table[S, E ~string] map[S]map[E]S

// Next is the state after event e in state s; false if e cannot happen then.
func (t Table[S, E]) Next(s S, e E) (S, bool) {
	next, ok := t[s][e]
	return next, ok
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

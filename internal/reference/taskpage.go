package reference

import (
	"strings"

	"github.com/skypilot-go/sky/task"
)

// taskPage is the reference of the task language: one section a top-level
// field.
func taskPage(fields []task.FieldDoc) []byte {
	var p page
	p.generated("Task files")
	p.paragraph("Every field of a task, in the order in which most people write them. How to write tasks is told in\n" +
		"[Writing tasks](../tasks.md); `sky task check FILE` says what is wrong with one. The same as JSON Schema, for editors:\n" +
		"[task.schema.json](task.schema.json).")
	p.paragraph("In paths, `[]` stands for each element of a list and `<key>` for a name that you choose.")
	var top []task.FieldDoc
	below := map[string][]task.FieldDoc{}
	for _, f := range fields {
		section, rest, nested := cutPath(f.Path)
		if !nested {
			top = append(top, f)
			continue
		}
		f.Path = rest
		below[section] = append(below[section], f)
	}
	var rows [][]string
	for _, f := range top {
		name := code(f.Path)
		if len(below[f.Path]) > 0 {
			name = "[" + name + "](#" + anchor(f.Path) + ")"
		}
		rows = append(rows, fieldRow(f, name))
	}
	p.table(fieldHeader, rows)
	for _, f := range top {
		if len(below[f.Path]) == 0 {
			continue
		}
		p.heading(2, f.Path)
		p.paragraph(prose(f.Doc))
		var rows [][]string
		for _, b := range below[f.Path] {
			rows = append(rows, fieldRow(b, code(b.Path)))
		}
		p.table(fieldHeader, rows)
	}
	return []byte(p.String())
}

// cutPath splits the first name from a path: "hooks[].run" is hooks and [].run.
func cutPath(path string) (first, rest string, nested bool) {
	i := strings.IndexAny(path, ".[")
	if i < 0 {
		return path, "", false
	}
	return path[:i], strings.TrimPrefix(path[i:], "."), true
}

// anchor is the fragment of a heading.
func anchor(heading string) string { return strings.ToLower(strings.ReplaceAll(heading, ".", "")) }

var fieldHeader = []string{"Field", "Type", "Default", "Meaning", "Example"}

func fieldRow(f task.FieldDoc, name string) []string {
	meaning := prose(f.Doc)
	if len(f.Words) > 0 {
		meaning += " One of " + codes(f.Words) + "."
	}
	if f.Required {
		name += " (required)"
	}
	return []string{name, kinds(f.Types), prose(f.Default), meaning, code(f.Example)}
}

// kinds names the types of JSON Schema as people do.
func kinds(types []string) string {
	names := map[string]string{"string": "text", "integer": "whole number", "boolean": "true or false", "object": "map", "array": "list", "null": "nothing"}
	var out []string
	for _, t := range types {
		if n, ok := names[t]; ok {
			t = n
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return "anything"
	}
	return strings.Join(out, ", ")
}

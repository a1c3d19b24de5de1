package upload

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/filesync"
)

// maxNamed is how many paths a note names.
const maxNamed = 5

// Notes are lines about a source that was copied, or is going to be: what its
// author may not expect. files is how many files and links of it are copied.
func Notes(src filesync.Source, left filesync.Left, files int) []string {
	var notes []string
	if len(left.State) > 0 {
		notes = append(notes, fmt.Sprintf("Left out of %s: %s. sky's own state (keys, tokens, its database) is never copied.", src, named(left.State, len(left.State))))
	}
	if files == 0 && left.Ignored > 0 {
		notes = append(notes, fmt.Sprintf("Warning: nothing of %s is copied, since its ignore files (.skyignore or git's) leave out everything that is in it.", src))
	}
	if left.Dangles > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s %s to nothing and %s copied as %s: %s.", count(left.Dangles, "link"), src,
			verb(left.Dangles, "leads", "lead"), verb(left.Dangles, "is", "are"), verb(left.Dangles, "it is", "they are"), named(left.Dangling, left.Dangles)))
	}
	return notes
}

// NotesBefore are [Notes] where no [Summary] of a sync follows.
func NotesBefore(src filesync.Source, left filesync.Left, files int) []string {
	notes := Notes(src, left, files)
	if out := leftOut(left); len(out) > 0 {
		notes = append([]string{fmt.Sprintf("Of %s: %s.", src, strings.Join(out, "; "))}, notes...)
	}
	return notes
}

// leftOut is how much of a source is not copied.
func leftOut(left filesync.Left) (parts []string) {
	if left.Ignored > 0 {
		parts = append(parts, fmt.Sprintf("%d left out by ignore files", left.Ignored))
	}
	if left.Special > 0 {
		parts = append(parts, fmt.Sprintf("%d %s left out", left.Special, verb(left.Special, "socket, pipe or device", "sockets, pipes or devices")))
	}
	return parts
}

// named lists the first of n paths.
func named(paths []string, n int) string {
	shown := paths[:min(len(paths), maxNamed)]
	text := strings.Join(shown, ", ")
	if more := n - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// count is a number of things that add an s for more than one.
func count(n int, what string) string { return fmt.Sprintf("%d %s", n, what+verb(n, "", "s")) }

// Summary says what a sync copied.
func Summary(s filesync.Stats) string {
	parts := []string{count(s.Files, "file")}
	switch {
	case s.Files > 0 && s.Sent == 0:
		parts = append(parts, "all there already")
	case s.Files > 0:
		parts = append(parts, fmt.Sprintf("%d sent", s.Sent))
	}
	if s.Removed > 0 {
		parts = append(parts, fmt.Sprintf("%d removed", s.Removed))
	}
	return strings.Join(append([]string{strings.Join(parts, ", ")}, leftOut(s.Left)...), "; ")
}

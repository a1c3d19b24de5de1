package upload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/task"
)

const (
	// What is larger than this is announced before it moves.
	largeBytes = 256 << 20
	largeFiles = 50_000
	// What is larger than this is asked about.
	hugeBytes = 5 << 30
	// maxFolders is how many of its folders are named.
	maxFolders = 5
)

// A Measure is how much a source has that is copied to nodes.
type Measure struct {
	Source  filesync.Source
	Files   int // and links
	Bytes   int64
	Folders []Folder // those at its top, the largest first
	Left    filesync.Left
}

// A Folder is one at the top of a source.
type Folder struct {
	Name  string
	Files int
	Bytes int64
}

// MeasureAll measures what a dag's tasks bring to nodes. A source that cannot be
// read is left out: whoever copies it says why.
func MeasureAll(dag *task.Dag, have Files) []Measure {
	var all []Measure
	done := map[filesync.Source]bool{}
	for _, t := range dag.Tasks {
		for _, name := range localSources(t) {
			src, err := have.Source(t, name)
			if err != nil || done[src] {
				continue
			}
			done[src] = true
			if m, err := measure(src); err == nil {
				all = append(all, m)
			}
		}
	}
	return all
}

func measure(src filesync.Source) (Measure, error) {
	m := Measure{Source: src}
	folders := map[string]*Folder{}
	for e, err := range filesync.Walk(src, true, &m.Left) {
		if err != nil {
			return m, err
		}
		if e.Mode.IsDir() {
			continue
		}
		m.Files++
		m.Bytes += e.Size
		if name, _, inside := strings.Cut(e.Path, "/"); inside {
			f := folders[name]
			if f == nil {
				f = &Folder{Name: name}
				folders[name] = f
			}
			f.Files++
			f.Bytes += e.Size
		}
	}
	for _, f := range folders {
		m.Folders = append(m.Folders, *f)
	}
	slices.SortFunc(m.Folders, func(a, b Folder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Files, a.Files), cmp.Compare(a.Name, b.Name))
	})
	return m, nil
}

// Large reports whether the source is announced before it moves.
func (m *Measure) Large() bool { return m.Bytes > largeBytes || m.Files > largeFiles }

// Huge reports whether its author is asked first.
func (m *Measure) Huge() bool { return m.Bytes > hugeBytes }

// Announcement is what is said of a large source; size formats bytes.
func (m *Measure) Announcement(size func(int64) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s has %s in %s to copy.", m.Source, size(m.Bytes), count(m.Files, "file"))
	for i, f := range m.Folders[:min(len(m.Folders), maxFolders)] {
		b.WriteString([]string{", ", " Its largest folders: "}[max(0, 1-i)])
		fmt.Fprintf(&b, "%s (%s, %s)", f.Name, size(f.Bytes), count(f.Files, "file"))
	}
	if len(m.Folders) > 0 {
		b.WriteString(".")
	}
	if m.Left.RuleFiles == 0 {
		b.WriteString(" No ignore file leaves out anything")
	} else {
		fmt.Fprintf(&b, " Ignore files in effect: %s", named(m.Left.Rules, m.Left.RuleFiles))
	}
	b.WriteString("; leave out more with a .skyignore file, and keep large data in a bucket.")
	return b.String()
}

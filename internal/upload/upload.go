// Package upload is about the files that tasks name. On the machine of a task's
// author it collects them for the upload to an API server elsewhere; on the server
// it says which of them a request may bring to nodes, and where they are.
package upload

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/task"
)

// Collect lists the files of a dag's tasks, of those that there are, and notes in
// each task where in the upload they are. What ignore files leave out is not
// uploaded. notes are lines for the author, see [NotesBefore].
func Collect(dag *task.Dag, have Files) (files []sky.UploadFile, notes []string, err error) {
	taken := map[string]fs.FileMode{} // kinds, by name in the archive
	done := map[filesync.Source]string{}
	for _, t := range dag.Tasks {
		mapping := map[string]string{}
		for _, name := range localSources(t) {
			src, err := have.Source(t, name)
			if err != nil {
				return nil, nil, err
			}
			at, ok := done[src]
			if !ok {
				at = archiveName(name)
				var left filesync.Left
				more, err := below(src, name, at, &left)
				if err != nil {
					return nil, nil, Error(src, err)
				}
				if clash(taken, at, more) {
					at = fmt.Sprintf("%d/%s", len(done), at)
					if more, err = below(src, name, at, nil); err != nil {
						return nil, nil, Error(src, err)
					}
				}
				enter(taken, at, more)
				done[src] = at
				files = append(files, more...)
				notes = append(notes, NotesBefore(src, left, leaves(more))...)
			}
			mapping[name] = at
		}
		if len(mapping) > 0 {
			t.FileMountsMapping = mapping
		}
	}
	return files, notes, nil
}

// leaves counts what is no folder.
func leaves(files []sky.UploadFile) (n int) {
	for _, f := range files {
		if !f.Mode.IsDir() {
			n++
		}
	}
	return n
}

// clash reports whether files of a source at a place in the archive cannot be beside
// those that are taken: a link of the workdir, say, whose path another source
// goes through.
func clash(taken map[string]fs.FileMode, at string, files []sky.UploadFile) bool {
	for up := path.Dir(at); up != "."; up = path.Dir(up) {
		if kind, ok := taken[up]; ok && !kind.IsDir() {
			return true
		}
	}
	for _, f := range files {
		if kind, ok := taken[f.Name]; ok && kind != f.Mode.Type() {
			return true
		}
	}
	return false
}

// enter notes what clash asks for.
func enter(taken map[string]fs.FileMode, at string, files []sky.UploadFile) {
	for up := path.Dir(at); up != "."; up = path.Dir(up) {
		taken[up] = fs.ModeDir
	}
	for _, f := range files {
		taken[f.Name] = f.Mode.Type()
	}
}

// localSources are the paths of this machine that a task names.
func localSources(t *task.Task) []string {
	var out []string
	add := func(p string) {
		if p != "" && !strings.Contains(p, "://") && !strings.HasPrefix(p, "skypilot:") {
			out = append(out, p)
		}
	}
	add(t.Workdir)
	for _, src := range t.FileMounts {
		add(src)
	}
	for _, m := range t.StorageMounts {
		for _, src := range m.Sources {
			add(src)
		}
	}
	if t.Service != nil {
		add(t.Service.TLSKeyfile)
		add(t.Service.TLSCertfile)
	}
	return out
}

// archiveName is where an absolute path stands in the archive.
func archiveName(p string) string {
	p = filepath.ToSlash(p)
	if vol := filepath.VolumeName(p); vol != "" {
		p = strings.TrimSuffix(vol, ":") + p[len(vol):]
	}
	return strings.TrimPrefix(p, "/")
}

// below lists the files of a source for a place in the archive.
func below(src filesync.Source, name, at string, left *filesync.Left) ([]sky.UploadFile, error) {
	var files []sky.UploadFile
	for e, err := range filesync.Walk(src, true, left) {
		if err != nil {
			return nil, err
		}
		files = append(files, sky.UploadFile{
			Name: path.Join(at, e.Path), Path: filepath.Join(name, filepath.FromSlash(e.Path)),
			Mode: e.Mode, Target: e.Target, Time: e.ModTime,
			Open: func() (io.ReadCloser, error) { return filesync.Open(src, e.Path) },
		})
	}
	return files, nil
}

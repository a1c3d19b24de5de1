// Package upload is about the files that tasks name. On the machine of a task's
// author it collects them for the upload to an API server elsewhere; on the server
// it says which of them a request may bring to nodes, and where they are.
package upload

import (
	"io"
	"path"
	"path/filepath"
	"strings"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/task"
)

// Collect lists the files of a dag's tasks, of those that there are, and notes in
// each task where in the upload they are.
func Collect(dag *task.Dag, have Files) ([]sky.UploadFile, error) {
	var files []sky.UploadFile
	for _, t := range dag.Tasks {
		mapping := map[string]string{}
		for _, name := range localSources(t) {
			src, err := have.Source(t, name)
			if err != nil {
				return nil, err
			}
			more, err := below(src, name, name == t.Workdir)
			if err != nil {
				return nil, Error(src, err)
			}
			files = append(files, more...)
			mapping[name] = archiveName(name)
		}
		if len(mapping) > 0 {
			t.FileMountsMapping = mapping
		}
	}
	return files, nil
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

func below(src filesync.Source, name string, ignore bool) ([]sky.UploadFile, error) {
	var files []sky.UploadFile
	for e, err := range filesync.Walk(src, ignore, nil) {
		if err != nil {
			return nil, err
		}
		files = append(files, sky.UploadFile{
			Name: path.Join(archiveName(name), e.Path), Path: filepath.Join(name, filepath.FromSlash(e.Path)),
			Mode: e.Mode, Target: e.Target,
			Open: func() (io.ReadCloser, error) { return filesync.Open(src, e.Path) },
		})
	}
	return files, nil
}

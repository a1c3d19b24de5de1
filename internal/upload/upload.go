// Package upload collects the local files that tasks name, for the upload to an
// API server on another machine.
package upload

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/task"
)

// Collect lists the files of a dag's tasks, and notes in each task where in the
// upload they are.
func Collect(dag *task.Dag) ([]sky.UploadFile, error) {
	var files []sky.UploadFile
	for _, t := range dag.Tasks {
		mapping := map[string]string{}
		for _, src := range localSources(t) {
			more, err := below(src, src == t.Workdir)
			if err != nil {
				return nil, err
			}
			files = append(files, more...)
			mapping[src] = archiveName(src)
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

func below(src string, ignore bool) ([]sky.UploadFile, error) {
	var files []sky.UploadFile
	for e, err := range filesync.Walk(src, ignore) {
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", src, err)
		}
		files = append(files, sky.UploadFile{
			Name: path.Join(archiveName(src), e.Path), Path: filepath.Join(src, filepath.FromSlash(e.Path)),
			Mode: e.Mode, Target: e.Target,
		})
	}
	return files, nil
}

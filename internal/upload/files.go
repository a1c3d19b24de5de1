package upload

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/task"
)

// Files says which files the tasks of one request may bring to nodes: those of
// the caller's upload, or those of this machine if it is the caller's own. It is
// found by the server when it accepts the request, and nothing that a request's
// body says changes it. The zero Files has none.
type Files struct {
	dir string // what the paths of a task's mapping are in; "": there is no upload
	own bool   // paths of this machine count
}

// In are the files below dir, by each task's file_mounts_mapping: an upload of the
// caller, unpacked, or copies that the server made.
func In(dir string) Files { return Files{dir: dir} }

// OwnMachine are the files of this machine, for a caller whose machine it is.
func OwnMachine() Files { return Files{own: true} }

// AndOwnMachine is f with the files of this machine for what is not in the
// upload.
func (f Files) AndOwnMachine() Files { return Files{f.dir, true} }

// Source is what a task calls by a path of its author's machine. Any error is an
// [*api.Error].
func (f Files) Source(t *task.Task, name string) (filesync.Source, error) {
	in, mapped := t.FileMountsMapping[name]
	switch {
	case mapped && f.dir != "":
		below := path.Clean(strings.TrimLeft(filepath.ToSlash(in), "/"))
		if !filepath.IsLocal(filepath.FromSlash(below)) {
			return filesync.Source{}, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("file_mounts_mapping maps %s to a path outside of the upload.", name)}
		}
		return filesync.Within(f.dir, below, name), nil
	case f.own:
		return filesync.Local(name), nil
	}
	return filesync.Source{}, &api.Error{
		Type:    api.ErrValue,
		Message: fmt.Sprintf("%s was not uploaded. On this server tasks bring uploaded files only: its paths are those of the server's machine, which are not yours.", name),
		Hint:    "The sky command uploads what a task names. SkyPilot's Python client does unless its endpoint is localhost or 127.0.0.1: give it the server's name or another address, such as 127.0.0.2.",
	}
}

// Check finds out that the files which a task names are there and may be brought
// to nodes.
func (f Files) Check(t *task.Task) error {
	for _, name := range t.LocalPaths() {
		if _, err := f.Source(t, name); err != nil {
			return err
		}
	}
	names := slices.Collect(maps.Values(t.FileMounts))
	if t.Workdir != "" {
		names = append(names, t.Workdir)
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.Contains(name, "://") {
			continue
		}
		src, err := f.Source(t, name)
		if err == nil {
			if _, err = filesync.Stat(src); err != nil {
				err = Error(src, err)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

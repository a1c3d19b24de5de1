//go:build linux

package mount

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/skypilot-go/sky/internal/mount/cached"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// specFile says, in the folder of a cache, what it is the cache of. It holds no
// credentials.
const specFile = "spec.json"

// openCached opens the cache of a path. A cache of another bucket that holds files which
// are not uploaded is not touched.
func (m *Mounts) openCached(spec mountapi.Spec, b storage.Bucket, prefix string, log *slog.Logger) (volume, error) {
	dir := m.cacheDir(spec.Path)
	old, err := readSpec(dir)
	if err == nil && !sameContent(old, spec) {
		if err := discard(dir, old); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if err := wholefile.WriteSynced(filepath.Join(dir, specFile), data, 0o600); err != nil {
		return nil, err
	}
	return cached.Open(b, cached.Options{Dir: dir, Tree: remote.Options{Prefix: prefix}, Config: spec.Config, Name: spec.Path, Log: log})
}

func readSpec(dir string) (s mountapi.Spec, err error) {
	data, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

// sameContent reports whether a cache of one spec is good for the other.
func sameContent(a, b mountapi.Spec) bool {
	return a.URL == b.URL && a.SubPath == b.SubPath && a.Endpoint == b.Endpoint && a.Region == b.Region && a.Mode == b.Mode
}

// discard removes a cache if the bucket has all of it.
func discard(dir string, of mountapi.Spec) error {
	files, err := cached.Unstored(dir, nil)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return failf(mountapi.InUse, "the cache at %s holds %d files of %s that are not uploaded (the first one is %q): mount that at %s again, and wait until they are (flush)", dir, len(files), of.URL, files[0], of.Path)
	}
	return os.RemoveAll(dir)
}

// absent says what the bucket does not have, of some owners, of a mount that is not there.
func (m *Mounts) absent(path string, mine func(owner string) bool) *mountapi.Error {
	e := &mountapi.Error{Code: mountapi.NotMounted, Message: "nothing is mounted at " + path}
	paths, err := cached.Unstored(m.cacheDir(path), mine)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		e.Code = mountapi.Unavailable
		e.Message += ", and its cache cannot be read: " + err.Error()
	}
	for _, p := range paths {
		if len(e.Files) == mountapi.MaxFiles {
			e.More++
			continue
		}
		e.Files = append(e.Files, mountapi.File{Mount: path, Path: p, State: mountapi.Queued})
	}
	return e
}

// waiting lists caches that hold files which are not uploaded, of no mount that is known.
func (m *Mounts) waiting(known map[string]bool) []mountapi.Waiting {
	entries, err := os.ReadDir(filepath.Join(m.o.Dir, "cache"))
	if err != nil {
		return nil
	}
	var out []mountapi.Waiting
	for _, e := range entries {
		dir := filepath.Join(m.o.Dir, "cache", e.Name())
		if known[dir] {
			continue
		}
		files, err := cached.Unstored(dir, nil)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			m.log.Warn("a cache cannot be read", "dir", dir, "err", err)
		}
		if len(files) == 0 {
			continue
		}
		if spec, err := readSpec(dir); err == nil {
			out = append(out, mountapi.Waiting{Spec: spec, Files: len(files)})
		}
	}
	return out
}

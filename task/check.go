package task

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// CheckOptions say where files are looked for.
type CheckOptions struct {
	// NoFiles leaves out what needs the user's files: for a server, whose
	// clients have them.
	NoFiles bool
	// Dir is what relative paths start from; "" is the working directory.
	Dir string
	// Home is what ~ stands for; "" asks the operating system.
	Home string
}

func (o CheckOptions) absolute(p string) string {
	if p == "~" || strings.HasPrefix(p, "~/") {
		home := o.Home
		if home == "" {
			home, _ = os.UserHomeDir()
		}
		return filepath.Join(home, p[1:])
	}
	if !filepath.IsAbs(p) {
		if o.Dir != "" {
			return filepath.Join(o.Dir, p)
		}
		if abs, err := filepath.Abs(p); err == nil {
			return abs
		}
	}
	return filepath.Clean(p)
}

// Check does what Parse cannot do with text alone and the catalog is not
// needed for: are the files there, do the parts of the task fit together. The
// error is as Parse's.
func (d *Dag) Check(o CheckOptions) error {
	errs := AllErrors(d.ready())
	names := map[string]bool{}
	var priority *int
	for _, t := range d.Tasks {
		found := t.check(o)
		hide(found, t.secretValues())
		errs = append(errs, found...)
		if t.Name != "" && names[t.Name] {
			errs = append(errs, t.errorAt("name", "there are two tasks with the name %q; give each its own", t.Name))
		}
		names[t.Name] = true
		if len(t.Resources) == 0 || t.Resources[0].Priority == nil {
			continue
		}
		if p := t.Resources[0].Priority; priority != nil && *p != *priority {
			errs = append(errs, t.errorUnder("resources", "priority", "this task has priority %d, an earlier one %d; give the same to all, or give it once", *p, *priority))
		} else {
			priority = p
		}
	}
	return joined(errs)
}

func (t *Task) check(o CheckOptions) []*Error {
	var errs []*Error
	add := func(e *Error) {
		if e != nil {
			errs = append(errs, e)
		}
	}
	if t.Name != "" {
		if err := ValidTaskName(t.Name); err != nil {
			add(t.errorAt("name", "%s", err))
		}
	}
	if t.NumNodes < 1 {
		add(t.errorAt("num_nodes", "num_nodes should be at least 1, not %d", t.NumNodes))
	}
	if !o.NoFiles && t.Workdir != "" {
		if info, err := os.Stat(o.absolute(t.Workdir)); err != nil {
			add(t.errorAt("workdir", "workdir %s cannot be used: %s", t.Workdir, why(err)))
		} else if !info.IsDir() {
			add(t.errorAt("workdir", "workdir %s is a file; name a folder", t.Workdir))
		}
	}
	for _, dest := range slices.Sorted(maps.Keys(t.FileMounts)) {
		add(t.checkFileMount(dest, t.FileMounts[dest], o))
	}
	for _, dest := range slices.Sorted(maps.Keys(t.StorageMounts)) {
		add(t.checkDestination(dest))
		add(t.checkStorageFiles(dest, t.StorageMounts[dest], o))
	}
	if s := t.Service; s != nil && s.TLSKeyfile != "" && !o.NoFiles {
		for _, f := range []string{s.TLSKeyfile, s.TLSCertfile} {
			if _, err := os.Stat(o.absolute(f)); err != nil {
				add(t.errorUnder("service", "tls", "the file %s of service.tls cannot be used: %s", f, why(err)))
			}
		}
	}
	return append(errs, t.checkResources()...)
}

// why is the reason of a file error, without the path that is named before.
func why(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "it does not exist"
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// remoteWorkdir is where workdir is put on every node.
const remoteWorkdir = "~/sky_workdir"

func (t *Task) checkDestination(dest string) *Error {
	switch {
	case strings.HasSuffix(dest, "/"):
		return t.errorUnder("file_mounts", dest, "the destination %s should not end in a slash", dest)
	case IsURL(dest):
		return t.errorUnder("file_mounts", dest, "the destination is a path on the nodes, not a URL: %s; files go to buckets by the storage form, with name and source", dest)
	case path.Clean(dest) == remoteWorkdir && (t.Workdir != "" || t.Git != nil):
		return t.errorUnder("file_mounts", dest, "%s is taken by workdir; choose another destination", remoteWorkdir)
	}
	return nil
}

func (t *Task) checkFileMount(dest, source string, o CheckOptions) *Error {
	if e := t.checkDestination(dest); e != nil {
		return e
	}
	switch {
	case strings.HasSuffix(source, "/"):
		return t.errorUnder("file_mounts", dest, "the source %s should not end in a slash", source)
	case source == "":
		return t.errorUnder("file_mounts", dest, "%s has no source; write a path or a URL", dest)
	case IsURL(source) && !bucketURL(source):
		e := t.errorUnder("file_mounts", dest, "%s is no URL of a bucket, and others cannot be copied; buckets are %s://… and https://ACCOUNT.blob.core.windows.net/CONTAINER", source, strings.Join(bucketSchemes[:len(bucketSchemes)-1], "://, "))
		e.Class = "sky.exceptions.StorageSourceError"
		return e
	case IsURL(source):
		if err := checkBucketURL(source); err != nil {
			e := t.errorUnder("file_mounts", dest, "%s", err)
			e.Class = "sky.exceptions.StorageSourceError"
			return e
		}
		return nil
	case o.NoFiles || strings.HasPrefix(source, "skypilot:"):
		return nil
	}
	if _, err := os.Stat(o.absolute(source)); err != nil {
		return t.errorUnder("file_mounts", dest, "the source %s cannot be used: %s", source, why(err))
	}
	return nil
}

func (t *Task) checkStorageFiles(dest string, m StorageMount, o CheckOptions) *Error {
	bases := map[string]string{}
	for _, s := range m.Sources {
		if IsURL(s) {
			continue
		}
		if first, twice := bases[filepath.Base(s)]; twice {
			e := t.errorUnder("file_mounts", dest, "the sources %s and %s would have the same name in the bucket", first, s)
			e.Class = "sky.exceptions.StorageSourceError"
			return e
		}
		bases[filepath.Base(s)] = s
		if o.NoFiles {
			continue
		}
		info, err := os.Stat(o.absolute(s))
		switch {
		case err != nil:
			e := t.errorUnder("file_mounts", dest, "the source %s cannot be used: %s", s, why(err))
			e.Class = "sky.exceptions.StorageSourceError"
			return e
		case !info.IsDir() && !m.SourceList:
			e := t.errorUnder("file_mounts", dest, "the source %s is a file; name its folder, or write a list: [%s]", s, s)
			e.Class = "sky.exceptions.StorageSourceError"
			return e
		}
	}
	return nil
}

// AbsolutePaths makes local paths absolute, as the server needs them: workdir,
// sources of files and buckets, TLS files.
func (d *Dag) AbsolutePaths(o CheckOptions) {
	for _, t := range d.Tasks {
		if t.Workdir != "" {
			t.Workdir = o.absolute(t.Workdir)
		}
		mounts := maps.Clone(t.FileMounts)
		for dest, src := range mounts {
			if !IsURL(src) && !strings.HasPrefix(src, "skypilot:") {
				mounts[dest] = o.absolute(src)
			}
		}
		t.FileMounts = mounts
		buckets := maps.Clone(t.StorageMounts)
		for dest, m := range buckets {
			m.Sources = slices.Clone(m.Sources)
			for i, src := range m.Sources {
				if !IsURL(src) {
					m.Sources[i] = o.absolute(src)
				}
			}
			buckets[dest] = m
		}
		t.StorageMounts = buckets
		if s := t.Service; s != nil && s.TLSKeyfile != "" {
			c := *s
			c.TLSKeyfile, c.TLSCertfile = o.absolute(s.TLSKeyfile), o.absolute(s.TLSCertfile)
			t.Service = &c
		}
	}
}

// LocalPaths lists what the task needs from the user's machine, sorted: the
// folder of workdir, local sources of files and buckets, TLS files.
func (t *Task) LocalPaths() []string {
	var out []string
	if t.Workdir != "" {
		out = append(out, t.Workdir)
	}
	for _, src := range t.FileMounts {
		if !IsURL(src) && !strings.HasPrefix(src, "skypilot:") {
			out = append(out, src)
		}
	}
	for _, m := range t.StorageMounts {
		for _, src := range m.Sources {
			if !IsURL(src) {
				out = append(out, src)
			}
		}
	}
	if s := t.Service; s != nil && s.TLSKeyfile != "" {
		out = append(out, s.TLSKeyfile, s.TLSCertfile)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

//go:build linux

package cached

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/vfs"
)

// Flush waits until the bucket has what the owners wrote so far, without waiting for
// files to be closed. It reports how many files that were. If there is nothing, it returns at
// once. An error is a [*mountapi.Error] that names files.
func (v *Volume) Flush(ctx context.Context, mine func(owner string) bool) (int, error) {
	type target struct {
		f     *file
		gen   uint64
		ended int
	}
	var all []target
	var forced []*file
	v.mu.Lock()
	for _, f := range v.files {
		s := f.shown.Load()
		if s == nil || !s.unstored() || !s.mine(mine) {
			continue
		}
		all = append(all, target{f, s.gen, f.ended})
		forced = v.force(f, forced)
	}
	v.mu.Unlock()
	defer v.unforce(forced)
	if len(all) == 0 {
		return 0, nil
	}
	left := slices.Clone(all)
	for {
		v.mu.Lock()
		progress := v.progress
		failed := 0
		left = slices.DeleteFunc(left, func(t target) bool { return t.f.gone || t.f.shown.Load().stored >= t.gen })
		for _, t := range left {
			if t.f.lasting && t.f.ended > t.ended {
				failed++
			} else if !t.f.running && !v.pending.has(t.f) {
				v.pending.add(t.f, v.now())
				v.wakeUp()
			}
		}
		v.mu.Unlock()
		if len(left) == failed {
			if failed == 0 {
				return len(all), nil
			}
			return len(all), v.complain(mountapi.NotStored, files(left, func(t target) *file { return t.f }))
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return len(all), v.complain(mountapi.TimedOut, files(left, func(t target) *file { return t.f }))
		}
	}
}

// force lets a file be uploaded now, although it is open, and what has to come before it.
// It adds them to a list for unforce. v.mu is held.
func (v *Volume) force(f *file, list []*file) []*file {
	for f != nil && !slices.Contains(list[max(0, len(list)-2):], f) {
		f.forced++
		list = append(list, f)
		if !f.running {
			v.pending.add(f, v.now())
		}
		s := f.shown.Load()
		if s == nil || s.after == "" {
			break
		}
		f = v.files[s.after]
	}
	v.wakeUp()
	return list
}

func (v *Volume) unforce(list []*file) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range list {
		f.forced--
	}
}

// settle waits until what was deleted at some paths is deleted in the bucket.
func (v *Volume) settle(ctx context.Context, these func(path string) bool) error {
	var forced []*file
	known := map[*file]bool{}
	defer func() { v.unforce(forced) }()
	for {
		v.mu.Lock()
		progress := v.progress
		var err error
		waits := false
		for path, f := range v.files {
			if s := f.shown.Load(); s == nil || s.state != deleted || !these(path) {
				continue
			}
			waits = true
			if !f.running && f.err != nil && (f.lasting || f.tries > 2) {
				err = f.err
			}
			if !known[f] {
				known[f] = true
				forced = v.force(f, forced)
			}
		}
		v.mu.Unlock()
		if err != nil {
			return fmt.Errorf("what was deleted here is not deleted in the bucket yet: %w", err)
		}
		if !waits {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settleOther waits until a deleted file at a path is deleted in the bucket if a folder is
// made there, or the other way round: the two have different keys.
func (v *Volume) settleOther(ctx context.Context, path string, dir bool) error {
	s := v.local(path)
	if s == nil || s.state != deleted || (s.attr.Type == vfs.Dir) == dir {
		return nil
	}
	return v.settle(ctx, func(p string) bool { return p == path || strings.HasPrefix(p, path+"/") })
}

func files[T any](all []T, f func(T) *file) []*file {
	out := make([]*file, len(all))
	for i, x := range all {
		out[i] = f(x)
	}
	return out
}

// complain makes an error that names files.
func (v *Volume) complain(code mountapi.Code, all []*file) error {
	e := &mountapi.Error{Code: code}
	var bytes int64
	v.mu.Lock()
	for _, f := range all {
		d := v.describe(f)
		bytes += d.Size
		e.Files = append(e.Files, d)
	}
	v.mu.Unlock()
	slices.SortFunc(e.Files, func(a, b mountapi.File) int { return cmp.Compare(a.Path, b.Path) })
	first := e.Files[0]
	if code == mountapi.NotStored {
		e.Message = fmt.Sprintf("%s in %s cannot be stored: %s", first.Path, first.Mount, first.Error)
	} else {
		e.Message = fmt.Sprintf("%s in %s is not stored yet", first.Path, first.Mount)
		if first.Error != "" {
			e.Message += ": " + first.Error
		}
	}
	if n := len(e.Files); n > 1 {
		e.Message += fmt.Sprintf("; nor are %d others (%d bytes in all)", n-1, bytes)
	}
	if n := len(e.Files) - mountapi.MaxFiles; n > 0 {
		e.Files, e.More = e.Files[:mountapi.MaxFiles], n
	}
	return e
}

// describe is a file that the bucket does not have. v.mu is held.
func (v *Volume) describe(f *file) mountapi.File {
	s := f.shown.Load()
	d := mountapi.File{Mount: v.o.Name, Path: f.path, Tries: f.tries, Ranks: slices.Sorted(maps.Keys(s.owners)), Since: s.attr.ModTime}
	if s.state != deleted {
		d.Size = s.attr.Size
	}
	switch {
	case f.running:
		d.State = mountapi.Uploading
	case f.lasting:
		d.State = mountapi.Failed
	case f.err != nil:
		d.State = mountapi.Retrying
	case f.writers > 0:
		d.State = mountapi.Writing
	default:
		d.State = mountapi.Queued
	}
	if f.err != nil {
		d.Error = f.err.Error()
	}
	return d
}

// Stats adds what is known of the volume.
func (v *Volume) Stats(s *mountapi.Stats) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.files {
		s.Open += f.refs
		x := f.shown.Load()
		if x == nil || !x.unstored() {
			continue
		}
		s.DirtyFiles++
		if x.state == dirty {
			s.DirtyBytes += x.attr.Size
		}
		if f.lasting {
			s.Failed++
		}
	}
	s.Uploading = v.running
	s.CacheBytes = v.bytes.Load()
	s.Conflicts = len(v.conflicts)
	if v.trouble != nil && s.DirtyFiles > 0 {
		s.Error = v.trouble.Error()
	}
}

// Queue lists what the bucket does not have, and what is stored under another name
// because somebody else wrote it, too.
func (v *Volume) Queue() []mountapi.File {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []mountapi.File
	for _, f := range v.files {
		if s := f.shown.Load(); s != nil && s.unstored() {
			out = append(out, v.describe(f))
		}
	}
	slices.SortFunc(out, func(a, b mountapi.File) int { return cmp.Compare(a.Path, b.Path) })
	return append(out, v.conflicts...)
}

// Settled reports whether the bucket has everything.
func (v *Volume) Settled() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.files {
		if s := f.shown.Load(); s == nil || s.unstored() {
			return false
		}
	}
	return true
}

// Kick makes all that failed be tried again now: there are new credentials.
func (v *Volume) Kick() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.files {
		if f.err != nil && !f.running {
			v.pending.add(f, v.now())
		}
	}
	v.wakeUp()
}

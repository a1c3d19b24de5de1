//go:build linux

// Package mounttest does random things to a [vfs.Volume] and to a model of a file system
// in memory, and compares: what fsx does to files, and the same for names.
package mounttest

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/internal/mount/vfs"
)

// Options say what is done.
type Options struct {
	Seed    uint64
	Steps   int
	MaxSize int // of files; 0: 200,000
	// OpenRename renames and deletes files that are open, too.
	OpenRename bool
	// Perms compares permissions after chmod.
	Perms bool
	// Each is called after each step with its description.
	Each func(step int, what string)
}

type entry struct {
	dir    bool
	data   []byte
	target string
	perm   fs.FileMode
}

// A Model is what a volume should be.
type Model struct {
	v     vfs.Volume
	o     Options
	rand  *rand.Rand
	files map[string]*entry
	open  []*opened
}

type opened struct {
	h    vfs.Handle
	e    *entry
	path string
	o    vfs.OpenOptions
}

// New is a model of an empty volume.
func New(v vfs.Volume, o Options) *Model {
	if o.MaxSize == 0 {
		o.MaxSize = 200_000
	}
	return &Model{v: v, o: o, rand: rand.New(rand.NewPCG(o.Seed, 7)), files: map[string]*entry{"": {dir: true}}}
}

// Use goes on with another volume over the same files: after a restart.
func (m *Model) Use(v vfs.Volume) { m.v, m.open = v, nil }

// Run does the steps.
func (m *Model) Run(t *testing.T) {
	t.Helper()
	for i := range m.o.Steps {
		what, err := m.Step(t.Context())
		if err != nil {
			t.Fatalf("seed %d, step %d: %s: %v", m.o.Seed, i, what, err)
		}
		if m.o.Each != nil {
			m.o.Each(i, what)
		}
	}
	if err := m.CloseAll(t.Context()); err != nil {
		t.Fatalf("seed %d: closing: %v", m.o.Seed, err)
	}
	if err := m.Compare(t.Context(), m.v); err != nil {
		t.Fatalf("seed %d: at the end: %v", m.o.Seed, err)
	}
}

// CloseAll closes what is open.
func (m *Model) CloseAll(ctx context.Context) error {
	for _, o := range m.open {
		if err := o.h.Flush(ctx); err != nil {
			return fmt.Errorf("%s: %w", o.path, err)
		}
		o.h.Release()
	}
	m.open = nil
	return nil
}

// Compare compares all names and contents with those of a volume.
func (m *Model) Compare(ctx context.Context, v vfs.Volume) error {
	var walk func(dir string) error
	walk = func(dir string) error {
		found := map[string]vfs.Attr{}
		for a, err := range v.ReadDir(ctx, dir) {
			if err != nil {
				return fmt.Errorf("listing %q: %w", dir, err)
			}
			if _, twice := found[a.Name]; twice {
				return fmt.Errorf("%q is listed twice in %q", a.Name, dir)
			}
			found[a.Name] = a
		}
		want := m.children(dir)
		if a, b := slices.Sorted(maps.Keys(found)), want; !slices.Equal(a, b) {
			return fmt.Errorf("the folder %q lists %q, want %q", dir, a, b)
		}
		for _, name := range want {
			path := join(dir, name)
			e := m.files[path]
			a, err := v.Stat(ctx, path)
			if err != nil {
				return fmt.Errorf("stat of %q: %w", path, err)
			}
			switch {
			case e.dir:
				if a.Type != vfs.Dir {
					return fmt.Errorf("%q is no folder", path)
				}
				if err := walk(path); err != nil {
					return err
				}
			case e.target != "":
				if a.Type != vfs.Link || a.Target != e.target {
					return fmt.Errorf("%q is %v to %q, want a link to %q", path, a.Type, a.Target, e.target)
				}
			default:
				if a.Type != vfs.File || a.Size != int64(len(e.data)) {
					return fmt.Errorf("%q has type %v and %d bytes, want %d", path, a.Type, a.Size, len(e.data))
				}
				perm := e.perm
				if !m.o.Perms {
					perm = 0
				}
				if err := compare(ctx, v, path, e.data, perm); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk("")
}

// compare compares a file's content and, as what a list says of it may be less, its
// permissions as they are when it is looked at by itself.
func compare(ctx context.Context, v vfs.Volume, path string, want []byte, perm fs.FileMode) error {
	h, err := v.Open(ctx, path, vfs.OpenOptions{Read: true})
	if err != nil {
		return fmt.Errorf("opening %q: %w", path, err)
	}
	defer h.Release()
	if perm != 0 {
		if f, ok := v.(interface{ Forget() }); ok {
			f.Forget()
		}
		a, err := v.Stat(ctx, path)
		if err != nil {
			return err
		}
		if a.Perm != perm {
			return fmt.Errorf("%q has the permissions %v, want %v", path, a.Perm, perm)
		}
	}
	got := make([]byte, len(want)+10)
	n, err := h.ReadAt(ctx, got, 0)
	if err != nil {
		return fmt.Errorf("reading %q: %w", path, err)
	}
	return same(path, 0, got[:n], want)
}

func same(path string, off int64, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Errorf("%q from %d: %d bytes, want %d, which differ at %d", path, off, len(got), len(want), off+int64(i))
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func (m *Model) children(dir string) []string {
	var out []string
	for p := range m.files {
		if p == "" {
			continue
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 && dir == "" || i >= 0 && p[:i] == dir {
			out = append(out, p[i+1:])
		}
	}
	slices.Sort(out)
	return out
}

// pick chooses one of the paths that fit.
func (m *Model) pick(fits func(p string, e *entry) bool) (string, bool) {
	var all []string
	for p, e := range m.files {
		if fits(p, e) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return "", false
	}
	slices.Sort(all)
	return all[m.rand.IntN(len(all))], true
}

func isFile(_ string, e *entry) bool { return !e.dir && e.target == "" }
func isDir(_ string, e *entry) bool  { return e.dir }

// path is a name, new or not.
func (m *Model) path() string {
	dir, _ := m.pick(isDir)
	if strings.Count(dir, "/") > 3 {
		dir = ""
	}
	names := []string{"a", "b", "c d", "ü", "e.tmp", "-f"}
	return join(dir, names[m.rand.IntN(len(names))])
}

func (m *Model) isOpen(path string) bool {
	return slices.ContainsFunc(m.open, func(o *opened) bool { return o.path == path || strings.HasPrefix(o.path, path+"/") })
}

// expect compares the error of a call with what should come.
func expect(err error, want syscall.Errno) error {
	if got := vfs.Errno(err); got != want {
		return fmt.Errorf("%v (%v), want %v", got, err, want)
	}
	return nil
}

func (m *Model) size() int {
	switch m.rand.IntN(4) {
	case 0:
		return m.rand.IntN(100)
	case 1:
		return m.rand.IntN(8192)
	}
	return m.rand.IntN(m.o.MaxSize)
}

func (m *Model) bytes(n int) []byte {
	p := make([]byte, n)
	seed := m.rand.Uint64()
	for i := range p {
		seed = seed*6364136223846793005 + 1442695040888963407
		p[i] = byte(seed >> 56)
	}
	return p
}

// Step does one random thing. The model is changed only if the call succeeded as it
// should.
func (m *Model) Step(ctx context.Context) (string, error) {
	if len(m.open) > 0 && m.rand.IntN(3) > 0 {
		return m.useOpen(ctx)
	}
	switch m.rand.IntN(13) {
	case 0, 1, 2, 3:
		return m.openFile(ctx)
	case 4:
		return m.mkdir(ctx)
	case 5:
		return m.unlink(ctx)
	case 6:
		return m.rmdir(ctx)
	case 7, 8:
		return m.rename(ctx)
	case 9:
		return m.symlink(ctx)
	case 10:
		return m.readSome(ctx)
	case 11:
		return m.setAttr(ctx)
	default:
		return m.list(ctx)
	}
}

func (m *Model) openFile(ctx context.Context) (string, error) {
	path := m.path()
	o := vfs.OpenOptions{Read: true, Write: m.rand.IntN(4) > 0, Perm: 0o644}
	if o.Write {
		o.Create = m.rand.IntN(4) > 0
		o.Trunc = m.rand.IntN(3) == 0
		o.Append = m.rand.IntN(5) == 0
		o.Excl = o.Create && m.rand.IntN(6) == 0
	}
	what := fmt.Sprintf("open %q %+v", path, o)
	e := m.files[path]
	want := syscall.Errno(0)
	switch {
	case e == nil && !o.Create:
		want = syscall.ENOENT
	case e != nil && o.Excl:
		want = syscall.EEXIST
	case e != nil && e.dir:
		want = syscall.EISDIR
	case e != nil && e.target != "":
		return what, nil // the kernel follows links
	}
	if len(m.open) > 4 {
		return what, nil
	}
	h, err := m.v.Open(ctx, path, o)
	if e != nil && e.dir && o.Excl && err != nil {
		return what, nil
	}
	if err := expect(err, want); err != nil || want != 0 {
		return what, err
	}
	if e == nil {
		e = &entry{perm: o.Perm}
		m.files[path] = e
	}
	if o.Trunc {
		e.data = nil
	}
	m.open = append(m.open, &opened{h: h, e: e, path: path, o: o})
	return what, nil
}

func (m *Model) useOpen(ctx context.Context) (string, error) {
	i := m.rand.IntN(len(m.open))
	o := m.open[i]
	switch m.rand.IntN(8) {
	case 0:
		what := fmt.Sprintf("close %q", o.path)
		err := o.h.Flush(ctx)
		o.h.Release()
		m.open = slices.Delete(m.open, i, i+1)
		return what, err
	case 1:
		return fmt.Sprintf("sync %q", o.path), o.h.Sync(ctx)
	case 2:
		n := int64(m.size())
		what := fmt.Sprintf("truncate %q to %d", o.path, n)
		err := o.h.Truncate(ctx, n)
		if !o.o.Write {
			if err == nil {
				return what, fmt.Errorf("a file that is open for reading was cut off")
			}
			return what, nil
		}
		if err != nil {
			return what, err
		}
		o.e.resize(int(n))
		return what, nil
	case 3, 4:
		off, n := int64(m.rand.IntN(len(o.e.data)+100)), m.size()
		what := fmt.Sprintf("read %d of %q at %d", n, o.path, off)
		p := make([]byte, n)
		got, err := o.h.ReadAt(ctx, p, off)
		if err != nil {
			return what, err
		}
		var want []byte
		if off < int64(len(o.e.data)) {
			want = o.e.data[off:min(off+int64(n), int64(len(o.e.data)))]
		}
		if err := same(o.path, off, p[:got], want); err != nil {
			return what, err
		}
		if a := o.h.Attr(); a.Size != int64(len(o.e.data)) {
			return what, fmt.Errorf("its size is %d, want %d", a.Size, len(o.e.data))
		}
		return what, nil
	}
	off, p := int64(m.rand.IntN(len(o.e.data)+1000)), m.bytes(m.size())
	what := fmt.Sprintf("write %d of %q at %d", len(p), o.path, off)
	if o.o.Append {
		off = int64(len(o.e.data))
	}
	n, err := o.h.WriteAt(ctx, p, off)
	if !o.o.Write {
		return what, expect(err, syscall.EBADF)
	}
	if err != nil || n != len(p) {
		return what, fmt.Errorf("%d bytes written: %v", n, err)
	}
	if len(p) > 0 && int(off)+len(p) > len(o.e.data) {
		o.e.resize(int(off) + len(p))
	}
	copy(o.e.data[min(off, int64(len(o.e.data))):], p)
	return what, nil
}

func (e *entry) resize(n int) {
	data := make([]byte, n)
	copy(data, e.data)
	e.data = data
}

func (m *Model) mkdir(ctx context.Context) (string, error) {
	path := m.path()
	what := fmt.Sprintf("mkdir %q", path)
	_, err := m.v.Mkdir(ctx, path, 0o755)
	if m.files[path] != nil {
		return what, expect(err, syscall.EEXIST)
	}
	if err != nil {
		return what, err
	}
	m.files[path] = &entry{dir: true}
	return what, nil
}

func (m *Model) unlink(ctx context.Context) (string, error) {
	path, ok := m.pick(func(p string, e *entry) bool { return !e.dir && (m.o.OpenRename || !m.isOpen(p)) })
	what := fmt.Sprintf("unlink %q", path)
	if !ok {
		return what, nil
	}
	if err := m.v.Unlink(ctx, path); err != nil {
		return what, err
	}
	delete(m.files, path)
	return what, nil
}

func (m *Model) rmdir(ctx context.Context) (string, error) {
	path, ok := m.pick(func(p string, e *entry) bool { return e.dir && p != "" })
	what := fmt.Sprintf("rmdir %q", path)
	if !ok {
		return what, nil
	}
	err := m.v.Rmdir(ctx, path)
	if len(m.children(path)) > 0 {
		return what, expect(err, syscall.ENOTEMPTY)
	}
	if err != nil {
		return what, err
	}
	delete(m.files, path)
	return what, nil
}

func (m *Model) rename(ctx context.Context) (string, error) {
	from, ok := m.pick(func(p string, e *entry) bool { return p != "" && (m.o.OpenRename || !m.isOpen(p)) })
	to := m.path()
	keep := m.rand.IntN(5) == 0
	what := fmt.Sprintf("rename %q to %q (keep %v)", from, to, keep)
	if !ok || from == to || strings.HasPrefix(from, to+"/") || !m.o.OpenRename && m.isOpen(to) {
		return what, nil
	}
	src, dst := m.files[from], m.files[to]
	want := syscall.Errno(0)
	switch {
	case src.dir && strings.HasPrefix(to, from+"/"):
		want = syscall.EINVAL
	case dst == nil:
	case keep:
		want = syscall.EEXIST
	case src.dir && !dst.dir:
		want = syscall.ENOTDIR
	case !src.dir && dst.dir:
		want = syscall.EISDIR
	case dst.dir && len(m.children(to)) > 0:
		want = syscall.ENOTEMPTY
	}
	err := m.v.Rename(ctx, from, to, keep)
	if want == syscall.EINVAL && err != nil { // or it exists
		return what, nil
	}
	if err := expect(err, want); err != nil || want != 0 {
		return what, err
	}
	moved := map[string]*entry{}
	for p, e := range m.files {
		if p == from || strings.HasPrefix(p, from+"/") {
			moved[to+strings.TrimPrefix(p, from)] = e
			delete(m.files, p)
		}
	}
	maps.Copy(m.files, moved)
	for _, o := range m.open {
		if m.files[o.path] != o.e {
			for p, e := range moved {
				if e == o.e {
					o.path = p
				}
			}
		}
	}
	return what, nil
}

func (m *Model) symlink(ctx context.Context) (string, error) {
	path := m.path()
	target := "to/ä " + string(rune('a'+m.rand.IntN(26)))
	what := fmt.Sprintf("symlink %q", path)
	_, err := m.v.Symlink(ctx, target, path)
	if m.files[path] != nil {
		return what, expect(err, syscall.EEXIST)
	}
	if err != nil {
		return what, err
	}
	m.files[path] = &entry{target: target}
	return what, nil
}

func (m *Model) readSome(ctx context.Context) (string, error) {
	path, ok := m.pick(func(p string, e *entry) bool { return isFile(p, e) })
	what := fmt.Sprintf("read all of %q", path)
	if !ok {
		return what, nil
	}
	return what, compare(ctx, m.v, path, m.files[path].data, 0)
}

func (m *Model) setAttr(ctx context.Context) (string, error) {
	path, ok := m.pick(isFile)
	if !ok {
		return "setattr", nil
	}
	e := m.files[path]
	if m.rand.IntN(2) == 0 {
		n := int64(m.size())
		what := fmt.Sprintf("truncate %q by its path to %d", path, n)
		a, err := m.v.SetAttr(ctx, path, vfs.Change{Size: &n})
		if err != nil {
			return what, err
		}
		e.resize(int(n))
		if a.Size != n {
			return what, fmt.Errorf("its size is %d", a.Size)
		}
		return what, nil
	}
	perm := fs.FileMode(0o600 + m.rand.IntN(0o200))
	what := fmt.Sprintf("chmod %q %o", path, perm)
	a, err := m.v.SetAttr(ctx, path, vfs.Change{Perm: &perm})
	if err != nil {
		return what, err
	}
	if m.o.Perms && a.Perm != perm {
		return what, fmt.Errorf("its permissions are %v", a.Perm)
	}
	e.perm = perm
	return what, nil
}

func (m *Model) list(ctx context.Context) (string, error) {
	dir, _ := m.pick(isDir)
	what := fmt.Sprintf("list %q", dir)
	var found []string
	for a, err := range m.v.ReadDir(ctx, dir) {
		if err != nil {
			return what, err
		}
		found = append(found, a.Name)
	}
	slices.Sort(found)
	if want := m.children(dir); !slices.Equal(found, want) {
		return what, fmt.Errorf("it lists %q, want %q", found, want)
	}
	return what, nil
}

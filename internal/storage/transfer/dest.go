package transfer

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/skypilot-go/sky/internal/storage"
)

// A dest is a folder that files are written into, and nothing outside of it. Calls may
// be made concurrently.
type dest struct {
	root *os.Root

	mu   sync.Mutex
	made map[string]bool // folders that are there
	// Folders that are open: what is done in one of them does not walk down to it.
	open map[string]*openFolder
}

type openFolder struct {
	root  *os.Root
	users int
}

// mostOpen is how many folders stay open that nobody uses.
const mostOpen = 64

// openDest opens a folder, which is made if need be.
func openDest(dir string) (*dest, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &dest{root: root, made: map[string]bool{".": true}, open: map[string]*openFolder{}}, nil
}

func (d *dest) close() {
	for _, f := range d.open {
		f.root.Close()
	}
	d.root.Close()
}

// enter opens the folder that a path is in, which exists. leave is called when it is not
// used any more.
func (d *dest) enter(at string) (folder *os.Root, name string, leave func(), err error) {
	dir, name := path.Split(at)
	if dir == "" {
		return d.root, name, func() {}, nil
	}
	dir = path.Clean(dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.open[dir]
	if f == nil {
		root, err := d.root.OpenRoot(filepath.FromSlash(dir))
		if err != nil {
			return nil, "", nil, err
		}
		f = &openFolder{root: root}
		d.open[dir] = f
	}
	f.users++
	return f.root, name, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if f.users--; len(d.open) <= mostOpen {
			return
		}
		for dir, f := range d.open {
			if f.users == 0 {
				f.root.Close()
				delete(d.open, dir)
			}
		}
	}, nil
}

// folder makes a folder and those above it.
func (d *dest) folder(at string) error {
	d.mu.Lock()
	known := d.made[at]
	d.mu.Unlock()
	if known {
		return nil
	}
	if err := d.root.MkdirAll(filepath.FromSlash(at), 0o755); err != nil {
		if info, look := d.root.Stat(filepath.FromSlash(at)); look != nil || !info.IsDir() {
			return &localError{err}
		}
	}
	d.mu.Lock()
	d.made[at] = true
	d.mu.Unlock()
	return nil
}

// look describes what is at a path; nil: nothing. A symbolic link is not followed.
func (d *dest) look(at string) (fs.FileInfo, error) {
	folder, name, leave, err := d.enter(at)
	var info fs.FileInfo
	if err == nil {
		info, err = folder.Lstat(name)
		leave()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &localError{err}
	case info.IsDir():
		return nil, &localError{fmt.Errorf("%s is a folder at the destination", at)}
	}
	return info, nil
}

// temp is where a file is written before it has its name: in the same folder, named
// for its path and content.
func temp(at string, o storage.Object) string {
	return path.Join(path.Dir(at), partPrefix+short(at)+"-"+short(o.ETag+"\x00"+fmt.Sprint(o.Size))+partSuffix)
}

func short(text string) string {
	s := blake3.Sum256([]byte(text))
	return hex.EncodeToString(s[:8])
}

// others removes what older downloads of the same path have left, of other content.
func (d *dest) others(at string, o storage.Object) {
	keep := path.Base(temp(at, o))
	f, err := d.root.Open(filepath.FromSlash(path.Dir(at)))
	if err != nil {
		return
	}
	names, _ := f.Readdirnames(-1)
	f.Close()
	for _, name := range names {
		if strings.HasPrefix(name, partPrefix+short(at)+"-") && isPartName(name) && strings.TrimSuffix(name, doneSuffix) != strings.TrimSuffix(keep, partSuffix) && name != keep {
			d.root.Remove(filepath.FromSlash(path.Join(path.Dir(at), name)))
		}
	}
}

// settle gives a file that is whole its mode, time and name, in its folder.
func settle(folder *os.Root, f *os.File, tmp, name string, a storage.Attributes, modified time.Time) error {
	mode := a.Mode
	if mode == 0 {
		mode = 0o644
	}
	when := a.ModTime
	if when.IsZero() {
		when = modified.Truncate(time.Second)
	}
	err := errors.Join(f.Chmod(mode), f.Close())
	if err == nil && !when.IsZero() {
		err = folder.Chtimes(tmp, when, when)
	}
	if err == nil {
		err = folder.Rename(tmp, name)
	}
	if err != nil {
		return &localError{err}
	}
	return nil
}

// whole writes a small file.
func (d *dest) whole(at string, o storage.Object, content []byte) error {
	folder, name, leave, err := d.enter(at)
	if err != nil {
		return &localError{err}
	}
	defer leave()
	tmp := path.Base(temp(at, o))
	f, err := folder.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return &localError{err}
	}
	if _, err = f.Write(content); err != nil {
		f.Close()
		err = &localError{err}
	} else {
		err = settle(folder, f, tmp, name, storage.AttributesOf(o.Metadata), o.Modified)
	}
	if err != nil {
		folder.Remove(tmp)
	}
	return err
}

// link makes a symbolic link. What is written through it later stays in the root.
func (d *dest) link(at string, o storage.Object, target string) error {
	tmp := temp(at, o)
	d.root.Remove(filepath.FromSlash(tmp))
	err := d.root.Symlink(target, filepath.FromSlash(tmp))
	if err == nil {
		err = d.root.Rename(filepath.FromSlash(tmp), filepath.FromSlash(at))
	}
	if err != nil {
		return &localError{err}
	}
	return nil
}

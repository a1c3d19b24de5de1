package server

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"
)

// unpacking is an upload of a user on its way to dir, or if into is set, to there;
// dir then only reports that it was done.
type unpacking struct {
	up    *Uploads
	user  string
	dir   string
	into  string
	total int
}

func (u unpacking) done() bool { info, err := os.Stat(u.dir); return err == nil && info.IsDir() }

func (u unpacking) parts() string { return u.dir + ".parts" }

func (u unpacking) part(i int) string { return filepath.Join(u.parts(), "part"+strconv.Itoa(i)) }

// receive is keep for a chunk whose size the client has told, or -1: the disk is
// asked first. Nothing stays of an upload of which a chunk is refused.
func (u unpacking) receive(index int, size int64, from io.Reader) error {
	var err error
	if size > 0 {
		if err = u.up.ledger().take(u.user, size, u.up.Limits.filled()); err == nil {
			u.up.ledger().Give(u.user, size)
		}
	}
	if err == nil {
		err = u.keep(index, from)
	}
	if _, refused := errors.AsType[*refusedUpload](err); refused {
		u.discard()
	}
	return err
}

// keep stores a chunk; it appears under its name when it is whole. A chunk that is
// too much is a [*refusedUpload], and nothing of it stays.
func (u unpacking) keep(index int, from io.Reader) error {
	if err := os.MkdirAll(u.parts(), 0o700); err != nil {
		return err
	}
	limits, others := u.up.Limits.filled(), int64(0)
	if limits.One > 0 {
		others = sizeOf(u.parts())
	}
	tmp := u.part(index) + "." + uuid.NewString()
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := &takingWriter{f: f}
	w.take = func(n int64) error {
		if limits.One > 0 && others+w.taken+n > limits.One {
			return tooMuch("The upload is larger than %d MiB, the limit for one; large data belongs in a bucket.", limits.One>>20)
		}
		return u.up.ledger().take(u.user, n, limits)
	}
	_, err = io.Copy(struct{ io.Writer }{w}, from)
	err = errors.Join(err, f.Close())
	before, serr := os.Stat(u.part(index))
	if err == nil {
		err = os.Rename(tmp, u.part(index))
		if errors.Is(err, fs.ErrNotExist) { // what came of the upload was removed meanwhile
			err = &refusedUpload{http.StatusRequestEntityTooLarge, "The upload is not taken: another part of it was refused."}
		}
	}
	switch {
	case err != nil:
		_ = os.Remove(tmp)
		u.up.ledger().Give(u.user, w.taken)
	case serr == nil: // it came twice
		u.up.ledger().Give(u.user, before.Size())
	}
	return err
}

// discard removes what there is of an upload that is refused.
func (u unpacking) discard() {
	size := sizeOf(u.parts())
	if os.RemoveAll(u.parts()) == nil {
		u.up.ledger().Give(u.user, size)
	}
}

func (u unpacking) missing() ([]string, error) {
	var missing []string
	for i := range u.total {
		_, err := os.Stat(u.part(i))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if u.done() { // another chunk's sender finished meanwhile
				return nil, nil
			}
			missing = append(missing, "part"+strconv.Itoa(i))
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

// unpackingPrefix begins the names of folders that something is unpacked in.
const unpackingPrefix = "unpacking-"

// finish unpacks beside the final place and moves there in one step, so that a
// crash leaves either nothing or everything. What is refused leaves nothing.
func (u unpacking) finish() (err error) {
	defer func() {
		if _, refused := errors.AsType[*refusedUpload](err); refused {
			u.discard()
		}
	}()
	whole, err := u.open()
	if err != nil {
		return err
	}
	defer whole.Close()
	limits := u.up.Limits.filled()
	a, err := readArchive(whole, whole.size, limits)
	if err != nil {
		return err
	}
	if err := u.up.ledger().take(u.user, a.size, limits); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			u.up.ledger().Give(u.user, a.size)
		}
	}()
	tmp, err := os.MkdirTemp(filepath.Dir(u.dir), unpackingPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	files, done := filepath.Join(tmp, "files"), filepath.Join(tmp, "done")
	if err := errors.Join(os.Mkdir(files, 0o700), os.Mkdir(done, 0o700)); err != nil {
		return err
	}
	if err := a.unpack(files); err != nil {
		return err
	}
	if u.into != "" {
		if err := u.merge(files); err != nil {
			return err
		}
		files = done
		defer u.up.ledger().Recount() // files were replaced
	}
	if err := os.Rename(files, u.dir); err != nil {
		return err
	}
	u.discard()
	return nil
}

// merge moves what was unpacked into the user's one folder, in place of what is
// there under the same names.
func (u unpacking) merge(files string) error {
	home := filepath.Dir(u.into)
	if err := os.MkdirAll(u.into, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer root.Close()
	return filepath.WalkDir(files, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == files {
			return err
		}
		below, err := filepath.Rel(files, p)
		if err != nil {
			return err
		}
		to := filepath.Join(filepath.Base(u.into), below)
		if d.IsDir() {
			// A link of an earlier upload may lead to other files of the user.
			if info, err := root.Lstat(to); err == nil && info.Mode()&fs.ModeSymlink != 0 {
				return badZip("the folder %s could not be made: a link is in its place", quoted(below))
			}
			if err := root.MkdirAll(to, 0o700); err != nil {
				return badZip("the folder %s could not be made: %v", quoted(below), err)
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			return root.Chmod(to, info.Mode().Perm())
		}
		from, err := filepath.Rel(home, p)
		if err != nil {
			return err
		}
		if err := root.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return badZip("%s could not be replaced: %v", quoted(below), err)
		}
		if err := root.Rename(from, to); err != nil {
			return badZip("%s could not be put in its place: %v", quoted(below), err)
		}
		return nil
	})
}

// partsReader reads the parts of an upload as one file.
type partsReader struct {
	files []*os.File
	from  []int64 // where each begins
	size  int64
}

func (u unpacking) open() (*partsReader, error) {
	r := new(partsReader)
	for i := range u.total {
		f, err := os.Open(u.part(i))
		if err != nil {
			r.Close()
			return nil, err
		}
		r.files, r.from = append(r.files, f), append(r.from, r.size)
		info, err := f.Stat()
		if err != nil {
			r.Close()
			return nil, err
		}
		r.size += info.Size()
	}
	return r, nil
}

func (r *partsReader) ReadAt(p []byte, off int64) (n int, err error) {
	for i := range r.files {
		end := r.size
		if i+1 < len(r.from) {
			end = r.from[i+1]
		}
		if off >= end {
			continue
		}
		m, err := r.files[i].ReadAt(p[n:n+int(min(int64(len(p)-n), end-off))], off-r.from[i])
		n, off = n+m, off+int64(m)
		if n == len(p) || err != nil && err != io.EOF {
			return n, err
		}
	}
	if n == len(p) {
		return n, nil
	}
	return n, io.EOF
}

func (r *partsReader) Close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

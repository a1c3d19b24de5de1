package server

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"
)

// unpacking is an upload on its way to dir, or if into is set, to there; dir then
// only tells that it was done.
type unpacking struct {
	dir   string
	into  string
	total int
}

func (u unpacking) done() bool { info, err := os.Stat(u.dir); return err == nil && info.IsDir() }

func (u unpacking) parts() string { return u.dir + ".parts" }

func (u unpacking) part(i int) string { return filepath.Join(u.parts(), "part"+strconv.Itoa(i)) }

// keep stores a chunk; it appears under its name when it is whole.
func (u unpacking) keep(index int, from io.Reader) error {
	if err := os.MkdirAll(u.parts(), 0o700); err != nil {
		return err
	}
	tmp := u.part(index) + "." + uuid.NewString()
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, u.part(index))
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
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

// finish unpacks beside the final place and moves there in one step, so that a
// crash leaves either nothing or everything.
func (u unpacking) finish() error {
	tmp, err := os.MkdirTemp(filepath.Dir(u.dir), "unpacking-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	whole := filepath.Join(tmp, "upload.zip")
	if err := u.join(whole); err != nil {
		return err
	}
	to, unpackTo := filepath.Join(tmp, "files"), u.into
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if unpackTo == "" {
		unpackTo = to
	} else if err := os.MkdirAll(unpackTo, 0o700); err != nil {
		return err
	}
	if err := unzip(whole, unpackTo, u.into != ""); err != nil {
		_ = os.RemoveAll(u.parts()) // what cannot be unpacked now never can
		return err
	}
	if err := os.Rename(to, u.dir); err != nil {
		return err
	}
	return os.RemoveAll(u.parts())
}

func (u unpacking) join(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range u.total {
		p, err := os.Open(u.part(i))
		if err != nil {
			return err
		}
		_, err = io.Copy(f, p)
		p.Close()
		if err != nil {
			return err
		}
	}
	return f.Close()
}

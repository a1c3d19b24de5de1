package installation

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Header is the first entry of a backup: what is in it, without a look at the
// rest.
type Header struct {
	Format     int       `json:"format"`
	ID         string    `json:"id"` // the installation's
	Generation int64     `json:"generation"`
	Schema     int64     `json:"schema"` // version of the database's tables
	CreatedAt  time.Time `json:"created_at"`
	Version    string    `json:"version"` // of the sky that made it
	// Keys are the files with keys that the database's content needs: names below
	// the home folder. WithKeys says that they are in the backup.
	Keys     []string `json:"keys"`
	WithKeys bool     `json:"with_keys"`
}

// backupFormat is the version of the archive's layout: a tar archive, packed with
// gzip, of the header, the database, the keys, and the sums of all of them. The
// sums come last, so that an archive that was cut off is known.
const (
	backupFormat = 1
	entryHeader  = "sky-backup.json"
	entryData    = "sky.db"
	entryKeys    = "keys/"
	entrySums    = "SHA256SUMS"
)

// keyFiles are the files that belong to a backup besides the database, because
// what is in it cannot be used without them: the key that secrets are encrypted
// with, and the keys by which machines are reached. Patterns below the home folder.
var keyFiles = []string{
	".sky/encryption.key",
	".sky/api_server/encryption.key",
	".sky/clients/*/ssh/sky-key*",
	".sky/known_hosts",
	".sky/ssh_keys/*",
}

// Keys lists the key files of a home folder, below it, with slashes.
func Keys(home string) (names []string, err error) {
	root := os.DirFS(home)
	for _, pattern := range keyFiles {
		found, err := fs.Glob(root, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			if info, err := fs.Stat(root, name); err == nil && info.Mode().IsRegular() {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// isKey reports whether a backup may hold a key file of that name.
func isKey(name string) bool {
	return filepath.IsLocal(name) && slices.ContainsFunc(keyFiles, func(pattern string) bool {
		ok, _ := filepath.Match(pattern, name)
		return ok
	})
}

// WriteBackup writes a backup to w: the database file data, which nobody changes
// meanwhile, and the keys of the home folder if the header says so.
func WriteBackup(w io.Writer, h Header, home, data string) error {
	h.Format = backupFormat
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	b := &backupWriter{tar: tar.NewWriter(z), at: h.CreatedAt}
	text, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	if err := b.add(entryHeader, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	if err := b.file(entryData, data); err != nil {
		return err
	}
	if h.WithKeys {
		for _, name := range h.Keys {
			if err := b.file(entryKeys+name, filepath.Join(home, filepath.FromSlash(name))); err != nil {
				return err
			}
		}
	}
	sums := b.sums.String()
	return errors.Join(b.add(entrySums, int64(len(sums)), strings.NewReader(sums)), b.tar.Close(), z.Close())
}

type backupWriter struct {
	tar  *tar.Writer
	at   time.Time
	sums strings.Builder
}

func (b *backupWriter) file(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return b.add(name, info.Size(), f)
}

func (b *backupWriter) add(name string, size int64, content io.Reader) error {
	if err := b.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: b.at, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(b.tar, sum), content, size); err != nil {
		return fmt.Errorf("writing %s into the backup: %w", name, err)
	}
	b.sums.WriteString(line(sum, name))
	return nil
}

// A BadBackupError means that a file is no backup, or not a whole one.
type BadBackupError struct {
	File string
	Err  error
}

func (e *BadBackupError) Error() string {
	return fmt.Sprintf("%s is not a whole backup of sky: %v", e.File, e.Err)
}

func (e *BadBackupError) Unwrap() error { return e.Err }

// ReadBackup checks a whole backup and puts its files into the folder dir: the
// database under its own name, the keys below "keys". With dir "" it checks only.
func ReadBackup(file, dir string) (Header, error) {
	f, err := os.Open(file)
	if err != nil {
		return Header{}, err
	}
	defer f.Close()
	h, err := readBackup(f, dir)
	if err != nil {
		if _, disk := errors.AsType[*fs.PathError](err); disk {
			return h, err
		}
		return h, &BadBackupError{file, err}
	}
	return h, nil
}

const maxHeader = 4 << 20

func readBackup(r io.Reader, dir string) (h Header, err error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return h, err
	}
	in := tar.NewReader(z)
	var sums strings.Builder
	for {
		entry, err := in.Next()
		if errors.Is(err, io.EOF) {
			return h, errors.New("it ends before its sums")
		}
		if err != nil {
			return h, err
		}
		sum := sha256.New()
		content := io.TeeReader(in, sum)
		key, isKeyEntry := strings.CutPrefix(entry.Name, entryKeys)
		switch {
		case entry.Typeflag != tar.TypeReg:
			return h, fmt.Errorf("%q is no plain file", entry.Name)
		case entry.Name == entryHeader && h.Format == 0:
			text, err := io.ReadAll(io.LimitReader(content, maxHeader))
			if err != nil {
				return h, err
			}
			if err := json.Unmarshal(text, &h); err != nil {
				return h, err
			}
			if h.Format != backupFormat {
				return h, fmt.Errorf("its format is %d, and this version of sky knows %d: use a newer sky", h.Format, backupFormat)
			}
		case h.Format == 0:
			return h, errors.New("it does not begin with a header")
		case entry.Name == entryData, isKeyEntry && isKey(key):
			if err := put(dir, entry.Name, content); err != nil {
				return h, err
			}
		case entry.Name == entrySums:
			text, err := io.ReadAll(io.LimitReader(in, maxHeader))
			if err != nil {
				return h, err
			}
			if string(text) != sums.String() {
				return h, errors.New("its sums do not fit its content")
			}
			_, err = io.Copy(io.Discard, z)
			return h, err
		default:
			return h, fmt.Errorf("it holds %q, which this version of sky does not know", entry.Name)
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return h, err
		}
		sums.WriteString(line(sum, entry.Name))
	}
}

func line(sum hash.Hash, name string) string { return fmt.Sprintf("%x  %s\n", sum.Sum(nil), name) }

// put writes an entry below dir; "": nowhere.
func put(dir, name string, content io.Reader) error {
	if dir == "" {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Sync(), f.Close())
}

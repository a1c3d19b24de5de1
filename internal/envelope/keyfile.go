package envelope

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// FileName is the name of the file with the master keys in a server's folder. It
// belongs to every backup of the database, and is best kept apart from it.
const FileName = "encryption.key"

// RotateMarker is the file beside [FileName] by which the command line asks a
// server whose keys a key management service wraps for a new one.
const RotateMarker = "rotate-encryption-key"

// fileHead explains the file to who finds it.
const fileHead = `# The keys that encrypt the secrets in the database of this API server. The
# first one is current. Without them those secrets are lost: keep a copy, and
# keep it apart from copies of the database.
`

// ReadFile is the keys in a file, the current one first; [fs.ErrNotExist] if it
// is not there. A file that others can read is refused. A file that an
// administrator provides (given) may be readable for its group, as those that
// Kubernetes mounts are.
func ReadFile(path string, given bool) ([]Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("the encryption key: %w", err)
	}
	bad := fs.FileMode(0o077)
	if given {
		bad = 0o037
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&bad != 0 {
		return nil, fmt.Errorf("others can read the encryption key %s (mode %04o): make it yours alone with `chmod 600 %s`, and think of the key as known if others use this machine", path, info.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the encryption key: %w", err)
	}
	keys, err := ParseKeys(string(text))
	if err == nil && len(keys) == 0 {
		err = errors.New("it holds no key")
	}
	if err != nil {
		return nil, fmt.Errorf("the encryption key in %s: %w: restore the file from a copy", path, err)
	}
	return keys, nil
}

// ParseKeys reads keys that stand in lines, or with commas or spaces between. What
// follows a "#" in a line is a comment.
func ParseKeys(text string) ([]Key, error) {
	var keys []Key
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
			k, err := ParseKey(word)
			if err != nil {
				return nil, err
			}
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// WriteFile replaces the keys in a file, or makes it, readable for its owner only.
// They are on the disk when it returns, as something may be encrypted with them a
// moment later.
func WriteFile(path string, keys []Key) error {
	if err := wholefile.WriteSynced(path, fileText(keys), 0o600); err != nil {
		return err
	}
	syncFolder(filepath.Dir(path))
	return nil
}

// AddToFile puts a new key before those in a file and returns it and them. No key
// is lost if several processes do so at once.
func AddToFile(ctx context.Context, path string) (added Key, others []Key, err error) {
	l := flock.New(path + ".lock")
	defer l.Close()
	if _, err := l.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return Key{}, nil, fmt.Errorf("locking %s: %w", l.Path(), err)
	}
	if others, err = ReadFile(path, false); err != nil {
		return Key{}, nil, err
	}
	added = NewKey()
	return added, others, WriteFile(path, append([]Key{added}, others...))
}

// CreateFile makes a file with a new key and returns the key. If another process
// has made one meanwhile, that one stays: [fs.ErrExist].
func CreateFile(path string) (Key, error) {
	k := NewKey()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Key{}, err
	}
	tmp := fmt.Sprintf("%s.%s.new", path, k.ID()) // nobody else's, also on a shared disk
	defer os.Remove(tmp)
	if err := WriteFile(tmp, []Key{k}); err != nil {
		return Key{}, err
	}
	// A link is never put over a file that is there.
	err := os.Link(tmp, path)
	if err != nil && !errors.Is(err, fs.ErrExist) { // a file system without links
		if _, err = os.Stat(path); err == nil {
			err = fs.ErrExist
		} else {
			err = os.Rename(tmp, path)
		}
	}
	if err != nil {
		return Key{}, err
	}
	syncFolder(filepath.Dir(path))
	return k, nil
}

// syncFolder puts the names in a folder on the disk, where that can be done.
func syncFolder(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

func fileText(keys []Key) []byte {
	b := []byte(fileHead)
	for _, k := range keys {
		b = fmt.Appendf(b, "%s # %s\n", k.Text(), k.ID())
	}
	return b
}

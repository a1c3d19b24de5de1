package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/diskspace"
)

// UploadLimits bound what clients may upload. Zero fields have the default.
type UploadLimits struct {
	User     int64 // bytes of one user, in parts and unpacked; 50 GiB
	All      int64 // bytes of all users; no limit
	One      int64 // bytes of one upload, packed or unpacked; no limit
	Entries  int   // files, folders and links in one upload; 500,000
	Ratio    int64 // how many times an upload may grow when it is unpacked; 100
	KeepFree int64 // bytes of the disk that uploads leave free; 512 MiB
}

func (l UploadLimits) filled() UploadLimits {
	l.User, l.Entries = cmp.Or(l.User, 50<<30), cmp.Or(l.Entries, 500_000)
	l.Ratio, l.KeepFree = cmp.Or(l.Ratio, 100), cmp.Or(l.KeepFree, 512<<20)
	return l
}

// UploadLimitsFrom reads the limits from the environment. A variable that is not
// a positive number is an error: a server must not start with fewer limits than
// were meant.
func UploadLimitsFrom(getenv func(string) string) (UploadLimits, error) {
	var l UploadLimits
	var errs []error
	read := func(name string, most int64) int64 {
		text := strings.TrimSpace(getenv(name))
		if text == "" {
			return 0
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > most {
			errs = append(errs, fmt.Errorf("the variable %s is %q, not a number from 1 to %d", name, text, most))
		}
		return n
	}
	l.User = read("SKY_MAX_UPLOADED_BYTES_PER_USER", math.MaxInt64/4)
	l.All = read("SKYPILOT_MAX_STORED_FILE_MOUNTS_BYTES", math.MaxInt64/4)
	l.One = read("SKYPILOT_MAX_UPLOAD_TOTAL_BYTES", math.MaxInt64/4)
	l.Entries = int(read("SKY_MAX_UPLOAD_ENTRIES", 10_000_000))
	l.Ratio = read("SKY_MAX_UPLOAD_RATIO", 1_000_000)
	l.KeepFree = read("SKY_UPLOADS_KEEP_FREE_BYTES", math.MaxInt64/4)
	return l, errors.Join(errs...)
}

// A ledger is how many bytes of uploads each user has on this machine. What is
// about to be written is entered first, so that those who write at once stay
// below the limits together.
type ledger struct {
	home string

	mu sync.Mutex
	by map[string]int64 // nil: to be counted
}

// take enters n bytes of a user, or refuses them.
func (l *ledger) take(user string, n int64, limits UploadLimits) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.count()
	}
	all := int64(0)
	for _, used := range l.by {
		all += used
	}
	if l.by[user]+n > limits.User {
		return tooMuch("Your files take %d MiB on the server, and %d MiB is the limit for one user. Uploads are removed an hour after the last request that needs them; large data belongs in a bucket.",
			(l.by[user]+n)>>20, limits.User>>20)
	}
	if limits.All > 0 && all+n > limits.All {
		return noRoom("The server has no room for more uploads: they take %d MiB, and %d MiB is the limit for all users. Uploads are removed an hour after the last request that needs them.", all>>20, limits.All>>20)
	}
	if free, err := diskspace.Free(l.home); err == nil && n+limits.KeepFree > free {
		return noRoom("The server's disk has no room for the upload: %d MiB are free, of which %d MiB stay free.", free>>20, limits.KeepFree>>20)
	}
	l.by[user] += n
	return nil
}

// give takes n bytes of a user out again.
func (l *ledger) give(user string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by != nil {
		l.by[user] = max(0, l.by[user]-n)
	}
}

// recount makes the next one count what there is.
func (l *ledger) recount() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by = nil
}

// count finds what there is.
func (l *ledger) count() {
	by := map[string]int64{}
	for _, dir := range uploadDirs(l.home) {
		by[filepath.Base(filepath.Dir(dir))] += sizeOf(dir)
	}
	l.by = by
}

// uploadDirs are the folders of uploads below a home folder, one or two a user.
func uploadDirs(home string) (dirs []string) {
	for _, pattern := range []string{LegacyUploadDir("*"), clientsDir + "/*/uploads"} {
		found, _ := filepath.Glob(filepath.Join(home, filepath.FromSlash(pattern))) // fails for a bad pattern only
		dirs = append(dirs, found...)
	}
	return dirs
}

// sizeOf is how many bytes the files below a folder have. What vanishes meanwhile
// does not count.
func sizeOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// A taking writer enters what it writes before it does.
type takingWriter struct {
	f     *os.File
	take  func(n int64) error
	taken int64
}

func (w *takingWriter) Write(p []byte) (int, error) {
	if err := w.take(int64(len(p))); err != nil {
		return 0, err
	}
	w.taken += int64(len(p))
	n, err := w.f.Write(p)
	if diskspace.Full(err) {
		err = noRoom("The server's disk is full: the uploaded files do not fit.")
	}
	return n, err
}

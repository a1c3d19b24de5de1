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
	r := limitReader{getenv: getenv}
	read := r.read
	l.User = read("SKY_MAX_UPLOADED_BYTES_PER_USER", math.MaxInt64/4)
	l.All = read("SKYPILOT_MAX_STORED_FILE_MOUNTS_BYTES", math.MaxInt64/4)
	l.One = read("SKYPILOT_MAX_UPLOAD_TOTAL_BYTES", math.MaxInt64/4)
	l.Entries = int(read("SKY_MAX_UPLOAD_ENTRIES", 10_000_000))
	l.Ratio = read("SKY_MAX_UPLOAD_RATIO", 1_000_000)
	l.KeepFree = read("SKY_UPLOADS_KEEP_FREE_BYTES", math.MaxInt64/4)
	return l, errors.Join(r.errs...)
}

// keepFreeRequests is what logs of requests leave free of the disk: a little more than
// the server needs to accept new requests.
const keepFreeRequests = 24 << 20

// LogLimitsFrom reads from the environment what logs may take of the server's disk:
// those of managed jobs, those that are gathered for downloads, and those of requests.
func LogLimitsFrom(getenv func(string) string) (jobs, downloads, requests diskspace.Limits, err error) {
	r := limitReader{getenv: getenv}
	requests.User = r.read("SKY_MAX_REQUEST_LOG_BYTES_PER_USER", math.MaxInt64/4)
	requests.All = r.read("SKY_MAX_REQUEST_LOG_BYTES", math.MaxInt64/4)
	requests.KeepFree = keepFreeRequests
	jobs.User = r.read("SKY_MAX_JOB_LOG_BYTES_PER_USER", math.MaxInt64/4)
	jobs.All = r.read("SKY_MAX_JOB_LOG_BYTES", math.MaxInt64/4)
	downloads.User = r.read("SKY_MAX_DOWNLOAD_BYTES_PER_USER", math.MaxInt64/4)
	downloads.All = r.read("SKY_MAX_DOWNLOAD_BYTES", math.MaxInt64/4)
	jobs.KeepFree = r.read("SKY_LOGS_KEEP_FREE_BYTES", math.MaxInt64/4)
	downloads.KeepFree = jobs.KeepFree
	return jobs, downloads, requests, errors.Join(r.errs...)
}

// limitReader reads limits from the environment.
type limitReader struct {
	getenv func(string) string
	errs   []error
}

func (r *limitReader) read(name string, most int64) int64 {
	text := strings.TrimSpace(r.getenv(name))
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		r.errs = append(r.errs, fmt.Errorf("the variable %s is %q, not a number from 1 to %d", name, text, most))
	}
	return n
}

// A ledger is how many bytes of uploads each user has on this machine.
type ledger struct{ diskspace.Ledger }

func newLedger(home string) *ledger {
	return &ledger{diskspace.Ledger{Dir: home, Count: func() map[string]int64 {
		by := map[string]int64{}
		for _, dir := range uploadDirs(home) {
			by[filepath.Base(filepath.Dir(dir))] += sizeOf(dir)
		}
		return by
	}}}
}

// take enters n bytes of a user, or refuses them.
func (l *ledger) take(user string, n int64, limits UploadLimits) error {
	err := l.Take(user, n, diskspace.Limits{User: limits.User, All: cmp.Or(limits.All, math.MaxInt64/2), KeepFree: limits.KeepFree})
	full, ok := errors.AsType[*diskspace.NoRoomError](err)
	switch {
	case !ok:
		return err
	case full.By == diskspace.ByUser:
		return tooMuch("Your files take %d MiB on the server, and %d MiB is the limit for one user. Uploads are removed an hour after the last request that needs them; large data belongs in a bucket.",
			full.Has>>20, full.Most>>20)
	case full.By == diskspace.ByAll:
		return noRoom("The server has no room for more uploads: they take %d MiB, and %d MiB is the limit for all users. Uploads are removed an hour after the last request that needs them.", full.Has>>20, full.Most>>20)
	}
	return noRoom("The server's disk has no room for the upload: %d MiB are free, of which %d MiB stay free.", full.Has>>20, full.Most>>20)
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

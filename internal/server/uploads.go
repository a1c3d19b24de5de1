package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/upload"
)

// Uploads are the files of clients. Servers that share a database keep the parts
// of an upload there, so that each may come through any of them, and unpack
// them where a request runs.
type Uploads struct {
	Home   string // of this server
	Store  *state.Store
	Limits UploadLimits

	mu    sync.Mutex // held while an upload is unpacked
	once  sync.Once
	books *ledger
}

// ledger is how much users have on this machine.
func (u *Uploads) ledger() *ledger {
	u.once.Do(func() { u.books = newLedger(u.Home) })
	return u.books
}

// at is an upload that is unpacked in dir.
func (u *Uploads) at(user, blob string, total int) unpacking {
	return unpacking{up: u, user: user, dir: u.dir(user, blob), total: total}
}

// Clean removes what uploads left that a crash cut off: nothing may be under way.
// Whole parts stay for an hour, as their senders may go on.
func (u *Uploads) Clean() error {
	var errs []error
	for _, pattern := range []string{
		BlobDir("*", unpackingPrefix+"*"), clientsDir + "/*/uploads/" + unpackingPrefix + "*",
		BlobDir("*", "*.parts/*.*"), clientsDir + "/*/uploads/*.parts/*.*",
	} {
		found, err := filepath.Glob(filepath.Join(u.Home, filepath.FromSlash(pattern)))
		errs = append(errs, err)
		for _, path := range found {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	u.ledger().Recount()
	return errors.Join(errs...)
}

const (
	sharedUploads = "uploads/"
	// wholeUpload is the file beside an upload's parts that reports how many there
	// are, once all have come.
	wholeUpload = "whole"
)

func (u *Uploads) files() logstore.Files { return logstore.Files{Store: u.Store} }

func (u *Uploads) dir(user, blob string) string {
	return filepath.Join(u.Home, filepath.FromSlash(BlobDir(user, blob)))
}

func shared(user, blob string) string { return sharedUploads + user + "/" + blob + "/" }

// exists reports whether an upload is complete.
func (u *Uploads) exists(ctx context.Context, user, blob string) (bool, error) {
	if u.Store.Shared() {
		return u.files().Has(ctx, shared(user, blob)+wholeUpload)
	}
	return u.at(user, blob, 0).done(), nil
}

// share adds a part that was received to the database.
func (u *Uploads) share(ctx context.Context, user, blob string, p unpacking, index int) error {
	return u.files().Put(ctx, shared(user, blob)+"part"+strconv.Itoa(index), user, p.part(index))
}

// missing lists the parts that no server has received.
func (u *Uploads) missing(ctx context.Context, user, blob string, total int) ([]string, error) {
	here, err := u.files().Names(ctx, shared(user, blob))
	if err != nil || here[wholeUpload] {
		return nil, err
	}
	var missing []string
	for i := range total {
		if name := "part" + strconv.Itoa(i); !here[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// complete unpacks an upload whose parts are all there, which shows that they
// are good, and says so to the other servers.
func (u *Uploads) complete(ctx context.Context, user, blob string, total int) error {
	if err := u.unpack(ctx, user, blob, total); err != nil {
		return err
	}
	note, err := os.CreateTemp("", "sky-upload-")
	if err != nil {
		return err
	}
	defer os.Remove(note.Name())
	_, err = fmt.Fprint(note, total)
	if err = errors.Join(err, note.Close()); err != nil {
		return err
	}
	return u.files().Put(ctx, shared(user, blob)+wholeUpload, user, note.Name())
}

// Fetch makes an upload be unpacked on this machine; [fs.ErrNotExist] if it is
// nowhere.
func (u *Uploads) Fetch(ctx context.Context, user, blob string) error {
	p := u.at(user, blob, 0)
	if !u.Store.Shared() || p.done() {
		if !p.done() {
			return &fs.PathError{Op: "open", Path: p.dir, Err: fs.ErrNotExist}
		}
		return nil
	}
	if err := os.MkdirAll(p.parts(), 0o700); err != nil {
		return err
	}
	note := filepath.Join(p.parts(), wholeUpload)
	if err := u.files().Fetch(ctx, shared(user, blob)+wholeUpload, note); err != nil {
		return err
	}
	text, err := os.ReadFile(note)
	if err != nil {
		return err
	}
	total, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	return u.unpack(ctx, user, blob, total)
}

func (u *Uploads) unpack(ctx context.Context, user, blob string, total int) error {
	p := u.at(user, blob, total)
	u.mu.Lock()
	defer u.mu.Unlock()
	if p.done() {
		return nil
	}
	if err := os.MkdirAll(p.parts(), 0o700); err != nil {
		return err
	}
	for i := range total {
		if _, err := os.Stat(p.part(i)); err == nil {
			continue
		}
		if err := u.files().Fetch(ctx, shared(user, blob)+"part"+strconv.Itoa(i), p.part(i)); err != nil {
			return err
		}
	}
	return p.finish()
}

// Files are those that the tasks of a user's request may bring to nodes, of which
// an upload is made sure to be on this machine. Those of the machine itself are
// for the caller to add.
func (u *Uploads) Files(ctx context.Context, user string, found state.RequestFiles) (upload.Files, error) {
	switch {
	case !userID.MatchString(user):
		return upload.Files{}, nil
	case found.Legacy:
		return upload.In(filepath.Join(u.Home, filepath.FromSlash(LegacyUploadDir(user)))), nil
	case !blobID.MatchString(found.Upload):
		return upload.Files{}, nil
	}
	err := u.Fetch(ctx, user, found.Upload)
	if errors.Is(err, fs.ErrNotExist) {
		return upload.Files{}, errUploadGone
	}
	if err != nil {
		return upload.Files{}, fmt.Errorf("fetching the uploaded files: %w", err)
	}
	return upload.In(u.dir(user, found.Upload)), nil
}

var errUploadGone = &api.Error{Type: api.ErrValue, Message: "The uploaded files are no longer on the server. Run the command again to upload them."}

// sweep removes uploads from the database that nothing needs any more.
func (u *Uploads) sweep(ctx context.Context, needed map[string]bool) error {
	if !u.Store.Shared() {
		return nil
	}
	return u.files().Sweep(ctx, sharedUploads, uploadKept, func(name string) bool {
		rest := strings.TrimPrefix(path.Dir(name), sharedUploads)
		user, blob, _ := strings.Cut(rest, "/")
		return needed[u.dir(user, blob)]
	})
}

// sharedRoom refuses an upload when there is too much in the database.
func (u *Uploads) sharedRoom(ctx context.Context, user string) error {
	limits := u.Limits.filled()
	used, err := u.Store.Blobs().UsedBy(ctx, user)
	if err != nil {
		return err
	}
	if used > limits.User {
		return tooMuch("Your files take %d MiB on the server, and %d MiB is the limit for one user. Uploads are removed an hour after the last request that needs them, files of managed jobs when those have ended; large data belongs in a bucket.",
			used>>20, limits.User>>20)
	}
	if limits.All == 0 {
		return nil
	}
	list, err := u.Store.Blobs().List(ctx, sharedUploads)
	if err != nil {
		return err
	}
	all := int64(0)
	for _, b := range list {
		all += b.Size
	}
	if all > limits.All {
		return noRoom("The server has no room for more uploads: they take %d MiB, and %d MiB is the limit for all users.", all>>20, limits.All>>20)
	}
	return nil
}

// discard removes the parts of an upload that is refused from the database.
func (u *Uploads) discard(ctx context.Context, user, blob string) error {
	list, err := u.Store.Blobs().List(ctx, shared(user, blob))
	errs := []error{err}
	for _, b := range list {
		errs = append(errs, u.Store.Blobs().Delete(ctx, b))
	}
	return errors.Join(errs...)
}

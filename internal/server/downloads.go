package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// Downloads are the logs that users asked to download: one request gathers them
// in folders of the server, another call fetches those. Servers that share a
// database keep the folders there as well, because the call may reach another
// one.
type Downloads struct {
	Limits diskspace.Limits // of what is gathered

	home   string
	shared *logstore.Files // nil: this server is the only one
	once   sync.Once
	books  *diskspace.Ledger
}

// NewDownloads is for a server with that home folder.
func NewDownloads(home string, store *state.Store) *Downloads {
	d := &Downloads{home: home}
	if store.Shared() {
		d.shared = &logstore.Files{Store: store}
	}
	return d
}

const (
	sharedDownloads = "downloads/"
	// managedDownloads is the folder of managed jobs' logs among those that were
	// gathered for a user.
	managedDownloads = "managed_jobs"
	// smallest is what must fit of logs that another server gathered.
	smallest = 4 << 10
	// downloadKept is how long gathered logs stay for whoever asked for them.
	downloadKept = 6 * time.Hour
)

// Dir is the folder that a user's logs are gathered in.
func (d *Downloads) Dir(user string) string {
	return filepath.Join(d.home, filepath.FromSlash(LogsDir(filepath.Base(user))))
}

// Share is what one request takes of the room for a user's logs.
func (d *Downloads) Share(user string) *diskspace.Share {
	return &diskspace.Share{Ledger: d.ledger(), User: filepath.Base(user), Limits: d.Limits}
}

func (d *Downloads) ledger() *diskspace.Ledger {
	d.once.Do(func() { d.books = &diskspace.Ledger{Dir: d.home, Count: d.count} })
	return d.books
}

// count is how many bytes were gathered, by user.
func (d *Downloads) count() map[string]int64 {
	by := map[string]int64{}
	found, _ := filepath.Glob(filepath.Join(d.home, filepath.FromSlash(LogsDir("*")))) // fails for a bad pattern only
	for _, dir := range found {
		by[filepath.Base(filepath.Dir(dir))] += sizeOf(dir)
	}
	return by
}

// Gather calls f, which gathers logs below a user's Dir within a share, and offers
// them. Nothing stays of what fails.
func (d *Downloads) Gather(ctx context.Context, user string, f func(*diskspace.Share) (map[string]string, error)) (map[string]string, error) {
	share := d.Share(user)
	dirs, err := f(share)
	if err == nil {
		var offered map[string]string
		if offered, err = d.Offer(ctx, user, dirs); err == nil {
			return offered, nil
		}
		for _, dir := range dirs {
			if dir != d.Dir(user) {
				_ = os.RemoveAll(dir)
			}
		}
	}
	share.Return()
	if full, ok := errors.AsType[*diskspace.NoRoomError](err); ok || diskspace.Full(err) {
		if !ok {
			full = &diskspace.NoRoomError{By: diskspace.ByDisk}
		}
		err = noRoomFor(full, err)
	}
	return nil, err
}

// noRoomFor says that logs are not gathered, and what to do.
func noRoomFor(full *diskspace.NoRoomError, err error) error {
	why := "The logs do not fit on the server's disk"
	hint := "Read them with sky logs or sky jobs logs, which keeps nothing on the server, or download fewer at once."
	if full.By != diskspace.ByDisk {
		why = "The logs that are gathered for downloads take too much of the server's disk"
		hint = "They are removed after 6 hours. " + hint
	}
	return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("%s: %v.", why, err), Hint: hint, Err: err}
}

// Offer makes folders that were gathered below a user's Dir ready to be fetched
// from any server, and returns them as clients know them, below "~".
func (d *Downloads) Offer(ctx context.Context, user string, dirs map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for id, dir := range dirs {
		rel, err := filepath.Rel(d.Dir(user), dir)
		if err != nil {
			return nil, err
		}
		if d.shared != nil {
			if err := os.MkdirAll(dir, 0o700); err != nil { // a job may have no log
				return nil, err
			}
			// Of no user's quota: they go by themselves.
			if err := d.shared.PutFolder(ctx, d.name(user, filepath.ToSlash(rel)), "", dir); err != nil {
				return nil, fmt.Errorf("keeping the gathered logs in the database: %w", err)
			}
		}
		out[id] = "~/" + path.Join(LogsDir(filepath.Base(user)), filepath.ToSlash(rel))
	}
	return out, nil
}

func (d *Downloads) name(user, rel string) string {
	return sharedDownloads + filepath.Base(user) + "/" + rel
}

// fetch gets a folder that another server gathered, if there is one.
func (d *Downloads) fetch(ctx context.Context, user, rel string) error {
	dir := filepath.Join(d.Dir(user), filepath.FromSlash(rel))
	if _, err := os.Lstat(dir); err == nil || d.shared == nil {
		return nil
	}
	if err := d.Share(user).Take(smallest); err != nil {
		return noRoomFor(err.(*diskspace.NoRoomError), err)
	}
	err := d.shared.FetchFolder(ctx, d.name(user, rel), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweep removes what was gathered long ago.
func (d *Downloads) sweep(ctx context.Context, now time.Time) error {
	var errs []error
	for _, pattern := range []string{"/*", "/" + managedDownloads + "/*"} {
		found, err := filepath.Glob(filepath.Join(d.home, filepath.FromSlash(LogsDir("*")+pattern)))
		errs = append(errs, err)
		for _, dir := range found {
			info, err := os.Lstat(dir)
			if errors.Is(err, fs.ErrNotExist) || err == nil && (now.Sub(info.ModTime()) < downloadKept || strings.HasSuffix(dir, managedDownloads)) {
				continue
			}
			errs = append(errs, err, os.RemoveAll(dir))
		}
	}
	d.ledger().Recount()
	if d.shared != nil {
		errs = append(errs, d.shared.Sweep(ctx, sharedDownloads, downloadKept, func(string) bool { return false }))
	}
	return errors.Join(errs...)
}

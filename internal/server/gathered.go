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
	"time"

	"github.com/skypilot-go/sky/internal/shelf"
	"github.com/skypilot-go/sky/internal/state"
)

// Downloads are the logs that users asked to download: one request gathers them
// in folders of the server, another call fetches those. Servers that share a
// database keep the folders there as well, because the call may reach another
// one.
type Downloads struct {
	home   string
	shared *shelf.Files // nil: this server is the only one
}

// NewDownloads is for a server with that home folder.
func NewDownloads(home string, store *state.Store) *Downloads {
	d := &Downloads{home: home}
	if store.Shared() {
		d.shared = &shelf.Files{Store: store}
	}
	return d
}

const (
	sharedDownloads = "downloads/"
	// managedDownloads is the folder of managed jobs' logs among those that were
	// gathered for a user.
	managedDownloads = "managed_jobs"
	// downloadKept is how long gathered logs stay for whoever asked for them.
	downloadKept = 6 * time.Hour
)

// Dir is the folder that a user's logs are gathered in.
func (d *Downloads) Dir(user string) string {
	return filepath.Join(d.home, filepath.FromSlash(LogsDir(filepath.Base(user))))
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
	if d.shared != nil {
		errs = append(errs, d.shared.Sweep(ctx, sharedDownloads, downloadKept, func(string) bool { return false }))
	}
	return errors.Join(errs...)
}

package server

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/skypilot-go/sky/internal/shelf"
	"github.com/skypilot-go/sky/internal/state"
)

// Uploads are the files of clients. Servers that share a database keep the parts
// of an upload there, so that each may come through any of them, and unpack
// them where a request runs.
type Uploads struct {
	Home  string // of this server
	Store *state.Store

	mu sync.Mutex // held while an upload is unpacked
}

// anyHome stands for the home folder of whichever server runs a request, in
// bodies that servers share.
const anyHome = "/@the-home-of-the-api-server@"

const (
	sharedUploads = "uploads/"
	// wholeUpload is the file beside an upload's parts that tells how many there
	// are, once all have come.
	wholeUpload = "whole"
)

func (u *Uploads) files() shelf.Files { return shelf.Files{Store: u.Store} }

func (u *Uploads) dir(user, blob string) string {
	return filepath.Join(u.Home, filepath.FromSlash(BlobDir(user, blob)))
}

func shared(user, blob string) string { return sharedUploads + user + "/" + blob + "/" }

// exists tells whether an upload is complete.
func (u *Uploads) exists(ctx context.Context, user, blob string) (bool, error) {
	if u.Store.Shared() {
		return u.files().Has(ctx, shared(user, blob)+wholeUpload)
	}
	return (unpacking{dir: u.dir(user, blob)}).done(), nil
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
	dir := u.dir(user, blob)
	p := unpacking{dir: dir}
	if !u.Store.Shared() || p.done() {
		if !p.done() {
			return &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
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
	p := unpacking{dir: u.dir(user, blob), total: total}
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

// Localise is the body of a request with the paths of its uploaded files on this
// machine, where they are made sure to be.
func (u *Uploads) Localise(ctx context.Context, user string, body []byte) ([]byte, error) {
	if !bytes.Contains(body, []byte(anyHome)) {
		return body, nil
	}
	var b uploadFields
	if json.Unmarshal(body, &b) != nil || b.BlobID == nil || !blobID.MatchString(*b.BlobID) {
		return body, nil
	}
	err := u.Fetch(ctx, user, *b.BlobID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errUploadGone
	}
	if err != nil {
		return nil, fmt.Errorf("fetching the uploaded files: %w", err)
	}
	home, err := json.Marshal(filepath.ToSlash(u.Home))
	if err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(body, []byte(anyHome), []byte(strings.Trim(string(home), `"`))), nil
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

// used is how many bytes of a user are kept.
func (u *Uploads) used(ctx context.Context, user string) (int64, error) {
	if u.Store.Shared() {
		return u.Store.Blobs().UsedBy(ctx, user)
	}
	var n int64
	err := filepath.WalkDir(filepath.Join(u.Home, filepath.FromSlash(LegacyUploadDir(user))), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil // what vanishes meanwhile does not count
	})
	return n, err
}

package logstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/internal/state"
)

// Files keeps whole files in the database, in pieces of a megabyte.
type Files struct{ Store *state.Store }

// Put keeps a copy of the file at path under a name, which is there once all of
// it is. A name that is taken keeps what it has.
func (f Files) Put(ctx context.Context, name, user, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	id := uuid.NewString()
	b := state.Blob{Name: "new/" + id, Stream: "blobs/" + id, UserID: user, Size: info.Size()}
	if err := f.Store.Blobs().Begin(ctx, b); err != nil {
		return err
	}
	a := &storedAppender{streams: f.Store.Streams(), name: b.Stream, closed: make(chan struct{})}
	n, err := io.Copy(unlimited{ctx, a}, bufio.NewReaderSize(in, state.MaxPiece))
	if err == nil {
		err = f.Store.Blobs().Finish(ctx, b.Name, name, n)
	}
	if err == nil {
		return nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	b.UsedAt = f.Store.Now()
	_ = f.Store.Blobs().Delete(clean, b) // else the sweep finds it
	if errors.Is(err, state.ErrConflict) {
		return nil
	}
	return err
}

// unlimited writes pieces of files, which may be longer than logs.
type unlimited struct {
	ctx context.Context
	a   *storedAppender
}

func (u unlimited) Write(p []byte) (int, error) {
	for at := 0; at < len(p); {
		part := p[at:min(at+state.MaxPiece, len(p))]
		if err := u.ctx.Err(); err != nil {
			return at, err
		}
		if err := u.a.put(part); err != nil {
			return at, err
		}
		u.a.at += int64(len(part))
		at += len(part)
	}
	return len(p), nil
}

// Has reports whether there is a file of that name, and keeps it from being
// swept for a while.
func (f Files) Has(ctx context.Context, name string) (bool, error) {
	_, err := f.Store.Blobs().Use(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Fetch writes the file to path, which appears when it is whole;
// [fs.ErrNotExist] if there is none of that name.
func (f Files) Fetch(ctx context.Context, name, path string) error {
	b, err := f.Store.Blobs().Use(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		return &fs.PathError{Op: "fetch", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return err
	}
	tmp := path + "." + uuid.NewString()
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	var n int64
	for n < b.Size {
		pieces, err := f.Store.Streams().Read(ctx, b.Stream, n, 8)
		if err == nil && len(pieces) == 0 {
			err = fmt.Errorf("%s ends after %d of %d bytes", name, n, b.Size)
		}
		for _, p := range pieces {
			if err == nil {
				_, err = out.Write(p.Data)
				n += int64(len(p.Data))
			}
		}
		if err != nil {
			return errors.Join(err, out.Close())
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Names is what begins with prefix, without it.
func (f Files) Names(ctx context.Context, prefix string) (map[string]bool, error) {
	list, err := f.Store.Blobs().List(ctx, prefix)
	names := map[string]bool{}
	for _, b := range list {
		names[strings.TrimPrefix(b.Name, prefix)] = true
	}
	return names, err
}

// Sweep removes the files below prefix that were not used for so long and that
// nothing needs, and what broke off while it was written.
func (f Files) Sweep(ctx context.Context, prefix string, unused time.Duration, needed func(name string) bool) error {
	var errs []error
	for _, p := range []string{prefix, "new/"} {
		list, err := f.Store.Blobs().List(ctx, p)
		errs = append(errs, err)
		for _, b := range list {
			if f.Store.Now().Sub(b.UsedAt) > unused && !needed(b.Name) {
				errs = append(errs, f.Store.Blobs().Delete(ctx, b))
			}
		}
	}
	return errors.Join(errs...)
}

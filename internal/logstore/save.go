package logstore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
)

// Save makes the file to of a log, from an offset on, unless the log was removed
// meanwhile. What it writes goes through room, which may refuse it.
func Save(ctx context.Context, kept Logs, name string, offset int64, to string, room func(io.Writer) io.Writer) error {
	in, err := kept.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(room(out), untilDone{ctx, io.NewSectionReader(in, offset, math.MaxInt64-offset)})
	return errors.Join(err, out.Close())
}

// untilDone reads until a context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

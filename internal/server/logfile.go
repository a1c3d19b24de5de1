package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// inHome is a path of the protocol relative to the server's home folder, with
// slashes. It is an error if it leads out of it.
func (s *Server) inHome(p string) (string, error) {
	p = filepath.ToSlash(p)
	home := strings.TrimSuffix(filepath.ToSlash(s.Home), "/")
	switch {
	case strings.HasPrefix(p, "~/"):
		p = p[2:]
	case strings.HasPrefix(p, home+"/"):
		p = p[len(home)+1:]
	default:
		return "", errOutside
	}
	p = path.Clean(p)
	if !filepath.IsLocal(filepath.FromSlash(p)) || strings.ContainsRune(p, 0) {
		return "", errOutside
	}
	return p, nil
}

// streamFile shows a log file of the server, and what is added to it.
func (s *Server) streamFile(w http.ResponseWriter, r *http.Request, name string, v view) {
	f, err := s.openLog(name)
	if err == nil {
		defer f.Close()
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			err = errOutside
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fail(w, http.StatusNotFound, "There is no log file "+quoted(name)+".")
		return
	case err != nil:
		fail(w, http.StatusBadRequest, "Only files below ~/sky_logs and the server's own log can be shown, and "+quoted(name)+" is neither.")
		return
	}
	if v.html {
		logPage(w, name, url.Values{"log_path": {name}})
		return
	}
	s.sendLog(w, r, v, func(ctx context.Context, out io.Writer) error { return copyLog(ctx, f, v, out) })
}

// growsEvery is how often a followed file is looked at.
const growsEvery = 250 * time.Millisecond

// copyLog writes the last lines of f (0: all) and, if it is followed, what comes
// after them until the context ends.
func copyLog(ctx context.Context, f *os.File, v view, out io.Writer) error {
	if v.tail > 0 {
		at, err := tailOffset(f, v.tail)
		if err != nil {
			return err
		}
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return err
		}
	}
	for {
		if _, err := io.Copy(out, f); err != nil {
			return err
		}
		if f, ok := out.(interface{ Flush() }); ok {
			f.Flush()
		}
		if !v.follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(growsEvery):
		}
		// A file that was cut short is read from its new beginning.
		if info, err := f.Stat(); err == nil {
			if at, err := f.Seek(0, io.SeekCurrent); err == nil && info.Size() < at {
				_, _ = f.Seek(0, io.SeekStart)
			}
		}
	}
}

// tailOffset is where the last n lines of f begin. A last line without an end
// counts.
func tailOffset(f *os.File, n int) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	buf := make([]byte, 64<<10)
	skipEnd := true // the end of the last line begins no further one
	for pos := end; pos > 0; {
		size := min(pos, int64(len(buf)))
		pos -= size
		b := buf[:size]
		if _, err := f.ReadAt(b, pos); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for {
			i := bytes.LastIndexByte(b, '\n')
			if i < 0 {
				break
			}
			if !(skipEnd && pos+int64(i) == end-1) {
				if n--; n == 0 {
					return pos + int64(i) + 1, nil
				}
			}
			skipEnd = false
			b = b[:i]
		}
	}
	return 0, nil
}

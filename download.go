package sky

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/api"
)

// headerHomePath says what "~" is on the server, in answers of /download.
const headerHomePath = "X-Home-Path"

// Download copies log folders of the server, as DownloadLogs and its siblings
// name them, below home/sky_logs. The result maps each folder to its copy.
func (c *Client) Download(ctx context.Context, dirs []string, home string) (map[string]string, error) {
	return c.DownloadWithin(ctx, dirs, home, nil)
}

// DownloadWithin is Download that asks room before so many bytes are written to the
// disk, and ends with its error; nil allows everything. What fails leaves nothing
// behind.
func (c *Client) DownloadWithin(ctx context.Context, dirs []string, home string, room func(n int64) error) (_ map[string]string, err error) {
	if room == nil {
		room = func(int64) error { return nil }
	}
	local := map[string]string{}
	for _, d := range dirs {
		local[d] = localLogDir(d, home)
	}
	for _, dir := range local {
		if _, serr := os.Lstat(dir); errors.Is(serr, fs.ErrNotExist) {
			defer func() {
				if err != nil {
					_ = os.RemoveAll(dir)
				}
			}()
		}
	}
	if len(dirs) == 0 {
		return local, nil
	}
	body, err := json.Marshal(api.DownloadBody{Envelope: c.envelope(), FolderPaths: dirs})
	if err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp("", "sky-download-*.zip")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	var size int64
	var serverHome string
	k := call{method: http.MethodPost, path: "/download", body: body, idempotent: true}
	err = c.exchange(ctx, k, func(res *http.Response) (err error) {
		serverHome = res.Header.Get(headerHomePath)
		if err = tmp.Truncate(0); err == nil {
			_, err = tmp.Seek(0, io.SeekStart)
		}
		if err == nil {
			size, err = io.Copy(roomyWriter{tmp, room}, res.Body)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("downloading logs: %w", err)
	}
	archive, err := zip.NewReader(tmp, size)
	if err != nil {
		return nil, fmt.Errorf("downloading logs: the API server sent no zip file: %w", err)
	}
	for _, f := range archive.File {
		if err := unpack(f, serverHome, local, room); err != nil {
			return nil, err
		}
	}
	return local, nil
}

// localLogDir maps a folder below ".../sky_logs/" on the server to this machine.
func localLogDir(remote, home string) string {
	rest := path.Base(remote)
	if _, after, ok := strings.Cut(remote, "/sky_logs/"); ok {
		rest = after
	}
	return filepath.Join(home, "sky_logs", filepath.FromSlash(path.Clean("/"+rest)))
}

// unpack writes one entry. Entries outside the folders that were asked for, and
// anything but plain files and folders, are refused or left out.
func unpack(f *zip.File, serverHome string, local map[string]string, room func(int64) error) error {
	name := path.Clean("/" + f.Name)
	for remote, dir := range local {
		for _, root := range [...]string{remote, strings.Replace(remote, "~", serverHome, 1)} {
			rest, ok := strings.CutPrefix(name, strings.TrimRight(path.Clean(root), "/"))
			if !ok || rest != "" && rest[0] != '/' {
				continue
			}
			to := filepath.Join(dir, filepath.FromSlash(rest))
			switch {
			case f.FileInfo().IsDir():
				if err := room(smallest); err != nil {
					return err
				}
				return os.MkdirAll(to, 0o755)
			case !f.Mode().IsRegular():
				return nil
			}
			return unpackFile(f, to, room)
		}
	}
	return fmt.Errorf("downloading logs: the API server sent %q, which was not asked for", f.Name)
}

func unpackFile(f *zip.File, to string, room func(int64) error) error {
	if err := room(smallest); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(roomyWriter{out, room}, in); err != nil {
		out.Close()
		return fmt.Errorf("writing %s: %w", to, err)
	}
	return out.Close()
}

// smallest is what an entry takes at least.
const smallest = 4 << 10

// roomyWriter asks for room before it writes.
type roomyWriter struct {
	w    io.Writer
	room func(n int64) error
}

func (r roomyWriter) Write(p []byte) (int, error) {
	if err := r.room(int64(len(p))); err != nil {
		return 0, err
	}
	return r.w.Write(p)
}

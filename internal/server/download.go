package server

import (
	"archive/zip"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/api"
)

// clientsDir is where the server keeps what belongs to one user, below its home
// folder: downloaded logs, uploaded files.
const clientsDir = ".sky/api_server/clients"

// LogsDir is the folder, relative to the server's home, that the logs which a
// user asked to download are gathered in. Clients map it to their ~/sky_logs.
func LogsDir(user string) string { return path.Join(clientsDir, user, "sky_logs") }

// download sends folders of gathered logs as a zip. Its entries are the paths on
// this machine; the header tells clients what part of them is our home.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	b, user, ok := decode[api.DownloadBody](s, w, r)
	if !ok {
		return
	}
	for _, p := range b.FolderPaths {
		if rel, err := s.inLogs(user.ID, p); err == nil {
			if err := s.Downloads.fetch(r.Context(), user.ID, rel); err != nil {
				s.failed(w, r, err)
				return
			}
		}
	}
	root, err := os.OpenRoot(s.Downloads.Dir(user.ID))
	if err == nil {
		defer root.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		s.failed(w, r, err)
		return
	}
	var folders []string // relative to root
	for _, p := range b.FolderPaths {
		rel, err := s.inLogs(user.ID, p)
		if err != nil {
			fail(w, http.StatusBadRequest, quoted(p)+" is not in the folder of your downloaded logs, ~/"+LogsDir(user.ID)+".")
			return
		}
		err = fs.ErrNotExist
		if root != nil {
			_, err = root.Stat(rel)
		}
		if err != nil {
			fail(w, http.StatusNotFound, "There is no folder "+quoted(p)+" on the server. Download the logs again.")
			return
		}
		folders = append(folders, rel)
	}
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", `attachment; filename="logs.zip"`)
	w.Header().Set("X-Home-Path", filepath.ToSlash(s.Home))
	prefix := strings.TrimPrefix(path.Join(filepath.ToSlash(s.Home), LogsDir(user.ID)), "/")
	if r.URL.Query().Get("relative") == "items" {
		prefix = ""
	}
	out := newStream(w)
	defer out.Close()
	z := zip.NewWriter(out)
	for _, folder := range folders {
		if err := zipFolder(z, root, folder, prefix); err != nil {
			s.log.ErrorContext(r.Context(), "download failed", "folder", folder, "error", err)
			out.Close()
			panic(http.ErrAbortHandler) // the client sees that the zip is not whole
		}
	}
	_ = z.Close()
}

// inLogs is a path relative to a user's folder of gathered logs.
func (s *Server) inLogs(user, p string) (string, error) {
	rel, err := s.inHome(p)
	if err != nil {
		return "", err
	}
	below, ok := strings.CutPrefix(rel+"/", LogsDir(user)+"/")
	if !ok {
		return "", errOutside
	}
	return path.Clean(below), nil
}

// zipFolder adds a folder, or a file, with everything below it. Only plain files
// and folders go in.
func zipFolder(z *zip.Writer, root *os.Root, folder, prefix string) error {
	return fs.WalkDir(root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entry := path.Join(prefix, name)
		switch {
		case entry == ".":
			return nil
		case d.IsDir():
			_, err := z.Create(entry + "/")
			return err
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, err := zip.FileInfoHeader(info)
		if err != nil {
			return err
		}
		h.Name, h.Method = entry, zip.Deflate
		to, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(to, f)
		return err
	})
}

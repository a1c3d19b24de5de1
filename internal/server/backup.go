package server

import (
	"io"
	"net/http"

	"github.com/skypilot-go/sky/api"
)

// BackupOptions say what a backup holds besides the database.
type BackupOptions struct {
	WithKeys bool // the keys that its content needs
}

const mediaBackup = "application/gzip"

// backup sends a backup of the installation. A failure before the first byte has a
// status; after it the connection is cut, and the archive lacks its sums.
func (s *Server) backup(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.BackupBody](s, w, r)
	if !ok {
		return
	}
	if s.Backup == nil {
		s.notYet(w, r)
		return
	}
	ctx, cancel := s.running(r)
	defer cancel()
	var out *stream
	err := s.Backup(ctx, BackupOptions{WithKeys: b.WithKeys}, func() io.Writer {
		w.Header().Set("Content-Disposition", `attachment; filename="sky-backup.tar.gz"`)
		out = newStream(w)
		out.begin(mediaBackup)
		return out
	})
	switch {
	case out == nil:
		if err != nil {
			s.failed(w, r, err)
		}
	case err != nil && out.err == nil:
		s.log.ErrorContext(ctx, "backup ended early", "error", err)
		out.Close()
		panic(http.ErrAbortHandler)
	default:
		out.Close()
	}
}

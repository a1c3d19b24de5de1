package server

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
)

// sizesKept is how long sizes are told again without looking: folders may have
// very many files.
const sizesKept = 10 * time.Second

// sizes are how much room the server's files take. The zero value is ready.
type sizes struct {
	mu   sync.Mutex
	at   time.Time
	last api.Sizes
}

// sizes reports how much room this server's files take.
func (s *Server) sizes(w http.ResponseWriter, r *http.Request) {
	got, err := s.room.of(r.Context(), s)
	s.answered(w, r, got, err)
}

func (z *sizes) of(ctx context.Context, s *Server) (api.Sizes, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !z.at.IsZero() && time.Since(z.at) < sizesKept {
		return z.last, nil
	}
	var out api.Sizes
	var err error
	if out.Database, out.WAL, err = s.Store.Size(ctx); err != nil {
		return out, err
	}
	for _, dir := range uploadDirs(s.Home) {
		out.Uploads += sizeOf(dir)
	}
	for _, pattern := range []string{".sky/api_server/request_logs", ".sky/api_server/jobs", LogsDir("*")} {
		found, err := filepath.Glob(filepath.Join(s.Home, filepath.FromSlash(pattern)))
		if err != nil {
			return out, err
		}
		for _, dir := range found {
			out.Logs += sizeOf(dir)
		}
	}
	if info, err := os.Stat(filepath.Join(s.Home, filepath.FromSlash(serverLog))); err == nil {
		out.ServerLog = info.Size()
	}
	z.at, z.last = time.Now(), out
	return out, nil
}

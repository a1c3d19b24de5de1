package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/skypilot-go/sky/api"
)

// versions compares the caller's version with ours. A caller that tells none is
// no client of ours and is served without; one that is too old is refused. It
// reports whether the request goes on.
func (s *Server) versions(w http.ResponseWriter, r *http.Request) bool {
	told := r.Header.Get(api.HeaderAPIVersion)
	if told == "" {
		return true
	}
	h := w.Header()
	h.Set(api.HeaderAPIVersion, strconv.Itoa(api.Version))
	h.Set(api.HeaderVersion, api.ProductVersion)
	v, err := strconv.Atoi(told)
	if err == nil && v >= api.MinVersion {
		return true
	}
	client := "The client"
	if v := r.Header.Get(api.HeaderVersion); v != "" {
		client += " (version " + quoted(v) + ")"
	}
	what := fmt.Sprintf("%s speaks API version %s, and this server (version %s) needs at least %d, which is release %s of SkyPilot. Upgrade the client with: pip install --upgrade 'skypilot>=%s'",
		client, quoted(told), api.ProductVersion, api.MinVersion, api.MinRelease, api.MinRelease)
	writeJSON(w, http.StatusBadRequest, map[string]string{"error": "version_mismatch", "message": what})
	return false
}

// clientAPI is the caller's API version, 0 if it did not tell.
func clientAPI(r *http.Request) int {
	v, _ := strconv.Atoi(r.Header.Get(api.HeaderAPIVersion))
	return v
}

// clientVersions are what a caller says of itself; zero if it says nothing.
type clientVersions struct {
	api     int
	version string
}

func versionsOf(r *http.Request) clientVersions {
	return clientVersions{clientAPI(r), r.Header.Get(api.HeaderVersion)}
}

// running is the context of a handler that waits: it also ends when the server
// closes.
func (s *Server) running(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(s.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

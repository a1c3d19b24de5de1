package server

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// smallBody is a body that is always read at once.
	smallBody = 1 << 20
	// bodiesAtOnce is how many bytes of larger bodies are read and parsed at once:
	// each takes many times its size meanwhile.
	bodiesAtOnce = 2 * maxBody
)

// largeBodies has room for what is read at once.
var largeBodies = semaphore.NewWeighted(bodiesAtOnce)

// bodyWait is how long a large body waits for its turn.
var bodyWait = 30 * time.Second

// roomForBody waits until a body may be read; it counts until its call is
// answered. It reports whether the call goes on.
func roomForBody(w http.ResponseWriter, r *http.Request) bool {
	size := r.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody // what is larger is refused when it is read
	}
	if size <= smallBody {
		return true
	}
	ctx, cancel := context.WithTimeout(r.Context(), bodyWait)
	defer cancel()
	if largeBodies.Acquire(ctx, size) != nil {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, "The server is busy with other large requests. Try again in a moment.")
		return false
	}
	context.AfterFunc(r.Context(), func() { largeBodies.Release(size) })
	return true
}

//go:build linux

package mount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
)

// ErrRunning means that another process holds the mounts of this folder.
var ErrRunning = errors.New("another process holds the mounts")

// Serve answers calls until the context ends, then takes the mounts away. One process
// holds the mounts of a folder; a second one ends with [ErrRunning].
func Serve(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(o.Dir, "lock"))
	got, err := lock.TryLock()
	if err != nil {
		return fmt.Errorf("locking %s: %w", o.Dir, err)
	}
	if !got {
		return ErrRunning
	}
	defer lock.Unlock()
	// What is at the path is of a process that died: it does not hold the lock.
	if err := os.Remove(mountapi.Socket(o.Dir)); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := listen(mountapi.Socket(o.Dir))
	if err != nil {
		return err
	}
	m := New(o)
	defer m.Close()
	server := &http.Server{Handler: m.Handler(), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() {
		server.Close() // flushes that wait are broken off
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listen makes a socket for this user alone, which has its name only when it has its
// mode.
func listen(path string) (net.Listener, error) {
	next := path + ".new"
	_ = os.Remove(next) // of a process that died here
	address, done, err := mountapi.Address(next)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(next, 0o600); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// maxRequest bounds what a call may carry.
const maxRequest = 1 << 20

// Handler answers the calls of package mountapi.
func (m *Mounts) Handler() http.Handler {
	mux := http.NewServeMux()
	handle(mux, "mount", m.Mount)
	handle(mux, "unmount", func(ctx context.Context, r mountapi.UnmountRequest) (mountapi.None, error) {
		return mountapi.None{}, m.Unmount(ctx, r)
	})
	handle(mux, "credentials", func(ctx context.Context, r mountapi.CredentialsRequest) (mountapi.None, error) {
		return mountapi.None{}, m.Renew(ctx, r)
	})
	handle(mux, "flush", m.Flush)
	handle(mux, "stats", func(context.Context, mountapi.None) (mountapi.StatsAnswer, error) { return m.Stats(), nil })
	handle(mux, "queue", func(context.Context, mountapi.None) (mountapi.QueueAnswer, error) { return m.Queue(), nil })
	handle(mux, "health", func(context.Context, mountapi.None) (mountapi.HealthAnswer, error) { return m.Health(), nil })
	return mux
}

func handle[In, Out any](mux *http.ServeMux, name string, f func(context.Context, In) (Out, error)) {
	mux.HandleFunc("POST /v1/"+name, func(w http.ResponseWriter, r *http.Request) {
		var in In
		var out any
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		d.DisallowUnknownFields()
		err := d.Decode(&in)
		if err != nil {
			// The text of the error may hold a part of the request, and credentials.
			err = failf(mountapi.Invalid, "the request of the call %s cannot be read", name)
		} else {
			out, err = f(r.Context(), in)
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			e, ok := errors.AsType[*mountapi.Error](err)
			if !ok {
				e = &mountapi.Error{Code: mountapi.Internal, Message: err.Error()}
			}
			w.WriteHeader(http.StatusUnprocessableEntity)
			out = e
		}
		_ = json.NewEncoder(w).Encode(out) // the caller has gone
	})
}

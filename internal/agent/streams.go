//go:build unix

package agent

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// responseWriter makes an answer a flushWriter.
type responseWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (w responseWriter) Flush() error { return w.rc.Flush() }

// begin sends the head of a streaming answer at once.
func begin(w http.ResponseWriter, contentType string) (responseWriter, error) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	rw := responseWriter{w, http.NewResponseController(w)}
	return rw, rw.Flush()
}

func (a *Agent) getLog(w http.ResponseWriter, r *http.Request) error {
	rec, err := a.jobOfPath(r)
	if err != nil {
		return err
	}
	f, err := a.openRunLog(rec)
	if err != nil {
		return err
	}
	defer f.Close()
	offset, err := a.logStart(f, r)
	if err != nil {
		return err
	}
	w.Header().Set(agentapi.HeaderLogOffset, strconv.FormatInt(offset, 10))
	rw, err := begin(w, "application/octet-stream")
	if err != nil {
		return errStreamBroken
	}
	if a.followJob(r.Context(), rec.Job.ID, f, offset, rw, r.URL.Query().Get("follow") == "1") != nil {
		return errStreamBroken
	}
	return nil
}

// openRunLog opens a job's merged log. If there is none, because it has not been
// begun or a person removed it, it is empty.
func (a *Agent) openRunLog(rec *record) (*os.File, error) {
	dir := a.logDir(&rec.Job)
	f, err := os.Open(filepath.Join(dir, "run.log"))
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if rec.Settled {
		return os.Open(os.DevNull)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, "run.log"), os.O_RDONLY|os.O_CREATE, 0o600)
}

// logStart finds the byte from which a log is wanted.
func (a *Agent) logStart(f *os.File, r *http.Request) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	number := func(name string) (n int64) {
		s := r.URL.Query().Get(name)
		if s == "" || err != nil {
			return 0
		}
		if n, err = strconv.ParseInt(s, 10, 64); err != nil || n < 0 {
			err = invalid(name + " must be a number that is not negative")
		}
		return n
	}
	tail, offset := number("tail"), number("offset")
	if err != nil {
		return 0, err
	}
	if tail > 0 {
		return tailOffset(f, st.Size(), int(tail))
	}
	return min(offset, st.Size()), nil
}

func (a *Agent) getLogFiles(w http.ResponseWriter, r *http.Request) error {
	rec, err := a.jobOfPath(r)
	if err != nil {
		return err
	}
	dir := a.logDir(&rec.Job)
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &agentapi.Error{Code: agentapi.CodeNotFound, Message: "the job's logs have been removed from the cluster"}
	}
	if err != nil {
		return err
	}
	defer root.Close()
	rw, err := begin(w, "application/x-tar")
	if err != nil {
		return errStreamBroken
	}
	tw := tar.NewWriter(rw)
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		return addToTar(tw, root, path, filepath.Join(filepath.Base(dir), path))
	})
	if err != nil || tw.Close() != nil {
		return errStreamBroken
	}
	return nil
}

// addToTar adds a file that may be growing: what is there now.
func addToTar(tw *tar.Writer, root *os.Root, path, name string) error {
	f, err := root.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: st.Size(), ModTime: st.ModTime()}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(tw, f, st.Size())
	return err
}

// beat is how often a listener hears something at least.
const beat = 10 * time.Second

func (a *Agent) getEvents(w http.ResponseWriter, r *http.Request) error {
	events := a.hub.listen()
	defer a.hub.leave(events)
	rw, err := begin(w, "application/x-ndjson")
	if err != nil {
		return errStreamBroken
	}
	enc := json.NewEncoder(rw)
	send := func(e agentapi.Event) error {
		if err := enc.Encode(e); err != nil {
			return err
		}
		if len(events) > 0 {
			return nil
		}
		return rw.Flush()
	}
	if send(a.snapshot()) != nil || rw.Flush() != nil {
		return errStreamBroken
	}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		e := agentapi.Event{Kind: agentapi.EventBeat, At: seconds(a.now())}
		select {
		case <-r.Context().Done():
			return errStreamBroken
		case <-a.ctx.Done():
			return errStreamBroken
		case <-ticker.C:
			e.Info, e.Jobs = a.info(), a.unreported()
		case next, ok := <-events:
			if !ok {
				return errStreamBroken // too slow: it comes back for a new Hello
			}
			e = next
		}
		if send(e) != nil {
			return errStreamBroken
		}
	}
}

func (a *Agent) getHookLog(w http.ResponseWriter, r *http.Request) error {
	event := r.PathValue("event")
	if !hookEvents[event] {
		return invalid("there are hooks for stop, down and preemption, not for " + strconv.Quote(event))
	}
	f, err := os.Open(a.hookLog(event))
	if errors.Is(err, fs.ErrNotExist) {
		return &agentapi.Error{Code: agentapi.CodeNotFound, Message: "no " + event + " hook has run on this cluster"}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	rw, err := begin(w, "application/octet-stream")
	if err != nil {
		return errStreamBroken
	}
	if _, err := copyFrom(f, 0, rw); err != nil {
		return errStreamBroken
	}
	return nil
}

func (a *Agent) rankEnd(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[endRequest](w, r)
	if err != nil {
		return err
	}
	// The end goes on when the head stops waiting for it.
	st, err := a.ranks.end(a.ctx, r.PathValue("key"), time.Duration(in.GraceSeconds*float64(time.Second)))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, st)
	return nil
}

func (a *Agent) rankForget(w http.ResponseWriter, r *http.Request) error {
	if err := a.ranks.forget(r.PathValue("key")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) rankOutput(w http.ResponseWriter, r *http.Request) error {
	key := r.PathValue("key")
	path, err := a.ranks.output(key)
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		return invalid("offset must be a number that is not negative")
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &agentapi.Error{Code: agentapi.CodeNotFound, Message: "there is no such rank on this node"}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	rw, err := begin(w, "application/octet-stream")
	if err != nil || a.followRank(r.Context(), key, path, f, offset, rw) != nil {
		return errStreamBroken
	}
	return nil
}

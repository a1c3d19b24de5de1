package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Clients elsewhere upload what a task needs as one zip, named by a digest of
// its content, in chunks that come in any order. The last chunk to arrive puts
// the zip together and unpacks it; the folder appears under its final name only
// when it is whole.

const (
	// maxChunk is a little more than what clients send at once.
	maxChunk  = 100_000_000
	maxChunks = 10_000
	// chunkTime is how long a client may send nothing in the middle of a chunk.
	chunkTime = 60 * time.Second
)

// BlobDir is the folder, relative to the server's home, that an upload of a user
// is unpacked in. Paths in a task's file_mounts_mapping are below it.
func BlobDir(user, blob string) string {
	return path.Join(clientsDir, user, "file_mounts", "blobs", blob)
}

// LegacyUploadDir is where clients before API version 41 upload to: one folder
// for all of a user's files.
func LegacyUploadDir(user string) string { return path.Join(clientsDir, user, "file_mounts") }

var (
	blobID   = lazyregexp.New(`^[0-9a-f]{64}$`)
	legacyID = lazyregexp.New(`^sky-[0-9-]{10,40}-[0-9a-f]{8}$`)
)

// below is a path relative to the server's home in the form of this system.
func (s *Server) below(rel string) string { return filepath.Join(s.Home, filepath.FromSlash(rel)) }

// uploadTarget is whose upload a call is about. The caller's login counts more
// than what the query says. It reports whether the call goes on.
func uploadTarget(w http.ResponseWriter, r *http.Request, idName string, form *lazyregexp.Regexp) (user, id string, ok bool) {
	q := r.URL.Query()
	user, id = q.Get("user_hash"), q.Get(idName)
	if u := loggedIn(r); u != nil {
		user = u.ID
	}
	switch {
	case !userID.MatchString(user):
		fail(w, http.StatusBadRequest, (&identityError{user}).Error())
	case !form.MatchString(id):
		fail(w, http.StatusBadRequest, quoted(id)+" is not the id of an upload.")
	default:
		return user, id, true
	}
	return "", "", false
}

// blob reports whether an upload is here already.
func (s *Server) blob(w http.ResponseWriter, r *http.Request) {
	user, blob, ok := uploadTarget(w, r, "blob_id", blobID)
	if !ok {
		return
	}
	exists, err := s.Uploads.exists(r.Context(), user, blob)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	if exists {
		now := time.Now()
		_ = os.Chtimes(s.below(BlobDir(user, blob)), now, now) // in use: not to be collected
	}
	writeJSON(w, http.StatusOK, map[string]bool{"exists": exists})
}

type uploadAnswer struct {
	Status  string   `json:"status"` // uploading, completed
	Missing []string `json:"missing_chunks"`
}

func chunkRange(q url.Values) (index, total int, problems []problem) {
	index, _, problems = queryInt(q, "chunk_index")
	total, given, p := queryInt(q, "total_chunks")
	problems = append(problems, p...)
	if !given {
		total = 1
	}
	if problems == nil && (total < 1 || total > maxChunks || index >= total) {
		problems = []problem{queryProblem("chunk_index", fmt.Errorf("must be less than total_chunks, and that at most %d", maxChunks))}
	}
	return index, total, problems
}

// upload takes one chunk.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	user, id, ok := uploadTarget(w, r, "upload_id", blobID)
	if !ok {
		return
	}
	u := s.Uploads.at(user, id, 0)
	if s.Store.Shared() {
		s.takeShared(w, r, user, id, u)
		return
	}
	s.takeChunk(w, r, u)
}

// legacyUpload takes one chunk of a client before API version 41, whose uploads
// all go into one folder of the user.
func (s *Server) legacyUpload(w http.ResponseWriter, r *http.Request) {
	user, id, ok := uploadTarget(w, r, "upload_id", legacyID)
	if !ok {
		return
	}
	s.takeChunk(w, r, unpacking{up: s.Uploads, user: user, dir: s.below(path.Join(clientsDir, user, "uploads", id)), into: s.below(LegacyUploadDir(user))})
}

// takeShared is takeChunk for servers that share a database: any of them takes
// any chunk.
func (s *Server) takeShared(w http.ResponseWriter, r *http.Request, user, id string, u unpacking) {
	index, total, problems := chunkRange(r.URL.Query())
	if problems != nil {
		failProblems(w, problems)
		return
	}
	u.total = total
	ctx := r.Context()
	exists, err := s.Uploads.exists(ctx, user, id)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	if exists {
		_, _ = io.Copy(io.Discard, &timedBody{w: w, r: r})
		writeJSON(w, http.StatusOK, uploadAnswer{Status: "completed"})
		return
	}
	body := &timedBody{w: w, r: r}
	if err = s.Uploads.sharedRoom(ctx, user); err == nil {
		err = u.receive(index, r.ContentLength, body)
	}
	if err == nil {
		err = s.Uploads.share(ctx, user, id, u, index)
	}
	var missing []string
	if err == nil {
		missing, err = s.Uploads.missing(ctx, user, id, total)
	}
	if err == nil && len(missing) == 0 {
		err = s.Uploads.complete(ctx, user, id, total)
	}
	if _, refused := errors.AsType[*refusedUpload](err); refused {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
		defer cancel()
		if err := s.Uploads.discard(clean, user, id); err != nil {
			s.log.WarnContext(ctx, "a refused upload was not removed", "error", err)
		}
	}
	s.answerChunk(w, r, body, missing, err)
}

// discardTime bounds the removal of a refused upload.
const discardTime = 20 * time.Second

func (s *Server) takeChunk(w http.ResponseWriter, r *http.Request, u unpacking) {
	index, total, problems := chunkRange(r.URL.Query())
	if problems != nil {
		failProblems(w, problems)
		return
	}
	u.total = total
	if u.done() {
		// The chunk is read all the same: a client that still sends sees no answer.
		_, _ = io.Copy(io.Discard, &timedBody{w: w, r: r})
		writeJSON(w, http.StatusOK, uploadAnswer{Status: "completed"})
		return
	}
	body := &timedBody{w: w, r: r}
	err := u.receive(index, r.ContentLength, body)
	var missing []string
	if err == nil {
		missing, err = u.missing()
	}
	if err == nil && len(missing) == 0 {
		s.Uploads.mu.Lock() // one finisher at a time
		if !u.done() {
			err = u.finish()
		}
		s.Uploads.mu.Unlock()
	}
	s.answerChunk(w, r, body, missing, err)
}

// answerChunk says what became of a chunk. One that is refused is read to its
// end: a client that still sends sees no answer.
func (s *Server) answerChunk(w http.ResponseWriter, r *http.Request, body io.Reader, missing []string, err error) {
	switch {
	case err != nil:
		_, _ = io.Copy(io.Discard, body)
		s.uploadFailed(w, r, err)
	case len(missing) > 0:
		writeJSON(w, http.StatusOK, uploadAnswer{"uploading", missing})
	default:
		writeJSON(w, http.StatusOK, uploadAnswer{Status: "completed"})
	}
}

func (s *Server) uploadFailed(w http.ResponseWriter, r *http.Request, err error) {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		fail(w, http.StatusRequestEntityTooLarge, "A chunk may have 100 MB.")
		return
	}
	if e, ok := errors.AsType[*refusedUpload](err); ok {
		fail(w, e.status, e.Error())
		return
	}
	if gone(r) {
		s.failed(w, r, err)
		return
	}
	s.log.ErrorContext(r.Context(), "upload failed", "error", err)
	fail(w, http.StatusInternalServerError, "The upload could not be stored on the server.")
}

// timedBody is a large body that is cut off when nothing comes any more.
type timedBody struct {
	w    http.ResponseWriter
	r    *http.Request
	body io.Reader
}

func (b *timedBody) Read(p []byte) (int, error) {
	if b.body == nil {
		b.body = http.MaxBytesReader(b.w, b.r.Body, maxChunk)
	}
	_ = http.NewResponseController(b.w).SetReadDeadline(time.Now().Add(chunkTime))
	n, err := b.body.Read(p)
	if err == io.EOF {
		bodyRead(b.w)
	}
	return n, err
}

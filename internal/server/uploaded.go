package server

import (
	"context"
	"net/http"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// ownsMachine reports whether a call is one of the person whose machine this is:
// nobody logs in here, and it is the owner's. Only their tasks may name paths of the
// machine; everybody else's bring what was uploaded, whatever their role.
func (s *Server) ownsMachine(r *http.Request) bool {
	return !s.Gate.Options().Demanded() && loggedIn(r) == nil && s.Gate.IsOwner(r)
}

// ownPaths refuses a call that names a folder of this machine and is not its
// owner's. All other files that a call is about are in its upload.
func (s *Server) ownPaths(r *http.Request, h head) error {
	if h.CatalogDir != "" && !s.ownsMachine(r) {
		return denied("Price lists are read from a folder of the server's machine, so only its owner may name one: leave out catalog_dir (--catalog-dir, SKY_CATALOG_DIR).")
	}
	return nil
}

// filesOf says which files the tasks of a call may bring to nodes. The id of the
// upload is the client's, whose upload it is the server's word.
func (s *Server) filesOf(ctx context.Context, r *http.Request, h head, user string) (state.RequestFiles, error) {
	f := state.RequestFiles{Own: s.ownsMachine(r)}
	if h.BlobID == nil {
		f.Legacy = h.Task != ""
		return f, nil
	}
	if !blobID.MatchString(*h.BlobID) {
		return f, &api.Error{Type: api.ErrValue, Message: "file_mounts_blob_id must be 64 hexadecimal digits."}
	}
	f.Upload = *h.BlobID
	ok, err := s.Uploads.exists(ctx, user, f.Upload)
	if err == nil && !ok {
		err = errUploadGone
	}
	return f, err
}

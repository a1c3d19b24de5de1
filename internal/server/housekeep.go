package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

const (
	housekeepEvery = time.Hour
	// uploadKept is how long an upload that no request needs stays: the request
	// may be about to come.
	uploadKept = time.Hour
)

// Housekeep removes uploads and gathered logs that nothing needs any more and brings the audit log
// up to date, now and every hour until ctx ends.
func (s *Server) Housekeep(ctx context.Context) {
	for {
		if err := s.collectUploads(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "not all old uploads were removed", "error", err)
		}
		if err := s.keepAudit(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "the audit log was not brought up to date", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(housekeepEvery):
		}
	}
}

// collectUploads removes what was uploaded before now less uploadKept, whole or
// in parts, unless a request that has not ended is about it.
func (s *Server) collectUploads(ctx context.Context, now time.Time) error {
	active, err := s.Engine.List(ctx, state.RequestFilter{Statuses: []api.RequestStatus{api.RequestPending, api.RequestRunning}})
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, r := range active {
		if r.Files != nil && r.Files.Upload != "" {
			needed[s.below(BlobDir(r.UserID, r.Files.Upload))] = true
		}
	}
	errs := []error{s.Uploads.sweep(ctx, needed), s.Downloads.sweep(ctx, now)}
	for _, pattern := range []string{BlobDir("*", "*"), clientsDir + "/*/uploads/*"} {
		found, err := filepath.Glob(s.below(pattern))
		errs = append(errs, err)
		for _, dir := range found {
			info, err := os.Stat(dir)
			if errors.Is(err, fs.ErrNotExist) || needed[dir] || err == nil && now.Sub(info.ModTime()) < uploadKept {
				continue
			}
			errs = append(errs, err, os.RemoveAll(dir))
		}
	}
	s.Uploads.ledger().Recount()
	return errors.Join(errs...)
}

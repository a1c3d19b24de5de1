package catalog

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// Hosted price lists: one folder per schema and cloud, rebuilt several times a
// day by people who publish them.
const (
	schema     = "v8"
	publicURL  = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/" + schema
	mirrorURL  = "https://skypilot-catalog.s3.us-east-1.amazonaws.com/catalogs/" + schema
	vmsFile    = "vms.csv"
	imagesFile = facts.Images
	maxFile    = 64 << 20
)

// beside are the files that are hosted beside a cloud's list.
func beside(cloud string) []string {
	if p := facts.Of(cloud).Prices; p != nil {
		return p.Beside
	}
	return nil
}

func (s *Store) period(cloud string) time.Duration {
	if d, ok := s.o.Refresh[cloud]; ok {
		return d
	}
	if p := facts.Of(cloud).Prices; p != nil {
		return p.Refresh
	}
	return 0
}

// downloadMissing fetches the files of a cloud that has none.
func (s *Store) downloadMissing(ctx context.Context, cloud string) error {
	if s.o.Offline {
		return &MissingError{cloud, fmt.Errorf("nothing is fetched; put it at %s", filepath.Join(s.o.Dir, "CLOUD", vmsFile))}
	}
	if err := s.download(ctx, cloud, vmsFile); err != nil {
		return &MissingError{cloud, err}
	}
	for _, f := range beside(cloud) {
		if _, err := os.Stat(s.path(cloud, f)); errors.Is(err, fs.ErrNotExist) {
			if err := s.download(ctx, cloud, f); err != nil {
				s.log.WarnContext(ctx, "a file beside a price list could not be fetched", "cloud", cloud, "file", f, "error", err)
			}
		}
	}
	return nil
}

// Refresh fetches a cloud's files again, except those the user has edited. When
// that fails the old ones stay.
func (s *Store) Refresh(ctx context.Context, cloud string) error {
	cloud = strings.ToLower(cloud)
	if s.o.Offline {
		return errors.New("price lists are used offline: nothing is fetched")
	}
	e := s.entry(cloud)
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.refresh(ctx, cloud)
}

func (s *Store) refresh(ctx context.Context, cloud string) error {
	var errs []error
	for _, f := range append([]string{vmsFile}, beside(cloud)...) {
		if _, err := os.Stat(s.path(cloud, f)); err == nil && s.edited(cloud, f) {
			continue
		}
		if err := s.download(ctx, cloud, f); err != nil {
			errs = append(errs, fmt.Errorf("%s/%s: %w", cloud, f, err))
		}
	}
	return errors.Join(errs...)
}

// RefreshDue fetches again every list on disk that is older than its period.
// It warns about failures and tries those clouds again ten minutes later.
func (s *Store) RefreshDue(ctx context.Context, now time.Time) {
	if s.o.Offline {
		return
	}
	folders, _ := os.ReadDir(s.o.Dir)
	for _, f := range folders {
		cloud := f.Name()
		i := s.Info(cloud, now)
		if ctx.Err() != nil {
			return
		}
		if !f.IsDir() || i.Fetched.IsZero() || i.Edited || i.Period == 0 || now.Sub(i.Fetched) < i.Period {
			continue
		}
		s.refreshOne(ctx, cloud, now)
	}
}

func (s *Store) refreshOne(ctx context.Context, cloud string, now time.Time) {
	e := s.entry(cloud)
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Before(e.retryAt) {
		return
	}
	if err := s.refresh(ctx, cloud); err != nil {
		e.retryAt = now.Add(10 * time.Minute)
		s.log.WarnContext(ctx, "prices could not be refreshed, the last ones stay in use", "cloud", cloud,
			"age", now.Sub(s.Info(cloud, now).Fetched).Round(time.Minute), "error", err)
	}
}

// Run refreshes lists in the background until ctx ends.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		s.RefreshDue(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// download fetches one file and puts it in place of the old one. The digest of
// what will be there is noted first, so that a file is never taken for edited
// because the process died between two writes.
func (s *Store) download(ctx context.Context, cloud, file string) error {
	unlock, err := s.lock(ctx, cloud, file)
	if err != nil {
		return err
	}
	defer unlock()
	text, err := s.get(ctx, cloud, file)
	if err != nil {
		return err
	}
	if err := checkFile(cloud, file, text); err != nil {
		return fmt.Errorf("what came is no %s: %w", file, err)
	}
	sum := md5.Sum(text)
	next := s.meta(cloud, file, ".md5.next")
	if err := wholefile.WriteSynced(next, []byte(hex.EncodeToString(sum[:])), 0o600); err != nil {
		return err
	}
	if err := wholefile.WriteSynced(s.path(cloud, file), text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.meta(cloud, file, ".md5"))
}

// checkFile refuses a download that is not what it should be, such as a login
// page.
func checkFile(cloud, file string, text []byte) error {
	var err error
	switch file {
	case vmsFile:
		var t *Table
		if t, err = Load(cloud, text, Options{}); err == nil && t.Report.Rows == 0 {
			err = errors.New("no row of it can be rented")
		}
	case imagesFile:
		_, err = LoadImages(text)
	default:
		_, err = LoadQuotas(text)
	}
	return err
}

// get asks the public host, and the mirror if that refuses.
func (s *Store) get(ctx context.Context, cloud, file string) ([]byte, error) {
	text, err := s.fetch(ctx, s.o.BaseURL+"/"+cloud+"/"+file)
	if err == nil || errors.Is(err, errNotHosted) || ctx.Err() != nil {
		return text, err
	}
	text, mirrorErr := s.fetch(ctx, s.o.MirrorURL+"/"+cloud+"/"+file)
	if mirrorErr != nil {
		return nil, errors.Join(err, mirrorErr)
	}
	return text, nil
}

var errNotHosted = errors.New("there is no such file")

func (s *Store) fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "sky-catalog")
	resp, err := s.o.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", url, errNotHosted)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s", url, resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", url, maxFile>>20)
	}
	return text, nil
}

func (s *Store) meta(cloud, file, suffix string) string {
	return filepath.Join(s.o.Dir, ".meta", cloud, file+suffix)
}

// edited reports whether a file is not what was downloaded. A file without a
// digest was put there by the user.
func (s *Store) edited(cloud, file string) bool {
	text, err := os.ReadFile(s.path(cloud, file))
	if err != nil {
		return false
	}
	sum := md5.Sum(text)
	digest := hex.EncodeToString(sum[:])
	for _, suffix := range []string{".md5", ".md5.next"} {
		if noted, err := os.ReadFile(s.meta(cloud, file, suffix)); err == nil && strings.TrimSpace(string(noted)) == digest {
			return false
		}
	}
	return true
}

// lockAge is when a lock file is taken for left behind by a dead process.
const lockAge = 2 * time.Minute

// lock keeps other processes from downloading the same file.
func (s *Store) lock(ctx context.Context, cloud, file string) (unlock func(), err error) {
	path := s.meta(cloud, file, ".lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			f.Close()
			return func() { os.Remove(path) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > lockAge {
			os.Remove(path)
			continue
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another download of %s/%s: %w", cloud, file, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

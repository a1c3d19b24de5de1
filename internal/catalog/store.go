package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/facts"
)

// StoreOptions configure a [Store]. Only Dir is required.
type StoreOptions struct {
	// Dir holds CLOUD/vms.csv and the like, usually ~/.sky/catalogs/v8.
	Dir string
	// BaseURL and MirrorURL are where hosted files come from; "" is the public
	// ones. The mirror is asked when the first refuses or does not answer.
	BaseURL, MirrorURL string
	Client             *http.Client
	// Offline never downloads: what is in Dir is all there is.
	Offline bool
	// Refresh changes after which time hosted files are fetched again, by
	// cloud. 0: never again.
	Refresh map[string]time.Duration
	// Overrides change what the lists say, by cloud.
	Overrides map[string]Override
	Logger    *slog.Logger
}

// Override is a user's own view of a cloud's prices.
type Override struct {
	File     string // CSV whose rows replace or complete those of the list
	Prices   []PriceOverride
	Discount float64 // part of every price that need not be paid, 0 to 1
}

// Store keeps the price lists of all clouds on disk and in memory. It is safe
// for concurrent use; reading a list that is in memory takes no lock.
type Store struct {
	o      StoreOptions
	log    *slog.Logger
	mu     sync.Mutex
	clouds map[string]*entry
}

// entry is one cloud's list. mu is held while loading or downloading.
type entry struct {
	mu      sync.Mutex
	current atomic.Pointer[loaded]
	retryAt time.Time // not before this, after a failed refresh
}

type loaded struct {
	table   *Table
	quotas  Quotas
	version string // of all files it was made from
}

// NewStore returns a store; it does no I/O.
func NewStore(o StoreOptions) *Store {
	if o.BaseURL == "" {
		o.BaseURL = publicURL
	}
	if o.MirrorURL == "" {
		o.MirrorURL = mirrorURL
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: time.Minute}
	}
	s := &Store{o: o, log: o.Logger, clouds: map[string]*entry{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

func (s *Store) entry(cloud string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.clouds[cloud]
	if e == nil {
		e = &entry{}
		s.clouds[cloud] = e
	}
	return e
}

// Table gives a cloud's price list. It is downloaded when there is none, and
// loaded again when one of its files has changed; otherwise nothing but the
// times of the files is looked at. A broken file keeps the last good list in
// use.
func (s *Store) Table(ctx context.Context, cloud string) (*Table, error) {
	l, err := s.load(ctx, strings.ToLower(cloud))
	if err != nil {
		return nil, err
	}
	return l.table, nil
}

// Has reports whether there is a price list of a cloud: its list is published, or somebody has
// put one into the store's folder, as sky catalog fetch does.
func (s *Store) Has(c *facts.Cloud) bool {
	if c.Priced() {
		return true
	}
	_, err := os.Stat(s.path(c.Name, vmsFile))
	return err == nil
}

// Quotas gives the names under which a cloud's quota service counts; empty if
// the cloud has none.
func (s *Store) Quotas(ctx context.Context, cloud string) (Quotas, error) {
	l, err := s.load(ctx, strings.ToLower(cloud))
	if err != nil {
		return nil, err
	}
	return l.quotas, nil
}

// Tables gives the lists of several clouds, read side by side. Clouds whose
// list cannot be had are left out and named in the error, which is not nil
// only then.
func (s *Store) Tables(ctx context.Context, clouds []string) ([]*Table, error) {
	tables, errs := make([]*Table, len(clouds)), make([]error, len(clouds))
	var wg sync.WaitGroup
	for i, c := range clouds {
		wg.Go(func() { tables[i], errs[i] = s.Table(ctx, c) })
	}
	wg.Wait()
	return slices.DeleteFunc(tables, func(t *Table) bool { return t == nil }), errors.Join(errs...)
}

func (s *Store) load(ctx context.Context, cloud string) (*loaded, error) {
	if cloud == "" || cloud != filepath.Base(cloud) || strings.HasPrefix(cloud, ".") {
		return nil, fmt.Errorf("%q is not a cloud", cloud)
	}
	e := s.entry(cloud)
	version := s.version(cloud)
	if l := e.current.Load(); l != nil && l.version == version {
		return l, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := os.Stat(s.path(cloud, vmsFile)); errors.Is(err, fs.ErrNotExist) {
		if err := s.downloadMissing(ctx, cloud); err != nil {
			return nil, err
		}
	}
	version = s.version(cloud)
	last := e.current.Load()
	if last != nil && last.version == version {
		return last, nil
	}
	l, err := s.read(cloud)
	if err != nil {
		if last == nil {
			return nil, err
		}
		s.log.WarnContext(ctx, "price list is broken, the last good one stays in use", "cloud", cloud, "error", err)
		l = &loaded{table: last.table, quotas: last.quotas}
	}
	if r := &l.table.Report; err == nil && r.Skipped > 0 {
		s.log.WarnContext(ctx, "malformed rows in a price list were skipped", "file", r.File, "rows", r.Skipped, "first line", r.Problems[0].Line, "reason", r.Problems[0].Reason)
	}
	l.version = version
	e.current.Store(l)
	return l, nil
}

// version changes whenever a file changes that the cloud's list is made from.
func (s *Store) version(cloud string) string {
	var b strings.Builder
	for _, path := range s.sources(cloud) {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", path, info.ModTime().UnixNano(), info.Size())
		}
	}
	return b.String()
}

// sources are the files a cloud's list is made from; some may not exist.
func (s *Store) sources(cloud string) []string {
	paths := []string{s.path(cloud, vmsFile), s.path(cloud, imagesFile), s.path(cloud, facts.InstanceQuotas), s.path(cloud, facts.AcceleratorQuotas)}
	if f := s.o.Overrides[cloud].File; f != "" {
		paths = append(paths, f)
	}
	if zoneIDs(cloud) {
		if f := s.zoneMapping(cloud); f != "" {
			paths = append(paths, f)
		}
	}
	return paths
}

// zoneIDs reports whether the cloud's list names zones by ids.
func zoneIDs(cloud string) bool {
	p := facts.Of(cloud).Prices
	return p != nil && p.ZoneIDs
}

// zoneMapping is the newest of the accounts' zone mappings.
func (s *Store) zoneMapping(cloud string) string {
	files, _ := filepath.Glob(s.path(cloud, "az_mappings-*.csv"))
	newest, at := "", time.Time{}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.ModTime().After(at) {
			newest, at = f, info.ModTime()
		}
	}
	return newest
}

// zoneNames reads that mapping; nil if there is none.
func (s *Store) zoneNames(cloud string) (map[string]string, error) {
	f := s.zoneMapping(cloud)
	if f == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f)
	if err != nil {
		return nil, err
	}
	names, err := LoadZoneNames(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	return names, nil
}

// read loads a cloud's files.
func (s *Store) read(cloud string) (*loaded, error) {
	override := s.o.Overrides[cloud]
	o := Options{Prices: override.Prices, Discount: override.Discount}
	if override.File != "" {
		text, err := os.ReadFile(override.File)
		if err != nil {
			return nil, fmt.Errorf("catalogs.overrides.%s.file: %w", cloud, err)
		}
		o.Overlay = text
	}
	if zoneIDs(cloud) {
		var err error
		if o.ZoneNames, err = s.zoneNames(cloud); err != nil {
			return nil, err
		}
	}
	path := s.path(cloud, vmsFile)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l := &loaded{quotas: Quotas{}}
	if l.table, err = Load(cloud, text, o); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l.table.Report.File, l.table.Report.Modified = path, info.ModTime()
	if text, err := os.ReadFile(s.path(cloud, imagesFile)); err == nil {
		if l.table.Images, err = LoadImages(text); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path(cloud, imagesFile), err)
		}
	}
	for _, name := range []string{facts.InstanceQuotas, facts.AcceleratorQuotas} {
		if text, err := os.ReadFile(s.path(cloud, name)); err == nil {
			if l.quotas, err = LoadQuotas(text); err != nil {
				return nil, fmt.Errorf("%s: %w", s.path(cloud, name), err)
			}
		}
	}
	return l, nil
}

func (s *Store) path(cloud, file string) string { return filepath.Join(s.o.Dir, cloud, file) }

// Info says where a cloud's prices come from and how old they are.
type Info struct {
	Cloud   string
	File    string
	Fetched time.Time // when the file was written; zero: there is none
	Edited  bool      // changed by the user: never downloaded again
	Period  time.Duration
	Overdue bool // should have been fetched again by now
}

// Info tells about a cloud's price list without loading it.
func (s *Store) Info(cloud string, now time.Time) Info {
	i := Info{Cloud: cloud, File: s.path(cloud, vmsFile), Period: s.period(cloud)}
	info, err := os.Stat(i.File)
	if err != nil {
		return i
	}
	i.Fetched, i.Edited = info.ModTime(), s.edited(cloud, vmsFile)
	i.Overdue = i.Period > 0 && !i.Edited && now.Sub(i.Fetched) > 2*i.Period
	return i
}

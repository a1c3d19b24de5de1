//go:build linux

// Package mount holds the mounts of a node: one process for all of them, which the agent
// speaks to by a socket (package mountapi has the calls and a client) and which outlives
// it.
//
// What is mounted is a [vfs.Volume]: package direct is the mode MOUNT, package cached the
// mode MOUNT_CACHED; package fusefs brings it to the kernel. Credentials come with the
// calls and stay in memory. If the process dies, its mounts answer ENOTCONN until the same
// mount call to the next process restores them, at the same path and with the same cache.
package mount

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/internal/mount/direct"
	"github.com/skypilot-go/sky/internal/mount/fusefs"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// Options say how the mounts of a node are held.
type Options struct {
	// Dir holds the socket and the caches, for this user alone.
	Dir     string
	Version string // shown by health
	Log     *slog.Logger
	// Memory is what the buffers of one mount may take; 0: 160 MiB.
	Memory int64
	// Rights mount in place of this process, which may not; nil: it mounts by itself.
	Rights Rights
	// Open opens a bucket, in tests; nil: by its store.
	Open func(ctx context.Context, s mountapi.Spec, c mountapi.Credentials) (storage.Bucket, error)
}

// Mounts are the mounts of a node.
type Mounts struct {
	o   Options
	log *slog.Logger

	mu     sync.Mutex
	all    map[string]*mounted // by path
	busy   map[string]*sync.Mutex
	closed bool
}

// A volume is what can be mounted.
type volume interface {
	vfs.Volume
	// Stats adds what is known of the volume.
	Stats(s *mountapi.Stats)
	// Queue lists files that are not in the bucket, or could not be stored.
	Queue() []mountapi.File
	// Flush waits until what was written by the owners is in the bucket, and reports how
	// many files that were.
	Flush(ctx context.Context, mine func(owner string) bool) (int, error)
	// Settled reports whether everything is in the bucket that can be.
	Settled() bool
	// Close ends the volume. What it has not uploaded stays in its cache.
	Close()
}

// mounted is one mount, or one that was unmounted and still uploads.
type mounted struct {
	spec   mountapi.Spec
	bucket *renewable
	volume volume
	since  time.Time
	fuse   atomic.Pointer[fusefs.Mount] // the latest; nil: none yet
	// refused are the calls that failed.
	refused refusals
}

// gone reports whether the kernel has no such mount any more.
func (m *mounted) gone() bool {
	f := m.fuse.Load()
	if f == nil {
		return true
	}
	select {
	case <-f.Ended():
		return true
	default:
		return false
	}
}

// New holds no mounts yet.
func New(o Options) *Mounts {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Open == nil {
		o.Open = open
	}
	return &Mounts{o: o, log: o.Log, all: map[string]*mounted{}, busy: map[string]*sync.Mutex{}}
}

// lock makes calls for one path wait for each other.
func (m *Mounts) lock(path string) func() {
	m.mu.Lock()
	l := m.busy[path]
	if l == nil {
		l = &sync.Mutex{}
		m.busy[path] = l
	}
	m.mu.Unlock()
	l.Lock()
	return l.Unlock
}

func (m *Mounts) at(path string) *mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[path]
}

func (m *Mounts) set(path string, x *mounted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x == nil {
		delete(m.all, path)
		return
	}
	m.all[path] = x
}

// list is all mounts in the order of their paths.
func (m *Mounts) list() []*mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*mounted
	for _, x := range m.all {
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b *mounted) int { return cmp.Compare(a.spec.Path, b.spec.Path) })
	return out
}

// check refuses a spec that cannot be.
func check(s *mountapi.Spec) error {
	at, err := location(*s)
	if err != nil {
		return failf(mountapi.Invalid, "%w", err)
	}
	s.SubPath = strings.Trim(s.SubPath, "/")
	if at.Key != "" && s.SubPath != "" {
		return failf(mountapi.Invalid, "%s names a path in the bucket and so does the sub path %q", s.URL, s.SubPath)
	}
	if s.Mode != mountapi.Direct && s.Mode != mountapi.Cached {
		return failf(mountapi.Invalid, "there is no mode %q", s.Mode)
	}
	c := s.Config
	if s.Mode == mountapi.Direct && c != (mountapi.Config{}) {
		return failf(mountapi.Invalid, "the keys of mount_cached are for the mode %s", mountapi.Cached)
	}
	if c.Transfers < 0 || c.ReadChunkStreams < 0 || min(c.BufferSize, c.CacheMaxSize, c.ReadAhead, c.ReadChunkSize) < 0 || min(c.CacheMaxAge, c.WriteBack) < 0 {
		return failf(mountapi.Invalid, "no key of mount_cached is less than 0")
	}
	return nil
}

// Mount mounts a bucket.
func (m *Mounts) Mount(ctx context.Context, r mountapi.MountRequest) (mountapi.MountAnswer, error) {
	spec := r.Spec
	err := check(&spec)
	if err == nil {
		spec.Path, err = m.canonical(spec.Path)
	}
	if err != nil {
		return mountapi.MountAnswer{}, err
	}
	defer m.lock(spec.Path)()
	have := m.at(spec.Path)
	if have != nil && have.spec == spec && !have.gone() {
		b, err := m.o.Open(ctx, spec, r.Credentials)
		if err != nil {
			return mountapi.MountAnswer{}, failf(codeOf(err), "%w", err)
		}
		have.renew(b)
		return mountapi.MountAnswer{Did: mountapi.Kept}, nil
	}
	if err := m.available(); err != nil {
		return mountapi.MountAnswer{}, failf(mountapi.NoFUSE, "nothing can be mounted here: %w; use mode: COPY", err)
	}
	if have != nil && have.spec != spec {
		unsettled := failf(mountapi.InUse, "files of %s, which was mounted at %s, are still uploaded: wait for them (flush), then mount again", have.spec.URL, spec.Path)
		if !have.volume.Settled() {
			return mountapi.MountAnswer{}, unsettled
		}
		if f := have.fuse.Load(); !have.gone() {
			if err := f.Unmount(false); err != nil {
				return mountapi.MountAnswer{}, failf(mountapi.InUse, "%s is mounted at %s in another way and is in use: end what uses it first", have.spec.URL, spec.Path)
			}
			<-f.Ended()
		}
		if !have.volume.Settled() { // it was written to a moment ago
			go m.end(spec.Path, have)
			return mountapi.MountAnswer{}, unsettled
		}
		have.volume.Close()
		m.set(spec.Path, nil)
		have = nil
	}
	restored, err := m.clearPath(spec.Path)
	if err != nil {
		return mountapi.MountAnswer{}, err
	}
	if err := m.place(ctx, spec); err != nil {
		return mountapi.MountAnswer{}, err
	}
	b, err := m.o.Open(ctx, spec, r.Credentials)
	if err != nil {
		return mountapi.MountAnswer{}, failf(codeOf(err), "%w", err)
	}
	if have == nil {
		if have, err = m.open(ctx, spec, b, restored); err != nil {
			return mountapi.MountAnswer{}, err
		}
	} else {
		have.renew(b)
	}
	f, err := fusefs.New(have.volume, spec.Path, fusefs.Options{
		Name: spec.URL, Kind: mountpoints.Kind, ReadOnly: spec.ReadOnly, UID: spec.UID, GID: spec.GID,
		DirectWrites: spec.Mode == mountapi.Direct, Log: m.log.With("mount", spec.Path), Attacher: m.attacher(), Refused: have.refused.add,
	})
	if err != nil {
		if m.at(spec.Path) != have {
			have.volume.Close()
		}
		code := mountapi.Internal
		if errors.Is(err, syscall.EPERM) {
			code = mountapi.NoFUSE
		}
		return mountapi.MountAnswer{}, failf(code, "%w", err)
	}
	have.fuse.Store(f)
	m.set(spec.Path, have)
	m.log.Info("mounted", "path", spec.Path, "url", spec.URL, "mode", spec.Mode, "restored", restored)
	if restored {
		return mountapi.MountAnswer{Did: mountapi.Restored}, nil
	}
	return mountapi.MountAnswer{Did: mountapi.Mounted}, nil
}

// open makes the volume of a spec, and finds out whether the bucket can be listed and, if it
// is mounted to be written, can be. What is restored is not refused for that: reading goes on,
// and files that are not stored are named.
func (m *Mounts) open(ctx context.Context, spec mountapi.Spec, b storage.Bucket, restored bool) (*mounted, error) {
	x := &mounted{spec: spec, bucket: newRenewable(b), since: time.Now()}
	bucket := storage.Retry(x.bucket, storage.Retries{})
	at, err := location(spec)
	if err != nil {
		return nil, err
	}
	prefix := cmp.Or(spec.SubPath, strings.Trim(at.Key, "/"))
	probe := prefix
	if probe != "" {
		probe += "/"
	}
	few := storage.Retry(x.bucket, storage.Retries{Attempts: 4})
	_, err = few.List(ctx, storage.ListOptions{Prefix: probe, Max: 1})
	if err == nil && !spec.ReadOnly && !bucket.Caps().ReadOnly && !restored {
		err = storage.ProbeWrite(ctx, few, prefix)
	}
	if err != nil {
		return nil, failf(codeOf(err), "mounting %s: %w", spec.URL, err)
	}
	if !spec.ReadOnly && bucket.Caps().ReadOnly {
		spec.ReadOnly = true
	}
	log := m.log.With("mount", spec.Path)
	switch spec.Mode {
	case mountapi.Cached:
		x.volume, err = m.openCached(spec, bucket, prefix, log)
	default:
		x.volume = directVolume{direct.New(bucket, direct.Options{Tree: remote.Options{Prefix: prefix}, Memory: m.o.Memory, Log: log}), spec.Path}
	}
	return x, err
}

// canonical is the path under which something is mounted, which is not looked at, or else what
// resolve makes of it.
func (m *Mounts) canonical(path string) (string, error) {
	if path = filepath.Clean(path); m.at(path) != nil {
		return path, nil
	}
	return resolve(path)
}

// cacheDir is the folder of the cache of a path.
func (m *Mounts) cacheDir(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(m.o.Dir, "cache", hex.EncodeToString(sum[:8]))
}

// Unmount ends a mount.
func (m *Mounts) Unmount(_ context.Context, r mountapi.UnmountRequest) error {
	path, err := m.canonical(r.Path)
	if err != nil {
		return err
	}
	defer m.lock(path)()
	have := m.at(path)
	if have == nil {
		_, err := m.clearPath(path) // what a process left that died
		return err
	}
	if !have.gone() {
		err := have.fuse.Load().Unmount(r.Lazy)
		if errors.Is(err, syscall.EBUSY) {
			return failf(mountapi.InUse, "%s, which is mounted at %s, is in use: end what uses it first, or unmount it lazily", have.spec.URL, path)
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) { // somebody else unmounted it
			return err
		}
	}
	go m.end(path, have)
	return nil
}

// end closes a volume when nobody uses it any more and all is uploaded.
func (m *Mounts) end(path string, x *mounted) {
	<-x.fuse.Load().Ended()
	for {
		unlock := m.lock(path)
		done := m.at(path) != x || !x.gone() || m.isClosed()
		if !done && x.volume.Settled() {
			x.volume.Close()
			m.set(path, nil)
			done = true
		}
		unlock()
		if done {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, _ = x.volume.Flush(ctx, everyone) // what cannot be stored stays in the cache, and in the answers of stats
		<-time.After(time.Second)
		cancel()
	}
}

func (m *Mounts) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

func everyone(string) bool { return true }

// Renew replaces the credentials of a mount.
func (m *Mounts) Renew(ctx context.Context, r mountapi.CredentialsRequest) error {
	path, err := m.canonical(r.Path)
	if err != nil {
		return err
	}
	defer m.lock(path)()
	have := m.at(path)
	if have == nil {
		return failf(mountapi.NotFound, "nothing is mounted at %s", path)
	}
	b, err := m.o.Open(ctx, have.spec, r.Credentials)
	if err != nil {
		return failf(codeOf(err), "%w", err)
	}
	have.renew(b)
	return nil
}

// renew replaces the credentials. What failed for the old ones is tried again.
func (x *mounted) renew(b storage.Bucket) {
	x.bucket.replace(b)
	if k, ok := x.volume.(interface{ Kick() }); ok {
		k.Kick()
	}
}

// Flush waits until what was written is in the bucket.
func (m *Mounts) Flush(ctx context.Context, r mountapi.FlushRequest) (mountapi.FlushAnswer, error) {
	start := time.Now()
	mine := everyone
	if len(r.Ranks) > 0 {
		mine = func(owner string) bool { return owner == "" || slices.Contains(r.Ranks, owner) }
	}
	all := m.list()
	if r.Path != "" {
		path, err := m.canonical(r.Path)
		if err != nil {
			return mountapi.FlushAnswer{}, err
		}
		all = slices.DeleteFunc(all, func(x *mounted) bool { return x.spec.Path != path })
		if len(all) == 0 {
			return mountapi.FlushAnswer{}, m.absent(path, mine)
		}
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	// All at the same time: together they take as long as the slowest.
	files, errs := make([]int, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() { files[i], errs[i] = x.volume.Flush(ctx, mine) })
	}
	wg.Wait()
	out := mountapi.FlushAnswer{Took: time.Since(start)}
	var failed *mountapi.Error
	for i, err := range errs {
		out.Files += files[i]
		for _, f := range all[i].volume.Queue() {
			if f.State == mountapi.Conflict && len(out.Conflicts) < mountapi.MaxFiles {
				out.Conflicts = append(out.Conflicts, f)
			}
		}
		e, ok := errors.AsType[*mountapi.Error](err)
		switch {
		case err == nil:
		case !ok:
			return out, err
		case failed == nil:
			failed = e
		default:
			if failed.Code != e.Code {
				failed.Code = mountapi.NotStored
			}
			failed.Message += "; " + e.Message
			failed.Files = append(failed.Files, e.Files...)
			failed.More += e.More
		}
	}
	if failed != nil {
		if n := len(failed.Files) - mountapi.MaxFiles; n > 0 {
			failed.Files, failed.More = failed.Files[:mountapi.MaxFiles], failed.More+n
		}
		return out, failed
	}
	return out, nil
}

// Stats are about all mounts.
func (m *Mounts) Stats() mountapi.StatsAnswer {
	var out mountapi.StatsAnswer
	known := map[string]bool{}
	for _, x := range m.list() {
		s := mountapi.Stats{Spec: x.spec, Mounted: !x.gone(), Since: x.since, Refusals: x.refused.all()}
		x.volume.Stats(&s)
		out.Mounts = append(out.Mounts, s)
		known[m.cacheDir(x.spec.Path)] = true
	}
	out.Waiting = m.waiting(known)
	return out
}

// Queue lists what is not in the bucket yet.
func (m *Mounts) Queue() mountapi.QueueAnswer {
	var out mountapi.QueueAnswer
	for _, x := range m.list() {
		out.Files = append(out.Files, x.volume.Queue()...)
	}
	if n := len(out.Files) - mountapi.MaxFiles; n > 0 {
		out.Files, out.More = out.Files[:mountapi.MaxFiles], n
	}
	return out
}

// Health says that the process lives.
func (m *Mounts) Health() mountapi.HealthAnswer {
	return mountapi.HealthAnswer{Protocol: mountapi.Protocol, Version: m.o.Version, PID: os.Getpid(), Mounts: len(m.list())}
}

// Close takes away all mounts at once and ends the volumes; what is not uploaded stays in
// the caches.
func (m *Mounts) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	for _, x := range slices.Backward(m.list()) { // the inner of two first
		unlock := m.lock(x.spec.Path)
		if !x.gone() {
			if err := x.fuse.Load().Unmount(true); err != nil {
				m.log.Error("a mount stays", "err", err)
			}
		}
		x.volume.Close()
		m.set(x.spec.Path, nil)
		unlock()
	}
}

// directVolume is the mode MOUNT: what is closed is in the bucket.
type directVolume struct {
	*direct.Volume
	path string
}

func (v directVolume) Stats(s *mountapi.Stats) {
	s.Open = v.Busy()
	var paths []string
	s.DirtyBytes, paths = v.Written()
	s.DirtyFiles = len(paths)
	failures := v.Failures(everyone)
	if s.Failed = len(failures); s.Failed > 0 {
		s.Error = failures[s.Failed-1].Err.Error()
	}
}

func (v directVolume) Queue() []mountapi.File {
	_, paths := v.Written()
	var out []mountapi.File
	for _, p := range paths {
		out = append(out, mountapi.File{Mount: v.path, Path: p, State: mountapi.Writing})
	}
	return append(out, v.failed(everyone)...)
}

func (v directVolume) failed(mine func(string) bool) []mountapi.File {
	var out []mountapi.File
	for _, f := range v.Failures(mine) {
		out = append(out, mountapi.File{Mount: v.path, Path: f.Path, State: mountapi.Failed, Ranks: []string{f.Owner}, Error: f.Err.Error()})
	}
	return out
}

// Flush has nothing to wait for. It names the files whose close has failed: the program
// may not have looked.
func (v directVolume) Flush(_ context.Context, mine func(string) bool) (int, error) {
	return 0, notStored(v.failed(mine))
}

func (v directVolume) Settled() bool { return true }

func (v directVolume) Close() {}

// notStored is the error that names files; nil without any.
func notStored(files []mountapi.File) error {
	if len(files) == 0 {
		return nil
	}
	e := &mountapi.Error{Code: mountapi.NotStored, Files: files}
	if n := len(files) - mountapi.MaxFiles; n > 0 {
		e.Files, e.More = files[:mountapi.MaxFiles], n
	}
	e.Message = fmt.Sprintf("%s in %s could not be stored: %s", files[0].Path, files[0].Mount, files[0].Error)
	if n := len(files) - 1; n > 0 {
		e.Message += fmt.Sprintf(", nor could %d others", n)
	}
	return e
}

//go:build unix

package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
	"github.com/skypilot-go/sky/internal/proc"
)

// mounts are the buckets that are mounted on this node. A process of its own, sky-mount,
// holds them and outlives the agent. What is wanted is on the disk without its credentials,
// which are in the memory of both processes: as long as one of the two lives, the other is
// brought back to where it was, and if both are gone the server is asked for credentials.
type mounts struct {
	ctx     context.Context
	home    string
	dir     string // socket, caches and log of sky-mount
	sh      string
	env     []string
	queue   *queue
	log     *slog.Logger
	client  *mountapi.Client
	changed func() // what info returns is another matter than before

	kicked   chan struct{}
	changing chan struct{} // has room for whoever changes something: one at a time
	now      func() time.Time
	// goneAfter is how long jobs wait for a mount that will not come back by itself.
	goneAfter time.Duration

	mu     sync.Mutex // guards what follows
	wanted storedMounts
	creds  map[string]mountapi.Credentials // by path
	heldBy map[string]int                  // the process that has the mount at a path
	gone   map[string]missingMount         // why there is none at a path
	ended  bool                            // the node is going away: nothing is mounted any more
	state  agentapi.MountsInfo
}

// storedMounts is what is wanted, on disk.
type storedMounts struct {
	Command string          `json:"command"`
	Specs   []mountapi.Spec `json:"specs"`
}

const (
	mountsKey    = "mounts"
	mountsLook   = 5 * time.Second  // between questions to sky-mount about what is dirty
	mountsAnswer = 10 * time.Second // for an answer that needs no store
	mountsCall   = 2 * time.Minute  // for a mount call, which asks the store
	mountsStart  = 20 * time.Second // for sky-mount to answer after its start
	mountsEnd    = 20 * time.Second // for sky-mount to end
	mountsRetry  = 10 * time.Second // the longest pause between tries to bring mounts back
	lostNamed    = 10               // files that could not be stored are named
	unsavedNamed = 5                // files of a mount that are named
)

// errNeedsCredentials says that mounts cannot be brought back without the server.
var errNeedsCredentials = errors.New("the mounts of the node wait for credentials, which the API server has")

func newMounts(ctx context.Context, home, sh string, env []string, q *queue, log *slog.Logger, changed func()) (*mounts, error) {
	dir := filepath.Join(home, ".sky", "mounts")
	m := &mounts{
		ctx: ctx, home: home, dir: dir, sh: sh, env: env, queue: q, log: log, changed: changed, client: mountapi.NewClient(mountapi.Socket(dir)),
		kicked: make(chan struct{}, 1), creds: map[string]mountapi.Credentials{}, changing: make(chan struct{}, 1),
		now: time.Now, goneAfter: mountsGone, heldBy: map[string]int{}, gone: map[string]missingMount{},
	}
	_, err := q.load(mountsKey, &m.wanted)
	return m, err
}

// lock waits until nobody else changes something. unlock has to be called if it succeeds.
func (m *mounts) lock(ctx context.Context) error {
	select {
	case m.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *mounts) unlock() { <-m.changing }

// any reports whether something is to be mounted here.
func (m *mounts) any() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.wanted.Specs) > 0 && !m.ended
}

func (m *mounts) specs() []mountapi.Spec {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted.Specs
}

// info is what others are told; nil: nothing is mounted.
func (m *mounts) info() *agentapi.MountsInfo {
	if m == nil { // the agent is being opened
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.wanted.Specs) == 0 {
		return nil
	}
	s := m.state
	s.Mounts = slices.Clone(s.Mounts)
	return &s
}

// apply mounts what is asked for. What is mounted is kept on disk as wanted, one after the
// other: a call that was cut off is repeated by whoever made it.
func (m *mounts) apply(ctx context.Context, r *agentapi.MountsRequest) (*agentapi.MountsAnswer, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.unlock()
	out := &agentapi.MountsAnswer{Did: make([]string, len(r.Mounts))}
	if len(r.Mounts) == 0 {
		return out, nil
	}
	order := make([]int, len(r.Mounts))
	asked := make([]mountapi.MountRequest, len(r.Mounts))
	for i, x := range r.Mounts {
		spec, err := m.here(x.Spec)
		if err != nil {
			return nil, err
		}
		order[i], asked[i] = i, mountapi.MountRequest{Spec: spec, Credentials: x.Credentials}
	}
	slices.SortStableFunc(order, func(a, b int) int { return outerFirst(asked[a].Spec, asked[b].Spec) })
	m.mu.Lock()
	m.ended = false
	m.mu.Unlock()
	// Before anything changes, all is as it was wanted: a process that died is replaced.
	if err := m.bringBack(ctx); err != nil && !errors.Is(err, errNeedsCredentials) {
		m.log.Warn("mounts not brought back", "err", err)
	}
	pid, err := m.start(ctx, r.Command)
	if err != nil {
		return nil, err
	}
	var refused error            // the first one; the others are mounted nevertheless, as their caches may have files to upload
	failed := map[string]error{} // by path
	for _, i := range order {
		x, spec := asked[i], asked[i].Spec
		answer, err := m.mount(ctx, x, failed)
		if err != nil {
			refused = cmp.Or(refused, err)
			failed[spec.Path] = err
			if slices.Contains(m.specs(), spec) && ctx.Err() == nil {
				m.missing(spec.Path, err)
			}
			continue
		}
		if err := m.keep(r.Command, spec, x.Credentials); err != nil {
			return nil, err
		}
		m.held(spec.Path, pid)
		out.Did[i] = answer.Did
	}
	if refused != nil {
		if len(m.specs()) == 0 { // nothing is mounted here
			_ = m.terminate(ctx, pid)
		}
		return nil, refusedMount(refused)
	}
	if err := m.bringBack(ctx); err != nil { // others, that this call is not about
		m.log.Warn("mounts not brought back", "err", err)
	}
	m.log.Info("buckets mounted", "pid", pid, "did", strings.Join(out.Did, " "))
	m.kick()
	return out, nil
}

// mount makes sky-mount mount a bucket, unless it is to be inside another mount that failed.
func (m *mounts) mount(ctx context.Context, r mountapi.MountRequest, failed map[string]error) (mountapi.MountAnswer, error) {
	for path, err := range failed {
		if inside(r.Spec.Path, path) {
			return mountapi.MountAnswer{}, fmt.Errorf("%s is inside the mount %s: %w", r.Spec.Path, path, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, mountsCall)
	defer cancel()
	return m.client.Mount(ctx, r)
}

// outerFirst is the order in which mounts are made: one before those that are inside it.
func outerFirst(a, b mountapi.Spec) int { return cmp.Compare(len(a.Path), len(b.Path)) }

func inside(path, outer string) bool { return strings.HasPrefix(path, outer+"/") }

// here is a spec for this node: its path is absolute and its files are the agent's user's.
func (m *mounts) here(s mountapi.Spec) (mountapi.Spec, error) {
	if rest, ok := strings.CutPrefix(s.Path, "~"); ok && (rest == "" || rest[0] == '/') {
		s.Path = filepath.Join(m.home, rest)
	}
	if !filepath.IsAbs(s.Path) {
		return s, invalid(fmt.Sprintf("the path %q of a mount is neither absolute nor below ~", s.Path))
	}
	s.Path = filepath.Clean(s.Path)
	s.UID, s.GID = uint32(os.Getuid()), uint32(os.Getgid())
	return s, nil
}

// keep notes that something is mounted.
func (m *mounts) keep(command string, spec mountapi.Spec, c mountapi.Credentials) error {
	m.mu.Lock()
	next := storedMounts{Command: command, Specs: slices.Clone(m.wanted.Specs)}
	m.mu.Unlock()
	next.Specs = slices.DeleteFunc(next.Specs, func(s mountapi.Spec) bool { return s.Path == spec.Path })
	next.Specs = append(next.Specs, spec)
	if err := m.queue.put(mountsKey, next); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = next
	m.creds[spec.Path] = c
	return nil
}

// refusedMount is what sky-mount refused, in the words of the agent's protocol.
func refusedMount(err error) error {
	e, ok := errors.AsType[*mountapi.Error](err)
	if !ok {
		return err
	}
	code := map[mountapi.Code]agentapi.ErrorCode{
		mountapi.Invalid: agentapi.CodeInvalid, mountapi.NotEmpty: agentapi.CodeInvalid, mountapi.InUse: agentapi.CodeInUse, mountapi.NoFUSE: agentapi.CodeNoFUSE,
		mountapi.NoBucket: agentapi.CodeBucket, mountapi.Denied: agentapi.CodeBucket,
	}[e.Code]
	return &agentapi.Error{Code: cmp.Or(code, agentapi.CodeInternal), Message: e.Message}
}

// health asks sky-mount whether it lives.
func (m *mounts) health(ctx context.Context) (mountapi.HealthAnswer, error) {
	within, cancel := context.WithTimeout(ctx, mountsAnswer)
	defer cancel()
	h, err := m.client.Health(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		m.unblock(ctx)
	}
	return h, err
}

// unblock ends a sky-mount that was killed and is not gone: one of its threads waits in the
// kernel for what the others no longer do, as when it told the kernel to forget pages that a
// call reads just then. Its socket and its mounts stay until they are aborted, and all who
// use them wait.
func (m *mounts) unblock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mountsAnswer)
	defer cancel()
	pid, err := mountapi.Listener(ctx, mountapi.Socket(m.dir))
	if err != nil || pid <= 0 || proc.Alive(pid, "") && !proc.Killed(pid) {
		return
	}
	specs := m.specs()
	err = mountpoints.Abort(func(path string) bool {
		return slices.ContainsFunc(specs, func(s mountapi.Spec) bool { return samePath(path, s.Path, specs) })
	})
	m.log.Warn("sky-mount was killed and waits for its own mounts, which are aborted", "pid", pid, "err", err)
}

// start makes sky-mount run, unless it does, and returns its process. changing is held.
func (m *mounts) start(ctx context.Context, command string) (int, error) {
	if h, err := m.health(ctx); err == nil {
		if h.Protocol == mountapi.Protocol {
			return h.PID, nil
		}
		m.log.Info("sky-mount speaks another protocol and is replaced", "protocol", h.Protocol)
		if err := m.terminate(ctx, h.PID); err != nil {
			return 0, err
		}
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return 0, err
	}
	name := filepath.Join(m.dir, "log")
	if st, err := os.Stat(name); err == nil && st.Size() > 4<<20 {
		_ = os.Rename(name, name+".old")
	}
	out, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	began, _ := out.Seek(0, io.SeekEnd)
	cmd := exec.Command(m.sh, "-c", command+` mount "$0"`, m.dir)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = m.home, m.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting sky-mount: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
		m.kick()
	}()
	ctx, cancel := context.WithTimeout(ctx, mountsStart)
	defer cancel()
	for {
		if h, err := m.client.Health(ctx); err == nil {
			return h.PID, nil
		}
		select {
		case <-exited:
			said := make([]byte, 2000)
			n, _ := out.ReadAt(said, began)
			return 0, fmt.Errorf("sky-mount ended as it was started (%v): %s", cmd.ProcessState, bytes.TrimSpace(said[:n]))
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			return 0, errors.New("sky-mount does not answer after its start")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// bringBack makes all that is wanted be mounted, by a process that lives. What cannot be
// brought back keeps nothing else from it. The caller has the lock.
func (m *mounts) bringBack(ctx context.Context) error {
	m.mu.Lock()
	wanted, ended, creds := m.wanted, m.ended, maps.Clone(m.creds)
	m.mu.Unlock()
	if len(wanted.Specs) == 0 || ended {
		return nil
	}
	if h, err := m.health(ctx); err == nil && h.Protocol == mountapi.Protocol {
		if len(m.notHeld(h.PID)) == 0 {
			return nil
		}
		m.find(ctx, h.PID) // mounted by an earlier life of this agent
		if len(m.notHeld(h.PID)) == 0 {
			return nil
		}
	}
	var failed error
	fail := func(err error) {
		switch {
		case failed == nil:
			failed = err
		case errors.Is(err, errNeedsCredentials) && !errors.Is(failed, errNeedsCredentials):
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	able := false
	for _, s := range wanted.Specs {
		_, ok := creds[s.Path]
		able = able || ok
	}
	if !able {
		for _, s := range wanted.Specs {
			m.missing(s.Path, errNeedsCredentials)
		}
		return errNeedsCredentials
	}
	pid, err := m.start(ctx, wanted.Command)
	if err != nil {
		if ctx.Err() == nil {
			for _, s := range wanted.Specs {
				m.missing(s.Path, err)
			}
		}
		return err
	}
	// At the same time: a store that does not answer does not hold up the others, but for those
	// that are inside one of its mounts.
	specs := slices.SortedStableFunc(slices.Values(m.notHeld(pid)), outerFirst)
	errs := make([]error, len(specs))
	tried := make([]chan struct{}, len(specs))
	var wg sync.WaitGroup
	for i, s := range specs {
		tried[i] = make(chan struct{})
		wg.Go(func() {
			defer close(tried[i])
			without := map[string]error{}
			for j, outer := range specs[:i] {
				if !inside(s.Path, outer.Path) {
					continue
				}
				if <-tried[j]; errs[j] != nil {
					without[outer.Path] = errs[j]
				}
			}
			c, ok := creds[s.Path]
			if !ok {
				errs[i] = errNeedsCredentials
				m.missing(s.Path, errs[i])
				return
			}
			answer, err := m.mount(ctx, mountapi.MountRequest{Spec: s, Credentials: c}, without)
			e, ok := errors.AsType[*mountapi.Error](err)
			why := err
			switch {
			case err == nil:
				m.held(s.Path, pid)
				m.log.Info("mount brought back", "path", s.Path, "did", answer.Did)
				return
			case ok && e.Code == mountapi.Denied:
				err = fmt.Errorf("%w: %w", errNeedsCredentials, err) // these may have run out
				why = err
			default:
				err = fmt.Errorf("mounting %s at %s again: %w", s.URL, s.Path, err)
			}
			if errs[i] = err; ctx.Err() == nil {
				m.missing(s.Path, why)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			fail(err)
		}
	}
	if failed == nil && len(m.notHeld(pid)) > 0 {
		failed = errReturning // another process had the others
		m.kick()
	}
	return failed
}

// find notes which mounts a process has.
func (m *mounts) find(ctx context.Context, pid int) {
	ctx, cancel := context.WithTimeout(ctx, mountsAnswer)
	defer cancel()
	stats, err := m.client.Stats(ctx)
	if err != nil {
		return
	}
	for _, s := range m.notHeld(pid) {
		if mountedIn(stats, s.Path, m.specs()) {
			m.held(s.Path, pid)
		}
	}
}

func mountedIn(stats mountapi.StatsAnswer, path string, specs []mountapi.Spec) bool {
	return slices.ContainsFunc(stats.Mounts, func(x mountapi.Stats) bool { return x.Mounted && samePath(x.Spec.Path, path, specs) })
}

// samePath compares a path whose symbolic links are resolved with that of one of specs. It
// looks into none of these mounts: whoever does waits if their process is stuck.
func samePath(resolved, path string, specs []mountapi.Spec) bool {
	if resolved == path {
		return true
	}
	outer := path
	for _, s := range specs {
		if inside(outer, s.Path) {
			outer = s.Path
		}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(outer))
	return err == nil && filepath.Join(dir, filepath.Base(outer))+path[len(outer):] == resolved
}

// ready is an error while not all that is wanted is mounted: a job that started then would
// write into the folders below the mounts.
func (m *mounts) ready(ctx context.Context) error {
	if !m.any() {
		return nil
	}
	if h, err := m.health(ctx); err == nil && h.Protocol == mountapi.Protocol && len(m.notHeld(h.PID)) == 0 {
		return nil
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // whoever asks may go: what was begun is not broken off
		defer m.unlock()
		done <- m.bringBack(m.ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *mounts) kick() {
	select {
	case m.kicked <- struct{}{}:
	default:
	}
}

// supervise brings mounts back whose process died, and looks what is dirty, until ctx ends.
func (m *mounts) supervise() {
	pause, watched := time.Duration(0), 0
	for {
		var again <-chan time.Time
		if m.any() {
			err := m.ready(m.ctx)
			m.look(err)
			m.mu.Lock()
			holders := slices.Collect(maps.Values(m.heldBy))
			m.mu.Unlock()
			if len(holders) > 0 && slices.Max(holders) != watched && slices.Max(holders) == slices.Min(holders) {
				watched = holders[0]
				go m.awaitEnd(watched)
			}
			next := mountsLook
			if err != nil {
				pause = min(max(2*pause, 100*time.Millisecond), mountsRetry)
				next = pause
			} else {
				pause = 0
			}
			again = time.After(next)
		}
		select {
		case <-m.ctx.Done():
			return
		case <-m.kicked:
		case <-again:
		}
	}
}

// awaitEnd makes the supervisor look when a process has ended.
func (m *mounts) awaitEnd(pid int) {
	if start, err := proc.StartTime(pid); err == nil {
		_ = proc.Wait(m.ctx, pid, start)
	}
	m.kick()
}

// look notes what others are told about the mounts; trouble is why they are not there.
func (m *mounts) look(trouble error) {
	now := agentapi.MountsInfo{NeedCredentials: errors.Is(trouble, errNeedsCredentials)}
	if trouble != nil {
		now.Trouble = trouble.Error()
	}
	ctx, cancel := context.WithTimeout(m.ctx, mountsAnswer)
	defer cancel()
	stats, err := m.client.Stats(ctx)
	var unsaved []mountapi.File
	if err == nil && slices.ContainsFunc(stats.Mounts, func(s mountapi.Stats) bool { return s.DirtyFiles > 0 }) {
		q, _ := m.client.Queue(ctx)
		unsaved = q.Files
	}
	m.mu.Lock()
	was := m.state
	for _, s := range m.wanted.Specs {
		i := agentapi.MountInfo{Path: s.Path, URL: s.URL, Mode: s.Mode}
		known := err == nil
		if known {
			n := slices.IndexFunc(stats.Mounts, func(x mountapi.Stats) bool { return samePath(x.Spec.Path, s.Path, m.wanted.Specs) })
			if known = n >= 0; known {
				x := stats.Mounts[n]
				i.DirtyFiles, i.DirtyBytes, i.Failed, i.Error = x.DirtyFiles, x.DirtyBytes, x.Failed, x.Error
				for _, f := range unsaved {
					if f.Mount == x.Spec.Path && f.State != mountapi.Conflict && len(i.Unsaved) < unsavedNamed {
						i.Unsaved = append(i.Unsaved, f.Path)
					}
				}
				if !x.Mounted {
					delete(m.heldBy, s.Path) // somebody unmounted it
				}
			}
		}
		if !known { // what was dirty is not less dirty because nobody can say so
			if n := slices.IndexFunc(was.Mounts, func(x agentapi.MountInfo) bool { return x.Path == s.Path }); n >= 0 {
				i = was.Mounts[n]
			}
		}
		now.Mounts = append(now.Mounts, i)
	}
	m.state = now
	m.mu.Unlock()
	a, _ := was.Dirty()
	b, _ := now.Dirty()
	if (a == 0) != (b == 0) || was.NeedCredentials != now.NeedCredentials || was.Trouble != now.Trouble {
		m.changed()
	}
}

// flushStatus says how far a flush is.
type flushStatus struct {
	Done bool `json:"done"` // the buckets have all that was asked for
	// Lost says that something cannot be stored, for a lasting reason, and names files.
	Lost    string   `json:"lost,omitempty"`
	Waiting []string `json:"waiting,omitempty"` // some files that are not stored yet
	Trouble string   `json:"trouble,omitempty"` // why not
	// Notes are for the user: files that somebody else wrote, too, and calls that failed.
	Notes []string `json:"notes,omitempty"`
}

// flush waits, up to a limit, until the buckets have what the ranks wrote; of all if there
// are none. An error means that nothing is known and the call may be repeated.
func (m *mounts) flush(ctx context.Context, ranks []string, limit time.Duration) (flushStatus, error) {
	if err := m.ready(ctx); err != nil && ctx.Err() != nil {
		return flushStatus{}, context.Cause(ctx)
	}
	if !m.any() {
		return flushStatus{Done: true}, nil
	}
	h, _ := m.health(ctx)
	absent := m.notHeld(h.PID) // ready has found out why
	specs := m.specs()
	limit = max(limit, time.Millisecond) // 0 is none
	answers, errs := make([]mountapi.FlushAnswer, len(specs)), make([]error, len(specs))
	var wg sync.WaitGroup
	for i, s := range specs {
		wg.Go(func() {
			cctx, cancel := context.WithTimeout(ctx, limit+mountsAnswer)
			defer cancel()
			answers[i], errs[i] = m.client.Flush(cctx, mountapi.FlushRequest{Path: s.Path, Ranks: ranks, Timeout: limit})
		})
	}
	wg.Wait()
	// A process that died meanwhile may have answered for less than there is.
	if now, err := m.health(ctx); len(absent) < len(specs) && (err != nil || now.PID != h.PID) {
		m.kick()
		return flushStatus{Trouble: "the process that holds the mounts died and is brought back"}, nil
	}
	out := flushStatus{Done: true}
	for i, err := range errs {
		for _, f := range answers[i].Conflicts {
			out.Notes = append(out.Notes, fmt.Sprintf("%s in %s was written by somebody else, too: both versions are kept, this one under that name", f.Path, f.Mount))
		}
		if slices.Contains(absent, specs[i]) {
			m.mu.Lock()
			t := m.gone[specs[i].Path]
			m.mu.Unlock()
			st := t.flushed(specs[i], err, m.now(), m.goneAfter)
			out.Done = out.Done && st.Done
			out.Trouble = cmp.Or(out.Trouble, st.Trouble)
			out.Lost = joined(out.Lost, st.Lost)
			continue
		}
		if err == nil {
			continue
		}
		out.Done = false
		e, ok := errors.AsType[*mountapi.Error](err)
		switch {
		case ok && e.Code == mountapi.NotStored:
			out.Lost = joined(out.Lost, lostFiles(e))
		case ok && e.Code == mountapi.TimedOut:
			for _, f := range e.Files {
				if len(out.Waiting) < unsavedNamed {
					out.Waiting = append(out.Waiting, f.Path)
				}
				out.Trouble = cmp.Or(out.Trouble, f.Error)
			}
		default:
			out.Trouble = err.Error()
		}
	}
	out.Notes = append(out.Notes, m.refused(ctx, ranks)...)
	return out, nil
}

// joined is two texts in one line; "" is none.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// refused says which calls of the ranks failed on the mounts, and why.
func (m *mounts) refused(ctx context.Context, ranks []string) []string {
	if len(ranks) == 0 {
		return nil
	}
	cctx, cancel := context.WithTimeout(ctx, mountsAnswer)
	defer cancel()
	stats, err := m.client.Stats(cctx)
	if err != nil {
		return nil // what does not answer now is found by others
	}
	var notes []string
	for _, s := range stats.Mounts {
		for _, r := range s.Refusals {
			if slices.Contains(ranks, r.Rank) && len(notes) < refusedNamed {
				notes = append(notes, fmt.Sprintf("%s: %s failed: %s", filepath.Join(s.Spec.Path, r.Path), r.Call, r.Error))
			}
		}
	}
	return notes
}

// lostFiles names files that cannot be stored, and says why.
func lostFiles(e *mountapi.Error) string {
	var names []string
	why := ""
	for _, f := range e.Files {
		if len(names) < lostNamed {
			names = append(names, filepath.Join(f.Mount, f.Path))
		}
		why = cmp.Or(why, f.Error)
	}
	if len(names) == 0 {
		return e.Message
	}
	text := strings.Join(names, ", ")
	if n := len(e.Files) + e.More - len(names); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + ": " + cmp.Or(why, e.Message)
}

// settle waits until the buckets have everything, until a limit is over, or something
// cannot be stored.
func (m *mounts) settle(ctx context.Context, limit time.Duration) (flushStatus, error) {
	end := time.Now().Add(limit)
	for {
		st, err := m.flush(ctx, nil, max(0, min(waitPoll, time.Until(end))))
		if err != nil || st.Done || st.Lost != "" || time.Now().After(end) {
			return st, err
		}
		if len(st.Waiting) == 0 { // it did not wait
			select {
			case <-ctx.Done():
				return st, ctx.Err()
			case <-time.After(min(time.Second, max(0, time.Until(end)))):
			}
		}
	}
}

// end stores what is not stored yet, as far as the time goes, and takes the mounts away.
// What is left stays in the cache on the disk, and is what info tells.
func (m *mounts) end(ctx context.Context, limit time.Duration) {
	if m == nil {
		return
	}
	if _, err := os.Stat(mountapi.Socket(m.dir)); err != nil && len(m.specs()) == 0 {
		return
	}
	if st, err := m.settle(ctx, limit); err != nil || !st.Done {
		m.log.Warn("not all files of mounted buckets are stored", "lost", st.Lost, "waiting", st.Waiting, "trouble", st.Trouble, "err", err)
	}
	if m.lock(ctx) != nil {
		return
	}
	defer m.unlock()
	m.look(nil)
	m.mu.Lock()
	m.ended = true
	clear(m.heldBy)
	m.mu.Unlock()
	h, err := m.health(ctx)
	if err != nil {
		return // who removes the folder takes away what it left
	}
	if err := m.terminate(ctx, h.PID); err != nil {
		m.log.Warn("sky-mount not ended", "err", err)
	}
}

// terminate ends sky-mount, which takes its mounts away.
func (m *mounts) terminate(ctx context.Context, pid int) error {
	start, err := proc.StartTime(pid)
	if err != nil {
		return nil // it is gone
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	wctx, cancel := context.WithTimeout(ctx, mountsEnd)
	defer cancel()
	if proc.Wait(wctx, pid, start) != nil && ctx.Err() == nil && proc.Alive(pid, start) {
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	return ctx.Err()
}

// forget takes the mounts away for good: the machine goes to another cluster.
func (m *mounts) forget(ctx context.Context, limit time.Duration) error {
	m.end(ctx, limit)
	m.mu.Lock()
	m.wanted, m.state, m.ended = storedMounts{}, agentapi.MountsInfo{}, false
	clear(m.creds)
	clear(m.heldBy)
	clear(m.gone)
	m.mu.Unlock()
	return m.queue.put(mountsKey, storedMounts{})
}

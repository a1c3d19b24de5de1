//go:build unix

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
)

// How long jobs wait for a mount that is not there.
const (
	mountsGone   = 30 * time.Second // if it will not come back by itself, as its bucket is gone
	mountsGiveUp = 10 * time.Minute // if it may
	mountsNoKeys = 24 * time.Hour   // if it needs credentials: the API server may be switched off
	mountsReady  = 10 * time.Second // for one look; the job asks again
)

// errReturning says that a mount is being brought back.
var errReturning = errors.New("it is being mounted again")

// missingMount is why a mount is not there.
type missingMount struct {
	since time.Time
	err   error
}

// next is the state after another try. That there are no credentials says less than what the
// store has said.
func (t missingMount) next(err error, now time.Time, gone time.Duration) missingMount {
	switch {
	case t.err == nil:
		return missingMount{now, err}
	case err == errNeedsCredentials && t.err != errReturning, err == errReturning: //nolint:errorlint // the plain ones
		return t
	case missingMount{err: err}.patience(gone) < t.patience(gone):
		t.since = now // the shorter limit begins now
	}
	t.err = err
	return t
}

// patience is how long jobs that use the mount wait for it.
func (t missingMount) patience(gone time.Duration) time.Duration {
	if errors.Is(t.err, errNeedsCredentials) {
		return mountsNoKeys
	}
	if e, ok := errors.AsType[*mountapi.Error](t.err); ok && (e.Code == mountapi.NoBucket || e.Code == mountapi.Invalid || e.Code == mountapi.NoFUSE) {
		return gone
	}
	return mountsGiveUp
}

// over reports whether a job does not wait any longer.
func (t missingMount) over(now time.Time, gone time.Duration) bool {
	return now.Sub(t.since) >= t.patience(gone)
}

// flushed is what the end of a job that wrote to the mount is to do, after the answer to a
// flush of it.
func (t missingMount) flushed(spec mountapi.Spec, answer error, now time.Time, gone time.Duration) flushStatus {
	if t.err == nil {
		t.err, t.since = errReturning, now
	}
	e, known := errors.AsType[*mountapi.Error](answer)
	known = known && e.Code == mountapi.NotMounted
	if answer == nil || known && len(e.Files) == 0 || spec.Mode == mountapi.Direct { // whose files are stored, or lost, when they are closed
		return flushStatus{Done: true}
	}
	why := fmt.Sprintf("%s is not mounted at %s: %v", spec.URL, spec.Path, t.err)
	unavailable := false
	if said, ok := errors.AsType[*mountapi.Error](t.err); ok {
		unavailable = said.Code == mountapi.Unavailable // it is waited for as long as it takes, as it is while the mount is there
	}
	if unavailable || !t.over(now, gone) {
		return flushStatus{Trouble: why}
	}
	if known {
		return flushStatus{Lost: lostFiles(&mountapi.Error{Message: why, Files: e.Files, More: e.More})}
	}
	return flushStatus{Lost: "files below " + spec.Path + ": " + why}
}

// missing notes why a mount is not there.
func (m *mounts) missing(path string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.heldBy, path)
	m.gone[path] = m.gone[path].next(err, m.now(), m.goneAfter)
}

// held notes that a process has a mount.
func (m *mounts) held(path string, pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heldBy[path] = pid
	delete(m.gone, path)
}

// notHeld lists what is wanted and a process does not have.
func (m *mounts) notHeld(pid int) []mountapi.Spec {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.wanted.Specs), func(s mountapi.Spec) bool { return m.heldBy[s.Path] == pid && pid != 0 })
}

// readyFor is an error while a rank has to wait for mounts: those that it uses, as long as
// there is hope, and those of which that is not known, too, as it would write into the folder
// below. If it cannot be started at all, the error is lasting. note is lines for its log.
func (m *mounts) readyFor(ctx context.Context, s *rankSpec) (note string, err error) {
	if !m.any() {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, mountsReady)
	defer cancel()
	if err := m.ready(ctx); err == nil {
		return "", nil
	}
	var notes []string
	h, _ := m.health(ctx)
	for _, spec := range m.notHeld(h.PID) {
		m.missing(spec.Path, errReturning) // unless a reason is known
		m.mu.Lock()
		t := m.gone[spec.Path]
		m.mu.Unlock()
		text := fmt.Sprintf("%s is not mounted at %s: %v", spec.URL, spec.Path, t.err)
		used, over := usesMount(s, spec.Path, m.home), t.over(m.now(), m.goneAfter)
		switch {
		case !used && (over || t.patience(m.goneAfter) == m.goneAfter):
			notes = append(notes, text+"; what is written there stays on the disk of this node")
		case used && over:
			return "", invalid("the job cannot run without a mounted bucket: " + text)
		default:
			err = cmp.Or(err, error(&agentapi.Error{Code: agentapi.CodeBucket, Message: "a bucket is not mounted: " + text}))
		}
	}
	return strings.Join(notes, "\n"), err
}

// usesMount reports whether a rank says that it uses what is mounted at a path: its task
// mounts it, or its commands, variables or folder name it.
func usesMount(s *rankSpec, path, home string) bool {
	if slices.ContainsFunc(s.Uses, func(p string) bool { return filepath.Clean(expand(p, home)) == path }) {
		return true
	}
	names := []string{path}
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(home, "/")+"/"); ok {
		names = append(names, "~/"+rest, "$HOME/"+rest, "${HOME}/"+rest)
	}
	texts := []string{s.Script, s.Workdir, expand(s.Workdir, home)}
	for _, v := range s.Env {
		texts = append(texts, v)
	}
	for _, text := range texts {
		if slices.ContainsFunc(names, func(n string) bool { return namesPath(text, n) }) {
			return true
		}
	}
	return false
}

// namesPath reports whether a text has a path in it, and not only a longer name.
func namesPath(text, path string) bool {
	for {
		_, after, ok := strings.Cut(text, path)
		if !ok {
			return false
		}
		if after == "" || !strings.ContainsRune("-_.", rune(after[0])) && !unicode.IsLetter(rune(after[0])) && !unicode.IsDigit(rune(after[0])) && after[0] < utf8.RuneSelf {
			return true
		}
		text = after
	}
}

// expand makes a path of a task one of the node.
func expand(path, home string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(home, path[1:])
	}
	if !filepath.IsAbs(path) {
		return filepath.Join(home, path)
	}
	return path
}

// isNotMounted reports whether a call to a node says that a rank waits for mounts.
func isNotMounted(err error) bool {
	e, ok := errors.AsType[*agentapi.Error](err)
	return ok && e.Code == agentapi.CodeBucket
}

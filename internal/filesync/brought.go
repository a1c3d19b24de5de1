//go:build unix

package filesync

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/wholefile"
)

const (
	broughtMagic  = "skybrgt1"
	broughtSuffix = ".brought"
	// A tree of more entries is not remembered, so that nothing of it is removed.
	maxBrought = 1 << 20
)

// A state of an entry at the destination that a sync made.
type broughtState struct {
	owner  string // the Mirror of the sync
	kind   kind
	size   int64
	mtime  int64
	target string
}

// is reports whether what is there now is still that. Permissions do not count.
func (s *broughtState) is(now *item, target string) bool {
	switch {
	case s.kind != now.kind:
		return false
	case s.kind == kindFile:
		return s.size == now.size && sameTime(s.mtime, now.mtime)
	case s.kind == kindLink:
		return s.target == target
	}
	return true
}

// A listed entry is one that the source has now.
type listedEntry struct {
	broughtState
	perm   uint16
	brings bool // this sync makes it what it is, or an earlier one has
}

// brought remembers, from sync to sync, what syncs have brought to one
// destination, so that what the source has no more can be removed there, unless
// somebody has changed it. While a sync is under way, the file has the states
// from before and after, so that the next one converges wherever this one ends.
// A nil *brought remembers nothing.
type brought struct {
	file  string
	owner string
	old   map[string][]broughtState // by path

	mu      sync.Mutex
	listed  map[string]listedEntry
	changes bool // listed differs from old
}

// broughtTo reads what syncs have brought to a destination. What is damaged
// counts as nothing: then nothing is removed.
func broughtTo(dir, dst, owner string) *brought {
	b := &brought{file: filepath.Join(dir, pathID(dst)+broughtSuffix), owner: owner, old: map[string][]broughtState{}, listed: map[string]listedEntry{}}
	data, err := os.ReadFile(b.file)
	if err != nil || len(data) < len(broughtMagic)+hashSize {
		return b
	}
	body, sum := data[:len(data)-hashSize], data[len(data)-hashSize:]
	if got := blake3.Sum256(body); !bytes.Equal(got[:], sum) || string(body[:len(broughtMagic)]) != broughtMagic {
		return b
	}
	d := decoder{b: body[len(broughtMagic):]}
	var owners []string
	for range d.below(maxBrought) {
		owners = append(owners, d.str(maxPath))
	}
	for len(d.b) > 0 {
		path := d.str(maxPath)
		s := broughtState{kind: kind(d.below(uint64(kindOther))), size: int64(d.below(maxSize)), mtime: d.int(), target: d.str(maxPath)}
		if at := d.below(uint64(len(owners))); d.err == nil {
			s.owner = owners[at]
		}
		if d.err != nil || !validPath(path) {
			clear(b.old)
			return b
		}
		b.old[path] = append(b.old[path], s)
	}
	return b
}

// write replaces the file.
func (b *brought) write(states map[string][]broughtState) error {
	index, owners := map[string]int{}, []string{}
	n := 0
	for _, list := range states {
		n += len(list)
		for _, s := range list {
			if _, ok := index[s.owner]; !ok {
				index[s.owner] = len(owners)
				owners = append(owners, s.owner)
			}
		}
	}
	if n > maxBrought {
		return errors.New("file sync: too many files to remember")
	}
	data := binary.AppendUvarint([]byte(broughtMagic), uint64(len(owners)))
	for _, o := range owners {
		data = appendString(data, o)
	}
	for path, list := range states {
		for _, s := range list {
			data = appendString(data, path)
			data = binary.AppendUvarint(data, uint64(s.kind))
			data = binary.AppendUvarint(data, uint64(s.size))
			data = binary.AppendVarint(data, s.mtime)
			data = appendString(data, s.target)
			data = binary.AppendUvarint(data, uint64(index[s.owner]))
		}
	}
	sum := blake3.Sum256(data)
	return wholefile.Write(b.file, append(data, sum[:]...), 0o600)
}

// unchanged reports whether what is at a path is still what a sync brought.
func (b *brought) unchanged(path string, now *item, target string) bool {
	if b == nil {
		return false
	}
	return slices.ContainsFunc(b.old[path], func(s broughtState) bool { return s.is(now, target) })
}

// list notes an entry of the source; brings says that this sync makes it.
func (b *brought) list(path string, it *item, brings bool) {
	if b == nil || path == "" {
		return
	}
	s := broughtState{owner: b.owner, kind: it.kind, mtime: it.mtime, target: it.target}
	if it.kind == kindFile {
		s.size = it.size
	}
	if it.kind == kindFolder {
		s.mtime = 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	brings = brings || b.listed[path].brings // a folder has several blocks
	b.listed[path] = listedEntry{s, it.perm, brings}
	if brings && !slices.Contains(b.old[path], s) {
		b.changes = true
	}
}

// arrived notes that the content of a file came, which may have changed since it
// was listed.
func (b *brought) arrived(path string, it *item) { b.list(path, it, true) }

// known reports whether a sync ever brought something to a path.
func (b *brought) known(path string) bool { return b != nil && len(b.old[path]) > 0 }

// gone lists what this source brought and has no more, what is in a folder
// before the folder.
func (b *brought) gone() (paths []string) {
	if b == nil {
		return nil
	}
	for path, states := range b.old {
		if _, ok := b.listed[path]; !ok && slices.ContainsFunc(states, func(s broughtState) bool { return s.owner == b.owner }) {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(x, y string) int { return strings.Compare(y, x) })
	return paths
}

// begin writes down what is about to be done. An error means that nothing may be
// removed.
func (b *brought) begin() error {
	states := maps.Clone(b.old)
	for path, e := range b.listed {
		if e.brings && !slices.Contains(states[path], e.broughtState) {
			states[path] = append(slices.Clone(states[path]), e.broughtState)
		}
	}
	return b.write(states)
}

// end writes down what there is once a sync has succeeded. What other sources
// brought stays theirs.
func (b *brought) end(kept []string) error {
	states := map[string][]broughtState{}
	for path, list := range b.old {
		if _, ok := b.listed[path]; ok {
			continue
		}
		for _, s := range list {
			if s.owner != b.owner || slices.Contains(kept, path) {
				states[path] = append(states[path], s)
			}
		}
	}
	for path, e := range b.listed {
		if e.brings {
			states[path] = []broughtState{e.broughtState}
		}
	}
	return b.write(states)
}

// removeGone removes what stands in the way of the source and what it has no
// more, of what syncs brought and nobody changed.
func (r *receiver) removeGone() error {
	gone := r.brought.gone()
	if r.brought != nil && (r.brought.changes || len(gone) > 0) {
		if err := r.brought.begin(); err != nil {
			r.brought, gone = nil, nil // nothing is removed that could not be remembered
		}
	}
	for _, path := range slices.Sorted(maps.Keys(r.plan.clear)) {
		if err := r.clearTree(path); err != nil {
			return err
		}
	}
	for _, path := range gone {
		done, err := r.removeBrought(path)
		if done {
			r.removed++
		}
		if err != nil { // it is in nobody's way
			r.kept = append(r.kept, path)
		}
		r.work.Add(1)
	}
	return nil
}

// removeBrought removes what is at a path if it is what a sync brought. A folder
// goes when nothing is in it.
func (r *receiver) removeBrought(path string) (done bool, err error) {
	dir, name := parent(path)
	fd, err := r.dest.folder(dir)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	now, target, err := look(fd, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil || !r.brought.unchanged(path, &now, target) {
		return false, err
	}
	if err := r.unlock(fd, dir); err != nil {
		return false, err
	}
	flags := 0
	if now.kind == kindFolder {
		flags = unix.AT_REMOVEDIR
	}
	err = unix.Unlinkat(fd, name, flags)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if now.kind == kindFolder {
		delete(r.plan.folders, path)
	}
	r.restoreTime(dir)
	return true, nil
}

// restoreTime makes a folder get the time that the source has for it, after
// something in it was removed.
func (r *receiver) restoreTime(dir string) {
	if r.plan.folders[dir] != nil {
		return
	}
	if at, ok := r.folderMeta[dir]; ok {
		r.plan.folders[dir] = &folderPlan{perm: at.perm, mtime: at.mtime}
	}
}

// look describes a name in a folder of the destination.
func look(fd int, name string) (now item, target string, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return now, "", err
	}
	now = statItem(name, &st)
	if now.kind == kindLink {
		target, err = readlinkat(fd, name)
	}
	return now, target, err
}

// clearable reports whether everything at a path is what syncs brought, so that
// something of another kind may take its place.
func (r *receiver) clearable(fd int, path, name string) bool {
	now, target, err := look(fd, name)
	if err != nil || !r.brought.unchanged(path, &now, target) {
		return false
	}
	if now.kind != kindFolder {
		return true
	}
	below, err := openBeneath(fd, name, folderFlags)
	if err != nil {
		return false
	}
	folder := os.NewFile(uintptr(below), name)
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, n := range names {
		if !r.clearable(below, join(path, n), n) {
			return false
		}
	}
	return true
}

// clearTree removes what clearable has found, looking again at each thing.
func (r *receiver) clearTree(path string) error {
	if fd, err := r.dest.folder(path); err == nil {
		folder := os.NewFile(uintptr(fd), path)
		defer folder.Close()
		if err := r.unlock(fd, path); err != nil {
			return r.describe(err, path, "")
		}
		delete(r.plan.folders, path) // it will be no folder
		names, err := folder.Readdirnames(-1)
		if err != nil {
			return r.describe(err, path, "")
		}
		for _, n := range names {
			if err := r.clearTree(join(path, n)); err != nil {
				return err
			}
		}
	}
	done, err := r.removeBrought(path)
	if err != nil {
		return r.describe(err, path, "")
	}
	if !done {
		return &ConflictError{Path: r.dest.at(path, ""), Have: "not what was copied there", Want: "of another kind"}
	}
	r.removed++
	return nil
}

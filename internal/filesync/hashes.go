package filesync

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/skypilot-go/sky/internal/wholefile"
)

const (
	hashesMagic  = "skyhash1"
	hashesSuffix = ".hashes"
	maxHashes    = 1 << 20
	hashesAge    = 30 * 24 * time.Hour // unused files are removed after this
	// A file that changed so recently may change again within the same tick
	// of its file system's clock.
	tooFresh = 2 * time.Second
)

// hashes remember the content hashes of the files of one tree, so that a file
// is read again only when its size, times or inode have changed. They are a
// cache: losing them costs time, and faults in reading or writing them are
// ignored. They are loaded when the first one is asked for.
type hashes struct {
	file    string // "" keeps nothing
	mu      sync.Mutex
	loaded  bool
	changed bool
	known   map[string]known
}

type known struct {
	size, mtime, ctime int64
	inode              uint64
	hash               hash
	used               bool
}

// hashesOf are the hashes of the tree at root, kept in dir.
func hashesOf(dir, root string) *hashes {
	if dir == "" {
		return &hashes{}
	}
	return &hashes{file: filepath.Join(dir, pathID(root)+hashesSuffix)}
}

// pathID is a file name that stands for a path.
func pathID(path string) string {
	id := blake3.Sum256([]byte(path))
	return hex.EncodeToString(id[:16])
}

// get returns the hash of the file at path, which looks as it does.
func (h *hashes) get(path string, it *item) (hash, bool) {
	if h.file == "" {
		return hash{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.load()
	k, ok := h.known[path]
	if !ok || k.size != it.size || k.mtime != it.mtime || k.ctime != it.ctime || k.inode != it.inode {
		return hash{}, false
	}
	k.used = true
	h.known[path] = k
	return k.hash, true
}

// put remembers the hash of a file that was read.
func (h *hashes) put(path string, it *item, sum hash) {
	if time.Since(time.Unix(0, max(it.mtime, it.ctime))) > tooFresh {
		h.set(path, it, sum)
	}
}

// set is put for a file whose time this process has set itself, so that a
// write by anybody else shows.
func (h *hashes) set(path string, it *item, sum hash) {
	if h.file == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.load()
	h.known[path] = known{size: it.size, mtime: it.mtime, ctime: it.ctime, inode: it.inode, hash: sum, used: true}
	h.changed = true
}

func (h *hashes) load() {
	if h.loaded {
		return
	}
	h.loaded = true
	h.known = map[string]known{}
	data, err := os.ReadFile(h.file)
	if err != nil || len(data) < len(hashesMagic)+hashSize {
		return
	}
	body, sum := data[:len(data)-hashSize], data[len(data)-hashSize:]
	if got := blake3.Sum256(body); !bytes.Equal(got[:], sum) || string(body[:len(hashesMagic)]) != hashesMagic {
		return
	}
	for d := (decoder{b: body[len(hashesMagic):]}); len(d.b) > 0; {
		path := d.str(maxPath)
		k := known{size: d.int(), mtime: d.int(), ctime: d.int(), inode: d.uint()}
		copy(k.hash[:], d.bytes(hashSize))
		if d.err != nil {
			return
		}
		h.known[path] = k
	}
}

// save writes what has changed.
func (h *hashes) save() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.changed {
		return
	}
	h.changed = false
	data := []byte(hashesMagic)
	for path, k := range h.known {
		if len(h.known) > maxHashes && !k.used {
			continue
		}
		data = appendString(data, path)
		data = binary.AppendVarint(data, k.size)
		data = binary.AppendVarint(data, k.mtime)
		data = binary.AppendVarint(data, k.ctime)
		data = binary.AppendUvarint(data, k.inode)
		data = append(data, k.hash[:]...)
	}
	sum := blake3.Sum256(data)
	dir := filepath.Dir(h.file)
	if wholefile.Write(h.file, append(data, sum[:]...), 0o600) == nil {
		removeOld(dir)
	}
}

// removeOld removes the hashes of trees that have not been synced for long, and
// what crashes left.
func removeOld(dir string) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, n := range names {
		if filepath.Ext(n.Name()) != hashesSuffix && !strings.HasPrefix(n.Name(), ".new-") {
			continue
		}
		if info, err := n.Info(); err == nil && time.Since(info.ModTime()) > hashesAge {
			os.Remove(filepath.Join(dir, n.Name()))
		}
	}
}

// stateDir is where an end keeps what it remembers, below a home folder.
func stateDir(home string) string { return filepath.Join(home, ".sky", "filesync") }

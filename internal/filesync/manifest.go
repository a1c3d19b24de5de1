package filesync

import (
	"encoding/binary"
	"strings"
)

type kind uint8

const (
	kindFile kind = iota
	kindLink
	kindFolder // only inside an end, never in a manifest
	kindOther
)

// An item is what is known about one name in a folder.
type item struct {
	name   string
	target string // of a link
	size   int64
	mtime  int64  // nanoseconds since 1970
	ctime  int64  // the same; not sent
	inode  uint64 // not sent
	perm   uint16 // of 0o777
	kind   kind
}

// A block is a folder, or a part of a large one.
type block struct {
	id    int
	path  string // below the top, with slashes; "" is the top
	mtime int64
	perm  uint16
	items []item // files and links; folders have blocks of their own
}

// Limits of a manifest. They bound what a hostile sender can make the
// receiver keep.
const (
	maxBlocks     = 1 << 24
	maxBlockItems = 1 << 12
	maxItems      = 1 << 24
	maxManifest   = 1 << 30 // bytes of all its frames
	maxName       = 255
	maxPath       = 4095
	maxSize       = 1 << 60
)

// appendBlock adds b to the payload of a folders frame.
func appendBlock(p []byte, b *block) []byte {
	p = binary.AppendUvarint(p, uint64(b.id))
	p = appendString(p, b.path)
	p = binary.AppendUvarint(p, uint64(b.perm))
	p = binary.AppendVarint(p, b.mtime)
	p = binary.AppendUvarint(p, uint64(len(b.items)))
	last := b.mtime
	for i := range b.items {
		it := &b.items[i]
		p = appendString(p, it.name)
		p = binary.AppendUvarint(p, uint64(it.perm)<<1|uint64(it.kind))
		p = binary.AppendVarint(p, it.mtime-last)
		last = it.mtime
		if it.kind == kindLink {
			p = appendString(p, it.target)
		} else {
			p = binary.AppendUvarint(p, uint64(it.size))
		}
	}
	return p
}

// readBlock reads one block and refuses everything that could lead out of the
// destination.
func readBlock(d *decoder) *block {
	b := &block{id: d.below(maxBlocks), path: d.str(maxPath)}
	b.perm = uint16(d.below(0o1000))
	b.mtime = d.int()
	if d.err == nil && b.path != "" && !validPath(b.path) {
		d.fail("a folder has an impossible path")
	}
	n := d.below(maxBlockItems + 1)
	if n > len(d.b)/4 { // an item takes more than this
		d.fail("a folder has too many entries for its frame")
		return b
	}
	b.items = make([]item, n)
	last := b.mtime
	for i := range b.items {
		it := &b.items[i]
		it.name = d.str(maxName)
		flags := d.below(0o1000 << 1)
		it.perm, it.kind = uint16(flags>>1), kind(flags&1)
		it.mtime = last + d.int()
		last = it.mtime
		if it.kind == kindLink {
			it.target = d.str(maxPath)
			if d.err == nil && (it.target == "" || strings.IndexByte(it.target, 0) >= 0) {
				d.fail("a link has an impossible target")
			}
		} else {
			it.size = int64(d.below(maxSize))
		}
		if d.err == nil && !validName(it.name) {
			d.fail("an entry has an impossible name")
		}
		if d.err != nil {
			return b
		}
	}
	return b
}

// validName accepts a single element of a path.
func validName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= maxName && strings.IndexByte(s, '/') < 0 && strings.IndexByte(s, 0) < 0
}

func validPath(s string) bool {
	for name := range strings.SplitSeq(s, "/") {
		if !validName(name) {
			return false
		}
	}
	return true
}

// join is path.Join for clean paths; dir may be "".
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// parent splits a clean path.
func parent(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// sameTime compares the time of a source file with that of its copy, on a
// file system that may keep whole seconds or microseconds only.
func sameTime(src, dst int64) bool {
	const second, micro = 1e9, 1e3
	return src == dst ||
		dst%second == 0 && floor(src, second) == dst ||
		dst%micro == 0 && floor(src, micro) == dst
}

func floor(v, unit int64) int64 {
	r := v % unit
	if r < 0 {
		r += unit
	}
	return v - r
}

package filesync

import (
	"encoding/binary"
	"strconv"
	"strings"
)

const (
	magic   = "skysync"
	version = 2 // without a mirror, 1 is spoken
)

// hello opens a sync.
type hello struct {
	file     bool // the source is a single file
	contents bool
	dst      string
	mirror   string
}

func (h hello) frame() []byte {
	f := append(newFrame(frameHello), magic...)
	if h.mirror == "" {
		f = binary.AppendUvarint(f, 1)
	} else {
		f = binary.AppendUvarint(f, version)
	}
	var flags byte
	if h.file {
		flags |= 1
	}
	if h.contents {
		flags |= 2
	}
	f = appendString(append(f, flags), h.dst)
	if h.mirror != "" {
		f = appendString(f, h.mirror)
	}
	return f
}

func readHello(p []byte) (hello, error) {
	d := decoder{b: p}
	if string(d.bytes(len(magic))) != magic {
		return hello{}, badf("the peer does not speak it")
	}
	v := d.uint()
	if d.err == nil && (v < 1 || v > version) {
		return hello{}, &versionError{theirs: strconv.FormatUint(v, 10)}
	}
	flags := d.byte()
	h := hello{file: flags&1 != 0, contents: flags&2 != 0, dst: d.str(maxPath)}
	if v > 1 {
		if h.mirror = d.str(maxPath); d.err == nil && h.mirror == "" {
			d.fail("an impossible opening")
		}
	}
	if d.err == nil && (flags > 3 || h.dst == "" || strings.IndexByte(h.dst, 0) >= 0) {
		d.fail("an impossible opening")
	}
	return h, d.end()
}

// hashSize is the length of a content hash, BLAKE3 with 256 bits.
const hashSize = 32

type hash [hashSize]byte

// A want asks for the content of a file. have says that the receiver owns the
// first have bytes, or another file's worth of them, with the given hash.
type want struct {
	item int // in its block
	have int64
	hash hash
}

// appendWants adds what is wanted of a block; nil wants stand for every file.
func appendWants(p []byte, id int, wants []want) []byte {
	p = binary.AppendUvarint(p, uint64(id))
	p = binary.AppendUvarint(p, uint64(len(wants)))
	for _, w := range wants {
		p = binary.AppendUvarint(p, uint64(w.item))
		p = binary.AppendUvarint(p, uint64(w.have))
		if w.have > 0 {
			p = append(p, w.hash[:]...)
		}
	}
	return p
}

func readWants(d *decoder) (id int, wants []want) {
	id = d.below(maxBlocks)
	n := d.below(maxBlockItems + 1)
	if n > len(d.b)/2 {
		d.fail("too many wants for their frame")
		return id, nil
	}
	for range n {
		w := want{item: d.below(maxBlockItems), have: int64(d.below(maxSize))}
		if w.have > 0 {
			copy(w.hash[:], d.bytes(hashSize))
		}
		wants = append(wants, w)
	}
	return id, wants
}

// How a record of a files frame answers a want.
const (
	recordContent = iota // the content follows
	recordSame           // what the receiver has is right
	recordChanged        // new size, time and mode, then the content
)

// A record carries a small file.
type record struct {
	block, item int
	how         byte
	now         item   // for recordChanged: size, mtime, perm
	content     []byte // part of the payload
}

func appendRecord(p []byte, r *record) []byte {
	p = binary.AppendUvarint(p, uint64(r.block))
	p = binary.AppendUvarint(p, uint64(r.item))
	p = append(p, r.how)
	if r.how == recordSame {
		return p
	}
	if r.how == recordChanged {
		p = appendMeta(p, &r.now)
	}
	p = binary.AppendUvarint(p, uint64(len(r.content)))
	return append(p, r.content...)
}

func readRecord(d *decoder) record {
	r := record{block: d.below(maxBlocks), item: d.below(maxBlockItems), how: d.byte()}
	switch r.how {
	case recordSame:
		return r
	case recordChanged:
		r.now = readMeta(d)
	case recordContent:
	default:
		d.fail("an unknown record")
	}
	r.content = d.bytes(d.below(maxPayload))
	return r
}

func appendMeta(p []byte, it *item) []byte {
	p = binary.AppendUvarint(p, uint64(it.size))
	p = binary.AppendVarint(p, it.mtime)
	return binary.AppendUvarint(p, uint64(it.perm))
}

func readMeta(d *decoder) item {
	return item{size: int64(d.below(maxSize)), mtime: d.int(), perm: uint16(d.below(0o1000))}
}

// Flags of a chunk.
const (
	chunkLast    = 1 << iota // the hash of the whole file follows
	chunkChanged             // new size, time and mode: what was sent before is void
	chunkZero                // all bytes are zero: only their number follows
	chunkFlags   = 1<<iota - 1
)

// A chunk carries a part of a large file. Its chunks come in order; the first
// one starts at 0, or at what the receiver has if that was right.
type chunk struct {
	block, item int
	flags       byte
	offset      int64
	now         item
	hash        hash
	zeros       int
	content     []byte
	payload     []byte // that content is part of
}

func (c *chunk) len() int64 { return int64(c.zeros + len(c.content)) }

func appendChunk(p []byte, c *chunk) []byte {
	p = binary.AppendUvarint(p, uint64(c.block))
	p = binary.AppendUvarint(p, uint64(c.item))
	p = append(p, c.flags)
	p = binary.AppendUvarint(p, uint64(c.offset))
	if c.flags&chunkChanged != 0 {
		p = appendMeta(p, &c.now)
	}
	if c.flags&chunkLast != 0 {
		p = append(p, c.hash[:]...)
	}
	if c.flags&chunkZero != 0 {
		return binary.AppendUvarint(p, uint64(c.zeros))
	}
	return append(p, c.content...)
}

func readChunk(p []byte) (chunk, error) {
	d := decoder{b: p}
	c := chunk{block: d.below(maxBlocks), item: d.below(maxBlockItems), flags: d.byte(), offset: int64(d.below(maxSize))}
	if c.flags > chunkFlags {
		d.fail("an unknown kind of chunk")
	}
	if c.flags&chunkChanged != 0 {
		c.now = readMeta(&d)
	}
	if c.flags&chunkLast != 0 {
		copy(c.hash[:], d.bytes(hashSize))
	}
	if c.flags&chunkZero != 0 {
		c.zeros = d.below(maxPayload + 1)
		return c, d.end()
	}
	c.content = d.b
	return c, d.err
}

package filesync

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode"
)

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// A decoder reads a payload. After the first fault everything it returns is
// zero and err is set.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = badf("%s", what)
	}
	d.b = nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("a frame ends too early")
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("a frame has a malformed number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// below reads a number that must be less than limit.
func (d *decoder) below(limit uint64) int {
	v := d.uint()
	if v >= limit {
		d.fail("a number is out of range")
		return 0
	}
	return int(v)
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("a frame has a malformed number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// bytes reads n bytes, which stay part of the payload.
func (d *decoder) bytes(n int) []byte {
	if n > len(d.b) {
		d.fail("a frame ends too early")
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) str(limit int) string { return string(d.bytes(d.below(uint64(limit) + 1))) }

// end checks that nothing is left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("a frame has bytes too many")
	}
	return d.err
}

// printable makes a text of the peer fit for a terminal.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

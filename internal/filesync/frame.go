package filesync

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Kinds of frames; doc.go says what is in them.
const (
	frameHello    = 'H'
	frameFolders  = 'D'
	frameListed   = 'M'
	frameFiles    = 'F'
	frameChunk    = 'C'
	frameEnd      = 'Z'
	frameAbort    = 'X'
	frameWants    = 'W'
	frameCompared = 'N'
	frameDone     = 'O'
	framePing     = 'P'
)

const (
	headerLen  = 4
	packed     = 0x80    // bit of the kind: the payload is compressed
	maxPayload = 1 << 20 // of a frame, before and after compression
	bufferSize = 320 << 10
)

// buffers hold frames of the usual size.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

func getBuffer() []byte { return (*buffers.Get().(*[]byte))[:0] }

func putBuffer(b []byte) {
	if cap(b) >= bufferSize && cap(b) <= 2*bufferSize {
		buffers.Put(&b)
	}
}

// newFrame starts a frame; the payload is appended and seal finishes it.
func newFrame(kind byte) []byte { return append(getBuffer(), kind, 0, 0, 0) }

func seal(f []byte) []byte {
	n := len(f) - headerLen
	f[1], f[2], f[3] = byte(n), byte(n>>8), byte(n>>16)
	return f
}

// pack compresses a frame that is not yet sealed if that makes it notably
// smaller, and reports whether it did.
func pack(f []byte) ([]byte, bool) {
	raw := f[headerLen:]
	if len(raw) < 128 {
		return f, false
	}
	out := append(getBuffer(), f[0]|packed, 0, 0, 0)
	out = binary.AppendUvarint(out, uint64(len(raw)))
	out = zstdWriter().EncodeAll(raw, out)
	if len(out) > len(f)-len(f)/16 {
		putBuffer(out)
		return f, false
	}
	putBuffer(f)
	return out, true
}

// readFrame reads one frame. The payload is the caller's, to be given back
// with putBuffer. At the end of the stream between frames it returns io.EOF.
func readFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil, cutError(err)
		}
		return 0, nil, err
	}
	n := int(head[1]) | int(head[2])<<8 | int(head[3])<<16
	if n > maxPayload {
		return 0, nil, badf("a frame of %d bytes", n)
	}
	buf, err := readN(r, getBuffer(), n)
	if err != nil {
		return 0, nil, cutError(err)
	}
	if head[0]&packed == 0 {
		return head[0], buf, nil
	}
	raw, err := unpack(buf)
	putBuffer(buf)
	return head[0] &^ packed, raw, err
}

// readN appends n bytes of r to buf, without trusting n with much memory.
func readN(r io.Reader, buf []byte, n int) ([]byte, error) {
	for n > 0 {
		step := min(n, max(cap(buf)-len(buf), 64<<10))
		at := len(buf)
		if cap(buf)-at < step {
			buf = append(buf, make([]byte, step)...)
		}
		buf = buf[:at+step]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return nil, err
		}
		n -= step
	}
	return buf, nil
}

func unpack(buf []byte) ([]byte, error) {
	n, used := binary.Uvarint(buf)
	if used <= 0 || n > maxPayload {
		return nil, badf("a compressed frame without a proper size")
	}
	out := getBuffer()
	if int(n) > cap(out) {
		putBuffer(out)
		out = make([]byte, 0, n)
	}
	out, err := zstdReader().DecodeAll(buf[used:], out[:0:max(int(n), 1)])
	if err != nil || len(out) != int(n) {
		return nil, badf("a compressed frame is damaged")
	}
	return out, nil
}

// cutError says that the stream ended inside something.
func cutError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Warm makes what all syncs of a process share; otherwise the first sync does. Tests in
// virtual time need it made before their bubbles (testing/synctest), which keep to
// themselves what is made inside of them.
func Warm() {
	zstdWriter().EncodeAll(nil, nil)
	zstdReader()
}

var zstdWriter = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(512<<10), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

var zstdReader = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPayload), zstd.WithDecoderMaxWindow(maxPayload), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

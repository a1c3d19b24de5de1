package cluster

import (
	"errors"
	"io"
	"sync"
)

// A log that nobody writes to is waited for with a small buffer, one that
// pours with a large one.
const (
	dripBuffer = 2 << 10
	pourBuffer = 64 << 10
)

var pourBuffers = sync.Pool{New: func() any { b := make([]byte, pourBuffer); return &b }}

// copyLogBytes is io.Copy for logs that are followed by many: a reader that
// waits costs dripBuffer bytes.
func copyLogBytes(w io.Writer, r io.Reader) (total int64, err error) {
	drip := make([]byte, dripBuffer)
	for {
		n, full, err := copyOnce(w, r, drip)
		total += n
		if full && err == nil {
			n, err = pour(w, r)
			total += n
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// pour copies until a read does not fill the large buffer.
func pour(w io.Writer, r io.Reader) (total int64, err error) {
	buf := pourBuffers.Get().(*[]byte)
	defer pourBuffers.Put(buf)
	for {
		n, full, err := copyOnce(w, r, *buf)
		total += n
		if err != nil || !full {
			return total, err
		}
	}
}

func copyOnce(w io.Writer, r io.Reader, buf []byte) (n int64, full bool, err error) {
	got, rerr := r.Read(buf)
	if got > 0 {
		wrote, err := w.Write(buf[:got])
		if err != nil {
			return int64(wrote), false, err
		}
	}
	return int64(got), got == len(buf), rerr
}

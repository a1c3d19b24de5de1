package requests

import (
	"bytes"
	"io"
)

// tailOffset is where the last n lines of a log of that size begin, control
// lines not counted. It reads from the end, as little as needed.
func tailOffset(r io.ReaderAt, size int64, n int) (int64, error) {
	const block = 32 << 10
	buf := make([]byte, block)
	head := make([]byte, len(payloadOpen))
	for end := size; end > 0; {
		start := max(0, end-block)
		b := buf[:end-start]
		if _, err := r.ReadAt(b, start); err != nil && err != io.EOF {
			return 0, err
		}
		for {
			i := bytes.LastIndexByte(b, '\n')
			if i < 0 {
				break
			}
			b = b[:i]
			at := start + int64(i) + 1 // a line begins here
			if at == size {
				continue
			}
			h, err := r.ReadAt(head, at)
			if err != nil && err != io.EOF {
				return 0, err
			}
			if isControl(head[:h]) {
				continue
			}
			if n--; n == 0 {
				return at, nil
			}
		}
		end = start
	}
	return 0, nil
}

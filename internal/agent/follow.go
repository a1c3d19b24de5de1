//go:build unix

package agent

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"
)

// tailBlock is how much is read at once when looking for the last lines.
const tailBlock = 64 << 10

// tailOffset is where the last n lines of a file of this size begin. A last
// line without an end counts.
func tailOffset(f io.ReaderAt, size int64, n int) (int64, error) {
	if n <= 0 {
		return size, nil
	}
	buf := make([]byte, tailBlock)
	for end := size; end > 0; {
		start := max(end-tailBlock, 0)
		block := buf[:end-start]
		if _, err := f.ReadAt(block, start); err != nil && err != io.EOF {
			return 0, err
		}
		for i := len(block); ; {
			i = bytes.LastIndexByte(block[:i], '\n')
			if i < 0 {
				break
			}
			if start+int64(i)+1 == size {
				continue // the end of the last line
			}
			if n--; n == 0 {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}

// flushWriter is a writer that may hold back what is written to it.
type flushWriter interface {
	io.Writer
	Flush() error
}

// follow copies a growing file from an offset to w. more is called when the end
// is reached: it returns when there may be more, and false when there will not.
func follow(f *os.File, offset int64, w flushWriter, more func() (bool, error)) error {
	for {
		again, err := more()
		if err != nil {
			return err
		}
		n, err := copyFrom(f, offset, w)
		offset += n
		if err != nil {
			return err
		}
		if n > 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if !again {
			return nil
		}
	}
}

// copyFrom copies what is in f from an offset on, with a borrowed buffer.
func copyFrom(f *os.File, offset int64, w io.Writer) (total int64, err error) {
	bp := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(bp)
	for {
		n, err := f.ReadAt(*bp, offset+total)
		if n > 0 {
			if _, err := w.Write((*bp)[:n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// followJob streams a job's merged log. It ends at the end of what is there or,
// with wait, when the job has ended and its log is complete.
func (a *Agent) followJob(ctx context.Context, id int, f *os.File, offset int64, w flushWriter, wait bool) error {
	var next <-chan struct{}
	return follow(f, offset, w, func() (bool, error) {
		if next != nil {
			select {
			case <-next:
			case <-ctx.Done():
				return false, ctx.Err()
			case <-a.ctx.Done():
				return false, a.ctx.Err()
			}
		}
		j := a.openJob(id)
		if j == nil || !wait {
			return false, nil
		}
		next = j.grown.Next()
		return !j.logDone.Load(), nil
	})
}

// followRank streams the raw output of a rank on this node until it is over.
func (a *Agent) followRank(ctx context.Context, key, path string, f *os.File, offset int64, w flushWriter) error {
	grown := make(chan struct{}, 1)
	seen := a.watch.add(path, grown)
	defer a.watch.remove(path, grown)
	poll := time.NewTicker(pollInterval)
	if seen {
		poll.Reset(time.Minute)
	}
	defer poll.Stop()
	first := true
	return follow(f, offset, w, func() (bool, error) {
		if !first {
			select {
			case <-grown:
			case <-poll.C:
			case <-ctx.Done():
				return false, ctx.Err()
			case <-a.ctx.Done():
				return false, a.ctx.Err()
			}
		}
		first = false
		return a.ranks.running(key), nil
	})
}

// Package diskspace reports how much room a disk has, which errors mean that it is
// full, and keeps a reserve for what must still be written then.
package diskspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
)

// Full reports whether err means that a disk, or the user's share of it, is full.
func Full(err error) bool {
	return err != nil && (isFull(err) || strings.Contains(err.Error(), "no space left on device"))
}

// Bytes is a size for people.
func Bytes(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d KB", n>>10)
}

// piece is what a reserve gives back at once: others who fill the disk get little
// of it before its owner has written.
const piece = 1 << 20

// Reserve is a file that holds room on a disk. Its methods may be called
// concurrently.
type Reserve struct {
	path string
	size int64

	mu  sync.Mutex
	has int64
}

// OpenReserve returns the reserve of so many bytes at path, with what it has from
// earlier; see [Reserve.Fill].
func OpenReserve(path string, size int64) *Reserve {
	r := &Reserve{path: path, size: size}
	if info, err := os.Stat(path); err == nil {
		r.has = info.Size()
	}
	return r
}

// Fill makes the reserve whole if the disk has at least spare bytes beyond it.
func (r *Reserve) Fill(spare int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has >= r.size {
		return nil
	}
	free, err := Free(r.path)
	if err != nil || free < r.size-r.has+spare {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := allocate(f, r.has, r.size-r.has); err != nil {
		return errors.Join(err, f.Truncate(r.has))
	}
	r.has = r.size
	return nil
}

// Release gives a part of the reserve back to the disk; false means that nothing
// is left of it.
func (r *Reserve) Release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has == 0 {
		return false
	}
	left := max(0, r.has-piece)
	if err := os.Truncate(r.path, left); err != nil {
		return false
	}
	r.has = left
	return true
}

// Left is how many bytes the reserve has.
func (r *Reserve) Left() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.has
}

// write fills a part of a file with bytes that no file system makes smaller.
func write(f *os.File, from, n int64) error {
	noise := make([]byte, 64<<10)
	random := rand.NewChaCha8([32]byte{})
	for n > 0 {
		b := noise[:min(int64(len(noise)), n)]
		_, _ = random.Read(b)
		if _, err := f.WriteAt(b, from); err != nil {
			return err
		}
		from, n = from+int64(len(b)), n-int64(len(b))
	}
	return nil
}

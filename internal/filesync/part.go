//go:build unix

package filesync

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// maxParts bounds the files that are written at once.
const maxParts = 64

// A part is a large file that is arriving, under a name that tells its folder
// entry, size and time, so that a later sync of the same file goes on with it.
// It is locked while it is in use.
type part struct {
	fd   int
	name string
	size int64 // that has arrived
	hole bool  // its end was not written, since it is zero
	sum  *blake3.Hasher
}

func partName(it *item) string {
	id := blake3.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", it.name, it.size, it.mtime))
	return partPrefix + hex.EncodeToString(id[:partHex/2]) + partSuffix
}

// openPart opens a part in the folder fd; flags may have O_CREAT.
func openPart(fd int, name string, flags int) (*part, error) {
	file, err := retry(func() (int, error) {
		return unix.Openat(fd, name, flags|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(file, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EEXIST
	}
	if err == nil {
		err = unix.Flock(file, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		if err = unix.Fstat(file, &st); err == nil && st.Nlink == 0 {
			err = unix.EWOULDBLOCK // whoever had it has published or removed it
		}
	}
	if err != nil {
		unix.Close(file)
		return nil, err
	}
	return &part{fd: file, name: name, size: st.Size, sum: blake3.New()}, nil
}

// findPart looks for what an earlier sync has left of a file, and offers it.
func (c *comparer) findPart(ctx context.Context, fd int, path string, it *item, w *wanted) error {
	p, err := openPart(fd, partName(it), 0)
	for errors.Is(err, unix.EWOULDBLOCK) && c.plan.wait(ctx) {
		p, err = openPart(fd, partName(it), 0)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return err
	}
	if p.size == 0 || p.size > it.size || !c.plan.keep(path, p) {
		unix.Close(p.fd)
		return nil
	}
	w.part = p
	n, err := c.hashFile(ctx, p.fd, p.size, p.sum)
	if err != nil {
		return err
	}
	p.size, w.have = n, n
	p.sum.Sum(w.hash[:0])
	return nil
}

// A sync that was cut off may not have noticed yet. The next one waits a
// little for its parts: lockStep at a time, lockSteps times in all.
const (
	lockStep  = 20 * time.Millisecond
	lockSteps = 50
)

// wait waits for a lock; false when the sync has waited enough.
func (p *plan) wait(ctx context.Context) bool {
	if p.waits.Add(1) > lockSteps {
		return false
	}
	select {
	case <-time.After(lockStep):
		return true
	case <-ctx.Done():
		return false
	}
}

// keep counts an open part of a folder until dropPart; false if there are too
// many.
func (p *plan) keep(path string, part *part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.parts) >= maxParts {
		return false
	}
	p.parts[part] = path
	return true
}

// dropPart closes a part and leaves its file.
func (r *receiver) dropPart(p *part) {
	r.plan.mu.Lock()
	delete(r.plan.parts, p)
	r.plan.mu.Unlock()
	unix.Close(p.fd)
}

// dropParts closes what is still open when a sync ends.
func (r *receiver) dropParts() {
	for p, path := range r.plan.parts {
		if strings.HasSuffix(p.name, tempSuffix) { // no sync can find it
			r.discard(path, p)
		}
		r.dropPart(p)
	}
}

// discard removes a part's file.
func (r *receiver) discard(path string, p *part) {
	if fd, err := r.dest.folder(path); err == nil {
		unix.Unlinkat(fd, p.name, 0)
		unix.Close(fd)
	}
}

// newPart starts a part, under another name if somebody else writes the same
// file.
func (w *writer) newPart(fd int, path string, it *item) (*part, error) {
	p, err := openPart(fd, partName(it), unix.O_CREAT)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EACCES) {
		p, err = openPart(fd, w.tempName(), unix.O_CREAT|unix.O_EXCL)
	}
	if err != nil {
		return nil, err
	}
	if !w.plan.keep(path, p) {
		unix.Close(p.fd)
		return nil, badf("too many files at once")
	}
	return p, p.restart()
}

// restart empties a part.
func (p *part) restart() error {
	p.size, p.hole = 0, false
	p.sum.Reset()
	return unix.Ftruncate(p.fd, 0)
}

// add appends content.
func (p *part) add(c *chunk) error {
	if c.zeros > 0 {
		p.hole = true
		p.sum.Write(zeroes[:c.zeros])
	}
	for b := c.content; len(b) > 0; {
		p.hole = false
		n, err := retry(func() (int, error) { return unix.Pwrite(p.fd, b, p.size+int64(len(c.content)-len(b))) })
		if err != nil {
			return err
		}
		b = b[n:]
	}
	p.sum.Write(c.content)
	p.size += c.len()
	return nil
}

// copyStart fills a part with the first n bytes of the present file.
func (w *writer) copyStart(fd int, name string, p *part, n int64) error {
	file, err := retry(func() (int, error) {
		return unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	defer unix.Close(file)
	buf := getBuffer()[:chunkBytes]
	defer putBuffer(buf)
	for p.size < n {
		m, err := retry(func() (int, error) { return unix.Read(file, buf[:min(chunkBytes, n-p.size)]) })
		if err != nil {
			return err
		}
		if m == 0 {
			return errors.New("the file became shorter meanwhile")
		}
		if err := p.add(&chunk{content: buf[:m]}); err != nil {
			return err
		}
		w.work.Add(1)
	}
	return nil
}

package diskspace

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Limits bound what is written to a disk for users. Zero fields have the default.
type Limits struct {
	User     int64 // bytes of one user; a quarter of the disk
	All      int64 // bytes of all users; half of the disk
	KeepFree int64 // bytes of the disk that stay free; see [KeepFree]
}

// What of the disk others leave free for the server itself: of a large disk most, of
// a small one a quarter, and never less than least.
const (
	keepFreeMost  = 512 << 20
	keepFreeLeast = 24 << 20
)

// KeepFree is how many bytes stay free on a disk of that size.
func KeepFree(size int64) int64 { return max(keepFreeLeast, min(keepFreeMost, size/4)) }

// Leaves reports whether n more bytes on the disk of dir leave enough of it free; if not
// the error is a [*NoRoomError].
func Leaves(dir string, n int64) error {
	left, size, err := free(dir)
	if keep := KeepFree(size); err == nil && n+keep > left {
		return &NoRoomError{ByDisk, left, keep}
	}
	return nil // what is wrong otherwise is said by whoever writes
}

// on are the limits on a disk of that size.
func (l Limits) on(size int64) Limits {
	if l.User == 0 {
		l.User = size / 4
	}
	if l.All == 0 {
		l.All = size / 2
	}
	if l.KeepFree == 0 {
		l.KeepFree = KeepFree(size)
	}
	return l
}

// Kinds of limits.
const (
	ByUser = iota // the limit of one user
	ByAll         // the limit of all users
	ByDisk        // too little would stay free
)

// A NoRoomError means that something is not written because of a limit.
type NoRoomError struct {
	By   int
	Has  int64 // what is taken, of a user with what was asked for; of a disk what is free
	Most int64 // the limit; of a disk what stays free
}

func (e *NoRoomError) Error() string {
	switch e.By {
	case ByUser:
		return fmt.Sprintf("%s would be taken of the %s that one user may have on the server", Bytes(e.Has), Bytes(e.Most))
	case ByAll:
		return fmt.Sprintf("%s of the %s that all users may have on the server are taken", Bytes(e.Has), Bytes(e.Most))
	}
	return fmt.Sprintf("the server's disk has %s free, of which %s stay free", Bytes(e.Has), Bytes(e.Most))
}

// A Ledger is how many bytes each user has of something on a disk. What is about to
// be written is entered first, so that those who write at once stay below the limits
// together. Its methods may be called concurrently.
type Ledger struct {
	Dir   string                  // on the disk; "": what is written goes elsewhere, and only limits that are set hold
	Count func() map[string]int64 // finds what there is, by user, nil: unknown; is called with the ledger locked
	Again time.Duration           // how long a count holds where others write, too; 0: until there seems to be no room

	mu sync.Mutex
	by map[string]int64 // nil: to be counted
	at time.Time        // when it was counted
}

// countAgain is for how long a count holds when there seems to be no room: what was
// removed meanwhile is not told to the ledger.
const countAgain = time.Minute

// Take enters n bytes of a user, or refuses them with a [*NoRoomError].
func (l *Ledger) Take(user string, n int64, limits Limits) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil || l.Again > 0 && time.Since(l.at) > l.Again {
		l.count()
	}
	err := l.room(user, n, limits)
	if refused, ok := err.(*NoRoomError); ok && refused.By != ByDisk && time.Since(l.at) > countAgain {
		l.count()
		err = l.room(user, n, limits)
	}
	if err == nil {
		l.by[user] += n
	}
	return err
}

func (l *Ledger) count() {
	by := l.Count()
	l.at = time.Now()
	switch {
	case by != nil:
		l.by = by
	case l.by == nil:
		l.by = map[string]int64{}
	}
}

// room reports whether there is room; l.mu is held.
func (l *Ledger) room(user string, n int64, limits Limits) error {
	free, size, err := free(l.Dir)
	known := err == nil // what is wrong otherwise is said by whoever writes
	limits = limits.on(size)
	all := int64(0)
	for _, used := range l.by {
		all += used
	}
	switch {
	case l.by[user]+n > limits.User && (known || limits.User > 0):
		return &NoRoomError{ByUser, l.by[user] + n, limits.User}
	case all+n > limits.All && (known || limits.All > 0):
		return &NoRoomError{ByAll, all, limits.All}
	case known && n+limits.KeepFree > free:
		return &NoRoomError{ByDisk, free, limits.KeepFree}
	}
	return nil
}

// Give takes n bytes of a user out again.
func (l *Ledger) Give(user string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by != nil {
		l.by[user] = max(0, l.by[user]-n)
	}
}

// Recount makes the next one count what there is.
func (l *Ledger) Recount() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by = nil
}

// Used is what a user has.
func (l *Ledger) Used(user string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.count()
	}
	return l.by[user]
}

// A Share is what one piece of work takes of a ledger for a user. nil takes without
// limits.
type Share struct {
	Ledger *Ledger
	User   string
	Limits Limits

	taken int64
}

// Take enters n bytes.
func (s *Share) Take(n int64) error {
	if s == nil {
		return nil
	}
	if err := s.Ledger.Take(s.User, n, s.Limits); err != nil {
		return err
	}
	s.taken += n
	return nil
}

// Return gives back all that was taken: the work failed, and nothing stays of it.
func (s *Share) Return() {
	if s != nil {
		s.Ledger.Give(s.User, s.taken)
		s.taken = 0
	}
}

// Writer enters what is written to w before it is.
func (s *Share) Writer(w io.Writer) io.Writer { return shareWriter{s, w} }

type shareWriter struct {
	s *Share
	w io.Writer
}

func (w shareWriter) Write(p []byte) (int, error) {
	if err := w.s.Take(int64(len(p))); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

package transfer

import (
	"bytes"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// A verdict says whether a file and an object are the same, or what has to be known
// to tell.
type verdict uint8

const (
	differs   verdict = iota
	same              //
	askStore          // the object's metadata
	readLocal         // the file's hashes
)

// local is what is known of a file.
type local struct {
	size  int64
	mtime time.Time
	md5   []byte // nil: unknown
	hash  string // "": unknown
	// digest is of the kind that the object has; "": unknown.
	digest string
	// doubtful: it was written before the system was started. As nothing is flushed, a
	// power failure may have left its size and time without its content.
	doubtful bool
}

// settled is how much younger than a file its object must be, so that the file cannot
// have changed within the same tick of its clock after it was uploaded.
const settled = 2 * time.Second

// compare compares a file and an object. What it asks for, it does not ask for again
// when it is given.
func compare(f local, o storage.Object, reread bool) verdict {
	if f.size != o.Size {
		return differs
	}
	read := f.hash != ""
	a := storage.AttributesOf(o.Metadata)
	if a.Link != "" {
		return differs
	}
	doubtful := f.doubtful && (a.Hash != "" || o.MD5 != nil || o.Digest != "")
	if o.Metadata != nil && !reread && !doubtful && sameTime(f.mtime, a, o) {
		return same
	}
	if !read {
		// Reading a small file is quicker than a request.
		if o.Metadata == nil && (f.size > chunk || o.MD5 == nil && o.Digest == "") {
			return askStore
		}
		if o.MD5 == nil && a.Hash == "" && o.Digest == "" && o.Metadata != nil {
			return differs // nothing to compare with
		}
		return readLocal
	}
	switch {
	case o.MD5 != nil && f.md5 != nil && bytes.Equal(o.MD5, f.md5):
		return same
	case o.Digest != "" && f.digest == o.Digest:
		return same
	case o.Metadata == nil:
		return askStore // what looks like an MD5 may be none
	case a.Hash != "" && a.Hash == f.hash:
		return same
	}
	return differs
}

// sameTime reports whether the file has the time that the object's file had.
func sameTime(mtime time.Time, a storage.Attributes, o storage.Object) bool {
	if a.ModTime.IsZero() {
		// A download gave it the object's own time, in which stores count seconds.
		return !o.Modified.IsZero() && mtime.Equal(o.Modified.Truncate(time.Second))
	}
	return a.ModTime.Equal(mtime) && o.Modified.Sub(mtime) >= settled
}

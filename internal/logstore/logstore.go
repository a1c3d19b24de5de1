// Package logstore keeps what every API server of an installation must be able to
// read: logs that grow, and files that came from clients. For one server that
// is a folder; servers that share a database keep it there, so that it does not
// matter which of them a client asks.
package logstore

import (
	"errors"
	"io"
)

// Logs is where logs are kept, under names such as "requests/1f0e.log".
type Logs interface {
	// Append opens a log to add to it; it is made by the first byte.
	Append(name string) (Appender, error)
	// Open opens a log for reading; [fs.ErrNotExist] if there is none yet.
	Open(name string) (Log, error)
	// Remove forgets logs; those that do not exist are skipped.
	Remove(names ...string) error
	// List is the logs whose names match a pattern of [path.Match], with their sizes.
	List(pattern string) (map[string]int64, error)
}

// Appender adds to the end of a log. What a Write returned for survives the
// death of the process.
type Appender interface {
	io.WriteCloser
	// Size is where the next byte goes.
	Size() int64
	// Sync waits until what was written survives a power cut.
	Sync() error
}

// Log is a log that is read, perhaps while it grows. Many may read one at once.
type Log interface {
	io.ReaderAt
	io.Closer
	// Size is how long it is now.
	Size() (int64, error)
	// Grew reports that there may be more than when it was last read to its end. A log
	// does not look by itself, so that a thousand readers who wait cost nothing.
	Grew()
}

// ErrTaken means that somebody else added to the log: what is added next to it
// may belong elsewhere.
var ErrTaken = errors.New("somebody else writes this log")

// ErrFull means that a log is as long as it may become.
var ErrFull = errors.New("the log has reached its greatest length")

package filesync

import (
	"errors"
	"fmt"
	"time"
)

// A NoSpaceError means that the receiver's disk is full, or its quota used
// up. Files that had arrived before stay.
type NoSpaceError struct {
	Path string // that was being written
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("no space left at the destination while writing %q: free some, or choose a larger disk, and sync again", e.Path)
}

// A ConflictError means that something of another kind stands in the way at
// the receiver. Nothing was changed there.
type ConflictError struct {
	Path string // at the receiver
	Have string // what is there, such as "a folder"
	Want string // what the source has
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%q is %s at the destination, but %s in the source: move or remove it there, and sync again", e.Path, e.Have, e.Want)
}

// A ChangedError means that a file was written to each time it was read, or
// went away.
type ChangedError struct {
	Path string // at the source
	Gone bool   // removed, or no file any more
}

func (e *ChangedError) Error() string {
	if e.Gone {
		return fmt.Sprintf("%q was removed while files were sent: sync again when the source is at rest", e.Path)
	}
	return fmt.Sprintf("%q changed while it was sent, twice: stop what writes to it, or ignore it, and sync again", e.Path)
}

// A StalledError means that nothing moved for too long.
type StalledError struct {
	After time.Duration
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("file sync: no progress for %v: the other end, its disk or the network stands still", e.After)
}

// Timeout makes a StalledError a timeout as in net.Error.
func (e *StalledError) Timeout() bool { return true }

// A protocolError means that the peer speaks something else, or wrongly. The
// connection is of no use any more.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return "file sync protocol: " + e.text }

func badf(format string, a ...any) error {
	return &protocolError{fmt.Sprintf(format, a...)}
}

// errPeerDone stops the work at one end because the other has finished.
var errPeerDone = errors.New("file sync: the other end has finished")

// codes of the errors that travel in a done or abort frame.
const (
	codeOK = iota
	codeOther
	codeNoSpace
	codeConflict
	codeVersion
)

// maxText bounds each text of an error that travels.
const maxText = 4096

func appendError(b []byte, err error) []byte {
	texts := func(code byte, list ...string) []byte {
		b = append(b, code)
		for _, s := range list {
			b = appendString(b, s[:min(len(s), maxText)])
		}
		return b
	}
	if err == nil {
		return texts(codeOK)
	}
	if e, ok := errors.AsType[*NoSpaceError](err); ok {
		return texts(codeNoSpace, e.Path)
	}
	if e, ok := errors.AsType[*ConflictError](err); ok {
		return texts(codeConflict, e.Path, e.Have, e.Want)
	}
	if e, ok := errors.AsType[*versionError](err); ok {
		return texts(codeVersion, fmt.Sprint(e.theirs))
	}
	return texts(codeOther, err.Error())
}

// readError gives the error that travelled, nil for codeOK; a malformed one
// shows in d.
func readError(d *decoder) error {
	text := func() string { return printable(d.str(maxText)) }
	switch code := d.byte(); code {
	case codeOK:
		return nil
	case codeNoSpace:
		return &NoSpaceError{Path: text()}
	case codeConflict:
		return &ConflictError{Path: text(), Have: text(), Want: text()}
	case codeVersion:
		return &versionError{theirs: text()}
	default:
		return errors.New(text())
	}
}

// NeedsVersion1 reports whether err means that the receiver is of a build that
// cannot mirror a source: without Options.Mirror it can be talked to.
func NeedsVersion1(err error) bool {
	_, ok := errors.AsType[*versionError](err)
	return ok
}

// A versionError means that the ends have no version in common.
type versionError struct{ theirs string }

func (e *versionError) Error() string {
	return fmt.Sprintf("file sync: this end speaks version %d and the other version %s: update the older of the two", version, e.theirs)
}

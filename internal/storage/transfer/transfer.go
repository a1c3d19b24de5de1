// Package transfer moves files between folders and buckets, and objects between
// buckets: [Upload], [Download], [Copy] and [Delete].
//
// # What is moved
//
// Only what differs: an object and a file of the same size are compared by hash,
// which objects carry as metadata, or by the MD5 that the store knows; a time of
// modification that is equal to the nanosecond spares reading the file. Nothing is
// ever deleted at a destination. Files that cannot be moved are reported at the end,
// in a [FilesError]; trouble with the store itself ends the transfer at once.
//
// # How
//
// Files larger than a part are moved in parts, and parts and files at the same time,
// in as many requests as the store answers well, within a budget of memory. Every
// part is compared by a checksum where it arrives, and a file as a whole by its hash
// where it has one. Requests are repeated as [storage.Retry] does.
//
// # When it is interrupted
//
// The same call goes on: what is there already is found by comparing. Uploads of
// large files go on after the parts that the store has, if there is a journal; large
// downloads after the parts that lie beside the file, under names that begin with
// ".sky-copy-". Files get their names when they are whole.
package transfer

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// Options are the same for all transfers. The zero value is good.
type Options struct {
	// Memory bounds the content that is held at once, in bytes; 0: 128 MiB.
	Memory int64
	// Workers is the most requests at once; 0: 64. How many there are is found out.
	Workers int
	// Part is the size of parts of large files, which grows where a file would have
	// too many; a multiple of 8 MiB; 0: 8 MiB.
	Part int64
	// Journal is a file that remembers unfinished uploads of large files, for the
	// same call after a crash; "": they are begun again. One transfer has it at a time.
	Journal string
	// Links keeps symbolic links, as empty objects with the target as metadata.
	// Otherwise links inside a folder are left out, as objects that stand for one are.
	Links bool
	// NoIgnore takes what the ignore files of a folder leave out.
	NoIgnore bool
	// Reread compares by content although size and time are equal.
	Reread bool
	// Retries are those of all calls; On is called, too.
	Retries storage.Retries
	// Place returns where a file or a folder that is downloaded to a path is to be
	// written, before anything is; nil: at that path.
	Place func(ctx context.Context, path string, folder bool) (string, error)
	// Progress is called now and then, and at the end, never concurrently.
	Progress func(Progress)
}

// Progress is how far a transfer is.
type Progress struct {
	Files, Bytes           int64         // moved, or found to be there
	TotalFiles, TotalBytes int64         // seen so far
	Counted                bool          // the totals are final
	Rate, FileRate         float64       // bytes and files in a second
	Left                   time.Duration // 0: unknown
}

// A Report is what a transfer did.
type Report struct {
	Files, Bytes int64 // moved, or deleted
	Same         int64 // files that were there already
	// Skipped says what was left out by rule, such as symbolic links, and Notes
	// what else a user should know; the first of each kind are named.
	Skipped int64
	Notes   []string
}

// A FileError is what is wrong with one file or object.
type FileError struct {
	Name string // the path or the key
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("%q: %v", e.Name, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// A FilesError holds the files that could not be moved; all others were.
type FilesError struct {
	Count  int64
	Failed []*FileError // the first hundred
}

func (e *FilesError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of the files could not be transferred", e.Count)
	for i, f := range e.Failed {
		if i == 5 {
			fmt.Fprintf(&b, "; and %d more", e.Count-5)
			break
		}
		fmt.Fprintf(&b, "; %v", f)
	}
	return b.String()
}

func (e *FilesError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f
	}
	return errs
}

const (
	defaultMemory  = 128 << 20
	defaultWorkers = 64
)

// chunk is what hashes are made of, and the least size of parts. Only tests change it.
var chunk int64 = 8 << 20

func (o Options) filled() Options {
	if o.Memory <= 0 {
		o.Memory = defaultMemory
	}
	if o.Workers <= 0 {
		o.Workers = defaultWorkers
	}
	if o.Part <= 0 {
		o.Part = chunk
	}
	o.Part = (o.Part + chunk - 1) / chunk * chunk
	return o
}

// partSize is the size of the parts of a file: so that the store takes their number.
func partSize(size, least int64, c storage.Caps) int64 {
	part := max(least, (c.MinPart+chunk-1)/chunk*chunk)
	if c.MaxParts > 0 {
		if need := (size + int64(c.MaxParts) - 1) / int64(c.MaxParts); need > part {
			part = (need + chunk - 1) / chunk * chunk
		}
	}
	return part
}

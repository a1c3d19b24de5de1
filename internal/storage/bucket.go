// Package storage is the seam between sky and object stores.
//
// A [Bucket] only translates: calls into requests of one store, refusals into
// this package's errors. Retries are a wrapper ([Retry]); moving trees of files
// is package transfer; finding credentials and opening a bucket by its URL is
// package stores. One folder below this one is one driver, and storetest is the
// contract as tests.
package storage

import (
	"context"
	"io"
	"time"
)

// A Bucket is one bucket of one store, reached with the credentials of one
// caller. Making one does no I/O, and the bucket need not exist. Methods may be
// called concurrently. What already holds is success: creating one's own bucket
// again, deleting what is not there, aborting an upload that has ended.
//
// A method does one attempt, but for the requests that it needs for pages or
// renewed credentials. Its error is, or wraps, a type of this package where a
// caller may branch on it: [*NotFoundError], [*DeniedError], [*ConflictError],
// [*WrongRegionError], [*ThrottledError], [*BucketExistsError],
// [*BucketNotEmptyError], [*CredentialsError], [*UnavailableError],
// [*UnsupportedError], [*InvalidError]. An error says nothing about whether a
// change took place unless its type does: after an UnavailableError it may have.
type Bucket interface {
	// Location names the bucket; its Key is empty.
	Location() Location
	// Caps says what the store cannot do, without I/O.
	Caps() Caps

	// Head describes the bucket. One of another region than the one the caller
	// is set up for is a WrongRegionError where the store answers only there.
	Head(ctx context.Context) (BucketInfo, error)
	// Create makes the bucket in Location().Region, with the tags if the store
	// has tags. Success means that the bucket exists and belongs to the caller's
	// account; whether this call made it cannot be known, as an answer may have
	// been lost. A bucket of somebody else is a BucketExistsError.
	Create(ctx context.Context, tags map[string]string) error
	// Delete deletes the bucket. One that holds objects, versions or, in some
	// stores, unfinished uploads is a BucketNotEmptyError.
	Delete(ctx context.Context) error
	// Tags are the bucket's tags (labels, metadata). A bucket without has none.
	Tags(ctx context.Context) (map[string]string, error)
	// SetTags replaces all tags.
	SetTags(ctx context.Context, tags map[string]string) error

	// List is one page of the keys in order (by their bytes, in stores that say
	// so in Caps). A deleted object of a bucket with versions is not listed.
	List(ctx context.Context, o ListOptions) (Page, error)
	// Stat describes one object, with its metadata.
	Stat(ctx context.Context, key string) (Object, error)
	// Get reads an object or a range of it. Errors of the reader are of this
	// package; content that ends early is an UnavailableError and no end of file.
	Get(ctx context.Context, key string, o GetOptions) (Reader, error)
	// Put writes a whole object of at most Caps().MaxPut bytes, replacing one
	// that is there: readers see the old object or the new one. The driver reads
	// body from its start to its end, perhaps more than once, and sends a
	// checksum that the store compares.
	Put(ctx context.Context, key string, body io.ReadSeeker, o PutOptions) (Object, error)
	// CopiesFrom reports whether Copy can take objects from that bucket: one of the
	// same store, reached with the same credentials.
	CopiesFrom(b Bucket) bool
	// Copy makes key a copy of an object of at most Caps().MaxCopy bytes inside
	// the store. Without o.Metadata the copy has that of the source.
	Copy(ctx context.Context, key string, from Source, o PutOptions) (Object, error)
	// Remove deletes up to Caps().MaxRemove objects. With a version it deletes
	// that version; without, the object, of which a bucket with versions keeps
	// them. Objects that could not be deleted are in a RemoveError; the rest is
	// gone.
	Remove(ctx context.Context, ids []ID) error

	// Start begins a multipart upload, which is invisible to readers until it is
	// completed and lives in the store until it is completed or aborted. The
	// Upload may be stored and used by another process.
	Start(ctx context.Context, key string, o PutOptions) (Upload, error)
	// PutPart uploads part n, from 1, replacing one that is there. Parts but the
	// last one have at least Caps().MinPart bytes; Caps().SamePart asks for one
	// size. A NotFoundError with Upload set says that the upload has ended.
	PutPart(ctx context.Context, u Upload, n int, body io.ReadSeeker) (Part, error)
	// CopyPart makes part n of a range of an object inside the store.
	CopyPart(ctx context.Context, u Upload, n int, from Source, offset, length int64) (Part, error)
	// Parts lists the uploaded parts in order.
	Parts(ctx context.Context, u Upload) ([]Part, error)
	// Complete makes the object of the parts, in order. o is what Start was
	// called with. A call whose answer was lost may be repeated: the second one
	// is a NotFoundError with Upload set if the first one succeeded.
	Complete(ctx context.Context, u Upload, parts []Part, o PutOptions) (Object, error)
	// Abort ends an upload and deletes its parts.
	Abort(ctx context.Context, u Upload) error
	// Uploads is one page of the unfinished uploads whose keys begin with
	// o.Prefix.
	Uploads(ctx context.Context, o ListOptions) (UploadPage, error)

	// Versions is one page of all versions of objects, delete markers among
	// them. A bucket that never had versions lists its objects.
	Versions(ctx context.Context, o ListOptions) (Page, error)
}

// BucketInfo describes a bucket that exists.
type BucketInfo struct {
	Region  string    // "" where the store does not say
	Created time.Time // zero where the store does not say
}

// ListOptions choose what one page lists.
type ListOptions struct {
	Prefix    string // of the keys; no pattern, and no folder unless it ends in "/"
	Delimiter string // "/" lists one level: what lies deeper is in Page.Prefixes
	Token     string // Next of the page before; "" begins
	After     string // only what follows this key, which has no Delimiter behind the Prefix; not with Token
	Max       int    // most entries; 0: as many as the store gives
}

// A Page is a part of a list. It may be empty although more follow.
type Page struct {
	Objects  []Object
	Prefixes []string // each ends with the delimiter
	Next     string   // Token of the next page, valid for later processes too; "": this was the last
}

// An Object is one object, or one version of it.
type Object struct {
	Key      string
	Size     int64
	ETag     string // identifies the content for conditions; opaque, without quotes
	Modified time.Time
	Version  string // "" where there are no versions
	// Metadata is what the caller stored, with keys in lower case. It is nil in
	// lists, unless Caps().ListsMetadata.
	Metadata map[string]string
	// MD5 is the checksum of the content where the store knows it (16 bytes).
	MD5 []byte
	// Digest is another checksum of the content where the store knows one: "sha256:" or
	// "git:" (that of a blob of git) with hexadecimal digits.
	Digest string

	DeleteMarker bool // in Versions: a deletion
	Old          bool // in Versions: not the current version
}

// ID names an object or one version of it.
type ID struct {
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
}

// GetOptions choose what Get reads.
type GetOptions struct {
	Offset int64
	Length int64 // 0: to the end. A range beyond the end is an InvalidError; one that ends beyond it is cut
	// IfMatch refuses with a ConflictError an object that has another ETag.
	IfMatch string
	Version string
}

// A Reader is the content that Get found, and what it is a part of.
type Reader struct {
	io.ReadCloser
	Object Object // of the whole object
}

// PutOptions are for all ways to write an object.
type PutOptions struct {
	Metadata    map[string]string // keys of lower-case letters, digits and "-"; values are any text
	ContentType string
	// IfMatch writes only over the object with this ETag, IfAbsent only where
	// there is none; else a ConflictError. Stores that cannot are UnsupportedErrors.
	IfMatch  string
	IfAbsent bool
	// Copied, to Start, says that parts may be made by CopyPart. No checksums of parts
	// are announced then, which some servers do not make of copies.
	Copied bool
}

// A Source is an object to copy from.
type Source struct {
	Bucket Bucket
	ID
	ETag string // copy only this content; "": any
}

// An Upload is an unfinished multipart upload.
type Upload struct {
	Key     string    `json:"key"`
	ID      string    `json:"id"`
	Started time.Time `json:"started,omitzero"` // only from Uploads
	Copied  bool      `json:"copied,omitempty"` // from Start, as its option says
}

// A Part is a part that was uploaded.
type Part struct {
	Number   int    `json:"number"`
	Size     int64  `json:"size"`
	ETag     string `json:"etag"`
	Checksum string `json:"checksum,omitempty"` // the driver's own
}

// An UploadPage is a part of the list of unfinished uploads.
type UploadPage struct {
	Uploads []Upload
	Next    string
}

// Caps are what a store can do, and its limits.
type Caps struct {
	ReadOnly    bool // reads only: everything that changes something is an UnsupportedError
	Create      bool // Create works
	Tags        bool // Create stores tags; Tags and SetTags work
	Multipart   bool
	CopyPart    bool
	Uploads     bool // unfinished uploads can be listed
	UploadsFade bool // uploads end by themselves: only Complete knows that one has ended
	Versions    bool // versions can be listed and deleted
	Conditional bool // PutOptions.IfMatch and IfAbsent work on Put
	// ConditionalParts: they work on Complete, too; else Start refuses them.
	ConditionalParts bool
	Metadata         bool // metadata is kept

	ListsMetadata bool // lists hold the metadata, so that Stat is not needed
	After         bool // ListOptions.After works
	Ordered       bool // lists are in the order of the keys' bytes
	SamePart      bool // all parts but the last one have the same size

	MinPart, MaxPart int64 // bytes in a part
	MaxParts         int
	MaxPut           int64 // bytes in one Put
	MaxCopy          int64 // bytes in one Copy
	MaxRemove        int   // objects in one Remove
	MaxKey           int   // bytes in a key
	MaxMetadata      int   // bytes of metadata, keys and values together
}

// MarkerTag is the tag that says which record of an installation made a bucket:
// one that was deleted and made again by others has another one or none.
const MarkerTag = "sky-bucket-id"

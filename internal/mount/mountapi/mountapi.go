// Package mountapi is how the process that holds the mounts of a node is spoken to: JSON
// over a unix socket. It links nothing of the stores and of FUSE.
//
// Each call is a POST of a request to its path (Mount is "/v1/mount"). An answer that is
// no success holds an [Error].
package mountapi

import (
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// Protocol is the version of the calls. A process that speaks another one is replaced.
const Protocol = 1

// What is mounted, and how, is told to the agent in the same words.
type (
	Mode        = agentapi.MountMode
	Spec        = agentapi.MountSpec
	Config      = agentapi.MountConfig
	Credentials = agentapi.MountCredentials
)

// The modes.
const (
	Direct = agentapi.MountDirect
	Cached = agentapi.MountCached
)

// A MountRequest asks for a mount.
type MountRequest struct {
	Spec        Spec        `json:"spec"`
	Credentials Credentials `json:"credentials"`
}

// What a mount call did.
const (
	Mounted  = "mounted"
	Kept     = "kept"     // it was there already, with the same spec; the credentials were replaced
	Restored = "restored" // a process that died had left it; files that were open fail
)

// A MountAnswer says what was done.
type MountAnswer struct {
	Did string `json:"did"`
}

// An UnmountRequest ends a mount.
type UnmountRequest struct {
	Path string `json:"path"`
	// Lazy takes the mount from its path although files are open: they can be used until
	// they are closed. What a cached mount has not uploaded is uploaded nevertheless.
	Lazy bool `json:"lazy,omitempty"`
}

// A CredentialsRequest replaces the credentials of a mount.
type CredentialsRequest struct {
	Path        string      `json:"path"`
	Credentials Credentials `json:"credentials"`
}

// A FlushRequest waits until what was written is in the bucket.
type FlushRequest struct {
	Path string `json:"path,omitempty"` // "": all mounts
	// Ranks are the values of the variable SKY_RANK of the processes whose files are
	// waited for; none: all files. Files of processes that are of no rank, as far as it
	// is known, are waited for, too.
	Ranks []string `json:"ranks,omitempty"`
	// Timeout is how long to wait; 0: until the connection ends.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// A FlushAnswer says that all is in the bucket.
type FlushAnswer struct {
	Files int           `json:"files"` // that were waited for
	Took  time.Duration `json:"took"`
	// Conflicts are files that somebody else wrote, too, since the process started: what
	// was written here has another name.
	Conflicts []File `json:"conflicts,omitempty"`
}

// Stats are about one mount.
type Stats struct {
	Spec    Spec      `json:"spec"`
	Mounted bool      `json:"mounted"` // false: unmounted, with files that are still uploaded
	Since   time.Time `json:"since"`
	Open    int       `json:"open_files"`

	DirtyFiles int    `json:"dirty_files"`
	DirtyBytes int64  `json:"dirty_bytes"`
	Uploading  int    `json:"uploading"`
	Failed     int    `json:"failed"` // files that could not be uploaded, for a lasting reason
	CacheBytes int64  `json:"cache_bytes,omitempty"`
	Conflicts  int    `json:"conflicts,omitempty"` // files that somebody else wrote, too: both are kept
	Error      string `json:"error,omitempty"`     // the latest trouble with the store
	// Refusals are calls of jobs that failed for a reason that programs do not expect, the
	// latest MaxRefusals.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// A Refusal is a call that failed.
type Refusal struct {
	Rank  string `json:"rank"` // the value of SKY_RANK of the process
	Call  string `json:"call"`
	Path  string `json:"path"` // in the mount
	Error string `json:"error"`
}

// MaxRefusals is how many refusals of a mount are kept.
const MaxRefusals = 32

// A StatsAnswer is about all mounts.
type StatsAnswer struct {
	Mounts []Stats `json:"mounts"`
	// Waiting are caches with files that are not uploaded, of mounts that are not there
	// any more: the next mount call with the spec goes on.
	Waiting []Waiting `json:"waiting,omitempty"`
}

// Waiting is a cache that a process left which died.
type Waiting struct {
	Spec  Spec `json:"spec"`
	Files int  `json:"files"`
}

// A File is a file that is not in the bucket yet.
type File struct {
	Mount    string    `json:"mount"`
	Path     string    `json:"path"` // in the mount
	Size     int64     `json:"size"`
	State    string    `json:"state"`
	Tries    int       `json:"tries,omitempty"`
	Uploaded int64     `json:"uploaded,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Ranks    []string  `json:"ranks,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// The states of a file.
const (
	Writing   = "writing"   // it is open
	Queued    = "queued"    // it is closed and will be uploaded
	Uploading = "uploading" //
	Retrying  = "retrying"  // the store could not take it for the moment
	Failed    = "failed"    // the store does not take it
	Conflict  = "conflict"  // somebody else wrote it: this version has the key in Path
)

// A QueueAnswer lists files that are not in the bucket yet, or could not be stored.
type QueueAnswer struct {
	Files []File `json:"files"`
	More  int    `json:"more,omitempty"` // that are not listed
}

// A HealthAnswer says that the process lives.
type HealthAnswer struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version,omitempty"`
	PID      int    `json:"pid"`
	Mounts   int    `json:"mounts"`
}

// A Code says what kind of error it is.
type Code string

// The codes.
const (
	Invalid     Code = "invalid"     // the request cannot be followed as it is
	InUse       Code = "in-use"      // files are open, or another file system is there
	NotEmpty    Code = "not-empty"   // files lie where it would be mounted
	NotFound    Code = "not-found"   // there is no such mount
	NotMounted  Code = "not-mounted" // there is no such mount; the error names all that its cache has and the bucket does not
	NoBucket    Code = "no-bucket"   // the bucket does not exist
	Denied      Code = "denied"      // the credentials are not taken or not enough
	Unavailable Code = "unavailable" // the store cannot be reached now
	NoFUSE      Code = "no-fuse"     // this machine cannot mount
	NotStored   Code = "not-stored"  // files could not be stored, for a lasting reason
	TimedOut    Code = "timed-out"   // files are not stored yet
	Internal    Code = "internal"
)

// An Error is why a call failed.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Files   []File `json:"files,omitempty"` // with NotStored and TimedOut, at most MaxFiles
	More    int    `json:"more,omitempty"`  // that are not listed
}

func (e *Error) Error() string { return e.Message }

// MaxFiles is how many files an error or a queue lists.
const MaxFiles = 100

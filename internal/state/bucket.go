package state

import (
	"strings"
	"time"
)

// BucketStage is how far a bucket is in its life. It is written before the store is asked
// for anything.
type BucketStage string

const (
	BucketMaking   BucketStage = "making"   // it may be there already
	BucketThere    BucketStage = "there"    // it was there when it was last asked for
	BucketDeleting BucketStage = "deleting" // it may be gone already
	// BucketUndoing is deleting what may never have been made: only an empty bucket is.
	BucketUndoing BucketStage = "undoing"
)

// Bucket is the record of a bucket that a task names, or of a prefix with intermediate files
// ([Bucket.Intermediate]). Buckets that tasks give as URLs have no record.
type Bucket struct {
	Name string // of a prefix with intermediate files "BUCKET/PREFIX"
	// Hash names one incarnation. The bucket carries it as a tag, where its store has tags:
	// one that others have made in its place does not.
	Hash    string
	Version int64 // grows with every change; Save compares it
	Stage   BucketStage
	Status  string // as clients see it, see [api.StorageReady]

	UserHash, UserName string
	Workspace          string

	Store, Account, Region string
	Endpoint               string // the server that answered in place of the store's own one
	SubPath                string // below which its files are
	// Managed reports that sky made it, and deletes it.
	Managed    bool
	Persistent bool // it outlives whoever needs it
	Config     BucketConfig
	Problem    string // why the stage or the status is not as it is to be

	LaunchedAt time.Time
	LastUse    string // command line
}

// Intermediate reports whether the record is of a prefix in a bucket that others made, which
// has the local files of a managed job or service.
func (b *Bucket) Intermediate() bool { return strings.Contains(b.Name, "/") }

// InStore is the name of the bucket in its store.
func (b *Bucket) InStore() string {
	name, _, _ := strings.Cut(b.Name, "/")
	return name
}

// BucketConfig is what the task said that used a bucket last.
type BucketConfig struct {
	Sources []string       `json:"sources,omitempty"`
	Mode    string         `json:"mode,omitempty"`
	Type    string         `json:"type,omitempty"`
	Config  map[string]any `json:"config,omitempty"`
}

// What a bucket may be needed by, besides managed jobs ([HeldByJob]).
const (
	HeldByRequest HolderKind = "request" // by its id
	HeldByCluster HolderKind = "cluster" // by its hash
)

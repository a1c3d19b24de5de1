package agentapi

import (
	"log/slog"
	"time"
)

// MountsRequest makes buckets be mounted on a node. Mounts at other paths stay as they are;
// what is mounted already with the same spec is kept and gets the credentials.
type MountsRequest struct {
	Epoch int64 `json:"epoch"`
	// Command starts sky-mount, less its arguments; a shell runs it.
	Command string      `json:"command"`
	Mounts  []NodeMount `json:"mounts"`
}

// NodeMount is one bucket to mount. The path of its spec may be below the home folder
// ("~/x"); who owns its files is the agent's user.
type NodeMount struct {
	Spec        MountSpec        `json:"spec"`
	Credentials MountCredentials `json:"credentials"`
}

// MountMode is how a bucket is mounted.
type MountMode string

// The modes.
const (
	MountDirect MountMode = "MOUNT"
	MountCached MountMode = "MOUNT_CACHED"
)

// MountSpec says what is mounted where. Two mounts are the same if their specs are.
type MountSpec struct {
	Path string `json:"path"` // absolute
	// URL is the bucket's, as "s3://bucket" (package storage's Parse reads it).
	URL string `json:"url"`
	// SubPath shows only what is below it.
	SubPath  string    `json:"sub_path,omitempty"`
	Region   string    `json:"region,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"` // another server in place of the store's own
	Mode     MountMode `json:"mode"`
	ReadOnly bool      `json:"read_only,omitempty"`
	// UID and GID are the job's user. Others than this process's need the option
	// allow_other, which only root may give.
	UID    uint32      `json:"uid"`
	GID    uint32      `json:"gid"`
	Config MountConfig `json:"config,omitzero"` // for MountCached
}

// MountConfig is what a task says under config.mount_cached; zero values are rclone's
// defaults, which the keys are named after. Sizes are bytes.
type MountConfig struct {
	Transfers        int           `json:"transfers,omitempty"`          // uploads at the same time; 0: 4
	BufferSize       int64         `json:"buffer_size,omitempty"`        // read ahead in memory of each open file; 0: 16 MiB
	CacheMaxSize     int64         `json:"vfs_cache_max_size,omitempty"` // 0: 10 GiB
	CacheMaxAge      time.Duration `json:"vfs_cache_max_age,omitempty"`  // of files that nobody uses; 0: 1 h
	ReadAhead        int64         `json:"vfs_read_ahead,omitempty"`     // read ahead onto the disk, beyond BufferSize
	ReadChunkSize    int64         `json:"vfs_read_chunk_size,omitempty"`
	ReadChunkStreams int           `json:"vfs_read_chunk_streams,omitempty"` // requests at the same time for one file; 0: 4
	WriteBack        time.Duration `json:"vfs_write_back,omitempty"`         // between close and upload; 0: 1 s
}

// MountCredentials are what a store is reached with. They are kept in memory only. Which of
// them are needed depends on the store.
type MountCredentials struct {
	// The S3 family.
	AccessKey    string `json:"access_key,omitempty"`
	SecretKey    string `json:"secret_key,omitempty"`
	SessionToken string `json:"session_token,omitempty"`
	// Google Cloud, Azure, Hugging Face.
	Token string `json:"token,omitempty"`
	// Azure.
	AccountKey string `json:"account_key,omitempty"`
	SAS        string `json:"sas,omitempty"`

	Anonymous bool      `json:"anonymous,omitempty"` // a public bucket
	Account   string    `json:"account,omitempty"`   // whose they are, for messages
	Expires   time.Time `json:"expires,omitzero"`    // zero: never
}

// String leaves the secrets out.
func (c MountCredentials) String() string { return "[redacted]" }

// GoString leaves the secrets out.
func (c MountCredentials) GoString() string { return c.String() }

// LogValue leaves the secrets out.
func (c MountCredentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MountsAnswer says what each mount call did, in the order of the request.
type MountsAnswer struct {
	Did []string `json:"did"`
}

// MountsInfo is what an agent says of the buckets that are mounted on its node.
type MountsInfo struct {
	Mounts []MountInfo `json:"mounts"`
	// NeedCredentials: the process that held the mounts ended, and so did the agent that
	// knew the credentials. Whoever has them sends a MountsRequest.
	NeedCredentials bool `json:"need_credentials,omitempty"`
	// Trouble is why not all are mounted; "": they are.
	Trouble string `json:"trouble,omitempty"`
}

// MountInfo is about one mount.
type MountInfo struct {
	Path       string    `json:"path"`
	URL        string    `json:"url"`
	Mode       MountMode `json:"mode"`
	DirtyFiles int       `json:"dirty_files,omitempty"` // that the bucket does not have yet
	DirtyBytes int64     `json:"dirty_bytes,omitempty"`
	Failed     int       `json:"failed,omitempty"` // of those: for a lasting reason
	Error      string    `json:"error,omitempty"`  // the latest trouble with the store
	// Unsaved names some of the files that the bucket does not have.
	Unsaved []string `json:"unsaved,omitempty"`
}

// Dirty is how many files, of how many bytes, the buckets do not have yet.
func (i *MountsInfo) Dirty() (files int, bytes int64) {
	if i == nil {
		return 0, 0
	}
	for _, m := range i.Mounts {
		files, bytes = files+m.DirtyFiles, bytes+m.DirtyBytes
	}
	return files, bytes
}

package api

import "encoding/json"

// Envelope is carried by every POST body.
type Envelope struct {
	EnvVars              map[string]string `json:"env_vars,omitempty"`
	Entrypoint           string            `json:"entrypoint"`
	EntrypointCommand    string            `json:"entrypoint_command"`
	UsingRemoteAPIServer bool              `json:"using_remote_api_server"`
	OverrideConfig       map[string]any    `json:"override_skypilot_config,omitempty"`
	OverrideConfigPath   *string           `json:"override_skypilot_config_path,omitempty"`
	FileMountsBlobID     *string           `json:"file_mounts_blob_id,omitempty"`
	// ClientAPIVersion and ClientVersion are the versions that the client said in headers, put
	// here by the server.
	ClientAPIVersion *int    `json:"client_api_version,omitempty"`
	ClientVersion    *string `json:"client_version,omitempty"`
	// Timeline asks for a control line "sky_span" with a [Span] in the request's log whenever
	// a part of its work has ended.
	Timeline bool `json:"timeline,omitempty"`
}

// Sent is the envelope of a body.
func (e *Envelope) Sent() *Envelope { return e }

// Span is a part of the work of a request, for a timeline.
type Span struct {
	Name   string            `json:"name"`
	Start  float64           `json:"start"`            // Unix seconds, by the server's clock
	Took   float64           `json:"took"`             // seconds
	Failed string            `json:"failed,omitempty"` // class of the error that it ended with
	About  map[string]string `json:"about,omitempty"`
}

// Environment variables that carry the caller's identity when there is no login.
const (
	EnvUserID = "SKYPILOT_USER_ID"
	EnvUser   = "SKYPILOT_USER"
)

// ScheduleType says which kind of queue a request waits in.
type ScheduleType string

const (
	ScheduleLong  ScheduleType = "long"
	ScheduleShort ScheduleType = "short"
)

// RequestPayload is the record of a request as /api/get and /api/status send it.
type RequestPayload struct {
	RequestID    string        `json:"request_id"`
	Name         string        `json:"name"`         // "sky.launch", …
	Entrypoint   string        `json:"entrypoint"`   // base64 pickle in /api/get
	RequestBody  string        `json:"request_body"` // base64 pickle in /api/get, JSON text in /api/status
	Status       RequestStatus `json:"status"`
	CreatedAt    float64       `json:"created_at"` // Unix seconds
	UserID       string        `json:"user_id"`
	ReturnValue  string        `json:"return_value"` // JSON text, "null" if none
	Error        string        `json:"error"`        // "null" or JSON text of ErrorRecord
	PID          *int          `json:"pid"`
	ScheduleType ScheduleType  `json:"schedule_type"`

	UserName         *string  `json:"user_name"`
	ClusterName      *string  `json:"cluster_name"`
	StatusMsg        *string  `json:"status_msg"`
	ShouldRetry      bool     `json:"should_retry"`
	FinishedAt       *float64 `json:"finished_at"`
	FileMountsBlobID *string  `json:"file_mounts_blob_id"`
}

// ErrorRecord is the JSON in RequestPayload.Error. SkyPilot clients read Object
// (a base64 pickle of the dictionary form of Error); sky's own client reads the
// plain fields and never a pickle.
type ErrorRecord struct {
	Object     string         `json:"object"`
	Type       string         `json:"type"`
	Message    string         `json:"message"`
	Attributes map[string]any `json:"attributes,omitempty"`
	Hint       string         `json:"hint,omitempty"`
	Details    map[string]any `json:"details,omitempty"`
}

// Error is a failure as it travels: a class name that clients know, a message
// for people, and attributes some classes need. Hint says what to do next.
type Error struct {
	Type       string
	Message    string
	Attributes map[string]any
	Hint       string
	// Details are for programs: "kind" and what belongs to it. Clients other
	// than sky's own do not see them.
	Details map[string]any
	Err     error // cause, on the side where it happened
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Err }

// Class names of errors that callers branch on. The full list clients know is
// in the REST specification; these are the ones sky raises.
const (
	ErrClusterDoesNotExist  = "ClusterDoesNotExist"
	ErrClusterNotUp         = "ClusterNotUpError"
	ErrClusterOwnerMismatch = "ClusterOwnerIdentityMismatchError"
	ErrInvalidClusterName   = "InvalidClusterNameError"
	ErrResourcesUnavailable = "ResourcesUnavailableError"
	ErrResourcesMismatch    = "ResourcesMismatchError"
	ErrNotSupported         = "NotSupportedError"
	ErrNoCloudAccess        = "NoCloudAccessError"
	ErrCommand              = "CommandError"
	ErrRequestCancelled     = "RequestCancelled"
	ErrNoWorkspaceAccess    = "NoWorkspaceAccessError"
	ErrWorkspaceAmbiguous   = "WorkspaceAmbiguousError"
	ErrInvalidWorkspace     = "InvalidWorkspaceNameError"
	ErrPermissionDenied     = "PermissionDeniedError"
	ErrInvalidConfig        = "InvalidSkyPilotConfigError"
	ErrValue                = "ValueError"
	ErrRuntime              = "RuntimeError"
	ErrFileNotFound         = "FileNotFoundError"
	ErrJobNotFound          = "ValueError"
	ErrStatusFetching       = "ClusterStatusFetchingError"
	ErrVolumeNotFound       = "VolumeNotFoundError"
	ErrVolumeNotReady       = "VolumeNotReadyError"
	ErrVolumeTopology       = "VolumeTopologyConflictError"
	ErrStorageSpec          = "StorageSpecError"
	ErrStorageSource        = "StorageSourceError"
	ErrStorageName          = "StorageNameError"
	ErrStorageMode          = "StorageModeError"
	ErrStorageGet           = "StorageBucketGetError"
	ErrStorageCreate        = "StorageBucketCreateError"
	ErrStorageUpload        = "StorageUploadError"
	ErrStorageDelete        = "StorageBucketDeleteError"
)

// Health is the answer of /api/health.
type Health struct {
	Status                     string  `json:"status"` // healthy, unhealthy, version_mismatch, needs_auth
	APIVersion                 string  `json:"api_version"`
	Version                    string  `json:"version"`
	Commit                     string  `json:"commit"`
	User                       *User   `json:"user"`
	BasicAuthEnabled           bool    `json:"basic_auth_enabled"`
	ServiceAccountTokenEnabled bool    `json:"service_account_token_enabled"`
	IngressBasicAuthEnabled    bool    `json:"ingress_basic_auth_enabled"`
	ExternalProxyAuthEnabled   bool    `json:"external_proxy_auth_enabled"`
	LatestVersion              *string `json:"latest_version"`
	TelemetryEnabled           bool    `json:"telemetry_enabled"`

	// Beyond the reference protocol. BuildID identifies the server's binary, BuildCode
	// the source that it is made from, as far as the binary shows it;
	// InstanceID is also in ~/.sky/api_server/instance.json, so a client that
	// can read the same id there shares the server's file system. With UploadFiles
	// it uploads nevertheless: tasks of this caller bring uploaded files only.
	UploadFiles bool   `json:"upload_files,omitempty"`
	BuildID     string `json:"build_id,omitempty"`
	BuildCode   string `json:"build_code,omitempty"`
	InstanceID  string `json:"instance_id,omitempty"`
	PID         int    `json:"server_pid,omitempty"`
	StartedAt   int64  `json:"started_at,omitempty"`
	// NotYet are the names of requests that this server refuses, since it cannot do
	// what they ask for: clients say so before they plan, ask and upload.
	NotYet []string `json:"not_yet,omitempty"`
	// Degraded says why the server accepts only some calls, such as that its disk is
	// full; "": it accepts all.
	Degraded string `json:"degraded,omitempty"`
}

// User is a person or service account.
type User struct {
	ID                 string   `json:"id"`
	Name               string   `json:"name"`
	UserType           *string  `json:"user_type,omitempty"`
	CreatedAt          *float64 `json:"created_at,omitempty"`
	PreferredWorkspace *string  `json:"preferred_workspace,omitempty"`
}

// Raw is JSON kept as it came.
type Raw = json.RawMessage

package api

// Bodies of the storage and volume verbs.

// StorageDeleteBody removes a bucket.
type StorageDeleteBody struct {
	Envelope
	Name string `json:"name"`
}

// Storage is a bucket on record.
type Storage struct {
	Name       string   `json:"name"`
	LaunchedAt int64    `json:"launched_at"`
	Store      []string `json:"store"`
	LastUse    string   `json:"last_use"`
	Status     string   `json:"status"`
	// MountedBy are the clusters that mount it, whether they are up or stopped.
	MountedBy []string `json:"mounted_by,omitempty"`
}

// Statuses of a bucket.
const (
	StorageInit         = "INIT" // it is being made or filled
	StorageInitFailed   = "INIT_FAILED"
	StorageUploadFailed = "UPLOAD_FAILED"
	StorageReady        = "READY"
)

// VolumesListBody is what GET /volumes asks.
type VolumesListBody struct {
	Envelope
	Refresh bool `json:"refresh"`
}

// VolumeApplyBody makes a volume or adopts one.
type VolumeApplyBody struct {
	Envelope
	Name         string            `json:"name"`
	VolumeType   string            `json:"volume_type"` // k8s-pvc, k8s-hostpath, runpod-network-volume
	Cloud        string            `json:"cloud"`
	Region       *string           `json:"region"`
	Zone         *string           `json:"zone"`
	Size         *IntOrString      `json:"size"` // GB
	Config       map[string]any    `json:"config"`
	Labels       map[string]string `json:"labels"`
	UseExisting  *bool             `json:"use_existing"`
	CreationYAML *string           `json:"creation_yaml"`
}

// VolumesDeleteBody removes volumes.
type VolumesDeleteBody struct {
	Envelope
	Names []string `json:"names"`
	Purge bool     `json:"purge"`
}

// VolumeValidateBody is a volume as its YAML says it.
type VolumeValidateBody struct {
	Envelope
	Name        *string           `json:"name"`
	VolumeType  *string           `json:"volume_type"`
	Infra       *string           `json:"infra"`
	Size        *IntOrString      `json:"size"`
	Labels      map[string]string `json:"labels"`
	Config      map[string]any    `json:"config"`
	UseExisting *bool             `json:"use_existing"`
}

// Statuses of a volume.
const (
	VolumeReady    = "READY"
	VolumeInUse    = "IN_USE"
	VolumeNotReady = "NOT_READY"
)

// Volume is a disk that outlives clusters, or goes with one.
type Volume struct {
	Name           string         `json:"name"`
	Type           string         `json:"type"` // k8s-pvc, k8s-hostpath, runpod-network-volume
	LaunchedAt     int64          `json:"launched_at"`
	Cloud          string         `json:"cloud"`
	Region         *string        `json:"region"`
	Zone           *string        `json:"zone"`
	Size           *string        `json:"size"` // GB
	Config         map[string]any `json:"config"`
	NameOnCloud    string         `json:"name_on_cloud"`
	UserHash       string         `json:"user_hash"`
	UserName       string         `json:"user_name"`
	Workspace      string         `json:"workspace"`
	LastAttachedAt *int64         `json:"last_attached_at"`
	LastUse        *string        `json:"last_use"`
	Status         *string        `json:"status"`
	UsedByPods     []string       `json:"usedby_pods"`
	UsedByClusters []string       `json:"usedby_clusters"`
	Ephemeral      bool           `json:"is_ephemeral"`
	// FetchFailed says that its cloud could not be asked who uses it.
	FetchFailed  bool    `json:"usedby_fetch_failed"`
	ErrorMessage *string `json:"error_message"`
	CreationYAML *string `json:"creation_yaml"`
}

// DownloadBody asks for a zip of folders that a download of logs named.
type DownloadBody struct {
	Envelope
	FolderPaths []string `json:"folder_paths"`
}

package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// VolumeStage is how far a volume is in its life. It is written before the cloud
// is asked for anything.
type VolumeStage string

const (
	VolumeMaking   VolumeStage = "making"   // it may be there already
	VolumeThere    VolumeStage = "there"    // it can be mounted
	VolumeDeleting VolumeStage = "deleting" // it may be gone already
)

// Volume is the record of one volume.
type Volume struct {
	Name    string
	Hash    string // one incarnation of the name
	Version int64  // grows with every change; Save compares it
	Stage   VolumeStage

	UserHash, UserName string
	Workspace          string

	Asked cloud.Volume // as somebody asked for it
	Is    cloud.Volume // with what its cloud filled in
	Seen  VolumeSeen
	// Problem is why the stage is not over yet; "": nothing is known to be wrong.
	Problem string

	// ClusterHash is the cluster whose volume this is and with whose record it goes;
	// "": it outlives clusters.
	ClusterHash string

	LaunchedAt     time.Time
	LastAttachedAt time.Time
	LastUse        string // command line
	CreationYAML   string
}

// VolumeSeen is what a cloud said about a volume when it was last asked.
type VolumeSeen struct {
	At       time.Time // zero: never
	Exists   bool
	Ready    bool
	Reason   string   // why it is not
	Pods     []string // that mount it
	Clusters []string // hashes of clusters whose nodes those are
	Unknown  string   // why it could not be asked for, the last time that somebody tried; "": it could
}

// VolumeMount is a volume that a cluster holds.
type VolumeMount struct {
	Path, SubPath string
	Volume        *Volume
}

// NewVolumeMount is a volume that a new cluster is about to hold: one that is
// there, by its name, or one that is made with the cluster and goes with it.
type NewVolumeMount struct {
	Path, SubPath string
	Name          string
	Own           *Volume // nil: Name exists
}

// VolumeHolder is a cluster that holds a volume.
type VolumeHolder struct{ Volume, Cluster, Hash string }

// VolumeHeldError refuses to begin deleting a volume that clusters hold.
type VolumeHeldError struct {
	Volume   string
	Clusters []string
}

func (e *VolumeHeldError) Error() string {
	return fmt.Sprintf("the volume %s is held by %s", e.Volume, strings.Join(e.Clusters, ", "))
}

// VolumeNotThereError refuses to mount a volume that is not there (any more).
type VolumeNotThereError struct{ Volume string }

func (e *VolumeNotThereError) Error() string {
	return fmt.Sprintf("the volume %s is not there", e.Volume)
}

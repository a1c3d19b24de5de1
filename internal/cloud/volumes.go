package cloud

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/task"
)

// Kinds of volumes that providers have.
const (
	VolumeClaim    = task.VolumeClaim    // a PersistentVolumeClaim
	VolumeHostPath = task.VolumeHostPath // a folder of whichever machine a pod is on
)

// How often and where a volume may be mounted at once.
const (
	ReadWriteOnce    = task.ReadWriteOnce
	ReadWriteOncePod = task.ReadWriteOncePod
	ReadWriteMany    = task.ReadWriteMany
	ReadOnlyMany     = task.ReadOnlyMany
)

// Volumer is a provider that keeps disks which outlive its nodes.
type Volumer interface {
	// CheckVolume refuses with an [*InvalidError] what can never work and can be
	// told without asking anybody.
	CheckVolume(v Volume) error
	// MakeVolume makes the volume, or takes the one that exists (v.Existing), and
	// returns it with what the cloud filled in: place, size, class, access mode,
	// namespace. What carries v's tags already is success, so it can be called again
	// after a crash at any point; what is there and is not ours is an [*InvalidError].
	MakeVolume(ctx context.Context, v Volume) (Volume, error)
	// DeleteVolume removes it with its content, and waits until it is gone. One
	// that is gone is success. What was taken as it was (v.Existing) stays. A volume
	// in use is an [*InUseError].
	DeleteVolume(ctx context.Context, v Volume) error
	// LookAtVolumes tells of each of these volumes, in their order. Where one could
	// not be asked for, its VolumeState says so; an error means that none could.
	LookAtVolumes(ctx context.Context, vs []Volume) ([]VolumeState, error)
}

// VolumePlacer is a Volumer that chooses a place for volumes which name none.
type VolumePlacer interface {
	// PlaceVolume returns the volume with the place, and whatever else finds it
	// there, that MakeVolume would choose now. It asks nobody. With that on record
	// before the volume is made, it is found even if the choice would be another
	// one by then.
	PlaceVolume(v Volume) (Volume, error)
}

// Volume is a disk by the names that its cloud has for it.
type Volume struct {
	Installation string // which sky installation owns it
	Name         string // what users call it
	NameOnCloud  string // unique in the installation
	Type         string // VolumeClaim …
	Place        Place  // Region is the Kubernetes context; "": the provider chooses, and says so
	SizeGB       int    // 0: whatever it has
	AccessMode   string // "": ReadWriteOnce
	Class        string // storage class; "": the cluster's default
	Namespace    string // "": the context's
	HostPath     string // of a VolumeHostPath
	KeepContent  bool   // of a VolumeHostPath: deleting leaves the folders as they are
	Existing     bool   // it was there before sky, and is never deleted
	Labels       map[string]string
	// Cluster is whose volume this is, if it goes with a cluster; the tags of the
	// cluster are on it then.
	Cluster ClusterID
	// Settings are as in [LaunchSpec].
	Settings map[string]any
}

// VolumeMount puts a volume into every node of a cluster.
type VolumeMount struct {
	Path    string // absolute, or beginning with ~
	Volume  Volume
	SubPath string // a folder of the volume; "": its root
}

// VolumeState is what a cloud says about a volume now.
type VolumeState struct {
	Exists  bool
	Ready   bool     // it can be mounted, or will be when something mounts it first
	Reason  string   // why it is not ready, in the cloud's words
	SizeGB  int      // as it is
	Pods    []string // that mount it
	Nodes   []Node   // those of them that are nodes of ours, with Cluster and Hash set
	Asked   time.Time
	Unknown error // it could not be asked
}

// InUseError refuses to delete what something mounts.
type InUseError struct {
	What string
	By   []string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is in use by %s", e.What, strings.Join(e.By, ", "))
}

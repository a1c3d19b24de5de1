package cloud

import (
	"context"
	"time"
)

// DiskCloner is a provider whose machines can start with a copy of the system disk of
// another cluster's machine. The copy is made of an image, which is needed only until the
// machines run.
type DiskCloner interface {
	// CannotClone is why a machine of an offer cannot start from an image of i's disk; "":
	// it can. It makes no calls.
	CannotClone(i DiskImage, o Offer) string
	// MakeImage makes an image of the disk of the only machine of i.Of, which is stopped,
	// and waits until machines can start from it. The image carries the tags of i.For. It
	// returns i with ID and SizeGB. An image that exists already is success, so it can be
	// called again after a crash at any point.
	MakeImage(ctx context.Context, i DiskImage) (DiskImage, error)
	// RemoveImage removes the image that carries the tags of i.For and all that belongs to
	// it, whatever became of MakeImage. None is success. Machines keep their disks.
	RemoveImage(ctx context.Context, i DiskImage) error
	// DiskImages lists the images that MakeImage made for an installation and that are
	// there, whole or not.
	DiskImages(ctx context.Context, installation string) ([]DiskImage, error)
}

// DiskImage is an image of the system disk of one cluster's machine, for another cluster to
// start from.
type DiskImage struct {
	From         string    `json:"from,omitempty"` // the name of the cluster whose disk it is, for people
	Of           ClusterID `json:"of"`             // the same cluster
	For          ClusterID `json:"for"`            // the cluster that starts from it; its Hash tells images apart
	Place        Place     `json:"place"`          // of the machine whose disk it is
	InstanceType string    `json:"instance_type,omitempty"`
	ID           string    `json:"id,omitempty"`      // as in LaunchSpec.ImageID; "": it is not made yet
	SizeGB       int       `json:"size_gb,omitempty"` // that a disk needs at least; 0: unknown
	Created      time.Time `json:"created,omitzero"`
}

// TagCloneOf is a tag of images of disks: the hash of the cluster whose disk it is.
const TagCloneOf = "sky-clone-of"

// Tags identify the image.
func (i DiskImage) Tags() map[string]string {
	tags := i.For.Tags()
	tags[TagCloneOf] = i.Of.Hash
	return tags
}

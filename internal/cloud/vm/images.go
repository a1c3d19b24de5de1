package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Image is what a cloud says of an image of a disk that carries our tags, or of a part of
// one that is left, such as a snapshot.
type Image struct {
	ID      string // as in LaunchSpec.ImageID
	Part    bool   // machines cannot start from it: it is only removed
	Region  string
	State   State  // Pending, Running (whole), Ending, or Ended: it will never be whole
	Reason  string // why it will never be whole, in the cloud's words
	SizeGB  int
	Tags    map[string]string
	Created time.Time
}

// Imager is a driver that makes images of disks.
type Imager interface {
	Driver
	// ListImages lists the images with the tags of id in a region, and their parts that are
	// left; "": wherever they may be.
	ListImages(ctx context.Context, id cloud.ClusterID, region string) ([]Image, error)
	// BeginImage begins to make an image of a machine's system disk, with the tags of i. Of
	// images with one name there is at most one: a second is refused as [Changed].
	BeginImage(ctx context.Context, i cloud.DiskImage, name string, m Machine) error
	// DropImage begins to remove what ListImages listed.
	DropImage(ctx context.Context, i Image) error
	// Unfit is why machines of an offer cannot start from an image; "": they can.
	Unfit(i cloud.DiskImage, o cloud.Offer) string
}

// Cloner makes a provider with an [Imager] a [cloud.DiskCloner], which embeds it.
type Cloner struct {
	p *Provider
	d Imager

	mu    *sync.Mutex
	begun map[string]time.Time // by the hash of DiskImage.For: the last call that made an image which no list has had
}

var _ cloud.DiskCloner = Cloner{}

// NewCloner returns the cloner of a provider over the same driver.
func NewCloner(p *Provider, d Imager) Cloner {
	return Cloner{p: p, d: d, mu: &sync.Mutex{}, begun: map[string]time.Time{}}
}

const (
	// mostImaging is how long an image may take to be whole: large disks take hours.
	mostImaging = 4 * time.Hour
	// mostDropping is how long it may take to be gone.
	mostDropping = 10 * time.Minute
)

// imageName is the name of the image that a cluster starts from.
func imageName(i cloud.DiskImage) string { return "sky-clone-" + Digest(i.For) }

// CannotClone is why machines of an offer cannot start from the image.
func (c Cloner) CannotClone(i cloud.DiskImage, o cloud.Offer) string { return c.d.Unfit(i, o) }

// MakeImage makes the image, or waits for the one that is there.
func (c Cloner) MakeImage(ctx context.Context, i cloud.DiskImage) (cloud.DiskImage, error) {
	if i.For.Hash == "" || i.For.Installation == "" || i.Of.Name == "" {
		return i, errors.New("an image needs two whole cluster ids")
	}
	tries := 0
	w := &wait{what: c.p.o.DisplayName + " to make an image of the disk", most: mostImaging}
	err := c.p.until(ctx, w, func(ctx context.Context) (bool, error) {
		all, err := c.list(ctx, i)
		if err != nil {
			return false, err
		}
		s := nextImage(all, time.Since(c.since(i)) < c.p.o.Settle)
		switch {
		case s.ready != nil:
			i.ID, i.SizeGB, i.Created = s.ready.ID, s.ready.SizeGB, s.ready.Created
			return true, nil
		case s.failed != nil:
			return false, &cloud.InvalidError{Place: i.Place, Err: fmt.Errorf("the image of the disk could not be made: %s", s.failed.Reason)}
		case !s.begin:
			return false, nil
		}
		m, err := c.source(ctx, i)
		if err != nil {
			return false, err
		}
		c.note(i, time.Now())
		err = cloud.Settled(ctx, func(ctx context.Context) error { return c.d.BeginImage(ctx, i, imageName(i), m) })
		if err == nil {
			return false, nil
		}
		tries++
		switch k := kind(c.d, err); {
		case k == Refused:
			c.note(i, time.Time{})
			return false, c.p.refusal(ctx, i.Place, err)
		case k == Missing, k == Lost && tries == mostLacking:
			return false, c.p.refusal(ctx, i.Place, err)
		case k == Lost: // the same name makes no second one
			c.note(i, time.Now().Add(-c.p.o.Settle))
		}
		return false, nil
	})
	return i, err
}

// imageStep is what the making of an image does next: at most one is set. None: it waits.
type imageStep struct {
	ready, failed *Image
	begin         bool
}

// nextImage decides it. begun says that an image was asked for a short while ago, which
// lists may not have yet.
func nextImage(all []Image, begun bool) imageStep {
	making := false
	for n := range all {
		switch i := &all[n]; {
		case i.Part:
		case i.State == Running:
			return imageStep{ready: i}
		case i.State == Ended:
			return imageStep{failed: i}
		default:
			making = true
		}
	}
	return imageStep{begin: !making && !begun}
}

// source is the machine whose disk is to be copied.
func (c Cloner) source(ctx context.Context, i cloud.DiskImage) (Machine, error) {
	list, err := c.p.list(ctx, i.Of, ListScope{Region: i.Place.Region})
	if err != nil {
		return Machine{}, err
	}
	list = slices.DeleteFunc(list, func(m Machine) bool { return !m.State.exists() })
	switch {
	case len(list) != 1:
		err = fmt.Errorf("cluster %s has %d machines, and the disk of one can be copied", i.From, len(list))
	case list[0].State != Stopped:
		err = fmt.Errorf("the machine of cluster %s is %s, and only the disk of one that is stopped can be copied", i.From, strings.ToLower(list[0].RawState))
	default:
		return list[0], nil
	}
	return Machine{}, &cloud.InvalidError{Place: i.Place, Err: err}
}

// RemoveImage removes the image and its parts until no list has any of them.
func (c Cloner) RemoveImage(ctx context.Context, i cloud.DiskImage) error {
	if i.For.Hash == "" || i.For.Installation == "" {
		return nil // all images would fit
	}
	w := &wait{what: c.p.o.DisplayName + " to remove the image of the disk", most: mostDropping}
	return c.p.until(ctx, w, func(ctx context.Context) (bool, error) {
		all, err := c.list(ctx, i)
		if err != nil {
			return false, err
		}
		for _, image := range all {
			if image.State == Ending {
				continue
			}
			err := cloud.Settled(ctx, func(ctx context.Context) error { return c.d.DropImage(ctx, image) })
			if err == nil {
				continue
			}
			if k := kind(c.d, err); !k.changed() && k != Busy {
				return false, c.p.refusal(ctx, i.Place, err)
			}
		}
		return len(all) == 0 && time.Since(c.since(i)) >= c.p.o.Settle, nil
	})
}

// DiskImages lists all images of an installation.
func (c Cloner) DiskImages(ctx context.Context, installation string) ([]cloud.DiskImage, error) {
	all, err := c.d.ListImages(ctx, cloud.ClusterID{Installation: installation}, "")
	if err != nil {
		return nil, c.p.refusal(ctx, c.p.at(""), err)
	}
	var out []cloud.DiskImage
	for _, i := range all {
		of, clone := i.Tags[cloud.TagCloneOf]
		id := cloud.ClusterID{Installation: i.Tags[cloud.TagInstallation], Name: i.Tags[cloud.TagCluster], Hash: i.Tags[cloud.TagHash]}
		if !clone || id.Installation != installation || id.Hash == "" || i.State == Ending {
			continue
		}
		out = append(out, cloud.DiskImage{
			Of: cloud.ClusterID{Installation: installation, Hash: of}, For: id, Place: c.p.at(i.Region), ID: i.ID, SizeGB: i.SizeGB, Created: i.Created,
		})
	}
	return out, nil
}

// list lists the image of i and its parts. What a list has needs no memory of its making.
func (c Cloner) list(ctx context.Context, i cloud.DiskImage) ([]Image, error) {
	id := cloud.ClusterID{Installation: i.For.Installation, Hash: i.For.Hash}
	all, err := c.d.ListImages(ctx, id, i.Place.Region)
	if err != nil {
		return nil, c.p.refusal(ctx, i.Place, err)
	}
	all = slices.DeleteFunc(all, func(i Image) bool { return !id.Has(i.Tags) || i.Tags[cloud.TagCloneOf] == "" })
	if len(all) > 0 {
		c.note(i, time.Time{})
	}
	return all, nil
}

func (c Cloner) since(i cloud.DiskImage) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun[i.For.Hash]
}

// note remembers when an image was asked for; zero: there is nothing to remember.
func (c Cloner) note(i cloud.DiskImage, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.IsZero() {
		delete(c.begun, i.For.Hash)
		return
	}
	c.begun[i.For.Hash] = at
}

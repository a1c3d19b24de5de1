package cloudtest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

const clone = string(cloud.FeatureCloneDisk)

// imageName is a part of the names of images and of what belongs to them.
const imageName = "sky-clone"

var clones = []Behaviour{
	{"machines start with a copy of a disk", []string{clone, stop}, func(s *suite) {
		old, i := s.sourceDisk("old")
		i = s.makeImage(i)
		if i.ID == "" {
			s.Fatal("the image has no id")
		}
		spec := s.cloneOf(i, s.some(2))
		nodes := s.launch(spec)
		s.removeImage(i)
		if s.Read != nil {
			for _, n := range nodes {
				if got := s.Read(s, n, "data"); got != "of old" {
					s.Errorf("rank %d has %q, want what was on the disk", n.Rank, got)
				}
			}
		}
		for _, n := range nodes {
			if s.MadeFrom != nil && s.MadeFrom(s, n) != i.ID {
				s.Errorf("rank %d was made from %s, want %s", n.Rank, s.MadeFrom(s, n), i.ID)
			}
		}
		s.stop(spec.ID)
		again := s.spec(spec.ID, len(nodes)) // the image is not needed any more
		s.same("started", ids(s.launch(again)), ids(nodes))
		s.same("the source", ids(s.launch(s.spec(old, 1))), ids(s.alive(old)))
	}},
	{"an image is made once, and another process finds it", []string{clone, stop, "Another"}, func(s *suite) {
		_, i := s.sourceDisk("old")
		made := s.makeImage(i)
		s.p = s.Another(s)
		if again := s.makeImage(i); again.ID != made.ID {
			s.Errorf("there are two images: %s and %s", made.ID, again.ID)
		}
		s.p = s.Another(s)
		listed, err := s.cloner().DiskImages(s.ctx(), s.installation)
		if err != nil || len(listed) != 1 || listed[0].For.Hash != i.For.Hash || listed[0].For.Name != i.For.Name || listed[0].Of.Hash != i.Of.Hash {
			s.Fatalf("listed: %+v, %v", listed, err)
		}
		if listed[0].ID != made.ID || s.Skew == nil && listed[0].Created.IsZero() {
			s.Errorf("listed: %+v, made: %+v", listed[0], made)
		}
		s.removeImage(listed[0]) // which is all that a sweep knows
		s.noImage()
	}},
	{"images of other installations are not listed", []string{clone, stop, "installations"}, func(s *suite) {
		_, i := s.sourceDisk("old")
		s.makeImage(i)
		listed, err := s.cloner().DiskImages(s.ctx(), s.installation+"x")
		if err != nil || len(listed) > 0 {
			s.Errorf("listed: %+v, %v", listed, err)
		}
	}},
	{"only the disk of one stopped machine is copied", []string{clone, stop}, func(s *suite) {
		id := s.id("old")
		i := s.imageOf(id)
		_, err := s.cloner().MakeImage(s.ctx(), i)
		want[*cloud.InvalidError](s, err) // there is none
		s.launch(s.spec(id, 1))
		_, err = s.cloner().MakeImage(s.ctx(), i)
		want[*cloud.InvalidError](s, err) // it runs
		s.noImage()
	}},
	{"what the features say about copies of disks is true", nil, func(s *suite) {
		_, lacks := s.p.Features().Lacks[cloud.FeatureCloneDisk]
		if _, can := cloud.As[cloud.DiskCloner](s.p); can && lacks {
			s.Error("the provider can copy disks and says that it lacks it")
		}
	}},
	{"removing no image is success", []string{clone, stop}, func(s *suite) {
		i := s.imageOf(s.id("old"))
		s.removeImage(i)
		s.removeImage(i)
	}},
	{"a lost answer makes no second image", []string{clone, stop, "LoseAnswers", "Restore", "Another"}, func(s *suite) {
		_, i := s.sourceDisk("old")
		s.LoseAnswers(s, Imaging, 1)
		if _, err := s.cloner().MakeImage(s.ctx(), i); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		s.Restore(s)
		s.p = s.Another(s) // the server died meanwhile
		made := s.makeImage(i)
		listed, err := s.cloner().DiskImages(s.ctx(), s.installation)
		if err != nil || len(listed) != 1 || listed[0].ID != made.ID {
			s.Errorf("listed: %+v, %v", listed, err)
		}
		s.removeImage(i)
		s.noImage()
	}},
	{"what a lost answer left of an image is removed", []string{clone, stop, "LoseAnswers", "Restore", "Another"}, func(s *suite) {
		_, i := s.sourceDisk("old")
		s.LoseAnswers(s, Imaging, 5)
		if _, err := s.cloner().MakeImage(s.ctx(), i); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		s.Restore(s)
		s.p = s.Another(s)
		s.removeImage(i)
		s.noImage()
	}},
	{"answers lost while an image is removed do no harm", []string{clone, stop, "LoseAnswers", "Restore"}, func(s *suite) {
		_, i := s.sourceDisk("old")
		s.makeImage(i)
		s.LoseAnswers(s, Dropping, 1)
		if err := s.cloner().RemoveImage(s.ctx(), i); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		s.Restore(s)
		s.removeImage(i)
		s.noImage()
	}},
	{"a cancelled image is finished or removed by another process", []string{clone, stop, "Another"}, func(s *suite) {
		_, i := s.sourceDisk("old")
		for n, after := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 9 * time.Millisecond, 27 * time.Millisecond} {
			_ = s.promptly("MakeImage", after, func(ctx context.Context) error { _, err := s.cloner().MakeImage(ctx, i); return err })
			s.p = s.Another(s)
			if n%2 == 0 {
				s.makeImage(i)
				s.p = s.Another(s)
			}
			_ = s.promptly("RemoveImage", after, func(ctx context.Context) error { return s.cloner().RemoveImage(ctx, i) })
			s.p = s.Another(s)
			s.removeImage(i)
			s.noImage()
		}
	}},
	{"what is not permitted of images is a permission error", []string{clone, stop, "Forbid", "Restore"}, func(s *suite) {
		_, i := s.sourceDisk("old")
		s.Forbid(s)
		_, err := s.cloner().MakeImage(s.ctx(), i)
		want[*cloud.PermissionError](s, err)
		s.Restore(s)
		s.noImage()
	}},
	{"a cloned cluster goes without a trace", []string{clone, stop}, func(s *suite) {
		old, i := s.sourceDisk("old")
		i = s.makeImage(i)
		spec := s.cloneOf(i, 1)
		s.launch(spec)
		s.terminate(spec.ID)
		s.removeImage(i)
		s.nothingLeft(spec.ID)
		s.noImage()
		s.terminate(old)
		s.nothingLeft(old)
	}},
}

func (s *suite) cloner() cloud.DiskCloner {
	s.Helper()
	c, ok := cloud.As[cloud.DiskCloner](s.p)
	if !ok {
		s.Fatal("the provider says that it can copy disks, but is no DiskCloner")
	}
	return c
}

// sourceDisk is a stopped cluster with a file on its disk, and the image to be made of it.
func (s *suite) sourceDisk(name string) (cloud.ClusterID, cloud.DiskImage) {
	s.Helper()
	id := s.id(name)
	n := s.launch(s.spec(id, 1))[0]
	if s.Write != nil {
		s.Write(s, n, "data", "of "+name)
	}
	s.stop(id)
	return id, s.imageOf(id)
}

// imageOf is the image of a cluster's disk for a new one, which is removed in the end.
func (s *suite) imageOf(id cloud.ClusterID) cloud.DiskImage {
	i := cloud.DiskImage{From: id.Name, Of: id, For: s.in(id.Installation, "new", "h2"), Place: s.Spec.Offer.Place, InstanceType: s.Spec.Offer.InstanceType}
	s.Cleanup(func() {
		if s.Restore != nil {
			s.Restore(s)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), patience)
		defer cancel()
		if err := s.cloner().RemoveImage(ctx, i); err != nil {
			s.Errorf("removing the image in the end: %v", err)
		}
	})
	return i
}

func (s *suite) makeImage(i cloud.DiskImage) cloud.DiskImage {
	s.Helper()
	made, err := s.cloner().MakeImage(s.ctx(), i)
	if err != nil {
		s.Fatalf("making the image: %v", err)
	}
	return made
}

func (s *suite) removeImage(i cloud.DiskImage) {
	s.Helper()
	if err := s.cloner().RemoveImage(s.ctx(), i); err != nil {
		s.Fatalf("removing the image: %v", err)
	}
}

// noImage wants the image to be gone, with all that belongs to it.
func (s *suite) noImage() {
	s.Helper()
	for _, thing := range s.inventory() {
		if strings.Contains(thing, imageName) {
			s.Errorf("the cloud still has %s", thing)
		}
	}
}

// cloneOf asks for machines that start from an image.
func (s *suite) cloneOf(i cloud.DiskImage, n int) cloud.LaunchSpec {
	spec := s.spec(i.For, n)
	if why := s.cloner().CannotClone(i, spec.Offer); why != "" {
		s.Fatalf("a machine like the source's cannot start from its image: %s", why)
	}
	spec.Clone, spec.ImageID = &i, i.ID
	spec.DiskGB = max(spec.DiskGB, i.SizeGB)
	if have := s.inventory(); have != nil && !slices.ContainsFunc(have, func(thing string) bool { return strings.Contains(thing, imageName) }) {
		s.Error("the inventory has no image")
	}
	return spec
}

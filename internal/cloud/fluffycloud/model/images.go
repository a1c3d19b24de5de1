package model

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// image is a copy of a disk with what its owner does not see.
type image struct {
	fluffyapi.Image
	Seq     uint64            `json:"seq"`
	Account string            `json:"account"`
	ReadyAt time.Time         `json:"ready_at"`
	Disk    map[string]string `json:"disk,omitempty"`
	Hidden  hidden            `json:"-"` // from lists, as yet
}

// state is Pending until the image is whole.
func (i *image) state(now time.Time) fluffyapi.State {
	if now.Before(i.ReadyAt) {
		return fluffyapi.Pending
	}
	return fluffyapi.Running
}

// told is the image as its owner hears of it.
func (i *image) told(now time.Time) fluffyapi.Image {
	out := i.Image
	out.State, out.Tags = i.state(now), maps.Clone(i.Tags)
	return out
}

// CreateImage copies the disk of an instance that is off.
func (a *Account) CreateImage(ctx context.Context, in fluffyapi.CreateImage) (fluffyapi.Image, error) {
	return change(ctx, a, "images.create", func() (fluffyapi.Image, error) {
		c := a.c
		of, err := a.find(in.Instance)
		if err != nil {
			return fluffyapi.Image{}, err
		}
		if in.Name == "" {
			return fluffyapi.Image{}, fluffyapi.Errorf(fluffyapi.Invalid, "an image needs a name")
		}
		for _, i := range c.s.Images {
			if i.Account == a.name && i.Name == in.Name {
				return fluffyapi.Image{}, fluffyapi.Errorf(fluffyapi.NameTaken, "%s is called %q already", i.ID, in.Name)
			}
		}
		if of.State != fluffyapi.Stopped {
			return fluffyapi.Image{}, fluffyapi.Errorf(fluffyapi.WrongState, "%s is %s", of.ID, of.State)
		}
		c.s.Seq++
		i := &image{
			Image: fluffyapi.Image{
				ID: fmt.Sprintf("im-%08x", c.s.Seq), Name: in.Name, Region: of.Region, Tags: maps.Clone(in.Tags), DiskGB: of.DiskGB, Created: c.s.Now,
			},
			Seq: c.s.Seq, Account: a.name, ReadyAt: c.s.Now.Add(c.draw(c.cfg.Boot)), Disk: maps.Clone(of.Disk), Hidden: c.hide(),
		}
		if m := c.cfg.Machines; m != nil {
			if err := m.SaveDisk(of.ID, i.ID); err != nil {
				return fluffyapi.Image{}, fluffyapi.Errorf(fluffyapi.Internal, "copying the disk of %s: %v", of.ID, err)
			}
		}
		c.s.Images[i.ID] = i
		return i.told(c.s.Now), nil
	})
}

// Images lists in the order of creation.
func (a *Account) Images(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Image], error) {
	return read(ctx, a, "images.list", func() (p fluffyapi.Page[fluffyapi.Image], err error) {
		after := uint64(0)
		if q.Page != "" {
			if after, err = strconv.ParseUint(q.Page, 10, 64); err != nil {
				return p, fluffyapi.Errorf(fluffyapi.Invalid, "there is no page %q", q.Page)
			}
		}
		for _, i := range a.c.imagesInOrder() {
			switch {
			case i.Account != a.name || i.Seq <= after || !hasTags(i.Tags, q.Tags):
				continue
			case i.Hidden.from(a.c.s.Now):
				continue
			}
			if len(p.Items) == a.c.limit(q) {
				p.Next = strconv.FormatUint(after, 10)
				break
			}
			p.Items = append(p.Items, i.told(a.c.s.Now))
			after = i.Seq
		}
		return p, nil
	})
}

// DeleteImage deletes an image, whole or not.
func (a *Account) DeleteImage(ctx context.Context, id string) error {
	_, err := change(ctx, a, "images.delete", func() (struct{}, error) {
		i := a.c.s.Images[id]
		if i == nil || i.Account != a.name {
			return struct{}{}, fluffyapi.Errorf(fluffyapi.NotFound, "there is no image %q", id)
		}
		if m := a.c.cfg.Machines; m != nil {
			if err := m.DropDisk(id); err != nil {
				return struct{}{}, fluffyapi.Errorf(fluffyapi.Internal, "removing %s: %v", id, err)
			}
		}
		delete(a.c.s.Images, id)
		return struct{}{}, nil
	})
	return err
}

func (c *Cloud) imagesInOrder() []*image {
	return slices.SortedFunc(maps.Values(c.s.Images), func(a, b *image) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Images lists all images of all accounts, in the order of creation.
func (c *Cloud) Images() []fluffyapi.Image {
	c.lock()
	defer c.mu.Unlock()
	var out []fluffyapi.Image
	for _, i := range c.imagesInOrder() {
		out = append(out, i.told(c.s.Now))
	}
	return out
}

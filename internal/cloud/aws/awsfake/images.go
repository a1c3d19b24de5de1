package awsfake

import (
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Images of instances, and the snapshots that they are made of:
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateImage.html

type image struct {
	id, region, name, snapshot string
	gb                         int
	tags                       map[string]string
	created, ready             time.Time
	hidden                     int
}

type snapshot struct {
	id, region string
	gb         int
	tags       map[string]string
	created    time.Time
}

// rootGB is the size of the disk that an image is made of.
const rootGB = 50

func (i *image) state() string {
	if time.Now().Before(i.ready) {
		return "pending"
	}
	return "available"
}

type done struct {
	Return bool `xml:"return"`
}

func (c *Cloud) createImage(region string, f url.Values) (any, *fault) {
	of, name := c.find(f.Get("InstanceId")), f.Get("Name")
	switch {
	case of == nil || of.region != region || unknown(&of.hidden):
		return nil, noInstance(f.Get("InstanceId"))
	case len(name) < 3 || len(name) > 128:
		return nil, refuse(http.StatusBadRequest, "InvalidAMIName.Malformed", "AMI names must be between 3 and 128 characters long")
	case slices.ContainsFunc(c.images, func(i *image) bool { return i.region == region && i.name == name }):
		return nil, refuse(http.StatusBadRequest, "InvalidAMIName.Duplicate", "AMI name %s is already in use", name)
	case of.state != "stopped" && of.state != "running":
		return nil, refuse(http.StatusBadRequest, "IncorrectState", "Instance '%s' is not 'running' or 'stopped'", of.id)
	}
	s := &snapshot{c.next("snap"), region, rootGB, tagsOf(f, "snapshot"), c.now()}
	i := &image{id: c.next("ami"), region: region, name: name, snapshot: s.id, gb: rootGB, tags: tagsOf(f, "image"), created: c.now(), ready: time.Now().Add(c.Boot), hidden: max(c.hide, c.unsettled)}
	c.snapshots, c.images = append(c.snapshots, s), append(c.images, i)
	return struct {
		ImageID string `xml:"imageId"`
	}{i.id}, nil
}

func (c *Cloud) deregisterImage(region string, f url.Values) (any, *fault) {
	id := f.Get("ImageId")
	n := slices.IndexFunc(c.images, func(i *image) bool { return i.id == id && i.region == region })
	if n < 0 {
		return nil, refuse(http.StatusBadRequest, "InvalidAMIID.Unavailable", "The image ID '[%s]' is no longer available", id)
	}
	c.images = slices.Delete(c.images, n, n+1)
	return done{true}, nil
}

func (c *Cloud) describeSnapshots(region string, f url.Values) (answer any, no *fault) {
	type one struct {
		ID      string    `xml:"snapshotId"`
		State   string    `xml:"status"`
		Started string    `xml:"startTime"`
		GB      int       `xml:"volumeSize"`
		Tags    item[tag] `xml:"tagSet"`
	}
	var out struct {
		Set  item[one] `xml:"snapshotSet"`
		Next string    `xml:"nextToken,omitempty"`
	}
	var all []one
	for _, s := range c.snapshots {
		if s.region == region && fits(filtersOf(f), s.tags, nil) {
			all = append(all, one{s.id, "completed", s.created.UTC().Format("2006-01-02T15:04:05.000Z"), s.gb, item[tag]{tagSet(s.tags)}})
		}
	}
	out.Set.Item, out.Next, no = page(c, region, "DescribeSnapshots", f, all)
	return out, no
}

func (c *Cloud) deleteSnapshot(region string, f url.Values) (any, *fault) {
	id := f.Get("SnapshotId")
	n := slices.IndexFunc(c.snapshots, func(s *snapshot) bool { return s.id == id && s.region == region })
	if n < 0 {
		return nil, refuse(http.StatusBadRequest, "InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
	}
	for _, i := range c.images {
		if i.snapshot == id {
			return nil, refuse(http.StatusBadRequest, "InvalidSnapshot.InUse", "The snapshot %s is currently in use by %s", id, i.id)
		}
	}
	c.snapshots = slices.Delete(c.snapshots, n, n+1)
	return done{true}, nil
}

// Image is what a machine was started from.
func (c *Cloud) Image(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.find(id); i != nil {
		return i.image
	}
	return ""
}

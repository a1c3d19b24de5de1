package execution

import (
	"encoding/json"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Keys in a record's metadata for the images that its task names: those that
// are made later must be like the first ones.
const (
	imagesKey = "images" // []images
	imageKey  = "image_id"
)

// images are what one of a task's requests says: by region, "" for the other
// regions, and "docker" for a container.
type images struct {
	Cloud  string            `json:"cloud,omitempty"`
	Region string            `json:"region,omitempty"`
	By     map[string]string `json:"by"`
}

// rememberImages notes the images of a task's requests. Without any nothing is
// noted.
func rememberImages(requests []task.Resources, metadata map[string]any) {
	var all []images
	some := false
	for _, r := range requests {
		all = append(all, images{Cloud: r.Cloud, Region: r.Region, By: r.ImageID})
		some = some || len(r.ImageID) > 0
	}
	if some {
		metadata[imagesKey] = all
	}
}

// imagesAt are the images of a cluster's nodes at a place: what machines start
// from, and the container on them; "" is the cloud's own and none.
func imagesAt(c *state.Cluster, at cloud.Place) (machine, container string) {
	all, ok := noted(c)
	if !ok { // of a record that keeps only one
		one := textOf(c, imageKey)
		if image, ok := strings.CutPrefix(one, "docker:"); ok {
			return "", image
		}
		return one, ""
	}
	// Several requests of one cloud may differ in their regions.
	best := -1
	for i, w := range all {
		if w.Cloud != "" && !strings.EqualFold(w.Cloud, at.Cloud) {
			continue
		}
		here := strings.EqualFold(w.Region, at.Region)
		if best < 0 && (w.Region == "" || here) || here && w.Region != "" {
			best = i
		}
	}
	if best < 0 {
		return "", ""
	}
	return pick(all[best].By, at.Region)
}

func pick(by map[string]string, region string) (machine, container string) {
	container = by["docker"]
	id, ok := by[region]
	if !ok || region == "docker" {
		id = by[""]
	}
	if image, ok := strings.CutPrefix(id, "docker:"); ok {
		return "", image
	}
	return id, container
}

// noted are the images on record, whether it was just made or read.
func noted(c *state.Cluster) ([]images, bool) {
	v, ok := c.Metadata[imagesKey]
	if !ok {
		return nil, false
	}
	if all, ok := v.([]images); ok {
		return all, true
	}
	text, err := json.Marshal(v)
	var all []images
	return all, err == nil && json.Unmarshal(text, &all) == nil
}

// startsFrom tells what the nodes of each offer start from, as providers get it:
// with docker: before it where they are containers.
func (x *Executor) startsFrom(c *state.Cluster) func(cloud.Offer) string {
	return func(o cloud.Offer) string {
		machine, container := imagesAt(c, o.Place)
		if container != "" && x.makesContainers(o.Cloud) {
			return "docker:" + container
		}
		return machine
	}
}

// makesContainers tells whether the cloud's nodes are containers themselves.
func (x *Executor) makesContainers(name string) bool {
	p, ok := x.Providers.Get(name)
	return ok && p.Features().Containers
}

// noteContainer notes the container in which everything runs on the machines
// that a cluster got.
func (x *Executor) noteContainer(c *state.Cluster) {
	_, container := imagesAt(c, c.Offer.Place)
	if container == "" || x.makesContainers(c.Offer.Cloud) {
		return
	}
	if c.Metadata == nil {
		c.Metadata = map[string]any{}
	}
	c.Metadata[remote.ImageKey] = container
}

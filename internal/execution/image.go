package execution

import "github.com/skypilot-go/sky/task"

// imageKey is the key in a record's metadata for the image of its machines:
// those that are made later must be like the first ones.
const imageKey = "image_id"

// image is what a request says about the image, as providers get it: with
// docker: before it for a container.
func image(r task.Resources) string {
	if container, ok := r.ImageID["docker"]; ok {
		return "docker:" + container
	}
	if id, ok := r.ImageID[r.Region]; ok {
		return id
	}
	return r.ImageID[""]
}

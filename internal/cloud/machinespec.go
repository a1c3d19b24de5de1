package cloud

import "strings"

// MachineSpec is what a task asks of each of its machines besides the size that its
// offer has. It travels as one value from the task over the cluster's record to the
// provider, so that machines that are made later are like the first ones. A new
// requirement of this kind is a field here, its place in the task language, and the
// providers that honour it.
type MachineSpec struct {
	DiskGB        int           `json:"-"` // of the system disk; 0: the cloud's default. The record has a column for it
	DiskTier      string        `json:"disk_tier,omitempty"`
	NetworkTier   string        `json:"network_tier,omitempty"`   // "best": the fastest network that the machines have
	LocalDisk     string        `json:"local_disk,omitempty"`     // not "": disks inside the machines are wanted and to be usable
	EphemeralGB   int           `json:"ephemeral_gb,omitempty"`   // scratch space, where machines can be given some
	PriorityClass string        `json:"priority_class,omitempty"` // where the cloud has such classes
	TPURuntime    string        `json:"tpu_runtime,omitempty"`    // software version of TPUs; "": the usual one
	TPUQueued     bool          `json:"tpu_queued,omitempty"`     // TPUs are waited for in Google's queue
	Images        []ImageChoice `json:"images,omitempty"`         // of the task's requests; none: the cloud's own
	Disks         []Disk        `json:"disks,omitempty"`          // besides the system disk, where a cloud attaches some
	// Clone is the image of another cluster's disk that machines start from. It is on record
	// from before the image is made until it is removed; nil: there is none.
	Clone *DiskImage `json:"clone,omitempty"`
}

// Disk is a further disk of each machine, with a file system that is mounted there.
type Disk struct {
	Path     string `json:"path"`
	Name     string `json:"name,omitempty"` // in the account, where it is made if it does not exist; "": it is inside the machine
	GB       int    `json:"gb,omitempty"`   // of one that is made; 0: the cloud's default
	Tier     string `json:"tier,omitempty"` // as DiskTier
	ReadOnly bool   `json:"read_only,omitempty"`
	Goes     bool   `json:"goes,omitempty"` // with the machine
}

// ImageChoice is the images that one of a task's requests names: by region, "" for
// the other regions, and "docker" for a container. Cloud and Region are the
// request's; "" is any.
type ImageChoice struct {
	Cloud  string            `json:"cloud,omitempty"`
	Region string            `json:"region,omitempty"`
	By     map[string]string `json:"by"`
}

// containerPrefix marks an image that a container is made of.
const containerPrefix = "docker:"

// ImagesAt are the images of the nodes at a place: what machines start from, and
// the container on them; "" is the cloud's own and none.
func (m MachineSpec) ImagesAt(at Place) (machine, container string) {
	// Several requests of one cloud may differ in their regions.
	best := -1
	for i, w := range m.Images {
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
	return m.Images[best].In(at.Region)
}

// In are the images of one request in a region, as [MachineSpec.ImagesAt] has them.
func (c ImageChoice) In(region string) (machine, container string) {
	container = c.By["docker"]
	id, ok := c.By[region]
	if !ok || region == "docker" {
		id = c.By[""]
	}
	if image, ok := strings.CutPrefix(id, containerPrefix); ok {
		return "", image
	}
	return id, container
}

// ImageID is what nodes at a place start from, as [LaunchSpec] has it: with docker:
// before it where nodes are containers themselves.
func (m MachineSpec) ImageID(at Place, containers bool) string {
	if m.Clone != nil && m.Clone.ID != "" {
		return m.Clone.ID
	}
	machine, container := m.ImagesAt(at)
	if containers && container != "" {
		return containerPrefix + container
	}
	return machine
}

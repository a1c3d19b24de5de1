package facts

// Feature is something a task may need of a cloud.
type Feature string

const (
	Stop      Feature = "stop"
	MultiNode Feature = "multi-node"
	Spot      Feature = "spot_instance"
	Image     Feature = "image_id"
	Docker    Feature = "docker_image"
	DiskTier  Feature = "custom_disk_tier"
	NetTier   Feature = "custom_network_tier"
	Ports     Feature = "open_ports"
	Storage   Feature = "storage_mounting"
	Autostop  Feature = "autostop"
	Autodown  Feature = "autodown"
	LocalDisk Feature = "local_disk"
	CloneDisk Feature = "clone_disk_from_cluster"
)

var reasons = map[Feature]string{
	Stop:      "its machines cannot be stopped, only given back",
	MultiNode: "it rents single machines only",
	Spot:      "it sells no spot machines",
	Image:     "it starts no images of one's own",
	Docker:    "its machines cannot be started as containers of an image",
	DiskTier:  "it has one kind of disk only",
	NetTier:   "it has one kind of network only",
	Ports:     "it cannot open ports",
	Storage:   "buckets cannot be mounted there",
	LocalDisk: "its machines have no local disks to choose",
}

// Reasons says of each feature that the cloud lacks why.
func (c *Cloud) Reasons() map[Feature]string {
	out := map[Feature]string{}
	for _, f := range c.Lacks {
		out[f] = reasons[f]
	}
	return out
}

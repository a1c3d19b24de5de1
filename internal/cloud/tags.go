package cloud

import "strconv"

// Tags that machines carry on clouds that have tags. The cluster's name and the
// head's mark are those that SkyPilot uses.
const (
	TagInstallation = "sky-installation"
	TagCluster      = "skypilot-cluster-name"
	TagHash         = "sky-cluster-hash"
	TagRank         = "sky-rank"
	TagHead         = "skypilot-head-node" // "1" or "0"
)

// Tags is what identifies a cluster: the parts of id that are given.
func (id ClusterID) Tags() map[string]string {
	tags := map[string]string{}
	for key, value := range map[string]string{TagInstallation: id.Installation, TagCluster: id.Name, TagHash: id.Hash} {
		if value != "" {
			tags[key] = value
		}
	}
	return tags
}

// NodeTags is what the node of that rank carries: the user's labels, and ours,
// which win.
func (s LaunchSpec) NodeTags(rank int) map[string]string {
	tags := map[string]string{}
	for key, value := range s.Labels {
		tags[key] = value
	}
	for key, value := range s.ID.Tags() {
		tags[key] = value
	}
	tags[TagRank] = strconv.Itoa(rank)
	tags[TagHead] = "0"
	if rank == 0 {
		tags[TagHead] = "1"
	}
	return tags
}

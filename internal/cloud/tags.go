package cloud

import (
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"strconv"
	"strings"
)

// Tags that machines carry on clouds that have tags. The cluster's name and the
// head's mark are those that SkyPilot uses.
const (
	TagInstallation = "sky-installation"
	TagCluster      = "skypilot-cluster-name"
	TagHash         = "sky-cluster-hash"
	TagRank         = "sky-rank"
	TagHead         = "skypilot-head-node" // "1" or "0"
)

// Tags that say of a cluster what its record did, for when the record is lost.
const (
	tagCluster   = "sky-cluster"
	tagUserID    = "sky-user-id"
	tagUser      = "sky-user"
	tagWorkspace = "sky-workspace"
	tagNodes     = "sky-nodes"
)

// About is what a machine's tags and its cloud tell of the cluster that it belongs
// to, besides its name on the cloud; what nobody tells is empty.
type About struct {
	Cluster          string // as its user calls it
	UserID, UserName string
	Workspace        string
	Nodes            int // of the whole cluster
	Hosts            int // as in Offer
	InstanceType     string
	Spot             bool
}

// RecordTags are tags for clouds that take any text as a tag's value.
func (s LaunchSpec) RecordTags() map[string]string {
	tags := map[string]string{}
	for key, value := range map[string]string{tagCluster: s.DisplayName, tagUserID: s.UserID, tagUser: s.User, tagWorkspace: s.Workspace} {
		if value != "" {
			tags[key] = value
		}
	}
	if s.Nodes > 0 {
		tags[tagNodes] = strconv.Itoa(s.Nodes)
	}
	return tags
}

// AboutTags reads what RecordTags wrote.
func AboutTags(tags map[string]string, instanceType string, spot bool) *About {
	nodes, _ := strconv.Atoi(tags[tagNodes])
	return &About{Cluster: tags[tagCluster], UserID: tags[tagUserID], UserName: tags[tagUser], Workspace: tags[tagWorkspace],
		Nodes: nodes, InstanceType: instanceType, Spot: spot}
}

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

// AllTags are RecordTags and NodeTags.
func (s LaunchSpec) AllTags(rank int) map[string]string {
	tags := s.RecordTags()
	maps.Copy(tags, s.NodeTags(rank))
	return tags
}

// Has reports whether tags are those of a machine of id's.
func (id ClusterID) Has(tags map[string]string) bool {
	for k, v := range id.Tags() {
		if tags[k] != v {
			return false
		}
	}
	return true
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

// ShortHashLen is the length of the digest in a short hash.
const ShortHashLen = 8

// ShortHash is a cluster's hash on clouds that have no tags, only names: a digest
// behind "~". A node's Hash is that where nobody knows the whole one.
func ShortHash(hash string) string {
	if strings.HasPrefix(hash, "~") {
		return hash
	}
	sum := sha256.Sum256([]byte("hash " + hash))
	return "~" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:ShortHashLen])
}

// SameHash reports whether two hashes, one of them maybe short, are of one cluster.
func SameHash(a, b string) bool {
	if strings.HasPrefix(a, "~") != strings.HasPrefix(b, "~") {
		a, b = ShortHash(a), ShortHash(b)
	}
	return a == b
}

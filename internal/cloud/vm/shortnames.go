package vm

import (
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// ShortNames are those of machines on a cloud that takes short names only, and keeps tags
// that its lists do not show. A name has the beginning of the cluster's, a digest of the
// whole [cloud.ClusterID], and the rank:
//
//	training-4e1d0c9a2b7f-0
//
// Tags tell the rest: machines carry those of LaunchSpec.NodeTags from the moment they exist.
type ShortNames struct {
	Max int // the longest name that the cloud takes
}

var shortForm = lazyregexp.New(`-([0-9a-f]{12})-([0-9]{1,4})$`)

// Of is the name of a machine.
func (n ShortNames) Of(id cloud.ClusterID, rank int) string {
	readable := n.Max - len("-0123456789ab-9999")
	return strings.TrimRight(id.Name[:min(len(id.Name), readable)], "-") + "-" + Digest(id) + "-" + strconv.Itoa(rank)
}

// Tags are those of a machine if it is one of id's; nil: it is not. Of a whole id the name
// tells, else look is asked for the tags. Those of a machine that is new may be missing: it is
// nobody's until they are there.
func (n ShortNames) Tags(id cloud.ClusterID, name string, look func() (map[string]string, error)) (map[string]string, error) {
	part := shortForm.FindStringSubmatch(name)
	if part == nil {
		return nil, nil
	}
	if id.Installation != "" && id.Name != "" && id.Hash != "" && id.Hash != cloud.ShortHash(id.Hash) {
		if part[1] != Digest(id) {
			return nil, nil
		}
		tags := id.Tags()
		tags[cloud.TagRank] = part[2]
		return tags, nil
	}
	tags, err := look()
	found := cloud.ClusterID{Installation: tags[cloud.TagInstallation], Name: tags[cloud.TagCluster], Hash: tags[cloud.TagHash]}
	if err != nil || part[1] != Digest(found) || // they are another machine's
		id.Installation != "" && id.Installation != found.Installation || id.Name != "" && id.Name != found.Name || id.Hash != "" && !cloud.SameHash(id.Hash, found.Hash) {
		return nil, err
	}
	return tags, nil
}

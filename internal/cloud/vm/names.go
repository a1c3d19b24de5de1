package vm

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Names are those of machines, and of what goes with them, on a cloud that has no
// tags. A name tells the cluster and the rank, and digests of the installation and of
// the cluster's hash:
//
//	web-4k1s0d9q2u7e3a-0
//
// What is listed under a whole ClusterID has its tags. Where the hash is not known, as
// when all clusters are listed, it is its digest (see [cloud.ShortHash]).
type Names struct {
	Max int // the longest name that the cloud takes
}

const (
	installationDigits = 6
	hashDigits         = cloud.ShortHashLen
	mostRankDigits     = 4
)

var nameForm = lazyregexp.New(fmt.Sprintf(`^(.+)-([0-9a-v]{%d})([0-9a-v]{%d})-([0-9]{1,%d})$`, installationDigits, hashDigits, mostRankDigits))

// MaxCluster is the longest name that a cluster may have.
func (n Names) MaxCluster() int {
	return n.Max - installationDigits - hashDigits - mostRankDigits - 2
}

// Of is the name of a machine.
func (n Names) Of(id cloud.ClusterID, rank int) string {
	return n.Cluster(id) + "-" + strconv.Itoa(rank)
}

// Cluster is the name of what belongs to a whole cluster: each machine's begins so.
func (n Names) Cluster(id cloud.ClusterID) string {
	return id.Name + "-" + installation(id.Installation) + strings.TrimPrefix(cloud.ShortHash(id.Hash), "~")
}

// Tags are what the tags of a machine would be, if it is one of id's.
func (n Names) Tags(id cloud.ClusterID, name string) (map[string]string, bool) {
	part := nameForm.FindStringSubmatch(name)
	if part == nil {
		return nil, false
	}
	found := cloud.ClusterID{Installation: "~" + part[2], Name: part[1], Hash: "~" + part[3]}
	switch {
	case id.Installation != "" && installation(id.Installation) != part[2],
		id.Name != "" && id.Name != found.Name,
		id.Hash != "" && !cloud.SameHash(id.Hash, found.Hash):
		return nil, false
	}
	if id.Installation != "" {
		found.Installation = id.Installation
	}
	if id.Hash != "" {
		found.Hash = id.Hash
	}
	tags := found.Tags()
	tags[cloud.TagRank] = part[4]
	return tags, true
}

var plain = lazyregexp.New(`^[a-z0-9-]+$`)

// PlainName reports whether a name has small letters, digits and dashes only, which every
// cloud takes.
func PlainName(name string) bool { return plain.MatchString(name) }

// Digest tells apart what the names of clusters alone do not, in 12 digits:
// installations and incarnations.
func Digest(id cloud.ClusterID) string {
	sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Name + "\x00" + id.Hash))
	return fmt.Sprintf("%x", sum[:6])
}

func installation(s string) string {
	sum := sha256.Sum256([]byte("installation " + s))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:installationDigits])
}

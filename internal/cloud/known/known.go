// Package known describes clouds for which plans can be made from price lists
// even where this build rents nothing: what they are called and what they
// cannot do.
package known

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Cloud is one cloud as planning sees it.
type Cloud struct {
	Name  string // in task files
	Lacks map[cloud.Feature]string
}

// Clouds lists them in the order in which ties between equal offers are
// decided.
var Clouds = []Cloud{
	{"aws", nil},
	{"azure", lacks(cloud.FeatureNetTier, cloud.FeatureLocalDisk)},
	{"gcp", lacks(cloud.FeatureLocalDisk)},
	{"ibm", lacks(cloud.FeatureDocker, cloud.FeatureDiskTier, cloud.FeaturePorts, cloud.FeatureNetTier, cloud.FeatureLocalDisk)},
	{"lambda", lacks(cloud.FeatureStop, cloud.FeatureSpot, cloud.FeatureImage, cloud.FeatureDiskTier, cloud.FeatureNetTier, cloud.FeatureLocalDisk)},
	{"scp", lacks(cloud.FeatureSpot, cloud.FeatureImage, cloud.FeatureDocker, cloud.FeatureDiskTier, cloud.FeatureNetTier, cloud.FeatureLocalDisk)},
	{"oci", lacks(cloud.FeatureDocker, cloud.FeatureNetTier, cloud.FeatureLocalDisk)},
	{"runpod", lacks(cloud.FeatureMultiNode, cloud.FeatureDiskTier, cloud.FeatureStorage, cloud.FeatureNetTier, cloud.FeatureLocalDisk)},
	{"cudo", lacks(cloud.FeatureSpot, cloud.FeatureImage, cloud.FeatureDocker, cloud.FeatureDiskTier, cloud.FeatureNetTier, cloud.FeatureLocalDisk)},
	{"fluidstack", lacks(cloud.FeatureSpot, cloud.FeatureImage, cloud.FeatureDiskTier, cloud.FeatureNetTier, cloud.FeatureLocalDisk)},
}

var reasons = map[cloud.Feature]string{
	cloud.FeatureStop:      "its machines cannot be stopped, only given back",
	cloud.FeatureMultiNode: "it rents single machines only",
	cloud.FeatureSpot:      "it sells no spot machines",
	cloud.FeatureImage:     "it starts no images of one's own",
	cloud.FeatureDocker:    "its machines cannot be started as containers of an image",
	cloud.FeatureDiskTier:  "it has one kind of disk only",
	cloud.FeatureNetTier:   "it has one kind of network only",
	cloud.FeaturePorts:     "it cannot open ports",
	cloud.FeatureStorage:   "buckets cannot be mounted there",
	cloud.FeatureLocalDisk: "its machines have no local disks to choose",
}

func lacks(features ...cloud.Feature) map[cloud.Feature]string {
	out := map[cloud.Feature]string{}
	for _, f := range features {
		out[f] = reasons[f]
	}
	return out
}

// Find returns the cloud of that name.
func Find(name string) (Cloud, bool) {
	i := slices.IndexFunc(Clouds, func(c Cloud) bool { return c.Name == strings.ToLower(name) })
	if i < 0 {
		return Cloud{}, false
	}
	return Clouds[i], true
}

// Names lists the clouds' names.
func Names() []string {
	var names []string
	for _, c := range Clouds {
		names = append(names, c.Name)
	}
	return names
}

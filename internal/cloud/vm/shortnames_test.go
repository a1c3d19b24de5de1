package vm

import (
	"errors"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestShortNames(t *testing.T) {
	n := ShortNames{Max: 28}
	mine := cloud.ClusterID{Installation: "inst", Name: "training-of-something-large", Hash: "0123-hash"}
	spec := cloud.LaunchSpec{ID: mine}
	for _, name := range []string{mine.Name, "a", "training-a", "traini---------ng"} {
		id := mine
		id.Name = name
		if got := n.Of(id, 9999); len(got) > n.Max || strings.Contains(got, "--") || !strings.HasPrefix(got, name[:1]) {
			t.Errorf("%s: %q", name, got)
		}
	}
	like := mine
	like.Name += "r"
	if n.Of(mine, 0) == n.Of(like, 0) {
		t.Error("two clusters have the same name")
	}
	broken := errors.New("no answer")
	for _, tt := range []struct {
		what string
		id   cloud.ClusterID
		name string
		tags map[string]string
		err  error
		ours bool
	}{
		{"itself needs no tags", mine, n.Of(mine, 12), nil, broken, true},
		{"another's that begins alike", like, n.Of(mine, 12), nil, broken, false},
		{"everything", cloud.ClusterID{Installation: "inst"}, n.Of(mine, 12), spec.NodeTags(12), nil, true},
		{"everything, before there are tags", cloud.ClusterID{Installation: "inst"}, n.Of(mine, 12), nil, nil, false},
		{"everything, without an answer", cloud.ClusterID{Installation: "inst"}, n.Of(mine, 12), nil, broken, false},
		{"everything of another installation", cloud.ClusterID{Installation: "other"}, n.Of(mine, 12), spec.NodeTags(12), nil, false},
		{"by the short hash", cloud.ClusterID{Installation: "inst", Name: mine.Name, Hash: cloud.ShortHash(mine.Hash)}, n.Of(mine, 12), spec.NodeTags(12), nil, true},
		{"by another short hash", cloud.ClusterID{Installation: "inst", Name: mine.Name, Hash: cloud.ShortHash("x")}, n.Of(mine, 12), spec.NodeTags(12), nil, false},
		{"a copy of the tags", cloud.ClusterID{Installation: "inst"}, n.Of(like, 12), spec.NodeTags(12), nil, false},
		{"somebody else's", cloud.ClusterID{Installation: "inst"}, "web-1", nil, broken, false},
	} {
		tags, err := n.Tags(tt.id, tt.name, func() (map[string]string, error) { return tt.tags, tt.err })
		asked := strings.Contains(tt.what, "without an answer")
		if (tags != nil) != tt.ours || (err != nil) != asked {
			t.Errorf("%s: %v, %v", tt.what, tags, err)
		}
		if tt.ours && (tags[cloud.TagCluster] != mine.Name || tags[cloud.TagRank] != "12" || !cloud.SameHash(tags[cloud.TagHash], mine.Hash)) {
			t.Errorf("%s: %v", tt.what, tags)
		}
	}
}

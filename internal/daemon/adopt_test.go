package daemon

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
)

func TestAStrayIsTakenBackAsFarAsItsTagsTell(t *testing.T) {
	now, me := time.Now(), state.User{ID: "me", Name: "root"}
	tags := cloud.LaunchSpec{DisplayName: "train", UserID: "u1", User: "ada", Workspace: "lab", Nodes: 2}.RecordTags()
	node := func(rank int, s cloud.NodeState, about *cloud.About) cloud.Node {
		return cloud.Node{Rank: rank, State: s, Place: cloud.Place{Cloud: "fluffy", Region: "r", Zone: "z"}, About: about}
	}
	about := cloud.AboutTags(tags, "big", true)
	c, err := adopted(provision.Stray{Cloud: "fluffy", Cluster: "train-u1", Hash: "h", Since: now, Nodes: []cloud.Node{
		node(1, cloud.NodeRunning, about), node(0, cloud.NodeRunning, about), node(1, cloud.NodeGone, about)}}, me, now)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "train" || c.NameOnCloud != "train-u1" || c.Hash != "h" || c.UserHash != "u1" || c.UserName != "ada" || c.Workspace != "lab" ||
		c.NumNodes != 2 || len(c.Nodes) != 2 || c.Nodes[0].Rank != 0 || c.Offer.InstanceType != "big" || !c.Offer.Spot || c.Offer.Zone != "z" ||
		c.Status != api.ClusterInit || c.Certs.Equal(state.Sealed{}) || c.Epoch != state.LateEpoch(now) {
		t.Errorf("%+v", c)
	}
	// Without tags of ours the caller has it, under its name on the cloud.
	c, err = adopted(provision.Stray{Cluster: "x-1", Nodes: []cloud.Node{node(0, cloud.NodeStopped, nil)}}, me, now)
	if err != nil || c.Name != "x-1" || c.UserHash != "me" || c.Workspace != "default" || c.Status != api.ClusterStopped {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := adopted(provision.Stray{Nodes: []cloud.Node{node(1, cloud.NodeRunning, nil)}}, me, now); err == nil {
		t.Error("a cluster without its head was taken back")
	}
}

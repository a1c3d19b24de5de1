package daemon

import (
	"slices"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

func TestWhatIsOnAContext(t *testing.T) {
	at := func(name, cloudName, region, workspace string) *state.Cluster {
		return &state.Cluster{Name: name, Workspace: workspace, Offer: cloud.Offer{Place: cloud.Place{Cloud: cloudName, Region: region}}}
	}
	all := []*state.Cluster{
		at("mine", "kubernetes", "kind-dev", "default"), at("theirs", "kubernetes", "kind-dev", "team"),
		at("elsewhere", "kubernetes", "prod", "default"), at("other", "aws", "kind-dev", "default"),
	}
	seen, others := onContext(all, "kind-dev", func(workspace string) bool { return workspace == "default" })
	if !slices.Equal(seen, []string{"mine"}) || others != 1 {
		t.Errorf("%v, %d", seen, others)
	}
	if seen, others := onContext(all, "kind-none", func(string) bool { return true }); len(seen)+others > 0 {
		t.Errorf("%v, %d", seen, others)
	}
	if name, context := kindCluster(nil); name != "skypilot" || context != "kind-skypilot" {
		t.Error(name, context)
	}
	if name, context := kindCluster(new("dev")); name != "dev" || context != "kind-dev" {
		t.Error(name, context)
	}
}

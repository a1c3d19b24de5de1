package cluster

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

func TestHowAClusterEnded(t *testing.T) {
	spot := cloud.Offer{Spot: true}
	for _, tt := range []struct {
		c    state.Cluster
		want string
	}{
		{state.Cluster{AutostopMinutes: -1}, "ended outside of sky: why"},
		{state.Cluster{AutostopMinutes: -1, Offer: spot}, "preempted by the cloud, or ended outside of sky: why"},
		{state.Cluster{AutostopMinutes: 5, AutostopDown: true, Status: api.ClusterAutostopping, Offer: spot}, "autodowned: why"},
		{state.Cluster{AutostopMinutes: 5, AutostopDown: true, Status: api.ClusterUp}, "autodowned, which was set for 5 idle minutes, or ended outside of sky: why"},
		{state.Cluster{AutostopMinutes: 5, Status: api.ClusterUp}, "ended outside of sky: why"},
	} {
		if got := ended(&tt.c, "why"); got != tt.want || !foundGone(got) {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
	if foundGone(terminatedBy+"ada") || foundGone("launch failed: x") {
		t.Error("what sky gave back was found gone")
	}
}

func TestTroubleSaysWhatItMeansForAutostop(t *testing.T) {
	for _, tt := range []struct {
		c    state.Cluster
		to   api.ClusterStatus
		says string
	}{
		{state.Cluster{Status: api.ClusterUp, AutostopMinutes: 5}, api.ClusterInit, "its autostop of 5 idle minutes may not come"},
		{state.Cluster{Status: api.ClusterUp, AutostopMinutes: 5, AutostopDown: true}, api.ClusterInit, "its autodown of 5 idle minutes may not come"},
		{state.Cluster{Status: api.ClusterUp, AutostopMinutes: -1}, api.ClusterInit, ""},
		{state.Cluster{Status: api.ClusterInit, AutostopMinutes: 5}, api.ClusterInit, ""},
		{state.Cluster{Status: api.ClusterUp, AutostopMinutes: 5}, api.ClusterStopped, ""},
	} {
		got := withAutostop(&tt.c, tt.to, "why")
		if !strings.HasPrefix(got, "why") || !strings.Contains(got, tt.says) || tt.says == "" && got != "why" {
			t.Errorf("%+v to %s: %q", tt.c, tt.to, got)
		}
	}
}

func TestTheSameMachinesAgain(t *testing.T) {
	o := cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "us-east-1", Zone: "us-east-1a"}, InstanceType: "p3.2xlarge", Spot: true}
	if got := Again(o, 2); got != "--infra aws/us-east-1/us-east-1a --instance-type p3.2xlarge --num-nodes 2 --use-spot" {
		t.Error(got)
	}
}

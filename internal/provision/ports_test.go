package provision

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// featured is a provider that says nothing but what it can do.
type featured struct {
	cloud.Provider
	f cloud.Features
}

func (p featured) Features() cloud.Features { return p.f }

func TestWhosePortsAreOpened(t *testing.T) {
	replica, users := state.Holder{Kind: state.HeldByService, ID: "chat-1"}, state.Holder{}
	for _, tt := range []struct {
		name   string
		f      cloud.Features
		holder state.Holder
		want   bool
	}{
		{"a user's cluster", cloud.Features{}, users, true},
		{"a replica", cloud.Features{}, replica, true},
		{"a replica where ports cannot be opened", cloud.Features{Lacks: map[cloud.Feature]string{cloud.FeaturePorts: ""}}, replica, false},
		{"a replica that would get a load balancer of its own", cloud.Features{PortsMade: true}, replica, false},
		{"a user's cluster that gets one", cloud.Features{PortsMade: true}, users, true},
	} {
		if got := OpensPorts(featured{f: tt.f}, &state.Cluster{Holder: tt.holder}); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

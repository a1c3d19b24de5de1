package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// placed is a cloud whose nodes are on the server's machine, or are not.
type placed struct {
	cloud.Provider
	name     string
	onServer bool
}

func (p placed) Name() string             { return p.name }
func (p placed) Features() cloud.Features { return cloud.Features{OnServer: p.onServer} }

func TestOnlyTheServerThatMadeThemReachesNodesOnItsMachine(t *testing.T) {
	clouds := cloud.NewRegistry(placed{name: "here", onServer: true}, placed{name: "far"})
	for _, tt := range []struct {
		name           string
		server, marked string // "": it does not say
		cloud          string
		want           bool
	}{
		{"made on this machine", "a", "a", "here", true},
		{"made on another machine", "b", "a", "here", false},
		{"nodes that every server reaches", "b", "a", "far", true},
		{"of a cloud that is not known any more", "b", "a", "moon", true},
		{"nobody noted where it was made", "b", "", "here", true},
		{"one server alone", "", "a", "here", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &state.Cluster{Name: "dev", Offer: cloud.Offer{Place: cloud.Place{Cloud: tt.cloud}}}
			(&Manager{Deps: Deps{Machine: tt.marked}}).Mark(c)
			err := (&Manager{Deps: Deps{Machine: tt.server, Providers: clouds}}).Here(c)
			if (err == nil) != tt.want {
				t.Fatal(err)
			}
			if e, ok := errors.AsType[*api.Error](err); err != nil && (!ok || e.Type != api.ErrNotSupported || !strings.Contains(e.Message, tt.marked)) {
				t.Error(err)
			}
		})
	}
}

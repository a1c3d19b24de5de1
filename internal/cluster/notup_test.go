package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// Clients print the hint after the message, so it is not part of it.
func TestWhatToDoWithAClusterThatIsNotUpIsSaidOnce(t *testing.T) {
	for _, status := range []api.ClusterStatus{api.ClusterStopped, api.ClusterInit} {
		e, ok := errors.AsType[*api.Error](NotUp(&state.Cluster{Name: "dev", Status: status}, "Listing jobs"))
		if !ok || !strings.Contains(e.Hint, "sky start dev") || strings.Contains(e.Message, "sky start") || e.Attributes["cluster_status"] != string(status) {
			t.Errorf("%+v", e)
		}
	}
}

// SkyPilot's clients price the rows of a cost report themselves, and fail as a whole on
// one that they cannot.
func TestRowsOfACostReportSayWhatWasRented(t *testing.T) {
	for _, c := range []struct {
		at, instance, infra string
	}{{"aws", "m6i.large", "aws/r"}, {"aws", "", ""}, {"fluffycloud", "puff", ""}, {"local", "", ""}} {
		r := costRecord(&state.ClusterHistory{Offer: cloud.Offer{Place: cloud.Place{Cloud: c.at, Region: "r"}, InstanceType: c.instance, CPUs: 2}}, now())
		if c.infra == "" && r.Resources != nil || c.infra != "" && (r.Resources == nil || r.Resources.Infra != c.infra || r.Resources.InstanceType != c.instance) {
			t.Errorf("%+v: %+v", c, r.Resources)
		}
	}
}

//go:build unix

package execution_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

// reserving is a cloud with a reservation in a zone.
type reserving struct {
	cloud.Provider
	free    int
	refused error
	asked   *[]string // the regions of each question
	slow    bool
}

func (r reserving) Unwrap() cloud.Provider { return r.Provider }

const reservedZone = "south-a" // in the dearer region

func (r reserving) ListReservations(ctx context.Context, _ map[string]any, regions []string) ([]cloud.Reservation, error) {
	*r.asked = append(*r.asked, fmt.Sprint(regions))
	if r.slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if r.refused != nil {
		return nil, r.refused
	}
	return []cloud.Reservation{{Place: cloud.Place{Cloud: r.Name(), Region: "south", Zone: reservedZone}, InstanceType: "puff", Free: r.free}}, nil
}

// TestLaunchesGoWhereReservationsHaveRoom: the plan counts what reservations have room for, and
// the launch goes there first, although another place costs less by its price.
func TestLaunchesGoWhereReservationsHaveRoom(t *testing.T) {
	const puff = "run: x\nresources: {infra: fluffycloud, instance_type: puff"
	for _, tt := range []struct {
		name, task string
		have       reserving
		zone       string // "": another
		reserved   int
		asked      []string // in a plan
		says       string
	}{
		{"all nodes", puff + "}\nnum_nodes: 2\n", reserving{free: 2}, reservedZone, 2, []string{"[]"},
			"FluffyCloud (south-a), puff: 2 of 2 nodes on reserved machines, which are paid for already and not in the cost."},
		{"fewer than nodes, and still cheaper", puff + "}\nnum_nodes: 2\n", reserving{free: 1}, reservedZone, 1, []string{"[]"},
			"FluffyCloud (south-a), puff: 1 of 2 nodes on reserved machines"},
		{"fewer than nodes, and dearer", puff + "}\nnum_nodes: 9\n", reserving{free: 1}, "", 0, []string{"[]"}, ""},
		{"none free", puff + "}\n", reserving{}, "", 0, []string{"[]"}, ""},
		{"not listed", puff + "}\n", reserving{free: 2, refused: errors.New("may not list")}, "", 0, []string{"[]"},
			"Reservations of FluffyCloud that could not be listed do not count in the plan: may not list"},
		{"no answer", puff + "}\n", reserving{free: 2, slow: true}, "", 0, []string{"[]"},
			"do not count in the plan: there was no answer in 30s"},
		{"spot", puff + ", use_spot: true}\n", reserving{free: 2}, "", 0, nil, ""},
		{"regions", "run: x\nresources: {any_of: [{infra: fluffycloud/north, instance_type: puff}, {infra: fluffycloud/South, instance_type: puff}]}\n", reserving{free: 2}, reservedZone, 1, []string{"[north south]"}, "1 of 1 node on reserved machines"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := testbed.New(t)
				s := b.Boot(failpoint.Endless)
				var asked []string
				x := dressed(s, func(a *another) {
					tt.have.Provider, tt.have.asked = a.Provider, &asked
					a.Provider = tt.have
				})
				r := testbed.NewRequest()
				planned, err := on(x, s, r, tt.task, func(_ *cluster.Call, l *api.LaunchBody) { l.Dryrun, l.WantPlan = true, true })
				if err != nil {
					t.Fatal(err)
				}
				p := planned.Plan.Tasks[0].Chosen
				if !slices.Equal(asked, tt.asked) || p.Reserved != tt.reserved {
					t.Errorf("asked for %q; %d reserved", asked, p.Reserved)
				}
				nodes := float64(planned.Plan.Tasks[0].NumNodes - tt.reserved)
				if p.TotalHourlyPrice != p.HourlyPrice*nodes || planned.Plan.TotalCost != p.TotalHourlyPrice {
					t.Errorf("%+v costs %v", p, planned.Plan.TotalCost)
				}
				if tt.says != "" && !strings.Contains(r.Out.String(), tt.says) || tt.says == "" && strings.Contains(r.Out.String(), "reserv") {
					t.Errorf("it says\n%s", r.Out)
				}
				if _, err := on(x, s, testbed.NewRequest(), tt.task); err != nil {
					t.Fatal(err)
				}
				c := b.Cluster("dev")
				if (c.Offer.Zone == reservedZone) != (tt.zone == reservedZone) {
					t.Errorf("launched in %s", c.Offer.Zone)
				}
				for _, n := range c.Nodes {
					if n.Place.Zone != c.Offer.Zone {
						t.Errorf("node %s is in %s", n.ID, n.Place.Zone)
					}
				}
			})
		})
	}
}

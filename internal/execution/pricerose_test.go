//go:build unix

package execution_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

// dearer is a cloud on which every machine costs more than its offer says.
type dearer struct {
	cloud.Provider
	by float64
}

func (d dearer) Unwrap() cloud.Provider { return d.Provider }

func (d dearer) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	offers, err := d.Offers(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range offers {
		if block := cloud.BlockOffer(o); block.Matches(&spec.Offer) && cloud.Dearer(spec.Offer.HourlyPrice, o.HourlyPrice*d.by) {
			return nil, &cloud.PriceError{Place: o.Place, Planned: spec.Offer.HourlyPrice, Now: o.HourlyPrice * d.by, Err: errors.New("the price rose")}
		}
	}
	return d.Provider.Launch(ctx, spec)
}

// TestALaunchWhosePriceRose: without anybody to ask the machine is had at its new price, which the
// record says, if the task allows it; a client that has agreed to less is asked, and nothing
// stays meanwhile.
func TestALaunchWhosePriceRose(t *testing.T) {
	const puff = "run: x\nresources: {infra: fluffycloud, instance_type: puff"
	agree := func(price float64) func(*cluster.Call, *api.LaunchBody) {
		return func(_ *cluster.Call, l *api.LaunchBody) { l.AgreedPrice = &price }
	}
	for _, tt := range []struct {
		name, task string
		change     []func(*cluster.Call, *api.LaunchBody)
		by         float64
		kind       string // of the error; "": it is launched
		says       []string
	}{
		{"nobody is asked", puff + "}\n", nil, 1.5, "", []string{"⚠ fluffycloud/", "the price rose"}},
		{"allowed", puff + ", max_hourly_cost: 100}\n", nil, 1.5, "", []string{"the price rose"}},
		{"not allowed", puff + ", max_hourly_cost: MOST}\n", nil, 1.5, "price", []string{"too dear", "the price rose; max_hourly_cost is $", "Price: raise max_hourly_cost"}},
		{"asked about", puff + "}\n", []func(*cluster.Call, *api.LaunchBody){agree(0.001)}, 1, api.KindPriceRose, []string{"the plan said $0.001. Nothing was rented."}},
		{"asked about, as it rose", puff + "}\n", []func(*cluster.Call, *api.LaunchBody){nil}, 1.5, api.KindPriceRose, []string{"the plan said $", "Nothing was rented."}},
		{"agreed to", puff + "}\n", []func(*cluster.Call, *api.LaunchBody){agree(100)}, 1.5, "", []string{"the price rose"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := testbed.New(t)
				s := b.Boot(failpoint.Endless)
				r := testbed.NewRequest()
				planned, err := s.Launch(testbed.NewRequest(), "plan", strings.ReplaceAll(tt.task, "MOST", "100"), func(l *api.LaunchBody) { l.Dryrun, l.WantPlan = true, true })
				if err != nil {
					t.Fatal(err)
				}
				price := planned.Plan.Tasks[0].Chosen.HourlyPrice
				if len(tt.change) > 0 && tt.change[0] == nil {
					tt.change[0] = agree(price)
				}
				x := dressed(s, func(a *another) { a.Provider = dearer{a.Provider, tt.by} })
				_, err = on(x, s, r, strings.ReplaceAll(tt.task, "MOST", fmt.Sprint(price*1.2)), tt.change...)
				text := r.Out.String()
				if tt.kind == "" {
					c := b.Cluster("dev")
					if err != nil || c.Status != api.ClusterUp || c.Offer.HourlyPrice != price*tt.by {
						t.Errorf("%v; it costs %v, planned with %v", err, c.Offer.HourlyPrice, price)
					}
				} else {
					e, _ := errors.AsType[*api.Error](err)
					if e == nil || e.Type != api.ErrResourcesUnavailable || e.Details["kind"] != tt.kind {
						t.Fatalf("%v", err)
					}
					if now := e.Details["hourly_price"]; tt.kind == api.KindPriceRose && now != price*tt.by {
						t.Errorf("it costs %v now, want %v", now, price*tt.by)
					}
					text += err.Error()
					b.WantNothingLeft("dev")
				}
				for _, want := range tt.says {
					if !strings.Contains(text, want) {
						t.Errorf("%q is not said:\n%s", want, text)
					}
				}
			})
		})
	}
}

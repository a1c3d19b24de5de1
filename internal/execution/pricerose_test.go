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

func (d dearer) Available(ctx context.Context, o cloud.Offer, _ int) (a cloud.Availability, err error) {
	a.Verdict = cloud.AvailabilityUnknown
	offers, err := d.Offers(ctx)
	for _, x := range offers {
		if block := cloud.BlockOffer(x); block.Matches(&o) && cloud.Dearer(o.HourlyPrice, x.HourlyPrice*d.by) {
			a.Price, a.Reason = x.HourlyPrice*d.by, "the price rose"
		}
	}
	return a, err
}

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
		{"allowed by one of two requests", "run: x\nresources: {infra: fluffycloud, any_of: [{instance_type: puff, max_hourly_cost: MOST}, {instance_type: puff, max_hourly_cost: 100}]}\n", nil, 1.5, "", []string{"the price rose"}},
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

// TestStartingAClusterWhosePriceRose: what the task of its launch allowed bounds also a start, and
// a task that is launched onto the cluster may say another bound, which holds from then on.
func TestStartingAClusterWhosePriceRose(t *testing.T) {
	const puff = "run: x\nresources: {infra: fluffycloud, instance_type: puff"
	for _, tt := range []struct {
		name  string
		first float64 // what the first task allows, as a multiple of the price; 0: anything
		task  string  // that is launched onto the stopped cluster; "": it is started
		most  float64 // that it allows
		says  string
		fails bool
		bound float64 // that is on record then
	}{
		{name: "started", first: 2, says: "it cost $", bound: 2},
		{name: "started, and nothing bounds it", says: "it cost $"},
		{name: "started above its bound", first: 1.2, fails: true, says: "max_hourly_cost is $", bound: 1.2},
		{name: "launched onto, with no bound of its own", first: 1.2, task: "run: x\n", fails: true, says: "max_hourly_cost is $", bound: 1.2},
		{name: "launched onto, with a higher bound", first: 1.2, task: puff + ", max_hourly_cost: MOST}\n", most: 2, says: "it cost $", bound: 2},
		{name: "launched onto, with a bound where there was none", task: puff + ", max_hourly_cost: MOST}\n", most: 1.2, fails: true, says: "max_hourly_cost is $"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := testbed.New(t)
				s := b.Boot(failpoint.Endless)
				planned, err := s.Launch(testbed.NewRequest(), "plan", puff+"}\n", func(l *api.LaunchBody) { l.Dryrun, l.WantPlan = true, true })
				if err != nil {
					t.Fatal(err)
				}
				price := planned.Plan.Tasks[0].Chosen.HourlyPrice
				with := func(task string, times float64) string {
					return strings.ReplaceAll(task, "MOST", fmt.Sprint(price*times))
				}
				first := puff + "}\n"
				if tt.first > 0 {
					first = puff + ", max_hourly_cost: MOST}\n"
				}
				if _, err := s.Launch(testbed.NewRequest(), "dev", with(first, tt.first)); err != nil {
					t.Fatal(err)
				}
				if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
					t.Fatal(err)
				}
				x := dressed(s, func(a *another) { a.Provider = dearer{a.Provider, 1.5} })
				r := testbed.NewRequest()
				if tt.task == "" {
					_, err = x.Start(s.Context(), s.Call(r), api.StartBody{ClusterName: "dev"})
				} else {
					_, err = on(x, s, r, with(tt.task, tt.most))
				}
				c, text := b.Cluster("dev"), r.Out.String()
				if tt.fails {
					e, _ := errors.AsType[*api.Error](err)
					if e == nil || e.Type != api.ErrResourcesUnavailable || e.Details["kind"] != "price" || !strings.Contains(e.Hint, "sky launch -c dev with a task whose max_hourly_cost is higher") {
						t.Fatalf("%v", err)
					}
					text += err.Error()
				} else if err != nil || c.Status != api.ClusterUp || c.Offer.HourlyPrice != price*1.5 {
					t.Errorf("%v; %s costs %v, and cost %v", err, c.Status, c.Offer.HourlyPrice, price)
				}
				if !strings.Contains(text, tt.says) || !strings.Contains(text, fmt.Sprintf("costs $%.4g an hour now", price*1.5)) || c.Offer.MaxHourlyCost != price*tt.bound {
					t.Errorf("the bound is %v, %q is not said:\n%s", c.Offer.MaxHourlyCost, tt.says, text)
				}
				if tt.fails { // once the price has fallen it starts
					b.WantMachines("dev stopped")
					if err := s.Start(testbed.NewRequest(), "dev"); err != nil || b.Cluster("dev").Status != api.ClusterUp {
						t.Errorf("%v, %s", err, b.Cluster("dev").Status)
					}
				}
			})
		})
	}
}

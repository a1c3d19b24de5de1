package fluffycloud_test

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

func offer(zone string, spot bool) cloud.Offer {
	return cloud.Offer{Place: cloud.Place{Cloud: fluffycloud.Name, Region: "east", Zone: zone}, InstanceType: "puff-2", Spot: spot}
}

// memory is the contract's harness over a cloud in memory.
func memory(t testing.TB) cloudtest.Harness {
	h, _ := memoryWith(t, func(a fluffyapi.API) fluffyapi.API { return a })
	return h
}

func memoryWith(t testing.TB, through func(fluffyapi.API) fluffyapi.API) (cloudtest.Harness, *model.Cloud) {
	cfg := model.Default(1)
	cfg.PageSize = 7
	c, err := model.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	provider := func(testing.TB) cloud.Provider {
		return fluffycloud.New(fluffycloud.Options{API: through(c.Account("ann", "owner"))})
	}
	check := func(t testing.TB, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	inject := func(t testing.TB, f model.Fault) {
		t.Helper()
		check(t, c.Inject(f))
	}
	spot, elsewhere := offer("east-a", true), offer("east-b", false)
	return cloudtest.Harness{
		Unasked:  "launches learn of a lack of room by the refusal, as on most large clouds",
		Provider: provider(t), Another: provider,
		Spec: cloud.LaunchSpec{Offer: offer("east-a", false), MachineSpec: cloud.MachineSpec{DiskGB: 10}, AuthorizedKey: "ssh-ed25519 AAAA"},
		Spot: &spot, Elsewhere: &elsewhere, Beside: &elsewhere,
		Restore: func(t testing.TB) {
			c.Remove("")
			check(t, c.SetCapacity("east-a", "puff-2", -1))
			check(t, c.SetQuota("ann", "east", "cpus", -1))
			check(t, c.Skew(0))
		},
		Fill: func(t testing.TB, o cloud.Offer, left int) { check(t, c.Leave(o.Zone, o.InstanceType, left)) },
		Quota: func(t testing.TB, o cloud.Offer, left int) {
			check(t, c.LeaveQuota("ann", o.Zone, o.InstanceType, o.Spot, left))
		},
		Throttle: func(t testing.TB) { inject(t, model.Fault{Kind: model.Throttle}) },
		Refuse:   func(t testing.TB) { inject(t, model.Fault{Kind: model.Fail, Code: fluffyapi.Unauthorized}) },
		Forbid: func(t testing.TB) {
			for _, op := range []string{"instances.create", "firewalls.put", "images.create"} {
				inject(t, model.Fault{Kind: model.Fail, Code: fluffyapi.Forbidden, Op: op})
			}
		},
		Cut:  func(t testing.TB) { inject(t, model.Fault{Kind: model.Cut}) },
		Hang: func(t testing.TB) { inject(t, model.Fault{Kind: model.Hang}) },
		Slow: func(_ testing.TB, d time.Duration) { c.SetDelays(model.Delay{Min: d, Max: d}, model.Delay{}) },
		LoseAnswers: func(t testing.TB, to cloudtest.Effect, times int) {
			inject(t, model.Fault{Kind: model.Lose, Op: operation[to], Times: times})
		},
		Odd: func(t testing.TB, to cloudtest.Effect) {
			inject(t, model.Fault{Kind: model.Fail, Op: operation[to], Code: cloudtest.OddCode})
		},
		Lacking: func(t testing.TB) func() int {
			const most = 1 << 20
			inject(t, model.Fault{Kind: model.Fail, Op: operation[cloudtest.Creating], Code: fluffyapi.NotFound, Times: most})
			return func() int { return most - c.Faults()[0].Times }
		},
		Linger: func(t testing.TB, lists int) {
			inject(t, model.Fault{Kind: model.Linger, Times: lists, Code: cloudtest.OddCode})
		},
		Conflict: func(t testing.TB, times int) {
			inject(t, model.Fault{Kind: model.Fail, Op: "firewalls.delete", Code: fluffyapi.InUse, Times: times})
		},
		Stick: func(testing.TB) {
			c.SetDelays(model.Delay{Min: 1000 * time.Hour, Max: 1000 * time.Hour}, model.Delay{})
		},
		HideNew: func(t testing.TB, lists int) { inject(t, model.Fault{Kind: model.Hide, Times: lists}) },
		Lie: func(t testing.TB, n cloud.Node, state string) {
			inject(t, model.Fault{Kind: model.Lie, Instance: n.ID, State: state})
		},
		Kill:    func(t testing.TB, n cloud.Node) { check(t, c.Kill(n.ID, "the machine broke")) },
		Halt:    func(t testing.TB, n cloud.Node) { check(t, c.Halt(n.ID)) },
		Preempt: func(t testing.TB, n cloud.Node, in time.Duration) { check(t, c.Preempt(n.ID, in)) },
		Skew:    func(t testing.TB, by time.Duration) { check(t, c.Skew(by)) },
		Seed: func(t testing.TB, id cloud.ClusterID) {
			spec := cloud.LaunchSpec{ID: id}
			_, err := c.Account("ann", "owner").Create(t.Context(), fluffyapi.Create{
				ClientToken: id.Name, Name: id.Name, Zone: "east-a", Type: "puff-2", Tags: spec.NodeTags(0),
			})
			check(t, err)
		},
		Write: func(t testing.TB, n cloud.Node, name, data string) { check(t, c.Write(n.ID, name, data)) },
		Read: func(t testing.TB, n cloud.Node, name string) string {
			data, err := c.Read(n.ID, name)
			check(t, err)
			return data
		},
		Billed:    func(_ testing.TB, n cloud.Node) bool { return billed(c, n.ID) },
		Inventory: func(testing.TB) []string { return inventory(c) },
		OpenPorts: func(_ testing.TB, n cloud.Node) []string { return openPorts(c, n.ID) },
	}, c
}

// operation is what the API calls an effect.
var operation = map[cloudtest.Effect]string{
	cloudtest.Creating: "instances.create", cloudtest.Starting: "instances.start",
	cloudtest.Stopping: "instances.stop", cloudtest.Terminating: "instances.terminate",
	cloudtest.Imaging: "images.create", cloudtest.Dropping: "images.delete",
}

func billed(c *model.Cloud, id string) bool {
	for _, m := range c.Machines() {
		if m.ID == id {
			return m.Billed
		}
	}
	return false
}

func inventory(c *model.Cloud) []string {
	var things []string
	for _, m := range c.Machines() {
		if m.State != fluffyapi.Terminated {
			things = append(things, "instance "+m.Name)
		}
	}
	for _, f := range c.Firewalls() {
		things = append(things, "firewall "+f.Name)
	}
	for _, i := range c.Images() {
		things = append(things, "image "+i.Name)
	}
	return things
}

func openPorts(c *model.Cloud, id string) []string {
	for _, m := range c.Machines() {
		for _, f := range c.Firewalls() {
			if m.ID == id && m.Firewall == f.Name {
				return f.Ports
			}
		}
	}
	return nil
}

func TestTheContractHoldsInMemory(t *testing.T) { cloudtest.RunVirtual(t, memory) }

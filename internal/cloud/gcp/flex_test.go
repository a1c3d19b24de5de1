package gcp

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestGroups(t *testing.T) {
	virtual(t, func(b *bed) {
		spec := b.spec("web", 2)
		spec.Offer.InstanceType, spec.Offer.Accelerators, spec.ImageID = "g2-standard-4", map[string]float64{"L4": 1}, plain(here)[0]
		group := map[string]any{"run_duration": 7200, "provision_timeout": 1200}
		spec.Settings = map[string]any{"managed_instance_group": group, "placement_policy": "compact"}
		serve := func() *Provider {
			o := quick
			o.Poll, o.Transport = 10*time.Second, b.fake
			return New(o)
		}
		b.p = serve()
		clean := func(when string) {
			t.Helper()
			if left := strings.Join(b.fake.Inventory(), ";"); strings.Contains(left, "web") {
				t.Errorf("%s, left: %s", when, left)
			}
		}
		if limit := b.p.LaunchLimit(spec); limit < 20*time.Minute {
			t.Errorf("a launch may take %v", limit)
		}

		// There is room after ten minutes, and the server dies meanwhile: the next one waits for
		// the same request.
		b.fake.Fill(here.Zone, "g2-standard-4", 1)
		room := time.AfterFunc(10*time.Minute, func() { b.fake.Restore() })
		defer room.Stop()
		dying, kill := context.WithTimeout(b.Context(), 3*time.Minute)
		defer kill()
		if err := b.p.Prepare(dying, spec); err != nil {
			t.Fatal(err)
		}
		if _, err := b.p.Launch(dying, spec); err == nil {
			t.Fatal("it has room at once")
		}
		b.p = serve()
		spec.Token = "another"
		begun := time.Now()
		nodes := b.launch(spec)
		if took := time.Since(begun); len(nodes) != 2 || took < 5*time.Minute || b.fake.called("POST", "/resizeRequests") != 1 || b.fake.called("POST", "/bulkInsert") != 0 {
			t.Errorf("after %v: %+v, %d requests", took, nodes, b.fake.called("POST", "/resizeRequests"))
		}
		has(t, b.fake.last, `"resizeBy":2`, `"requestedRunDuration":{"seconds":"7200"}`)
		has(t, b.body(nodes[1]), `"sky-rank":"1"`, `"use-managed-instance-group":"1"`)
		if strings.Contains(b.body(nodes[0]), placementName(spec.ID)) {
			t.Error("it has a placement policy")
		}
		if err := b.p.Stop(b.Context(), spec.ID); err == nil || !strings.Contains(err.Error(), "cannot be stopped") {
			t.Errorf("stopping: %v", err)
		}
		b.down(spec.ID)
		clean("ended")

		// No room in time: the request is cancelled, and what was made is given back.
		b.fake.Fill(here.Zone, "g2-standard-4", 1)
		group["provision_timeout"] = 60
		b.refused(spec, "full "+inZone)
		if b.fake.called("POST", "/cancel") != 1 {
			t.Error("the request waits on")
		}
		b.down(spec.ID)
		clean("refused")
		b.fake.Restore()

		// Machines end when their time is over.
		b.launch(spec)
		time.Sleep(2*time.Hour + time.Minute)
		for _, n := range b.nodesOf(spec.ID) {
			if n.State != cloud.NodeGone {
				t.Errorf("after its time: %+v", n)
			}
		}
		b.down(spec.ID)
		clean("over")

		// What has no GPU is rented as ever.
		plainSpec := b.spec("cpu", 1)
		plainSpec.Settings = spec.Settings
		b.launch(plainSpec)
		if b.fake.called("POST", "/bulkInsert") != 1 {
			t.Error("a machine without GPUs is of a group")
		}

		spec.Offer.Spot = true
		b.refused(spec, "invalid")
		spec.Offer.Spot = false
		group["run_duration"] = 60
		b.refused(spec, "invalid")
		group["run_duration"] = 7200
		b.fake.Deny("compute.instanceTemplates.list")
		b.refused(spec, "forbidden")
		b.down(spec.ID)
		clean("without a permission")
	})
}

func (b *bed) nodesOf(id cloud.ClusterID) []cloud.Node {
	b.Helper()
	nodes, err := b.p.Nodes(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	return nodes
}

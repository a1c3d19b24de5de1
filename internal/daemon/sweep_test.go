//go:build unix

package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/installation"
	"github.com/skypilot-go/sky/internal/state"
)

// sweep asks for one and returns what it found.
func (b *bed) sweep(body api.SweepBody) (r api.SweepReport, err error) {
	b.t.Helper()
	err = b.do("sky.sweep", "", body, &r)
	return r, err
}

// held reports whether strays are left alone until somebody has looked.
func (b *bed) held() bool { return b.d.straysHeld(context.Background()) }

// hold is what a server does that goes on with a database of before.
func (b *bed) hold() {
	b.t.Helper()
	if err := b.Store.Settings().Set(context.Background(), installation.StraysHeld, []byte("recovered")); err != nil {
		b.t.Fatal(err)
	}
}

func TestASweepListsStraysAndEndsThoseItIsToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		for _, name := range []string{"one", "two", "kept"} {
			b.launch(name, "sleep 10h")
		}
		one := b.forget("one")
		b.forget("two")
		b.hold()
		if r, err := b.sweep(api.SweepBody{}); err != nil || len(r.Strays) != 0 {
			t.Errorf("machines that are younger than the grace: %+v, %v", r, err)
		}
		time.Sleep(time.Hour)
		r, err := b.sweep(api.SweepBody{Clouds: api.Strings{"fluffycloud"}})
		if err != nil || len(r.Strays) != 2 || r.Elsewhere || len(r.Unlisted) != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		s := r.Strays[0]
		if s.ID != "fluffycloud/"+one.NameOnCloud+"/"+one.Hash || s.Cluster != one.NameOnCloud || s.ClusterHash != one.Hash || s.Ended || s.Since == 0 {
			t.Errorf("the stray is told as %+v", s)
		}
		if m := s.Machines; len(m) != 1 || m[0].ID != one.Nodes[0].ID || m[0].State != "running" || m[0].Zone != one.Offer.Zone || m[0].IP == "" {
			t.Errorf("its machines are told as %+v", m)
		}
		if len(b.Machines()) != 3 || !b.held() {
			t.Errorf("a look changed something: %v, strays held: %t", b.Machines(), b.held())
		}
		// One of them by its id; both the other one and what has a record stay.
		if r, err = b.sweep(api.SweepBody{Terminate: true, Strays: []string{s.ID}}); err != nil || !r.Strays[0].Ended || r.Strays[1].Ended {
			t.Errorf("%+v, %v", r, err)
		}
		if m := b.Machines(); len(m) != 2 || b.held() {
			t.Errorf("machines: %v, strays held: %t", m, b.held())
		}
		if r, err = b.sweep(api.SweepBody{Terminate: true, GraceMinutes: new(0.0)}); err != nil || len(r.Strays) != 1 || !r.Strays[0].Ended {
			t.Errorf("%+v, %v", r, err)
		}
		if m := b.Machines(); !slices.Equal(m, []string{"kept running"}) {
			t.Errorf("machines: %v", m)
		}
	})
}

func TestASweepRefusesWhatItCannotDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.hold()
		_, err := b.sweep(api.SweepBody{Clouds: api.Strings{"nimbus"}})
		wants(t, "a cloud that is not there", err, `no cloud "nimbus" here; there are: fluffycloud`)
		_, err = b.sweep(api.SweepBody{Adopt: true, Terminate: true})
		wants(t, "both at once", err, "choose one")
		if !b.held() {
			t.Error("strays are let go by a sweep that did nothing")
		}
		// A cloud that does not answer is told about, and nothing is ended there.
		b.launch("c", "sleep 10h")
		b.Inject(model.Fault{ID: "down", Kind: model.Fail, Op: "instances.list", Code: fluffyapi.Unauthorized, Message: "who are you?"})
		r, err := b.sweep(api.SweepBody{Terminate: true})
		if err != nil || r.Unlisted["fluffycloud"] == "" || len(r.Strays) != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestStraysAreTakenBackIntoRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		for _, name := range []string{"one", "two"} {
			b.launch(name, "sleep 10h")
		}
		one := b.forget("one")
		b.forget("two")
		r, err := b.sweep(api.SweepBody{GraceMinutes: new(0.0)})
		if err != nil || len(r.Strays) != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		r, err = b.sweep(api.SweepBody{Adopt: true, Strays: []string{r.Strays[0].ID}}) // however young
		if err != nil || r.Strays[0].Adopted != "one" || r.Strays[0].Error != "" || r.Strays[1].Adopted != "" {
			t.Fatalf("%+v, %v", r, err)
		}
		c := b.Cluster("one")
		if c == nil || c.Status != api.ClusterUp || c.Hash != one.Hash || c.Offer.HourlyPrice != one.Offer.HourlyPrice || c.UserHash != one.UserHash {
			t.Fatalf("on record again as %+v", c)
		}
		if b.Cluster("two") != nil {
			t.Error("another stray was taken back, too")
		}
		// It can be worked with, and is given back like any other.
		var jobs []api.JobRecord
		if err := b.do("sky.queue", "one", api.QueueBody{ClusterName: "one"}, &jobs); err != nil || len(jobs) != 1 || jobs[0].Status != api.JobRunning {
			t.Errorf("its jobs: %+v, %v", jobs, err)
		}
		if err := b.do("sky.down", "one", api.StopBody{ClusterName: "one"}, nil); err != nil {
			t.Error(err)
		}
		if m := b.Machines(); len(m) != 1 {
			t.Errorf("machines: %v", m)
		}
	})
}

func TestAStrayWhoseNameIsTakenGetsItsNameOnTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.launch("one", "sleep 10h")
		old := b.forget("one")
		other := *old
		other.Hash, other.NameOnCloud, other.Nodes, other.Offer.Cloud = "another", "another", nil, "aws"
		if err := b.Store.Clusters().Create(t.Context(), &other); err != nil {
			t.Fatal(err)
		}
		r, err := b.sweep(api.SweepBody{Adopt: true})
		if err != nil || len(r.Strays) != 1 || r.Strays[0].Adopted != old.NameOnCloud {
			t.Fatalf("%+v, %v", r, err)
		}
		if c := b.Cluster(old.NameOnCloud); c == nil || c.Hash != old.Hash {
			t.Errorf("%+v", c)
		}
		// Nor does it take the place of a cluster of that name, if there is one.
		b.forget(old.NameOnCloud)
		other.Name, other.Hash = old.NameOnCloud, "a third"
		if err := b.Store.Clusters().Create(t.Context(), &other); err != nil {
			t.Fatal(err)
		}
		r, err = b.sweep(api.SweepBody{Adopt: true})
		if err != nil || len(r.Strays) != 1 || r.Strays[0].Adopted != "" || r.Strays[0].Error == "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A machine that is taken back and does not answer is on record all the same: else it
// would be paid for by nobody's knowledge.
func TestAStrayThatCannotBeReachedIsOnRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.launch("one", "sleep 10h")
		b.Head("one").Crash()
		b.forget("one")
		synctest.Wait() // its connections are closed
		b.s.Refuse("agent.start", errors.New("no shell"))
		id := b.submit("sky.sweep", "", api.SweepBody{Adopt: true})
		if err := b.wait(id, nil); err != nil {
			t.Fatal(err)
		}
		if c := b.Cluster("one"); c == nil || c.Status != api.ClusterInit {
			t.Errorf("on record as %+v", c)
		}
	})
}

// By itself the server ends what a launch gave up and reports other strays; where the
// configuration says so it ends those, too.
func TestTheServersOwnSweepEndsWhatTheConfigurationSays(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		held         bool
		left         int
	}{
		{"strays are reported", "", false, 1},
		{"strays are ended", "provision: {sweep: {terminate: true}}\n", false, 0},
		{"strays are ended, but nobody has looked at an older database yet", "provision: {sweep: {terminate: true}}\n", true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, tt.config)
				b.launch("one", "sleep 10h")
				b.forget("one")
				if _, err := b.Store.Attempts().Delete(t.Context(), time.Now().Add(time.Hour)); err != nil { // no launch of ours knows of it
					t.Fatal(err)
				}
				if tt.held {
					b.hold()
				}
				ctx, stop := context.WithCancel(b.ctx)
				ended := make(chan struct{})
				go func() { b.d.sweep(ctx); close(ended) }()
				time.Sleep(3 * time.Hour)
				if m := b.Machines(); len(m) != tt.left {
					t.Errorf("machines: %v", m)
				}
				stop()
				<-ended
			})
		})
	}
}

// A launch that was called off while no server ran leaves a cluster that never was
// up and that nobody brings up any more.
func TestAClusterThatNobodyLaunchesAnyMoreIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		for _, name := range []string{"orphan", "up", "managed"} {
			b.launch(name, "sleep 10h")
		}
		for _, name := range []string{"orphan", "up", "managed"} {
			c := b.Cluster(name)
			if _, err := b.Store.Clusters().Update(t.Context(), name, c.Hash, func(c *state.Cluster) error {
				c.Status, c.EverUp = api.ClusterInit, name == "up"
				if name == "managed" {
					c.Holder = state.JobHolder(1)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		b.d.releaseOrphans(b.ctx)
		if b.Cluster("orphan") != nil || b.Cluster("up") == nil || b.Cluster("managed") == nil {
			t.Errorf("left: %v", b.Machines())
		}
		if m := b.Machines(); len(m) != 2 {
			t.Errorf("machines: %v", m)
		}
	})
}

func TestTheChanceToGetMachinesIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.Inject(model.Fault{ID: "full", Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NoCapacity, Message: "no room", Times: 1})
		b.launch("one", "sleep 10h")
		ask := func(body api.AvailabilityBody) (list []api.Availability, err error) {
			err = b.do("sky.availability", "", body, &list)
			return list, err
		}
		list, err := ask(api.AvailabilityBody{Cloud: "fluffycloud", Ask: true})
		if err != nil || len(list) < 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		had, full := 0, 0
		for _, a := range list {
			had += a.Had
			if a.PassedOver {
				full++
				if a.PassedOverUntil <= time.Now().Unix() || a.LastMessage == "" {
					t.Errorf("%+v", a)
				}
			}
			if a.Cloud != "fluffycloud" || a.Accelerators == nil || a.Now == "" {
				t.Errorf("%+v", a)
			}
		}
		if had != 1 || full != 1 {
			t.Errorf("%d tries had machines, %d places are passed over: %+v", had, full, list)
		}
		if list, err = ask(api.AvailabilityBody{Accelerator: "H100", Quantity: new(8.0)}); err != nil || len(list) != 0 {
			t.Errorf("what nobody tried: %+v, %v", list, err)
		}
		_, err = ask(api.AvailabilityBody{Cloud: "nimbus"})
		wants(t, "a cloud that is not there", err, `no cloud "nimbus"`)
	})
}

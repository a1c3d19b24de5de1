package vm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// toy is a cloud of one machine at most, whose machines get another id with each start.
type toy struct {
	Refusals
	m         *Machine
	boots     int
	creations int
	refuse    error // of a creation
	failure   error // of the machine, later
	slow      time.Duration
	ready     time.Time
	busy      int // so often the machine is in the middle of something when it is to end
}

var nowhere = cloud.Offer{Place: cloud.Place{Cloud: "toy", Region: "r"}, InstanceType: "t"}

func toySpec() cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, Offer: nowhere, Nodes: 1, Token: "t"}
}

func (d *toy) provider(o Options) StopProvider {
	o.Cloud, o.DisplayName, o.Poll = "toy", "Toy", time.Second
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute
	}
	return NewStopping(d, o)
}

func (d *toy) List(_ context.Context, id cloud.ClusterID, _ ListScope) ([]Machine, error) {
	if d.m == nil || !id.Has(d.m.Tags) {
		return nil, nil
	}
	if d.m.State == Pending && time.Now().After(d.ready) {
		d.m.State, d.m.RawState = Running, "on"
	}
	d.m.Failure = d.failure
	return []Machine{*d.m}, nil
}

func (d *toy) boot() {
	d.boots++
	d.ready = time.Now().Add(d.slow)
	d.m.State, d.m.RawState, d.m.ID = Pending, "waking", fmt.Sprint("boot-", d.boots)
	d.m.Reach = cloud.Reach{Method: "ssh", Host: fmt.Sprint("10.0.0.", d.boots), Port: 22, User: "u"}
}

func (d *toy) Create(_ context.Context, l *Launch, _ []int) ([]string, error) {
	if d.creations++; d.refuse != nil {
		return nil, d.refuse
	}
	d.m = &Machine{Key: "machine", Region: "r", Tags: l.Spec.NodeTags(0), PublicIP: "10.0.0.1"}
	d.boot()
	return []string{"machine"}, nil
}

func (d *toy) Start(context.Context, cloud.LaunchSpec, []Machine) error { d.boot(); return nil }
func (d *toy) Stop(context.Context, cloud.ClusterID, []Machine) error {
	d.m.State, d.m.RawState = Stopped, "off"
	return nil
}
func (d *toy) Delete(context.Context, cloud.ClusterID, []Machine) error {
	if d.busy--; d.busy >= 0 {
		return &rest.Error{Status: 409, Message: "it is being moved"}
	}
	d.m = nil
	return nil
}
func (d *toy) Connect(context.Context, cloud.LaunchSpec) error { return nil }
func (d *toy) Disconnect(context.Context, cloud.ClusterID, bool) ([]string, error) {
	return nil, nil
}

// A machine that is another one after it was off is the same node, reached at its new
// address and with another host key.
func TestANodeOutlivesTheIDsOfItsMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &toy{}
		p := d.provider(Options{})
		first, err := p.Launch(t.Context(), toySpec())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(t.Context(), toySpec().ID); err != nil {
			t.Fatal(err)
		}
		again, err := p.Launch(t.Context(), toySpec())
		if err != nil {
			t.Fatal(err)
		}
		a, b := first[0], again[0]
		if a.ID != "machine" || b.ID != a.ID || b.Reach.Host == a.Reach.Host || b.Reach.HostAlias == a.Reach.HostAlias || !strings.HasPrefix(b.Reach.HostAlias, "h.") || d.creations != 1 {
			t.Errorf("%+v, then %+v; %d were made", a, b, d.creations)
		}
		if err := p.Terminate(t.Context(), toySpec().ID); err != nil || d.m != nil {
			t.Error(err)
		}
	})
}

// What a cloud finds out after it said yes is what it would have refused with.
func TestAFailureThatComesLateIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &toy{slow: time.Hour, failure: &cloud.QuotaError{Place: nowhere.Place, Err: errors.New("no more GPUs")}}
		began := time.Now()
		_, err := d.provider(Options{}).Launch(t.Context(), toySpec())
		var quota *cloud.QuotaError
		if !errors.As(err, &quota) || time.Since(began) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A state has its own limit, which another state of the same machine does not share.
func TestStatesHaveLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := Options{Limits: map[string]time.Duration{"waking": time.Minute}}
		var full *cloud.CapacityError
		if _, err := (&toy{slow: time.Hour}).provider(limits).Launch(t.Context(), toySpec()); !errors.As(err, &full) || !strings.Contains(err.Error(), `"waking"`) {
			t.Error(err)
		}
		if _, err := (&toy{slow: 50 * time.Second}).provider(limits).Launch(t.Context(), toySpec()); err != nil {
			t.Error(err)
		}
	})
}

// A machine that is in the middle of something is ended later.
func TestABusyMachineIsEndedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &toy{busy: 3}
		p := d.provider(Options{})
		if _, err := p.Launch(t.Context(), toySpec()); err != nil {
			t.Fatal(err)
		}
		if err := p.Terminate(t.Context(), toySpec().ID); err != nil || d.m != nil {
			t.Errorf("%v; left: %v", err, d.m)
		}
	})
}

// The time that a cloud's limit of calls costs is no time that machines take.
func TestALaunchHasTheTimeThatItsCallsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Timeout: time.Minute, EachTakes: 30 * time.Second}
		if _, err := (&toy{slow: 80 * time.Second}).provider(o).Launch(t.Context(), toySpec()); err != nil {
			t.Error(err)
		}
		var overdue *cloud.OverdueError
		if _, err := (&toy{slow: 2 * time.Minute}).provider(o).Launch(t.Context(), toySpec()); !errors.As(err, &overdue) {
			t.Error(err)
		}
		spec := toySpec()
		spec.Nodes = 4
		if got := (&toy{}).provider(o).LaunchLimit(spec); got != 3*time.Minute {
			t.Errorf("the engine grants %v", got)
		}
	})
}

// After a restart, what an earlier process may have asked for is waited for where calls
// cannot be repeated.
func TestAResumedLaunchWaitsBeforeItCreates(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			spec := toySpec()
			spec.Resumed = resumed
			began := time.Now()
			_, err := (&toy{}).provider(Options{NoTokens: true, Settle: time.Minute}).Launch(t.Context(), spec)
			if waited := time.Since(began) >= time.Minute; err != nil || waited != resumed {
				t.Errorf("resumed: %t, waited: %t, %v", resumed, waited, err)
			}
		})
	}
}

func TestTheMeaningsOfRefusals(t *testing.T) {
	r := Refusals{
		Cloud: "toy", DisplayName: "Toy", Fix: "log in", Fixes: map[string]string{"402": "pay"},
		Codes:    map[string]Meaning{"full": Full, "quota/*": OverQuotaAll, "odd": Unclear},
		Texts:    []Text{{Holds: "no room", Means: Full}},
		Vague:    map[string]Meaning{"no": InUse},
		Statuses: map[int]Meaning{402: BadCredentials, 418: ForbiddenHere, 422: InvalidAnywhere},
	}
	at := cloud.Place{Cloud: "toy", Region: "r", Zone: "z"}
	for _, tt := range []struct {
		err  error
		kind Kind
		want string // type, and the place that it names
	}{
		{&rest.Error{Status: 400, Code: "full"}, Refused, "*cloud.CapacityError no capacity in toy/r/z"},
		{&rest.Error{Status: 400, Code: "quota/gpus"}, Refused, "*cloud.QuotaError quota reached in toy:"},
		{&rest.Error{Status: 400, Message: "There is No Room."}, Refused, "*cloud.CapacityError no capacity in toy/r/z"},
		{&rest.Error{Status: 401}, Refused, "*cloud.AuthError toy refused"},
		{&rest.Error{Status: 402}, Refused, "*cloud.AuthError toy refused"},
		{&rest.Error{Status: 403}, Refused, "*cloud.PermissionError not permitted in toy:"},
		{&rest.Error{Status: 418}, Refused, "*cloud.PermissionError not permitted in toy/r/z"},
		{&rest.Error{Status: 404}, Missing, "*cloud.InvalidError toy/r cannot"},
		{&rest.Error{Status: 409}, Busy, "*fmt.wrapError Toy refused"},
		{&rest.Error{Status: 409, Code: "new"}, Busy, "*cloud.UnknownError Toy refused: new"},
		{&rest.Error{Status: 409, Code: "no"}, Busy, "*fmt.wrapError Toy refused: no"},
		{&rest.Error{Status: 409, Code: "no", Message: "There is no room."}, Refused, "*cloud.CapacityError no capacity in toy/r/z"},
		{&rest.Error{Status: 400, Code: "new", Message: "What nobody knows."}, Refused, "*cloud.UnknownError Toy refused: new: What nobody knows"},
		{&rest.Error{Status: 406}, Refused, "*cloud.UnknownError Toy refused"},
		{&rest.Error{Status: 422}, Refused, "*cloud.InvalidError toy cannot"},
		{&rest.Error{Status: 429}, Refused, "*cloud.ThrottledError throttled"},
		{&rest.Error{Status: 401, Code: "odd"}, Refused, "*fmt.wrapError Toy refused: odd"},
		{&rest.NoAnswerError{Cloud: "Toy", Err: errors.New("reset")}, Lost, "*cloud.UnreachableError unreachable"},
	} {
		got := r.Refusal(t.Context(), at, tt.err)
		if text := fmt.Sprintf("%T %v", got, got); !strings.HasPrefix(text, tt.want) || r.Kind(tt.err) != tt.kind {
			t.Errorf("%v: %s, kind %d; want %s, %d", tt.err, text, r.Kind(tt.err), tt.want, tt.kind)
		}
	}
	for code, want := range map[string]string{"new": "new", "": "406"} {
		var unknown *cloud.UnknownError
		err := r.Refusal(t.Context(), at, &rest.Error{Status: 406, Code: code})
		if errors.As(err, &unknown); unknown == nil || unknown.Code != want {
			t.Errorf("%q: %v is counted as %v", code, err, unknown)
		}
		if again := refusal(t.Context(), r.Refusal, at, err); again != err {
			t.Errorf("%q: said twice: %v", code, again)
		}
	}
	var auth *cloud.AuthError
	if errors.As(r.Refusal(t.Context(), at, &rest.Error{Status: 402}), &auth); auth.Fix != "pay" {
		t.Errorf("fix: %q", auth.Fix)
	}
}

// An answer that does not name the machine proves nothing: whether there is one, lists tell.
func TestAnAnswerWithoutAnID(t *testing.T) {
	d := &toy{}
	for id, want := range map[string]Kind{"a": 0, "": Lost} {
		ids, err := OneByOne(t.Context(), d, []int{0}, func(context.Context, int) (string, error) { return id, nil })
		if len(ids) != len(id) || (err != nil) != (id == "") || err != nil && kind(d, err) != want {
			t.Errorf("%q: %v, %v", id, ids, err)
		}
	}
}

// What machines are made with is prepared once, and again after a refusal.
func TestWhatIsPreparedOnce(t *testing.T) {
	l, prepared := &Launch{}, 0
	call := func(refusal error) error {
		_, err := OneByOneWith(t.Context(), &toy{}, l, []int{0}, func() (string, error) {
			prepared++
			return fmt.Sprint("network-", prepared), nil
		}, func(_ context.Context, with string, _ int) (string, error) { return with, refusal })
		return err
	}
	boom := &rest.Error{Status: 400, Message: "the network is gone"}
	for i, want := range []int{1, 1, 2} {
		if err := call([]error{nil, boom, nil}[i]); (err != nil) != (i == 1) || prepared != want {
			t.Errorf("%d: prepared %d times, want %d, %v", i, prepared, want, err)
		}
	}
	if _, err := OneByOneWith(t.Context(), &toy{}, &Launch{}, []int{0}, func() (string, error) { return "", boom }, nil); err != boom {
		t.Error(err)
	}
}

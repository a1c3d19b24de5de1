package model

import (
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// FaultKind is what goes wrong.
type FaultKind string

const (
	Fail     FaultKind = "fail"     // the call is refused with Code
	Throttle FaultKind = "throttle" // the call is refused for being one too many
	Hang     FaultKind = "hang"     // the call waits until the fault is removed or the caller leaves
	Slow     FaultKind = "slow"     // the call takes Delay longer
	Cut      FaultKind = "cut"      // no answer, and no effect
	Lose     FaultKind = "lose"     // the call has its effect, the answer is lost
	Lie      FaultKind = "lie"      // Instance is said to be in State
	Hide     FaultKind = "hide"     // what is created is left out of the next Times lists, and of all for Delay
	Linger   FaultKind = "linger"   // what is ending is running in the next Times lists, and not ended again: Code
)

// Fault makes calls go wrong.
type Fault struct {
	ID       string         `json:"id,omitempty"`
	Kind     FaultKind      `json:"kind"`
	Op       string         `json:"op,omitempty"` // such as "instances.create" or "instances.*"; empty: every call
	Account  string         `json:"account,omitempty"`
	Times    int            `json:"times,omitempty"`  // then it is over; 0: until removed
	Chance   float64        `json:"chance,omitempty"` // of striking, 0 to 1; 0: always
	Code     fluffyapi.Code `json:"code,omitempty"`
	Message  string         `json:"message,omitempty"`
	Delay    time.Duration  `json:"delay,omitempty"`
	Instance string         `json:"instance,omitempty"`
	State    string         `json:"state,omitempty"`
}

var errLost = errors.New("the connection was lost")

// Inject makes calls go wrong from now on. Faults do not survive a restart.
func (c *Cloud) Inject(f Fault) error {
	switch f.Kind {
	case Fail, Throttle, Hang, Slow, Cut, Lose, Lie, Hide, Linger:
	default:
		return fluffyapi.Errorf(fluffyapi.Invalid, "there is no kind of fault %q", f.Kind)
	}
	if _, err := path.Match(f.Op, ""); err != nil {
		return fluffyapi.Errorf(fluffyapi.Invalid, "%q is not a pattern of operations", f.Op)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gates.faults = append(c.gates.faults, &f)
	return nil
}

// Remove ends the faults with that id, all for "". Calls that hang go on.
func (c *Cloud) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gates.faults = slices.DeleteFunc(c.gates.faults, func(f *Fault) bool { return id == "" || f.ID == id })
	c.facesChanged()
}

// Faults lists what goes wrong at the moment.
func (c *Cloud) Faults() []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Fault
	for _, f := range c.gates.faults {
		out = append(out, *f)
	}
	return out
}

func (c *Cloud) facesChanged() {
	close(c.gates.change)
	c.gates.change = make(chan struct{})
}

// enter is where a call meets its faults. It reports whether the answer will
// be lost.
func (c *Cloud) enter(ctx context.Context, account, op string) (lost bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fluffyapi.NoAnswer(err)
	}
	c.mu.Lock()
	if !c.mayCall(account) {
		c.mu.Unlock()
		return false, fluffyapi.Errorf(fluffyapi.Throttled, "more than %g calls a second", c.cfg.CallRate)
	}
	struck := c.strike(account, op)
	c.mu.Unlock()
	for _, f := range struck {
		switch f.Kind {
		case Fail:
			code := f.Code
			if code == "" {
				code = fluffyapi.Internal
			}
			if code == fluffyapi.Internal {
				return false, fluffyapi.NoAnswer(fluffyapi.Errorf(code, "%s", or(f.Message, "out of order")))
			}
			return false, fluffyapi.Errorf(code, "%s", or(f.Message, "refused"))
		case Throttle:
			return false, fluffyapi.Errorf(fluffyapi.Throttled, "%s", or(f.Message, "slow down"))
		case Cut:
			return false, fluffyapi.NoAnswer(errLost)
		case Lose:
			lost = true
		case Slow:
			if err := sleep(ctx, f.Delay); err != nil {
				return false, fluffyapi.NoAnswer(err)
			}
		case Hang:
			if err := c.hang(ctx, f); err != nil {
				return false, fluffyapi.NoAnswer(err)
			}
		}
	}
	return lost, nil
}

// strike picks the faults that hit a call and counts them down.
func (c *Cloud) strike(account, op string) []*Fault {
	var struck []*Fault
	for _, f := range c.gates.faults {
		if f.Kind == Lie || f.Kind == Hide || f.Kind == Linger || f.Account != "" && f.Account != account {
			continue
		}
		if f.Op != "" {
			if ok, _ := path.Match(f.Op, op); !ok {
				continue
			}
		}
		if f.Chance > 0 && c.rng.Float64() >= f.Chance {
			continue
		}
		struck = append(struck, f)
		c.spend(f)
	}
	c.dropSpent()
	return struck
}

// spent marks a fault that has struck as often as it should.
const spent = -1

func (c *Cloud) spend(f *Fault) {
	switch {
	case f.Times > 1:
		f.Times--
	case f.Times == 1:
		f.Times = spent
	}
}

func (c *Cloud) dropSpent() {
	c.gates.faults = slices.DeleteFunc(c.gates.faults, func(f *Fault) bool { return f.Times == spent })
}

// hang waits until the fault is removed. One that has struck as often as it
// should keeps its calls until some fault is removed.
func (c *Cloud) hang(ctx context.Context, f *Fault) error {
	for {
		c.mu.Lock()
		change, standing := c.gates.change, slices.Contains(c.gates.faults, f)
		over := !standing && f.Times != spent
		c.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-change:
			if !standing {
				return nil
			}
		}
	}
}

// lie changes what is told about an instance.
func (c *Cloud) lie(i *fluffyapi.Instance) {
	for _, f := range c.gates.faults {
		if f.Kind == Lie && (f.Instance == "" || f.Instance == i.ID) {
			i.State = fluffyapi.State(f.State)
		}
	}
}

// linger is what happens when an instance is to be ended.
func (c *Cloud) linger(i *instance) error {
	for _, f := range c.gates.faults {
		switch {
		case f.Kind != Linger:
		case i.State == fluffyapi.Terminating || i.State == fluffyapi.Terminated:
			return fluffyapi.Errorf(f.Code, "%s is %s", i.ID, i.State)
		default:
			i.Stale = f.Times
		}
	}
	return nil
}

// hidden is for how many lists, and until when, something is not shown.
type hidden struct {
	lists int
	until time.Time
}

// hide reports which lists will not show what is created now.
func (c *Cloud) hide() hidden {
	for _, f := range c.gates.faults {
		if f.Kind == Hide {
			return hidden{max(1, f.Times), c.s.Now.Add(f.Delay)}
		}
	}
	return hidden{}
}

// from reports whether a list at that time lacks it.
func (h *hidden) from(now time.Time) bool {
	switch {
	case now.Before(h.until):
	case h.lists > 0:
		h.lists--
	default:
		return false
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

var portRange = regexp.MustCompile(`^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$`)

func validPorts(s string) bool { return portRange.MatchString(s) }

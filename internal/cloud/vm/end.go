package vm

import (
	"context"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Stop switches the cluster's machines off and waits until they are.
func (p StopProvider) Stop(ctx context.Context, id cloud.ClusterID) error {
	if id.Name == "" {
		return nil // no cluster has no name; the tags of none would fit all
	}
	done, err := p.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	w := &wait{what: "the machines to stop", most: p.o.SlowToEnd * p.o.Timeout}
	return p.until(ctx, w, func(ctx context.Context) (bool, error) {
		list, err := p.list(ctx, id, ListScope{})
		if err != nil {
			return false, err
		}
		w.what = p.machinesTo("stop", existing(list), list, func(m Machine) bool { return m.State == Stopped })
		var on []Machine
		rest := true
		for _, m := range list {
			switch m.State {
			case Pending, Running:
				on = append(on, m)
			case Stopping:
				rest = false
			}
		}
		if len(on) == 0 {
			return rest, nil
		}
		return false, p.call(ctx, on, func(ctx context.Context) error { return p.d.(Switch).Stop(ctx, id, on) })
	})
}

// call makes a call about machines to its end, for all of them or for none: a
// caller who leaves in the middle must not keep half of them running. That they
// changed meanwhile is no failure, and that they are busy means later.
func (p *Provider) call(ctx context.Context, about []Machine, f func(context.Context) error) error {
	err := cloud.Settled(ctx, f)
	if err == nil {
		return nil
	}
	if k := kind(p.d, err); k.changed() || k == Busy {
		return nil
	}
	at := p.at(about[0].Region)
	if slices.ContainsFunc(about, func(m Machine) bool { return m.Region != at.Region }) {
		at.Region = ""
	}
	return p.refusal(ctx, at, err)
}

// Terminate ends the cluster's machines, waits until they cost nothing, and
// removes what Prepare made.
func (p *Provider) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if id.Name == "" {
		return nil // no cluster has no name; the tags of none would fit all
	}
	done, err := p.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	if err := p.endMachines(ctx, id); err != nil {
		return err
	}
	if err := p.disconnect(ctx, id); err != nil {
		return err
	}
	p.recent.forget(id)
	return nil
}

// endMachines ends what is listed and what was lately made, and waits until both
// have ended.
func (p *Provider) endMachines(ctx context.Context, id cloud.ClusterID) error {
	looks := 0
	asked := map[string]bool{} // that were asked to end
	w := &wait{what: "the machines to end", most: p.o.Timeout}
	return p.until(ctx, w, func(ctx context.Context) (bool, error) {
		list, err := p.list(ctx, id, ListScope{Exhaustive: true})
		if err != nil {
			return false, err
		}
		if n := existing(list); n > 0 {
			w.what = p.machinesTo("end", n, list, func(Machine) bool { return false })
		} else {
			w.what = p.o.DisplayName + " to list all machines of the cluster, in case there are more"
		}
		made := p.recent.Made(id)
		if looks++; !made.Young() {
			made.machines = nil // they would be listed
		}
		rest := !made.unsure() || looks > settleLooks
		for key := range asked {
			delete(made.machines, key)
		}
		var ending, again []Machine
		for _, m := range list {
			delete(made.machines, m.key())
			switch {
			case m.State.exists() && asked[m.key()]:
				again = append(again, m)
			case m.State.exists():
				ending = append(ending, m)
			case m.State == Ending && p.o.EndingHolds:
				rest = false
			}
		}
		unlisted, err := p.endUnlisted(ctx, id, made.machines)
		if err != nil {
			return false, err
		}
		rest = rest && (!unlisted || looks > settleLooks)
		if len(again) > 0 {
			// Lists lag, and some clouds refuse to end what is ending: no news is that only if
			// it is all that they say until the time is over.
			rest = false
			if err := p.call(ctx, again, func(ctx context.Context) error { return p.d.Delete(ctx, id, again) }); err != nil && !says(err) {
				w.what += "; " + err.Error()
			} else if err != nil {
				return false, err
			}
		}
		if len(ending) == 0 {
			return rest, nil
		}
		if err := p.call(ctx, ending, func(ctx context.Context) error { return p.d.Delete(ctx, id, ending) }); err != nil {
			return false, err
		}
		for _, m := range ending {
			asked[m.key()] = true
		}
		return false, nil
	})
}

// endUnlisted ends machines that were made and are in no list yet, or not any more.
// It reports whether some of them are not known to the cloud.
func (p *Provider) endUnlisted(ctx context.Context, id cloud.ClusterID, regions map[string]string) (unknown bool, err error) {
	for machine, region := range regions {
		m := Machine{ID: machine, Region: region}
		err := cloud.Settled(ctx, func(ctx context.Context) error { return p.d.Delete(ctx, id, []Machine{m}) })
		if err == nil {
			continue
		}
		switch k := kind(p.d, err); {
		case k == Missing:
			unknown = true
		case !k.changed():
			// What is in no list may have ended, and some clouds refuse to end it again.
			if err = p.refusal(ctx, p.at(region), err); says(err) || ctx.Err() != nil {
				return false, err
			}
			unknown = true
		}
	}
	return unknown, nil
}

// disconnect removes what the machines needed, once nothing uses it any more.
func (p *Provider) disconnect(ctx context.Context, id cloud.ClusterID) error {
	looks := 0
	w := &wait{what: "the network of the machines to be free", most: p.o.SlowToEnd * p.o.Timeout}
	return p.until(ctx, w, func(ctx context.Context) (bool, error) {
		looks++
		left, err := p.d.Disconnect(ctx, id, looks > settleLooks)
		if err != nil {
			return false, p.refusal(ctx, p.at(""), err)
		}
		if len(left) > 0 {
			slices.Sort(left)
			w.what = strings.Join(left, " and ") + " to be free: the machines in it have ended, and " + p.o.DisplayName + " is still taking them apart"
			return false, p.endLate(ctx, id)
		}
		return !p.recent.Made(id).unsure() || looks > settleLooks, nil
	})
}

// endLate ends machines that were not listed when the others ended: another server
// made them, and what they need is in use.
func (p *Provider) endLate(ctx context.Context, id cloud.ClusterID) error {
	list, err := p.list(ctx, id, ListScope{Exhaustive: true})
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(m Machine) bool { return !m.State.exists() })
	if len(list) == 0 {
		return nil
	}
	return p.call(ctx, list, func(ctx context.Context) error { return p.d.Delete(ctx, id, list) })
}

// Remove calls remove for each thing that Connect made, for a driver's Disconnect. It
// returns those that are in use still.
func Remove[T any](d Driver, things []T, name func(T) string, remove func(T) error) (left []string, err error) {
	for _, t := range things {
		if err := remove(t); err != nil {
			switch kind(d, err) {
			case Busy:
				left = append(left, name(t))
			case Missing:
			default:
				return nil, err
			}
		}
	}
	return left, nil
}

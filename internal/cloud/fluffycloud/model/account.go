package model

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Account is the cloud as one customer sees it.
type Account struct {
	c    *Cloud
	name string
	role string
}

var _ fluffyapi.API = (*Account)(nil)

// Account returns the face of the account of that name, which need not exist.
// The role is "owner" or "reader".
func (c *Cloud) Account(name, role string) *Account { return &Account{c: c, name: name, role: role} }

// Enter is for a call that somebody else answers, as one about SSH keys: it is
// where the call, named op, meets its faults. It reports whether the answer has to
// be lost once the call has had its effect.
func (a *Account) Enter(ctx context.Context, op string) (lost bool, err error) {
	return a.c.enter(ctx, a.name, op)
}

// read answers a call that changes nothing.
func read[T any](ctx context.Context, a *Account, op string, f func() (T, error)) (T, error) {
	return ask(ctx, a, op, false, f)
}

// change answers a call that changes something, and keeps the change.
func change[T any](ctx context.Context, a *Account, op string, f func() (T, error)) (T, error) {
	return ask(ctx, a, op, true, f)
}

func ask[T any](ctx context.Context, a *Account, op string, changes bool, f func() (T, error)) (T, error) {
	var zero T
	lost, err := a.c.enter(ctx, a.name, op)
	if err != nil {
		return zero, err
	}
	if changes && a.role != "owner" {
		return zero, fluffyapi.Errorf(fluffyapi.Forbidden, "account %s may look and not touch", a.name)
	}
	a.c.lock()
	v, err := f()
	if err == nil && changes {
		err = a.c.commit()
	}
	a.c.mu.Unlock()
	switch {
	case err != nil:
		return zero, err
	case lost:
		return zero, fluffyapi.NoAnswer(errLost)
	}
	return v, nil
}

func (a *Account) Account(ctx context.Context) (fluffyapi.Account, error) {
	return read(ctx, a, "account", func() (fluffyapi.Account, error) {
		return fluffyapi.Account{ID: a.name, Role: a.role}, nil
	})
}

func (a *Account) Offers(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Offer], error) {
	return read(ctx, a, "offers", func() (fluffyapi.Page[fluffyapi.Offer], error) {
		var all []fluffyapi.Offer
		for ri := range a.c.cfg.Regions {
			r := &a.c.cfg.Regions[ri]
			for _, zone := range r.Zones {
				for _, t := range a.c.cfg.Types {
					if a.c.cfg.typeIn(t.Name, r) == nil {
						continue
					}
					all = append(all, fluffyapi.Offer{
						Region: r.Name, Zone: zone, Type: t.Name, CPUs: float64(t.CPUs), MemoryGiB: t.MemoryGiB, Accelerators: maps.Clone(t.Accelerators),
						Price: a.c.price(zone, r, &t, false), SpotPrice: a.c.price(zone, r, &t, true),
					})
				}
			}
		}
		from := 0
		if q.Page != "" {
			n, err := strconv.Atoi(q.Page)
			if err != nil || n < 0 || n > len(all) {
				return fluffyapi.Page[fluffyapi.Offer]{}, fluffyapi.Errorf(fluffyapi.Invalid, "there is no page %q", q.Page)
			}
			from = n
		}
		to := min(len(all), from+a.c.limit(q))
		p := fluffyapi.Page[fluffyapi.Offer]{Items: all[from:to]}
		if to < len(all) {
			p.Next = strconv.Itoa(to)
		}
		return p, nil
	})
}

func (c *Cloud) limit(q fluffyapi.Query) int {
	if q.Limit > 0 {
		return min(q.Limit, c.cfg.PageSize)
	}
	return c.cfg.PageSize
}

// unlimited is what Available says of a zone without limits.
const unlimited = 1_000_000

func (a *Account) Available(ctx context.Context, zone, instanceType string, spot bool) (int, error) {
	return read(ctx, a, "availability", func() (int, error) {
		if err := a.c.known(zone, instanceType); err != nil {
			return 0, err
		}
		n, limited := a.c.free(zone, instanceType)
		if !limited {
			n = unlimited
		}
		return n, nil
	})
}

func (a *Account) Quotas(ctx context.Context, region string) ([]fluffyapi.Quota, error) {
	return read(ctx, a, "quotas", func() ([]fluffyapi.Quota, error) {
		r := a.c.cfg.region(region)
		if r == nil {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "there is no region %q", region)
		}
		var out []fluffyapi.Quota
		seen := map[string]bool{}
		for _, t := range a.c.cfg.Types {
			for _, spot := range []bool{false, true} {
				name, _ := t.family(spot)
				if seen[name] {
					continue
				}
				seen[name] = true
				key := a.name + "/" + r.Name + "/" + name
				limit, ok := a.c.s.Limits[key]
				if !ok {
					limit = -1
				}
				out = append(out, fluffyapi.Quota{Region: r.Name, Name: name, Limit: limit, Used: a.c.quota[key]})
			}
		}
		return out, nil
	})
}

func (a *Account) Create(ctx context.Context, in fluffyapi.Create) (fluffyapi.Instance, error) {
	return change(ctx, a, "instances.create", func() (fluffyapi.Instance, error) {
		in.Tags = maps.Clone(in.Tags)
		i, err := a.c.create(a.name, in)
		if err != nil {
			return fluffyapi.Instance{}, err
		}
		return a.c.told(i), nil
	})
}

func (a *Account) Instance(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return read(ctx, a, "instances.get", func() (fluffyapi.Instance, error) {
		i, err := a.find(id)
		if err != nil {
			return fluffyapi.Instance{}, err
		}
		return a.c.told(i), nil
	})
}

func (a *Account) Start(ctx context.Context, id string, s fluffyapi.Start) (fluffyapi.Instance, error) {
	return a.turn(ctx, "instances.start", id, func(i *instance) error { return a.c.start(i, s.SSHKey) })
}

func (a *Account) Stop(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return a.turn(ctx, "instances.stop", id, a.c.stop)
}

func (a *Account) Terminate(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return a.turn(ctx, "instances.terminate", id, func(i *instance) error {
		if err := a.c.linger(i); err != nil {
			return err
		}
		a.c.terminate(i, "")
		return nil
	})
}

func (a *Account) SetWhenOff(ctx context.Context, id string, w fluffyapi.WhenOff) (fluffyapi.Instance, error) {
	return a.turn(ctx, "instances.when-off", id, func(i *instance) error {
		if i.State == fluffyapi.Terminating || i.State == fluffyapi.Terminated {
			return fluffyapi.Errorf(fluffyapi.WrongState, "%s is %s", i.ID, i.State)
		}
		i.EndsWhenOff = w.Ends
		return nil
	})
}

func (a *Account) turn(ctx context.Context, op, id string, f func(*instance) error) (fluffyapi.Instance, error) {
	return change(ctx, a, op, func() (fluffyapi.Instance, error) {
		i, err := a.find(id)
		if err == nil {
			err = f(i)
		}
		if err != nil {
			return fluffyapi.Instance{}, err
		}
		return a.c.told(i), nil
	})
}

func (a *Account) find(id string) (*instance, error) {
	if i := a.c.s.Instances[id]; i != nil && i.Account == a.name {
		return i, nil
	}
	return nil, fluffyapi.Errorf(fluffyapi.NotFound, "there is no instance %q", id)
}

// Instances lists in the order of creation, so that what is created meanwhile
// comes after the page that is read.
func (a *Account) Instances(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Instance], error) {
	return read(ctx, a, "instances.list", func() (fluffyapi.Page[fluffyapi.Instance], error) {
		after := uint64(0)
		if q.Page != "" {
			n, err := strconv.ParseUint(q.Page, 10, 64)
			if err != nil {
				return fluffyapi.Page[fluffyapi.Instance]{}, fluffyapi.Errorf(fluffyapi.Invalid, "there is no page %q", q.Page)
			}
			after = n
		}
		var p fluffyapi.Page[fluffyapi.Instance]
		for _, i := range a.matching(q.Tags, after) {
			if i.Hidden.from(a.c.s.Now) {
				continue
			}
			if len(p.Items) == a.c.limit(q) {
				p.Next = strconv.FormatUint(after, 10)
				break
			}
			told := a.c.told(i)
			if i.Stale > 0 {
				i.Stale--
				told.State, told.Reason = fluffyapi.Running, ""
			}
			p.Items = append(p.Items, told)
			after = i.Seq
		}
		return p, nil
	})
}

// matching lists the account's instances with all the tags that were created
// after the one numbered so.
func (a *Account) matching(tags map[string]string, after uint64) []*instance {
	ids, indexed := a.c.byTag.fewest(a.name, tags)
	var found []*instance
	add := func(i *instance) {
		if i.Account != a.name || i.Seq <= after {
			return
		}
		for k, v := range tags {
			if got, ok := i.Tags[k]; !ok || got != v {
				return
			}
		}
		found = append(found, i)
	}
	if !indexed {
		for _, i := range a.c.s.Instances {
			add(i)
		}
	}
	for id := range ids {
		add(a.c.s.Instances[id])
	}
	slices.SortFunc(found, func(x, y *instance) int { return cmp.Compare(x.Seq, y.Seq) })
	return found
}

// told is the instance as its owner hears of it: by a clock that may go wrong,
// and by a cloud that may lie.
func (c *Cloud) told(i *instance) fluffyapi.Instance {
	out := i.Instance
	out.Tags = maps.Clone(i.Tags)
	out.Created = i.Created.Add(c.s.Skew)
	if i.TakenBack != nil {
		at := i.TakenBack.Add(c.s.Skew)
		out.TakenBack = &at
	}
	c.lie(&out)
	return out
}

func (a *Account) PutFirewall(ctx context.Context, f fluffyapi.Firewall) error {
	_, err := change(ctx, a, "firewalls.put", func() (struct{}, error) {
		if f.Name == "" {
			return struct{}{}, fluffyapi.Errorf(fluffyapi.Invalid, "a firewall needs a name")
		}
		for _, p := range f.Ports {
			if !validPorts(p) {
				return struct{}{}, fluffyapi.Errorf(fluffyapi.Invalid, "%q is neither a port nor a range of ports such as 8000-8010", p)
			}
		}
		f.Ports, f.Tags = slices.Clone(f.Ports), maps.Clone(f.Tags)
		key := a.name + "/" + f.Name
		a.c.walls.drop(a.name, a.c.s.Firewalls[key].Tags, key)
		a.c.walls.add(a.name, f.Tags, key)
		a.c.s.Firewalls[key] = f
		return struct{}{}, nil
	})
	return err
}

func (a *Account) Firewalls(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Firewall], error) {
	return read(ctx, a, "firewalls.list", func() (fluffyapi.Page[fluffyapi.Firewall], error) {
		var p fluffyapi.Page[fluffyapi.Firewall]
		keys := maps.Keys(a.c.s.Firewalls)
		if some, indexed := a.c.walls.fewest(a.name, q.Tags); indexed {
			keys = maps.Keys(some)
		}
		for _, key := range slices.Sorted(keys) {
			f := a.c.s.Firewalls[key]
			if key != a.name+"/"+f.Name || f.Name <= q.Page || !hasTags(f.Tags, q.Tags) {
				continue
			}
			if len(p.Items) == a.c.limit(q) {
				p.Next = p.Items[len(p.Items)-1].Name
				break
			}
			f.Ports, f.Tags = slices.Clone(f.Ports), maps.Clone(f.Tags)
			p.Items = append(p.Items, f)
		}
		return p, nil
	})
}

func (a *Account) DeleteFirewall(ctx context.Context, name string) error {
	_, err := change(ctx, a, "firewalls.delete", func() (struct{}, error) {
		key := a.name + "/" + name
		f, ok := a.c.s.Firewalls[key]
		if !ok {
			return struct{}{}, fluffyapi.Errorf(fluffyapi.NotFound, "there is no firewall %q", name)
		}
		for id := range a.c.byTag[tagKey(a.name, wall, name)] {
			if i := a.c.s.Instances[id]; i.State != fluffyapi.Terminated {
				return struct{}{}, fluffyapi.Errorf(fluffyapi.InUse, "%s still uses firewall %q", i.ID, name)
			}
		}
		a.c.walls.drop(a.name, f.Tags, key)
		delete(a.c.s.Firewalls, key)
		return struct{}{}, nil
	})
	return err
}

func hasTags(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// bucket limits the rate of an account's calls.
type bucket struct {
	calls float64
	at    time.Time
}

func (c *Cloud) mayCall(account string) bool {
	if c.cfg.CallRate <= 0 {
		return true
	}
	now := c.cfg.Now()
	full := float64(max(1, c.cfg.CallBurst))
	b := c.rate[account]
	if b == nil {
		b = &bucket{calls: full, at: now}
		c.rate[account] = b
	}
	b.calls = min(full, b.calls+now.Sub(b.at).Seconds()*c.cfg.CallRate)
	b.at = now
	if b.calls < 1 {
		return false
	}
	b.calls--
	return true
}

package mithril

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// driver is Mithril for the shared provider of machines. A machine is known by its bid,
// which may get another one later.
type driver struct {
	*Provider
	vm.Refusals
}

// bid is one as the API has it.
type bid struct {
	FID     string    `json:"fid"`
	Name    string    `json:"name"`
	Status  string    `json:"status"`
	Created time.Time `json:"created_at"`
	Limit   string    `json:"limit_price"`
	Region  string    `json:"region"`
}

// instance is a machine that a bid has, or had.
type instance struct {
	FID       string    `json:"fid"`
	Bid       string    `json:"bid"`
	Status    string    `json:"status"`
	Created   time.Time `json:"created_at"`
	SSH       string    `json:"ssh_destination"`
	PrivateIP string    `json:"private_ip"`
}

const (
	bidOpen, bidAllocated, bidPreempting, bidPaused, bidTerminated = "Open", "Allocated", "Preempting", "Paused", "Terminated"
	preempted                                                      = "STATUS_PREEMPTED"
	bidsAtOnce                                                     = 50  // whose machines are asked for in a call
	mostNodes                                                      = 100 // of a cluster
)

// states are Mithril's words for what a bid and its machine do. A machine that is about to
// be taken back or moved runs until then, and one with an error may get over it.
var states = map[string]vm.State{
	bidOpen: vm.Pending, bidAllocated: vm.Pending, bidPreempting: vm.Running, bidPaused: vm.Stopped, bidTerminated: vm.Ended,
	"STATUS_NEW": vm.Pending, "STATUS_CONFIRMED": vm.Pending, "STATUS_SCHEDULED": vm.Pending, "STATUS_INITIALIZING": vm.Pending, "STATUS_STARTING": vm.Pending, "STATUS_ERROR": vm.Pending,
	"STATUS_RUNNING": vm.Running, "STATUS_STOPPING": vm.Running, "STATUS_RELOCATING": vm.Running, "STATUS_PREEMPTING": vm.Running,
	"STATUS_STOPPED": vm.Stopped, "STATUS_PAUSED": vm.Stopped, preempted: vm.Ended, "STATUS_TERMINATED": vm.Ended, "STATUS_REPLACED": vm.Ended,
}

// state is what the machine of a bid does, in whose words, and why. i is nil before a bid
// has won.
func (b bid) state(i *instance) (state vm.State, said, reason string) {
	state, said = states[b.Status], b.Status
	if i == nil || state == vm.Unknown {
		return state, said, ""
	}
	its := states[i.Status]
	on := its == vm.Running || its == vm.Pending
	switch {
	case its == vm.Unknown:
		return its, i.Status, ""
	case on && b.Status == bidTerminated:
		return vm.Ending, i.Status, ""
	case on && b.Status == bidPaused:
		return vm.Stopping, i.Status, ""
	case b.Status == bidTerminated || b.Status == bidPaused:
		return state, said, ""
	case i.Status == preempted:
		return its, i.Status, "others bid more than " + b.Limit + " an hour"
	case i.Status == "STATUS_TERMINATED":
		return vm.Ended, i.Status, "Mithril ended it"
	case its == vm.Ended || its == vm.Stopped: // the bid gets another one, or this one again
		return vm.Pending, said, ""
	}
	return its, i.Status, ""
}

// nameOf is the name of a rank's next bid. Mithril does not take the name of another bid,
// which may have ended: each one of a rank has a number of its own.
func nameOf(id cloud.ClusterID, rank int, had []vm.Machine) string {
	for _, m := range had {
		if m.Tags[cloud.TagRank] == strconv.Itoa(rank%mostNodes) {
			rank += mostNodes
		}
	}
	return names.Of(id, rank%(mostNodes*mostNodes))
}

// List reads the bids, and the machines of the cluster's. A bid whose machine was taken back is
// cancelled when that is seen: it would get another one when prices fall, which costs.
func (d driver) List(ctx context.Context, id cloud.ClusterID, _ vm.ListScope) ([]vm.Machine, error) {
	c, keys, err := d.API()
	if err != nil {
		return nil, err
	}
	ours, err := rest.DataPages[bid](ctx, c, "/v2/spot/bids", "next_cursor", url.Values{"limit": {"100"}, "project": {keys["project_id"]}})
	if err != nil {
		return nil, err
	}
	ours = slices.DeleteFunc(ours, func(b bid) bool { _, ok := names.Tags(id, b.Name); return !ok })
	latest := map[string]*instance{} // of bids; one that was taken back, if there is such
	for some := range slices.Chunk(ours, bidsAtOnce) {
		var fids []string
		for _, b := range some {
			fids = append(fids, b.FID)
		}
		instances, err := rest.DataPages[instance](ctx, c, "/v2/instances", "next_cursor", url.Values{"limit": {"100"}, "project": {keys["project_id"]}, "bid_fid_in": {strings.Join(fids, ",")}})
		if err != nil {
			return nil, err
		}
		for _, i := range instances {
			was := latest[i.Bid]
			if was == nil || i.Status == preempted || was.Status != preempted && !i.Created.Before(was.Created) {
				latest[i.Bid] = &i
			}
		}
	}
	var found []vm.Machine
	for _, b := range ours {
		m := b.machine(id, latest[b.FID])
		if m.Reclaimed && id.Name != "" {
			if err := d.cancel(ctx, m); err == nil || d.Kind(err) == vm.Missing { // else at the next look
				d.taken.Store(b.FID, m.Reason)
			}
		} else if why, ok := d.taken.Load(b.FID); ok {
			m.Reason, m.Reclaimed = why.(string), true
		}
		found = append(found, m)
	}
	return found, nil
}

func (b bid) machine(id cloud.ClusterID, i *instance) vm.Machine {
	tags, _ := names.Tags(id, b.Name)
	if n, err := strconv.Atoi(tags[cloud.TagRank]); err == nil {
		tags[cloud.TagRank] = strconv.Itoa(n % mostNodes)
	}
	m := vm.Machine{ID: b.FID, Key: b.FID, Region: b.Region, Spot: true, Tags: tags, Created: b.Created}
	m.State, m.RawState, m.Reason = b.state(i)
	m.Reclaimed = m.Reason != ""
	if i != nil {
		m.ID, m.PrivateIP, m.PublicIP = i.FID, i.PrivateIP, i.SSH
	}
	m.Reach = cloud.Reach{Method: "ssh", Host: m.PublicIP, Port: 22, User: "ubuntu"}
	return m
}

// limit is what is bid for a machine, in $ an hour: what the user says, else half more than
// it was planned with, since prices move; never more than the task allows.
func limit(spec cloud.LaunchSpec) (string, error) {
	most := math.Ceil(spec.Offer.HourlyPrice*150) / 100
	if own, ok := spec.Settings["limit_price"]; ok {
		most, _ = strconv.ParseFloat(fmt.Sprint(own), 64)
	}
	switch {
	case most <= 0:
		return "", &cloud.InvalidError{Place: spec.Offer.Place, Err: errors.New("there is no price to bid: set mithril.limit_price")}
	case most < spec.Offer.HourlyPrice:
		return "", &cloud.CapacityError{Place: spec.Offer.Place, Err: fmt.Errorf("mithril.limit_price is $%.2f, and %s costs $%.2f an hour there now", most, spec.Offer.InstanceType, spec.Offer.HourlyPrice)}
	}
	bid, err := vm.Bid(displayName, spec.Offer, spec.Offer.HourlyPrice, most, 100)
	return fmt.Sprintf("$%.2f", bid), err
}

func sshKeys(ctx context.Context, c *rest.Client, project string) ([]vm.Key, error) {
	all, err := rest.Send[[]struct {
		FID, Name string
		Public    string `json:"public_key"`
	}](ctx, c, rest.Call{Method: "GET", Path: "/v2/ssh-keys", Query: url.Values{"project": {project}}})
	var keys []vm.Key
	for _, k := range all {
		keys = append(keys, vm.Key{ID: k.FID, Name: k.Name, Public: k.Public})
	}
	return keys, err
}

// Create bids for a machine of each rank, once it is clear that there is room.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	c, keys, err := d.API()
	if err != nil {
		return nil, err
	}
	spec, project := l.Spec, keys["project_id"]
	had, err := d.cancelOpen(ctx, spec.ID) // of ranks whose machine was taken back
	if err != nil {
		return nil, err
	}
	auction, err := room(ctx, c, spec.Offer, len(ranks))
	if err != nil {
		return nil, err
	}
	if spec.Offer.HourlyPrice == 0 { // it was not planned with a price
		spec.Offer.HourlyPrice, _ = auction.Price()
	}
	price, err := limit(spec)
	if err != nil {
		return nil, err
	}
	key, err := d.EnsureKey(ctx, spec.AuthorizedKey, vm.KeyCalls{
		List: func(ctx context.Context) ([]vm.Key, error) { return sshKeys(ctx, c, project) },
		Make: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "POST", "/v2/ssh-keys", map[string]string{"project": project, "name": k.Name, "public_key": k.Public})
			return err
		},
		Delete: func(ctx context.Context, k vm.Key) error {
			_, err := rest.Do[any](ctx, c, "DELETE", "/v2/ssh-keys/"+url.PathEscape(k.ID), nil)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		made, err := rest.Do[bid](ctx, c, "POST", "/v2/spot/bids", map[string]any{
			"project": project, "region": spec.Offer.Region, "instance_type": auction.Type, "limit_price": price, "instance_quantity": 1, "name": nameOf(spec.ID, rank, had),
			"launch_specification": map[string]any{"volumes": []string{}, "ssh_keys": []string{key.ID}},
		})
		return made.FID, err
	})
}

// update changes bids.
func (d driver) update(ctx context.Context, machines []vm.Machine, to map[string]any) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	return vm.Each(ctx, d, machines, func(ctx context.Context, m vm.Machine) error {
		_, err := rest.Do[any](ctx, c, "PATCH", "/v2/spot/bids/"+url.PathEscape(m.Key), to)
		return err
	})
}

// Start goes on with paused bids, at today's price, once it is clear that there is room.
func (d driver) Start(ctx context.Context, spec cloud.LaunchSpec, machines []vm.Machine) error {
	c, _, err := d.API()
	if err != nil {
		return err
	}
	spec.Offer.HourlyPrice = 0 // whatever it was planned with
	auction, err := room(ctx, c, spec.Offer, len(machines))
	if err != nil {
		return err
	}
	spec.Offer.HourlyPrice, _ = auction.Price()
	price, err := limit(spec)
	if err != nil {
		return err
	}
	return d.update(ctx, machines, map[string]any{"paused": false, "limit_price": price})
}

// Stop pauses bids. Their disks stay.
func (d driver) Stop(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return d.update(ctx, machines, map[string]any{"paused": true})
}

// Delete cancels bids, which ends their machines.
func (d driver) Delete(ctx context.Context, _ cloud.ClusterID, machines []vm.Machine) error {
	return vm.Each(ctx, d, machines, d.cancel)
}

func (d driver) cancel(ctx context.Context, m vm.Machine) error {
	c, _, err := d.API()
	if err == nil {
		_, err = rest.Do[any](ctx, c, "DELETE", "/v2/spot/bids/"+url.PathEscape(cmp.Or(m.Key, m.ID)), nil)
	}
	return err
}

// cancelOpen cancels a cluster's bids whose machines were taken back: they would get others
// when prices fall.
func (d driver) cancelOpen(ctx context.Context, id cloud.ClusterID) (all []vm.Machine, err error) {
	if all, err = d.List(ctx, id, vm.ListScope{}); err != nil {
		return nil, err
	}
	open := slices.DeleteFunc(slices.Clone(all), func(m vm.Machine) bool { return !m.Reclaimed })
	_, err = vm.Remove(d, open, func(m vm.Machine) string { return m.Key }, func(m vm.Machine) error { return d.cancel(ctx, m) })
	for _, m := range open {
		d.taken.Delete(m.Key)
	}
	return all, err
}

// Connect has nothing to make: bids bring their key. It says what a bid is.
func (d driver) Connect(ctx context.Context, spec cloud.LaunchSpec) error {
	price, err := limit(spec)
	if err != nil && spec.Offer.HourlyPrice == 0 { // the auction will say it
		return nil
	} else if err != nil {
		return err
	}
	cloud.Note(ctx, fmt.Sprintf("Mithril has spot machines only: one costs what the auction says, at most %s an hour, and is taken back when others bid more; to bid otherwise: mithril.limit_price", price))
	return nil
}

// Disconnect cancels bids whose machines were taken back.
func (d driver) Disconnect(ctx context.Context, id cloud.ClusterID, _ bool) ([]string, error) {
	_, err := d.cancelOpen(ctx, id)
	return nil, err
}

// SpotNotices are the machines that Mithril says it takes back or moves.
func (p *Provider) SpotNotices(ctx context.Context, id cloud.ClusterID) (notices []cloud.SpotNotice, err error) {
	c, _, err := p.API()
	if err != nil {
		return nil, err
	}
	machines, err := p.Machines(ctx, id)
	for _, m := range machines {
		if m.RawState != "STATUS_PREEMPTING" && m.RawState != "STATUS_RELOCATING" {
			continue
		}
		s, err := rest.Do[struct {
			End time.Time `json:"end_time"`
		}](ctx, c, "GET", "/v2/instances/"+url.PathEscape(m.ID)+"/status", nil)
		if err != nil {
			return nil, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
		}
		notices = append(notices, cloud.SpotNotice{NodeID: m.Key, Rank: m.Rank(), At: s.End})
	}
	return notices, err
}

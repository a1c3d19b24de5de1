package mithrilfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

var (
	price   = `"\$\d+(?:\.\d{1,2})?"`
	bidding = fakehttp.Schema{
		"!project": fakehttp.Filled, "!region": fakehttp.Filled, "!instance_type": fakehttp.Filled, "!limit_price": price, "!instance_quantity": `[1-9]\d*`, "!name": fakehttp.Filled,
		"!launch_specification": `\{(?:"image_version":(?:null|` + fakehttp.Filled + `),)?(?:"kubernetes_cluster":(?:null|` + fakehttp.Filled + `),)?"ssh_keys":` + fakehttp.List(fakehttp.Filled) +
			`,(?:"startup_script":(?:null|` + fakehttp.String + `),)?"volumes":` + fakehttp.List(fakehttp.Filled) + `\}`,
	}
)

// bids answers about bids, each of which wins all of its instances or none ("Spot").
func (f *Fake) bids() {
	f.Route("GET", "/spot/bids", "bids.list", nil, f.listBids)
	f.Route("POST", "/spot/bids", "instances.create", bidding, f.bid)
	f.Route("GET", "/spot/bids/{id}", "bids.get", nil, func(r *http.Request, _ dict) (any, error) {
		b, err := f.active(r)
		if err != nil {
			return nil, err
		}
		return f.view(r, b), nil
	})
	pause := fakehttp.By("paused", map[any]string{true: "instances.stop", false: "instances.start"})
	f.RouteBy("PATCH", "/spot/bids/{id}", pause, fakehttp.Schema{"paused": `null|true|false`, "limit_price": `null|` + price}, f.change)
	f.Route("DELETE", "/spot/bids/{id}", "instances.terminate", nil, f.cancel)
}

// specified is a list in the launch specification of a bid.
func specified(bid dict, field string) []any {
	spec, _ := bid["launch_specification"].(dict)
	return fakehttp.Items(spec[field])
}

func (f *Fake) bid(r *http.Request, in dict) (any, error) {
	name, region := typeOf(in["instance_type"].(string))
	keys := specified(in, "ssh_keys")
	for _, k := range f.Things("keys") {
		if k["required"] == true && !slices.Contains(keys, k["fid"]) {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "launch_specification: key %v is required", k["fid"])
		}
	}
	for _, k := range keys {
		if f.Thing("keys", k) == nil {
			return nil, fluffyapi.Errorf(fluffyapi.NotFound, "SSH key %v not found", k)
		}
	}
	named := func(b dict) bool { return b["name"] == in["name"] }
	switch {
	case in["project"] != Project:
		return nil, project(in["project"])
	case name == "" || region != in["region"]:
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Instance type %v not found in %v", in["instance_type"], in["region"])
	case f.Any(named, "bids", "ended"): // as Mithril's own command line tells
		return nil, fluffyapi.Errorf(fluffyapi.NameTaken, "Name already used")
	case len(keys) == 0:
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "launch_specification: at least one SSH key is needed")
	case len(specified(in, "volumes")) > 0:
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "Volume not found")
	}
	in["fid"], in["created_at"], in["paused"], in["all"] = "bid_"+f.NewID(), time.Now().UTC().Format(time.RFC3339Nano), false, []string{}
	in["id"] = in["fid"]
	if err := f.allocate(r, in); err != nil {
		return nil, err
	}
	return created(f.view(r, f.Put("bids", in))), nil
}

// alive are the instances of a bid that are neither gone nor taken back.
func (f *Fake) alive(b dict) (all []model.Machine) {
	for _, id := range b["all"].([]string) {
		if m, ok := f.Machine(id); ok && m.State != fluffyapi.Terminated && m.State != fluffyapi.Terminating {
			all = append(all, m)
		}
	}
	return all
}

// allocate gives a bid that wins all of its instances, or none. One whose instances were
// taken back can win again; what broke is not made again.
func (f *Fake) allocate(r *http.Request, b dict) error {
	name, region := typeOf(b["instance_type"].(string))
	limit, _ := strconv.ParseFloat(b["limit_price"].(string)[1:], 64)
	n, alive := int(b["instance_quantity"].(float64)), f.alive(b)
	for _, id := range b["all"].([]string) {
		if m, ok := f.Machine(id); ok && m.State == fluffyapi.Terminated && !strings.HasPrefix(m.Reason, "preempted") {
			return nil
		}
	}
	switch {
	case b["deactivated_at"] != nil || b["paused"] == true || limit < f.Now(kinds[name].price) || len(alive) == n && !slices.ContainsFunc(alive, off):
		return nil
	case len(alive) == n: // they were paused
		if f.Free(r, region, name) < n {
			return nil
		}
		for _, m := range slices.DeleteFunc(alive, func(m model.Machine) bool { return !off(m) }) {
			if m.State == fluffyapi.Stopped {
				if _, err := f.Start(r, m.ID); err != nil {
					return err
				}
			}
		}
		return nil
	case len(alive) > 0 || f.Free(r, region, name) < n:
		return nil
	}
	for range n {
		asked := maps.Clone(b)
		asked["bid"], asked["name"] = b["fid"], fmt.Sprintf("%v-%d", b["name"], len(b["all"].([]string))+1)
		i, err := f.Create(r, region, name, asked)
		if err != nil {
			for _, m := range f.alive(b) {
				_, _ = f.Terminate(r, m.ID)
			}
			return err
		}
		b["all"] = append(b["all"].([]string), i.ID)
	}
	return nil
}

func off(m model.Machine) bool {
	return m.State == fluffyapi.Stopped || m.State == fluffyapi.Stopping
}

// view is a bid in Mithril's words, as it is after another auction.
func (f *Fake) view(r *http.Request, b dict) dict {
	_ = f.allocate(r, b)
	alive, ids, status := f.alive(b), []string{}, "Open"
	for _, m := range alive {
		if ids = append(ids, m.ID); m.TakenBack != nil {
			status = "Preempting"
		} else if status == "Open" && !off(m) {
			status = "Allocated"
		}
	}
	if b["paused"] == true {
		status = "Paused"
	}
	if b["deactivated_at"] != nil {
		status = "Terminated"
	}
	return dict{
		"fid": b["fid"], "name": b["name"], "project": b["project"], "created_by": "user_fake", "created_at": b["created_at"], "deactivated_at": b["deactivated_at"], "limit_price": b["limit_price"],
		"instance_quantity": b["instance_quantity"], "instance_type": b["instance_type"], "region": b["region"], "instances": ids, "launch_specification": b["launch_specification"], "status": status,
	}
}

func (f *Fake) listBids(r *http.Request, _ dict) (any, error) {
	all := []dict{}
	for _, b := range append(f.Things("bids"), f.Things("ended")...) {
		all = append(all, f.view(r, b))
	}
	return page(r, all, "project", "name", "instance_type", "region", "status")
}

// active is the bid that a call's path names, as long as it has not ended.
func (f *Fake) active(r *http.Request) (dict, error) {
	if b := f.Thing("bids", r.PathValue("id")); b != nil {
		return b, nil
	}
	return nil, fakehttp.Missing("Bid")
}

// change pauses a bid or ends that, and changes its limit.
func (f *Fake) change(r *http.Request, in dict) (any, error) {
	b, err := f.active(r)
	if err != nil {
		return nil, err
	}
	if in["limit_price"] != nil {
		b["limit_price"] = in["limit_price"]
	}
	if in["paused"] != nil {
		b["paused"] = in["paused"]
	}
	for _, m := range f.alive(b) {
		if b["paused"] == true && !off(m) {
			if _, err := f.Stop(r, m.ID); err != nil {
				return nil, err
			}
		}
	}
	if err := f.allocate(r, b); err != nil {
		return nil, err
	}
	return f.view(r, b), nil
}

// cancel ends a bid and its instances at once.
func (f *Fake) cancel(r *http.Request, _ dict) (any, error) {
	b, err := f.active(r)
	if err != nil {
		return nil, err
	}
	for _, m := range f.alive(b) {
		if _, err := f.Terminate(r, m.ID); err != nil {
			return nil, err
		}
	}
	b["deactivated_at"] = time.Now().UTC().Format(time.RFC3339Nano)
	f.Put("ended", b)
	return nil, f.Drop("bids", b["id"])
}

package fakehttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Failed is the state of a machine for which there was no room, on a cloud that finds
// that out after it has answered ([API.FailsLater]).
const Failed fluffyapi.State = "failed"

// States are a cloud's words for states of machines.
type States map[fluffyapi.State]string

// Of is the word for a state. One that the table lacks is what tests let the cloud say
// (Lie), and stays as it is.
func (s States) Of(state fluffyapi.State) string {
	if word, ok := s[state]; ok {
		return word
	}
	return string(state)
}

// Type is a kind of machine for the model; one without GPUs has quotas by its CPUs.
func Type(name string, cpus int, gpu string, gpus int, price float64) model.Type {
	t := model.Type{Name: name, CPUs: cpus, Price: price}
	if gpus > 0 {
		t.Accelerators = map[string]float64{gpu: float64(gpus)}
	}
	return t
}

// Create makes a machine that was asked for with a body, without a token and with a
// name that need not be unique.
func (f *Fake) Create(r *http.Request, region, instanceType string, asked Dict) (fluffyapi.Instance, error) {
	if !slices.Contains(f.api.Regions, region) {
		return fluffyapi.Instance{}, fluffyapi.Errorf(fluffyapi.Invalid, "there is no region %q", region)
	}
	return f.create(r, region, zone(region), instanceType, asked)
}

// CreateIn is Create in a zone, for clouds that name them.
func (f *Fake) CreateIn(r *http.Request, zone, instanceType string, asked Dict) (fluffyapi.Instance, error) {
	region := ""
	for _, name := range f.api.Regions {
		if slices.Contains(f.api.zones(name), zone) {
			region = name
		}
	}
	return f.create(r, region, zone, instanceType, asked)
}

func (f *Fake) create(r *http.Request, region, zone, instanceType string, asked Dict) (fluffyapi.Instance, error) {
	body, _ := json.Marshal(asked)
	own := f.NewID()
	name := own
	if f.api.Named != "" {
		name = asked[f.api.Named].(string)
	}
	tags := map[string]string{"asked": string(body)}
	i, err := f.Owner.Create(r.Context(), fluffyapi.Create{ClientToken: own, Name: name, Zone: zone, Type: instanceType, Spot: true, Tags: tags})
	var e *fluffyapi.Error
	if f.api.FailsLater && errors.As(err, &e) && e.Code == fluffyapi.NoCapacity {
		i = fluffyapi.Instance{ID: f.api.ID(1<<32 + f.serial), Name: name, Region: region, Zone: zone, Type: instanceType, State: Failed, Tags: tags, Created: time.Now()}
		f.failed = append(f.failed, i)
		return i, nil
	}
	return i, err
}

// Asked is the body that a machine was made with.
func Asked(i fluffyapi.Instance) (body Dict) {
	_ = json.Unmarshal([]byte(i.Tags["asked"]), &body)
	return body
}

// Instances are all that are not forgotten, without those that failed.
func (f *Fake) Instances(r *http.Request) ([]fluffyapi.Instance, error) {
	p, err := f.Owner.Instances(r.Context(), fluffyapi.Query{})
	return p.Items, err
}

// Existing are the machines that the cloud's lists have, in its words: all but those that
// are gone ([API.Gone]).
func (f *Fake) Existing(r *http.Request, describe func(fluffyapi.Instance) Dict) ([]Dict, error) {
	list, err := f.Instances(r)
	all := []Dict{}
	for _, i := range append(list, f.failed...) {
		if !f.gone(i) {
			all = append(all, describe(i))
		}
	}
	return all, err
}

func (f *Fake) gone(i fluffyapi.Instance) bool {
	return i.State == fluffyapi.Terminated || slices.Contains(f.api.Gone, i.State)
}

// Find is the machine of that id, as long as it is not gone, or where those are remembered
// ([API.Remembers]), forgotten.
func (f *Fake) Find(r *http.Request, id string) (fluffyapi.Instance, error) {
	if n := f.failedAt(id); n >= 0 {
		return f.failed[n], nil
	}
	i, err := f.Owner.Instance(r.Context(), id)
	if err != nil || f.gone(i) && !f.api.Remembers {
		if f.api.Unknown != "" {
			return i, fluffyapi.Errorf(fluffyapi.NotFound, "%s", f.api.Unknown)
		}
		return i, Missing(strings.TrimSpace(f.api.Noun + " " + id))
	}
	return i, nil
}

func (f *Fake) failedAt(id string) int {
	return slices.IndexFunc(f.failed, func(i fluffyapi.Instance) bool { return i.ID == id })
}

// InPath is the machine that a call's path names as {id}, as long as it is not gone.
func (f *Fake) InPath(r *http.Request) (fluffyapi.Instance, error) {
	return f.Find(r, r.PathValue("id"))
}

// MadeWith are the machines that are not ended and were made with an id: of a network,
// a key, a disk.
func (f *Fake) MadeWith(id any) (all []fluffyapi.Instance) {
	text, _ := id.(string)
	quoted := strconv.Quote(text)
	for _, m := range f.Cloud.Machines() {
		if m.State != fluffyapi.Terminated && strings.Contains(m.Tags["asked"], quoted) {
			all = append(all, m.Instance)
		}
	}
	for _, i := range f.failed {
		if strings.Contains(i.Tags["asked"], quoted) {
			all = append(all, i)
		}
	}
	return all
}

// Unused refuses to remove a thing that a machine was made with.
func (f *Fake) Unused(thing Dict) error {
	if users := f.MadeWith(thing["id"]); len(users) > 0 {
		return fluffyapi.Errorf(fluffyapi.InUse, "%v is used by %s", thing["id"], users[0].ID)
	}
	return nil
}

// Terminate ends a machine.
func (f *Fake) Terminate(r *http.Request, id string) (fluffyapi.Instance, error) {
	if n := f.failedAt(id); n >= 0 {
		i := f.failed[n]
		f.failed = slices.Delete(f.failed, n, n+1)
		return i, nil
	}
	return f.Owner.Terminate(r.Context(), id)
}

// Stop switches a machine off; its disk stays.
func (f *Fake) Stop(r *http.Request, id string) (fluffyapi.Instance, error) {
	if f.failedAt(id) >= 0 {
		return fluffyapi.Instance{}, fluffyapi.Errorf(fluffyapi.WrongState, "%s is failed", id)
	}
	return f.Owner.Stop(r.Context(), id)
}

// Start switches a machine on that is off.
func (f *Fake) Start(r *http.Request, id string) (fluffyapi.Instance, error) {
	if f.failedAt(id) >= 0 {
		return fluffyapi.Instance{}, fluffyapi.Errorf(fluffyapi.WrongState, "%s is failed", id)
	}
	i, err := f.Owner.Start(r.Context(), id, fluffyapi.Start{})
	if err == nil {
		f.restarted[id] = true
	}
	return i, err
}

// Restarting reports whether a machine that boots does so after it had been off: clouds
// often have other words for that than for a new one.
func (f *Fake) Restarting(i fluffyapi.Instance) bool {
	return i.State == fluffyapi.Pending && f.restarted[i.ID]
}

// Settled reports whether a machine is in the middle of nothing: it is on, off or ended.
func (f *Fake) Settled(id string) bool {
	m, ok := f.Machine(id)
	return !ok || m.State == fluffyapi.Running || m.State == fluffyapi.Stopped || m.State == fluffyapi.Terminated
}

// Do does to a machine what the name of an operation says: instances.start,
// instances.stop or instances.terminate.
func (f *Fake) Do(r *http.Request, op, id string) (fluffyapi.Instance, error) {
	switch op {
	case "instances.start":
		return f.Start(r, id)
	case "instances.stop":
		return f.Stop(r, id)
	case "instances.terminate":
		return f.Terminate(r, id)
	}
	return fluffyapi.Instance{}, fluffyapi.Errorf(fluffyapi.Invalid, "there is no such action")
}

// Show answers calls that look at the machine of their path.
func (f *Fake) Show(path string, answer func(i fluffyapi.Instance) any) {
	f.Route("GET", path, "instances.get", nil, func(r *http.Request, _ Dict) (any, error) {
		i, err := f.InPath(r)
		if err != nil {
			return nil, err
		}
		return answer(i), nil
	})
}

// Turn answers calls that start, stop or end the machine of their path.
func (f *Fake) Turn(method, path, op string, s Schema, answer func(i fluffyapi.Instance) any) {
	f.Route(method, path, op, s, func(r *http.Request, _ Dict) (any, error) {
		i, err := f.InPath(r)
		if err == nil {
			i, err = f.Do(r, op, i.ID)
		}
		if err != nil {
			return nil, err
		}
		return answer(i), nil
	})
}

// By is an operation of [Fake.RouteBy] that a field of the body tells.
func By(field string, operations map[any]string) func(*http.Request, Dict) string {
	return func(_ *http.Request, in Dict) string {
		switch in[field].(type) {
		case string, bool:
			return operations[in[field]]
		}
		return ""
	}
}

// Free is how many more machines of a type a region or zone has.
func (f *Fake) Free(r *http.Request, place, instanceType string) (n int) {
	for _, z := range f.api.zones(place) {
		free, _ := f.Owner.Available(r.Context(), z, instanceType, true)
		n += free
	}
	return n
}

// With are the regions that have a machine of a type, sorted.
func (f *Fake) With(r *http.Request, instanceType string) []string {
	all := []string{}
	for _, region := range f.api.Regions {
		if f.Free(r, region, instanceType) > 0 {
			all = append(all, region)
		}
	}
	slices.Sort(all)
	return all
}

// Addresses are those of a machine, "" as long as it has none: for the first half of
// its boot, and no private one where tests want that.
func (f *Fake) Addresses(i fluffyapi.Instance) (public, private string) {
	if i.State == fluffyapi.Pending && time.Since(i.Created) <= f.boot/2 {
		return "", ""
	}
	if f.bare {
		return i.PublicIP, ""
	}
	return i.PublicIP, i.PrivateIP
}

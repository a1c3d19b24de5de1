package fakehttp

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Things are those of a kind, such as keys, by handlers.
func (f *Fake) Things(kind string) []Dict { return append([]Dict{}, f.things[kind]...) }

// Put keeps a thing, new if it has no "id".
func (f *Fake) Put(kind string, thing Dict) Dict {
	if thing["id"] == nil {
		thing["id"] = f.NewID()
	}
	f.things[kind] = append(f.things[kind], thing)
	return thing
}

// Thing returns the thing with that id; nil if there is none.
func (f *Fake) Thing(kind string, id any) Dict { return f.ThingBy(kind, "id", id) }

// ThingBy returns the first thing whose field has that value; nil if there is none.
func (f *Fake) ThingBy(kind, field string, value any) Dict {
	for _, o := range f.things[kind] {
		if o[field] == value {
			return o
		}
	}
	return nil
}

// Any reports whether a thing of the kinds fits.
func (f *Fake) Any(fits func(o Dict) bool, kinds ...string) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool { return slices.ContainsFunc(f.things[kind], fits) })
}

// Drop removes a thing.
func (f *Fake) Drop(kind string, id any) error {
	if f.Thing(kind, id) == nil {
		return Missing(id)
	}
	f.things[kind] = slices.DeleteFunc(f.things[kind], func(o Dict) bool { return o["id"] == id })
	return nil
}

// Kind is a kind of things besides machines, such as keys, networks or firewalls, and what
// the cloud's API for them looks like. What is nil or "" the cloud does not have.
type Kind struct {
	Name string // as faults ("NAME.put") and the inventory know it
	Path string // of GET for the list; with "/{id}" of GET, changes and DELETE for one

	Make                    Schema // of the body that makes one; nil: none is made
	MakePath                string // where the body is sent to; "": to Path
	Change                  Schema // of the body that changes one; nil: none is changed
	ChangeBy                string // the method for that; "": PATCH
	Noun                    string // what refusals call one
	ByField                 string // the field by which paths name one; "": "id"
	Unique                  string // the field in which no two are alike
	NameTaken               string // the message that refuses those, with %v for the field
	NoList, NoGet, NoDelete bool   // there is no GET of the list, of one, no DELETE

	// Complete checks a body that makes or, where Change is not nil, changes one, and adds
	// what the cloud adds.
	Complete func(r *http.Request, in Dict) error
	// Within reports which things a call is about: those of its region; nil: all.
	Within func(r *http.Request, o Dict) bool
	// Describe is a thing in the cloud's words; nil: as it is.
	Describe func(o Dict) Dict
	// Removable refuses to remove a thing that is needed; nil: none is.
	Removable func(o Dict) error
	// Added makes what comes with a thing, Removed removes what goes with it.
	Added, Removed func(o Dict)

	// All, One, Made and Gone are the answers to GET of the list and of one, and to those that
	// make and remove one; nil: the list, the thing, the same as One, and nothing.
	All  func(r *http.Request, all []Dict) (any, error)
	One  func(o Dict) any
	Made func(o Dict) any
	Gone func(o Dict) any
}

// Keep answers the calls about things of a kind.
func (f *Fake) Keep(k Kind) {
	k.complete()
	one := k.Path + "/{id}"
	if !k.NoList {
		f.Route("GET", k.Path, k.Name+".list", nil, func(r *http.Request, _ Dict) (any, error) {
			all := []Dict{}
			for _, o := range f.things[k.Name] {
				if k.Within(r, o) {
					all = append(all, k.Describe(o))
				}
			}
			return k.All(r, all)
		})
	}
	if !k.NoGet {
		f.Route("GET", one, k.Name+".get", nil, func(r *http.Request, _ Dict) (any, error) {
			o, err := f.Kept(k, r)
			if err != nil {
				return nil, err
			}
			return k.One(k.Describe(o)), nil
		})
	}
	if k.Make != nil {
		f.Route("POST", k.MakePath, k.Name+".put", k.Make, func(r *http.Request, in Dict) (any, error) {
			if k.Unique != "" && f.ThingBy(k.Name, k.Unique, in[k.Unique]) != nil {
				return nil, fluffyapi.Errorf(fluffyapi.NameTaken, k.NameTaken, in[k.Unique])
			}
			if err := k.Complete(r, in); err != nil {
				return nil, err
			}
			f.Put(k.Name, in)
			k.Added(in)
			return k.Made(k.Describe(in)), nil
		})
	}
	if k.Change != nil {
		f.Route(k.ChangeBy, one, k.Name+".put", k.Change, func(r *http.Request, in Dict) (any, error) {
			o, err := f.Kept(k, r)
			if err == nil {
				err = k.Complete(r, in)
			}
			if err != nil {
				return nil, err
			}
			maps.Copy(o, in)
			return k.One(k.Describe(o)), nil
		})
	}
	if k.Make != nil && !k.NoDelete {
		f.Route("DELETE", one, k.Name+".delete", nil, func(r *http.Request, _ Dict) (any, error) {
			o, err := f.Kept(k, r)
			if err == nil {
				err = k.Removable(o)
			}
			if err != nil {
				return nil, err
			}
			k.Removed(o)
			return k.Gone(o), f.Drop(k.Name, o["id"])
		})
	}
}

// Kept is the thing of a kind that a call's path names.
func (f *Fake) Kept(k Kind, r *http.Request) (Dict, error) {
	id := r.PathValue("id")
	k.complete()
	for _, o := range f.things[k.Name] {
		if fmt.Sprint(o[k.ByField]) == id && k.Within(r, o) {
			return o, nil
		}
	}
	return nil, Missing(strings.TrimSpace(k.Noun + " " + id))
}

// complete fills in what a kind leaves out.
func (k *Kind) complete() {
	for field, usual := range map[*string]string{&k.MakePath: k.Path, &k.ChangeBy: http.MethodPatch, &k.ByField: "id", &k.NameTaken: "%v already exists"} {
		if *field == "" {
			*field = usual
		}
	}
	if k.Complete == nil {
		k.Complete = func(*http.Request, Dict) error { return nil }
	}
	if k.Within == nil {
		k.Within = func(*http.Request, Dict) bool { return true }
	}
	if k.Describe == nil {
		k.Describe = func(o Dict) Dict { return o }
	}
	if k.Removable == nil {
		k.Removable = func(Dict) error { return nil }
	}
	for _, also := range []*func(Dict){&k.Added, &k.Removed} {
		if *also == nil {
			*also = func(Dict) {}
		}
	}
	if k.All == nil {
		k.All = func(_ *http.Request, all []Dict) (any, error) { return all, nil }
	}
	if k.One == nil {
		k.One = func(o Dict) any { return o }
	}
	if k.Made == nil {
		k.Made = k.One
	}
	if k.Gone == nil {
		k.Gone = func(Dict) any { return nil }
	}
}

package fakehttp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

func TestPages(t *testing.T) {
	all := []Dict{}
	for n := range 7 {
		all = append(all, Dict{"id": n})
	}
	tokens := Pages{Token: "start", Size: "limit", Usual: 3, Most: 5}
	strict := tokens
	strict.Strict = true
	numbers := Pages{Number: "page", First: 1, Size: "size", Usual: 3, Most: 5}
	for _, tt := range []struct {
		p           Pages
		query, want string // ids and the next token; "": refused
	}{
		{Pages{}, "", "0123456 <nil>"},
		{tokens, "", "012 3"}, {tokens, "start=3", "345 6"}, {tokens, "start=6", "6 <nil>"}, {tokens, "start=9", " <nil>"},
		{tokens, "limit=5", "01234 5"}, {tokens, "limit=6", "01234 5"}, {tokens, "limit=0", "012 3"}, {tokens, "limit=x", "012 3"},
		{strict, "limit=5", "01234 5"}, {strict, "limit=6", ""}, {strict, "limit=0", ""}, {strict, "limit=x", ""}, {strict, "start=x", ""},
		{numbers, "", "012 3"}, {numbers, "page=3", "6 <nil>"}, {numbers, "page=2&size=2", "23 4"}, {numbers, "page=0", "012 3"},
	} {
		q, _ := url.ParseQuery(tt.query)
		part, err := tt.p.Part(q, all)
		got := ""
		for _, o := range part.Items {
			got += fmt.Sprint(o["id"])
		}
		got += fmt.Sprint(" ", part.Next)
		if tt.want == "" && err == nil || tt.want != "" && (err != nil || got != tt.want || part.Total != 7) {
			t.Errorf("%+v, %q: %q, %v", tt.p, tt.query, got, err)
		}
	}
}

func TestFitting(t *testing.T) {
	all := []Dict{{"id": 1, "name": "web", "vpc": Dict{"id": "a"}}, {"id": 2, "name": "db", "vpc": Dict{"id": "b"}}, {"id": 3, "name": "web"}}
	for query, want := range map[string]string{
		"": "123", "name=web": "13", "name=": "123", "vpc.id=b": "2", "name=web&vpc.id=a": "1", "id=1&id=2": "12", "other=x": "123",
	} {
		q, _ := url.ParseQuery(query)
		got := ""
		for _, o := range Fitting(q, all, "id", "name", "vpc.id") {
			got += fmt.Sprint(o["id"])
		}
		if got != want {
			t.Errorf("%q: %s", query, got)
		}
	}
}

// call asks a fake and returns the status and the answer.
func call(t *testing.T, f *Fake, method, path, body string) string {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), method, "http://fake"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer key")
	resp, err := f.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	var answer any
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return fmt.Sprint(resp.StatusCode, " ", answer)
}

func small() API {
	return API{
		Prefix: "/v1", Regions: []string{"here"}, ID: func(n uint64) string { return fmt.Sprint("m-", n) }, Login: Bearer("key"), Noun: "machine", Records: []string{"actions"},
		Error: func(_ int, code, message string) any { return Coded(code, message) },
		Words: map[fluffyapi.Code]Word{fluffyapi.InUse: {Status: 409, Code: "busy"}, fluffyapi.Throttled: {Status: 429, Message: "slower", Again: "1"}},
	}
}

// Things are made once for a name, told in the cloud's words, changed, found by their
// path, and kept while they are needed.
func TestKeep(t *testing.T) {
	api := small()
	api.Types = append(api.Types, Type("big", 8, "", 0, 1))
	f := New(api)
	removed := 0
	f.Keep(Kind{
		Name: "keys", Path: "/keys", Noun: "key", ByField: "name", Unique: "name", Make: Schema{"!name": Filled}, Change: Schema{"note": String}, ChangeBy: "PUT",
		Complete: func(_ *http.Request, in Dict) error {
			if in["name"] == "bad" {
				return fluffyapi.Errorf(fluffyapi.Invalid, "a bad name")
			}
			return nil
		},
		Within:   func(r *http.Request, o Dict) bool { return r.URL.Query().Get("not") != o["name"] },
		Describe: func(o Dict) Dict { return Dict{"name": o["name"], "note": o["note"]} }, Removable: f.Unused, Removed: func(Dict) { removed++ },
		Made: func(o Dict) any { return &Reply{Status: 201, Body: o} },
	})
	f.Put("actions", Dict{"id": "a", "name": "x"})
	for _, tt := range []struct{ method, path, body, want string }{
		{"POST", "/v1/keys", `{"name":"k"}`, "201 map[name:k note:<nil>]"}, {"POST", "/v1/keys", `{"name":"k"}`, "400 name_taken: k already exists"},
		{"POST", "/v1/keys", `{"name":"bad"}`, "400 invalid: a bad name"}, {"POST", "/v1/keys", `{"name":""}`, `400 invalid: name: not ""`},
		{"PUT", "/v1/keys/k", `{"note":"n"}`, "200 map[name:k note:n]"}, {"GET", "/v1/keys/k", "", "200 map[name:k note:n]"}, {"GET", "/v1/keys", "", "200 [map[name:k note:n]]"},
		{"GET", "/v1/keys?not=k", "", "200 []"}, {"GET", "/v1/keys/k?not=k", "", "404 key k does not exist"}, {"DELETE", "/v1/keys/other", "", "404 key other does not exist"},
	} {
		if got := call(t, f, tt.method, tt.path, tt.body); got != tt.want {
			t.Errorf("%s %s %s: %s", tt.method, tt.path, tt.body, got)
		}
	}
	id := f.Things("keys")[0]["id"]
	f.Route("POST", "/machines", "instances.create", Schema{}, func(r *http.Request, in Dict) (any, error) {
		i, err := f.Create(r, "here", "big", in)
		return i.ID, err
	})
	call(t, f, "POST", "/v1/machines", fmt.Sprintf(`{"name":"web","key":%q}`, id))
	if got := call(t, f, "DELETE", "/v1/keys/k", ""); !strings.HasPrefix(got, "409 busy: ") || removed != 0 {
		t.Error(got)
	}
	f.Kill(f.Cloud.Machines()[0].ID)
	if got := call(t, f, "DELETE", "/v1/keys/k", ""); got != "204 <nil>" || removed != 1 || len(f.Inventory()) != 0 {
		t.Errorf("%s, %v", got, f.Inventory())
	}
	f.Throttle()
	if got := call(t, f, "GET", "/v1/keys", ""); got != "429 slower" {
		t.Error(got)
	}
}

// A machine for which there is no room is made where the cloud finds that out later. It
// is listed, uses what it was made with, is neither started nor stopped, and goes.
func TestAMachineThatFails(t *testing.T) {
	api := small()
	api.FailsLater = true
	api.Types = append(api.Types, Type("big", 8, "", 0, 1))
	f := New(api)
	f.Route("POST", "/machines", "instances.create", Schema{}, func(r *http.Request, in Dict) (any, error) {
		i, err := f.Create(r, "here", "big", in)
		return i.ID, err
	})
	f.Route("GET", "/machines", "instances.list", nil, func(r *http.Request, _ Dict) (any, error) {
		return f.Existing(r, func(i fluffyapi.Instance) Dict { return Dict{"state": States{Failed: "broken"}.Of(i.State)} })
	})
	f.Show("/machines/{id}", func(i fluffyapi.Instance) any { return i.Region })
	for verb, op := range map[string]string{"start": "instances.start", "stop": "instances.stop", "end": "instances.terminate"} {
		f.Turn("POST", "/machines/{id}/"+verb, op, nil, func(fluffyapi.Instance) any { return "done" })
	}
	f.Fill("here", "big", 0)
	_, id, _ := strings.Cut(call(t, f, "POST", "/v1/machines", `{"name":"web","key":"k"}`), " ")
	path := "/v1/machines/" + id
	if lines := f.Inventory(); len(lines) != 1 || lines[0] != "instance web "+id || len(f.MadeWith("k")) != 1 || len(f.MadeWith("other")) != 0 {
		t.Errorf("%v", lines)
	}
	for _, tt := range [][3]string{
		{"GET", "/v1/machines", "200 [map[state:broken]]"}, {"GET", path, "200 here"}, {"POST", path + "/start", "400 wrong_state: " + id + " is failed"}, {"POST", path + "/stop", "400 wrong_state: " + id + " is failed"},
		{"POST", path + "/end", "200 done"}, {"GET", path, "404 machine " + id + " does not exist"}, {"GET", "/v1/machines", "200 []"},
	} {
		if got := call(t, f, tt[0], tt[1], ""); got != tt[2] {
			t.Errorf("%s %s: %s", tt[0], tt[1], got)
		}
	}
}

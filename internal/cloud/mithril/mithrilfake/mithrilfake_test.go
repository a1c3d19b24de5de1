package mithrilfake

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// A bid waits for room, has its instances, is paused, taken back and cancelled.
func TestTheLifeOfABid(t *testing.T) {
	f := New()
	c := rest.New(rest.Options{Endpoint: "http://fake/v2", Transport: f, Authorize: rest.Bearer(Key), Busy: -1})
	ask := func(method, path string, body any) dict {
		t.Helper()
		answer, err := rest.Do[dict](t.Context(), c, method, path, body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return answer
	}
	until := func(what, status string) (instance dict) {
		t.Helper()
		for range 10000 {
			list := ask("GET", "/instances?project="+Project+"&limit=1", nil)["data"].([]any)
			if instance = list[0].(dict); instance["status"] == status {
				return instance
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%s: %v", what, instance)
		return nil
	}
	key := ask("POST", "/ssh-keys", dict{"project": Project, "name": "k", "public_key": "ssh-ed25519 AAAA"})["fid"]
	body := dict{
		"project": Project, "region": regions[0], "instance_type": typeID("a100-80gb.sxm.1x", regions[0]), "limit_price": "$2.00", "instance_quantity": 2, "name": "web",
		"launch_specification": dict{"ssh_keys": []any{key}, "volumes": []string{}, "startup_script": "#!/bin/sh"},
	}
	f.Fill(regions[0], "a100-80gb.sxm.1x", 1)
	bid := ask("POST", "/spot/bids", body)
	path := "/spot/bids/" + bid["fid"].(string)
	if bid["status"] != "Open" || len(bid["instances"].([]any)) != 0 {
		t.Errorf("half of it was allocated: %v", bid)
	}
	f.Restore()
	if bid = ask("GET", path, nil); bid["status"] != "Allocated" || len(bid["instances"].([]any)) != 2 {
		t.Errorf("%v", bid)
	}
	first := until("running", "STATUS_RUNNING")
	if first["bid"] != bid["fid"] || first["name"] != "web-1" || first["ssh_destination"] == nil {
		t.Errorf("%v", first)
	}
	if page := ask("GET", "/instances?limit=1&next_cursor=1&project="+Project, nil); page["data"].([]any)[0].(dict)["fid"] == first["fid"] || page["next_cursor"] != nil {
		t.Errorf("%v", page)
	}
	until("running", "STATUS_RUNNING")
	for _, m := range f.Cloud.Machines() {
		for m.State == fluffyapi.Pending {
			time.Sleep(time.Millisecond)
			m, _ = f.Machine(m.ID)
		}
	}
	if ask("PATCH", path, dict{"paused": true})["status"] != "Paused" {
		t.Error("it was not paused")
	}
	until("paused", "STATUS_PAUSED")
	ask("PATCH", path, dict{"paused": false})
	if again := until("running again", "STATUS_RUNNING"); again["fid"] != first["fid"] {
		t.Errorf("%v", again)
	}
	for _, m := range f.Cloud.Machines() {
		for m.State == fluffyapi.Pending {
			time.Sleep(time.Millisecond)
			m, _ = f.Machine(m.ID)
		}
	}
	ask("PATCH", path, dict{"limit_price": "$0.10"}) // or it would win again at once
	f.Preempt(first["fid"].(string), 0)
	until("taken back", "STATUS_PREEMPTED")
	if bid = ask("GET", path, nil); bid["status"] != "Open" {
		t.Errorf("%v", bid)
	}
	if _, err := rest.Do[any](t.Context(), c, "DELETE", "/ssh-keys/"+key.(string), nil); err == nil {
		t.Error("a key in use was deleted")
	}
	ask("DELETE", path, nil)
	var refused *rest.Error
	if _, err := rest.Do[any](t.Context(), c, "DELETE", path, nil); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("%v", err)
	}
	if ended := ask("GET", "/spot/bids?project="+Project+"&name=web&status=Terminated", nil)["data"].([]any); len(ended) != 1 {
		t.Errorf("%v", ended)
	}
	if _, err := rest.Do[any](t.Context(), c, "POST", "/spot/bids", body); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest { // its name was used
		t.Errorf("%v", err)
	}
	body["limit_price"], body["name"] = "$0.10", "low"
	if low := ask("POST", "/spot/bids", body); low["status"] != "Open" {
		t.Errorf("%v", low)
	}
	if n := len(f.Cloud.Machines()); n != 2 {
		t.Errorf("%d instances were made", n)
	}
}

// Limits, quotas and credentials are refused in Mithril's forms.
func TestRefusals(t *testing.T) {
	f := New()
	get := func(path, key string) *http.Response {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://fake/v2"+path, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := f.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for path, want := range map[string]int{"/me": 200, "/instances": 422, "/instances?project=proj_other": 403, "/instance-types/it_none": 404, "/instances?limit=101&project=" + Project: 422} {
		if resp := get(path, Key); resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if resp := get("/me", "fkey_wrong"); resp.StatusCode != 401 {
		t.Error(resp.Status)
	}
	f.Throttle()
	if resp := get("/me", Key); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Error(resp.Status)
	}
	f.Restore()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://fake/v2/spot/bids", strings.NewReader(`{"project":"proj_fake"}`))
	r.Header.Set("Authorization", "Bearer "+Key)
	var answer struct {
		Detail []struct {
			Loc []string
			Msg string
		}
	}
	if resp, err := f.RoundTrip(r); err != nil || resp.StatusCode != 422 || json.NewDecoder(resp.Body).Decode(&answer) != nil || len(answer.Detail) != 1 || answer.Detail[0].Loc[0] != "body" {
		t.Errorf("%v %v %+v", resp, err, answer)
	}
}

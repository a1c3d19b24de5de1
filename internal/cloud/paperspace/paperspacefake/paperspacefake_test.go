package paperspacefake

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// A machine is made in a network, switched off and on, and deleted.
func TestTheLifeOfAMachine(t *testing.T) {
	f := New()
	c := rest.New(rest.Options{Endpoint: "http://fake/v1", Transport: f, Authorize: rest.Bearer(Key), Busy: -1})
	ask := func(method, path string, body any) fakehttp.Dict {
		t.Helper()
		answer, err := rest.Do[fakehttp.Dict](t.Context(), c, method, path, body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return answer
	}
	refused := func(method, path string, body any, want string) {
		t.Helper()
		if _, err := rest.Do[any](t.Context(), c, method, path, body); err == nil || err.Error() != want {
			t.Errorf("%s %s: %v; want %s", method, path, err, want)
		}
	}
	network := ask("POST", "/private-networks", fakehttp.Dict{"name": "n", "region": "East Coast (NY2)"})["id"].(string)
	script := ask("POST", "/startup-scripts", fakehttp.Dict{"name": "s", "script": "echo", "isRunOnce": true, "isEnabled": true})
	if script["script"] != nil {
		t.Errorf("%v", script)
	}
	ask("PUT", "/startup-scripts/"+script["id"].(string), fakehttp.Dict{"script": "echo 2"})
	f.Slow(time.Hour)
	made := ask("POST", "/machines", fakehttp.Dict{
		"name": "web", "machineType": "A4000", "templateId": "twnlo3zj", "diskSize": 100, "region": "ny2", "networkId": network, "startupScriptId": script["id"], "publicIpType": "dynamic",
	})["data"].(fakehttp.Dict)
	path := "/machines/" + made["id"].(string)
	if made["state"] != "provisioning" || made["publicIp"] != nil {
		t.Errorf("%v", made)
	}
	refused("PATCH", path+"/stop", nil, "BAD_REQUEST: This machine is currently provisioning")
	refused("DELETE", "/private-networks/"+network, nil, "CONFLICT: the private network has machines")
	if err := f.Cloud.Booted(made["id"].(string)); err != nil {
		t.Fatal(err)
	}
	if m := ask("GET", "/machines?limit=1", nil)["items"].([]any)[0].(fakehttp.Dict); m["state"] != "ready" || m["publicIp"] == nil || m["privateIp"] == nil {
		t.Errorf("%v", m)
	}
	ask("PATCH", path+"/stop", nil)
	for ask("GET", path, nil)["state"] != "off" {
		time.Sleep(time.Millisecond)
	}
	ask("PATCH", path+"/start", nil)
	refused("PATCH", path+"/start", nil, "BAD_REQUEST: This machine is currently starting")
	ask("DELETE", path, nil)
	refused("GET", path, nil, "NOT_FOUND: Machine not found")
	f.Fill("ny2", "C5", 0)
	if ask("GET", "/machine-availability?machineType=C5&region=ny2", nil)["available"] != false {
		t.Error("what is full is available")
	}
}

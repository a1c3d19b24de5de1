package dofake

import (
	"context"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// A droplet lives as DigitalOcean's do, and is told about in its few words.
func TestTheLifeOfADroplet(t *testing.T) {
	f := New()
	c := rest.New(rest.Options{Endpoint: "http://fake/v2", Transport: f, Authorize: rest.Bearer(Token), Busy: -1})
	ask := func(method, path string, body any) fakehttp.Dict {
		t.Helper()
		answer, err := rest.Do[fakehttp.Dict](t.Context(), c, method, path, body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return answer
	}
	key := ask("POST", "/account/keys", fakehttp.Dict{"name": "k", "public_key": "ssh-ed25519 AAAA"})["ssh_key"].(fakehttp.Dict)["id"]
	volume := ask("POST", "/volumes", fakehttp.Dict{"name": "v", "size_gigabytes": 10, "region": "tor1"})["volume"].(fakehttp.Dict)["id"].(string)
	f.Slow(time.Hour)
	made := ask("POST", "/droplets", fakehttp.Dict{
		"name": "web-0", "region": "tor1", "size": "gpu-h100x1-80gb", "image": "gpu-h100x1-base", "ssh_keys": []any{key}, "volumes": []string{volume}, "tags": []string{"a:b"},
	})["droplet"].(fakehttp.Dict)
	path := "/droplets/" + f.Cloud.Machines()[0].ID
	refused := func(method, path string, body any, want string) {
		t.Helper()
		if _, err := rest.Do[any](context.Background(), c, method, path, body); err == nil || err.Error() != want {
			t.Errorf("%s %s: %v; want %s", method, path, err, want)
		}
	}
	if made["status"] != "new" || made["locked"] != true {
		t.Errorf("%v", made)
	}
	refused("POST", path+"/actions", fakehttp.Dict{"type": "shutdown"}, "Droplet already has a pending event")
	refused("DELETE", "/volumes/"+volume, nil, "attached volume cannot be deleted")
	if err := f.Cloud.Booted(f.Cloud.Machines()[0].ID); err != nil {
		t.Fatal(err)
	}
	ask("POST", path+"/actions", fakehttp.Dict{"type": "shutdown"})
	for ask("GET", path, nil)["droplet"].(fakehttp.Dict)["status"] != "off" {
		time.Sleep(time.Millisecond)
	}
	if list := ask("GET", "/droplets?tag_name=A:B", nil)["droplets"].([]any); len(list) != 1 || !f.Billed(f.Cloud.Machines()[0].ID) {
		t.Errorf("%v", list)
	}
	ask("POST", path+"/actions", fakehttp.Dict{"type": "power_on"})
	if d := ask("GET", path, nil)["droplet"].(fakehttp.Dict); d["status"] != "off" || d["locked"] != true {
		t.Errorf("%v", d)
	}
	ask("DELETE", path, nil)
	refused("GET", path, nil, "The resource you were accessing could not be found")
	f.Fill("ams3", "gpu-h100x1-80gb", 0)
	refused("POST", "/droplets", fakehttp.Dict{"name": "x", "region": "ams3", "size": "gpu-h100x1-80gb", "image": 5}, "Size is not available in this region")
}

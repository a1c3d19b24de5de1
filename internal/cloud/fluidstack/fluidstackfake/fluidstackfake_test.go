package fluidstackfake

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// An instance is made, renamed and ended, and what is out of stock is no longer listed.
func TestTheLifeOfAnInstance(t *testing.T) {
	f := New()
	c := rest.New(rest.Options{Endpoint: "http://fake", Transport: f, Authorize: rest.Header("api-key", Key), Busy: -1})
	if _, err := rest.Do[any](t.Context(), c, "POST", "/ssh_keys", fakehttp.Dict{"name": "k", "public_key": "ssh-ed25519 AAAA"}); err != nil {
		t.Fatal(err)
	}
	f.Slow(time.Hour)
	made, err := rest.Do[fakehttp.Dict](t.Context(), c, "POST", "/instances", fakehttp.Dict{"name": "web", "gpu_type": "H100_PCIE_80GB", "gpu_count": 2, "ssh_key": "k", "region": regions[1]})
	if err != nil {
		t.Fatal(err)
	}
	id := made["id"].(string)
	i, err := rest.Do[fakehttp.Dict](t.Context(), c, "PUT", "/instances/"+id+"/rename", fakehttp.Dict{"new_instance_name": "web-head"})
	if err != nil || i["name"] != "web-head" || i["status"] != "pending" || i["ip_address"] != nil || i["configuration"].(fakehttp.Dict)["region"] != regions[1] {
		t.Errorf("%v, %v", i, err)
	}
	if _, err := rest.Do[any](t.Context(), c, "DELETE", "/instances/"+id, nil); err != nil {
		t.Error(err)
	}
	list, err := rest.Do[[]fakehttp.Dict](t.Context(), c, "GET", "/instances", nil)
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	for _, region := range regions {
		for _, n := range counts {
			f.Fill(region, Type("H100_PCIE_80GB", n), 0)
		}
	}
	plans, err := rest.Do[[]fakehttp.Dict](t.Context(), c, "GET", "/list_available_configurations", nil)
	if err != nil || len(plans) != 1 {
		t.Errorf("%v, %v", plans, err)
	}
	if _, err := rest.Do[any](t.Context(), c, "POST", "/instances", fakehttp.Dict{"gpu_type": "H100_PCIE_80GB", "ssh_key": "k"}); err == nil || err.Error() != "The requested configuration is out of stock" {
		t.Error(err)
	}
}

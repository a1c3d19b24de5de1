package verdafake

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// An instance is made with a token that was asked for, and ended.
func TestTheLifeOfAnInstance(t *testing.T) {
	f := New()
	open := rest.New(rest.Options{Endpoint: "http://fake/v1", Transport: f, Busy: -1})
	if _, err := rest.Do[any](t.Context(), open, "GET", "/instances", nil); err == nil {
		t.Error("let in without a token")
	}
	if _, err := rest.Do[any](t.Context(), open, "POST", "/oauth2/token", fakehttp.Dict{"grant_type": "client_credentials", "client_id": "x", "client_secret": "y"}); err == nil {
		t.Error("a token for a wrong secret")
	}
	token, err := rest.Do[fakehttp.Dict](t.Context(), open, "POST", "/oauth2/token", fakehttp.Dict{"grant_type": "client_credentials", "client_id": ClientID, "client_secret": Secret})
	if err != nil {
		t.Fatal(err)
	}
	c := rest.New(rest.Options{Endpoint: "http://fake/v1", Transport: f, Authorize: rest.Bearer(token["access_token"].(string)), Busy: -1})
	key, err := rest.Do[rest.Text](t.Context(), c, "POST", "/ssh-keys", fakehttp.Dict{"name": "k", "key": "ssh-ed25519 AAAA"})
	if err != nil {
		t.Fatal(err)
	}
	f.Slow(time.Hour)
	body := fakehttp.Dict{"instance_type": "1V100.6V", "image": "ubuntu-24.04", "hostname": "web-0", "description": "web", "ssh_key_ids": []any{key}, "location_code": "FIN-03", "is_spot": true}
	id, err := rest.Do[rest.Text](t.Context(), c, "POST", "/instances", body)
	if err != nil {
		t.Fatal(err)
	}
	list, err := rest.Do[[]fakehttp.Dict](t.Context(), c, "GET", "/instances", nil)
	if err != nil || len(list) != 1 || list[0]["id"] != string(id) || list[0]["status"] != "ordered" || list[0]["contract"] != "SPOT" || list[0]["ip"] != nil {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := rest.Do[any](t.Context(), c, "PUT", "/instances", fakehttp.Dict{"id": id, "action": "shutdown"}); err == nil {
		t.Error("what is provisioned was shut down")
	}
	results, err := rest.Do[[]fakehttp.Dict](t.Context(), c, "PUT", "/instances", fakehttp.Dict{"id": []any{id, "none"}, "action": "delete", "volume_ids": nil})
	if err != nil || results[0]["status"] != "success" || results[1]["statusCode"] != 404.0 {
		t.Errorf("%v, %v", results, err)
	}
	for m, _ := f.Machine(fmt.Sprint(id)); m.State != fluffyapi.Terminated; m, _ = f.Machine(m.ID) { // which leaves its room
		time.Sleep(time.Millisecond)
	}
	f.Fill("FIN-03", "1V100.6V", 0)
	var lost *rest.NoAnswerError // since its status is 503
	if _, err := rest.Do[rest.Text](t.Context(), c, "POST", "/instances", body); !errors.As(err, &lost) {
		t.Error(err)
	}
	if free, err := rest.Do[bool](t.Context(), c, "GET", "/instance-availability/1V100.6V?location_code=FIN-03", nil); free || err != nil {
		t.Error("what is full is available", err)
	}
}

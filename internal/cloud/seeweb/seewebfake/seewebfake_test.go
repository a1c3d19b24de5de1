package seewebfake

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func ask(t *testing.T, f *Fake, token, method, path string, body any) (int, dict) {
	t.Helper()
	return f.Ask(t, func(r *http.Request) { r.Header.Set("X-APITOKEN", token) }, method, "https://api.seeweb.it/ecs/v2"+path, body)
}

// A server is made, switched off and on, and deleted; only its own status says that it is
// off.
func TestTheLifeOfAServer(t *testing.T) {
	f := New()
	do := func(method, path string, body any) dict {
		t.Helper()
		status, answer := ask(t, f, Token, method, path, body)
		if status != 200 {
			t.Fatalf("%s %s: %d %v", method, path, status, answer)
		}
		return answer
	}
	until := func(path, want string) {
		t.Helper()
		var got string
		for range 10000 {
			if got = do("GET", path+"/status", nil)["server"].(dict)["current_status"].(string); got == want {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%s is %s", path, got)
	}
	do("POST", "/sshkeys", dict{"key": "ssh-ed25519 AAAA", "label": "sky"})
	f.Slow(time.Hour)
	body := dict{"plan": "ECS1GPU6", "image": "ubuntu-2204", "location": "it-fr2", "notes": "web-head", "ssh_key": "sky"}
	made := do("POST", "/servers", body)
	server := made["server"].(dict)
	path := "/servers/" + server["name"].(string)
	action := "/actions/" + fmt.Sprint(int(made["action_id"].(float64)))
	if server["status"] != "Booting" || server["ipv4"] != "" || do("GET", action, nil)["action"].(dict)["status"] != "in-progress" {
		t.Errorf("%v", made)
	}
	if err := f.Cloud.Booted(server["name"].(string)); err != nil {
		t.Fatal(err)
	}
	f.Restore()
	if a := do("GET", action, nil)["action"].(dict); a["status"] != "completed" || a["type"] != "create_server" {
		t.Errorf("%v", a)
	}
	if a := do("POST", path+"/actions", dict{"type": "power_off"}); a["type"] != "power_off" {
		t.Errorf("%v", a)
	}
	until(path, "SHUTOFF")
	if list := do("GET", "/servers", nil); list["count"] != 1.0 || list["server"].([]any)[0].(dict)["status"] != "Booted" || list["server"].([]any)[0].(dict)["notes"] != "web-head" {
		t.Errorf("%v", list)
	}
	do("POST", path+"/actions", dict{"type": "power_on"})
	until(path, "RUNNING")
	do("DELETE", path, nil)
	for status := 200; status != 404; status, _ = ask(t, f, Token, "GET", path, nil) {
		time.Sleep(time.Millisecond)
	}
	if total := do("GET", "/actions?length=1", nil); total["total_actions"] != 4.0 || len(total["actions"].([]any)) != 1 {
		t.Errorf("%v", total)
	}
}

func TestRefusals(t *testing.T) {
	f := New()
	body := dict{"plan": "eCS4", "image": "ubuntu-2204", "location": "it-mi2", "notes": "web"}
	message := func(status int, answer dict) string {
		e, _ := answer["error"].(dict)
		return fmt.Sprint(status, " ", e["message"])
	}
	if status, _ := ask(t, f, "wrong", "GET", "/servers", nil); status != 401 {
		t.Error(status)
	}
	f.Fill("it-mi2", "eCS4", 0)
	if got := message(ask(t, f, Token, "POST", "/servers", body)); got != "400 plan not available in this region" {
		t.Error(got)
	}
	_, plans := ask(t, f, Token, "GET", "/plans/availables", nil)
	for _, p := range plans["plans"].([]any) {
		if in := p.(dict)["region_availables"].([]any); p.(dict)["name"] == "eCS4" && len(in) != 1 {
			t.Errorf("%v", in)
		}
	}
	f.Restore()
	f.Quota("it-mi2", 0)
	if got := message(ask(t, f, Token, "POST", "/servers", body)); got != "400 maximum number of servers reached" {
		t.Error(got)
	}
	body["ssh_key"] = "none"
	if got := message(ask(t, f, Token, "POST", "/servers", body)); got != "400 invalid: ssh key none does not exist" {
		t.Error(got)
	}
}

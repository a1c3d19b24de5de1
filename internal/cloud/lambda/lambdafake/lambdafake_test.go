package lambdafake_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/lambda/lambdafake"
)

type cloud struct {
	*testing.T
	*lambdafake.Fake
	url, key string
	patience time.Duration
}

func start(t *testing.T) cloud {
	f := lambdafake.New()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return cloud{t, f, s.URL + "/api/v1", lambdafake.Key, time.Minute}
}

// call returns the status (0: no answer), the code of an error, and the data.
func (c cloud) call(method, path, body string) (status int, code string, data any) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), c.patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", nil
	}
	if resp.StatusCode == 429 {
		return 429, "", nil
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil || len(got) != 1 {
		c.Fatalf("%s %s: %s is no envelope: %v", method, path, text, err)
	}
	if e, ok := got["error"].(map[string]any); ok {
		if e["message"] == "" || e["suggestion"] == "" {
			c.Errorf("%s lacks words", text)
		}
		code = e["code"].(string)
	}
	return resp.StatusCode, code, got["data"]
}

func (c cloud) want(method, path, body string, status int, code string) any {
	c.Helper()
	gotStatus, gotCode, data := c.call(method, path, body)
	if gotStatus != status || gotCode != code {
		c.Errorf("%s %s %.200s: %d %q, not %d %q", method, path, body, gotStatus, gotCode, status, code)
	}
	return data
}

func (c cloud) ok(method, path, body string) map[string]any {
	c.Helper()
	m, _ := c.want(method, path, body, 200, "").(map[string]any)
	return m
}

// request is a launch with further fields.
func request(more string) string {
	return `{"region_name":"us-east-1","instance_type_name":"gpu_1x_a10","ssh_key_names":["mine"]` + more + `}`
}

const launchPath, endPath = "/instance-operations/launch", "/instance-operations/terminate"

func (c cloud) addKey() { c.ok("POST", "/ssh-keys", `{"name":"mine","public_key":"ssh-ed25519 AAAA"}`) }

func (c cloud) launch(more string) (id string) {
	c.Helper()
	ids, _ := c.ok("POST", launchPath, request(more))["instance_ids"].([]any)
	if len(ids) != 1 || len(ids[0].(string)) != 32 {
		c.Fatalf("launched %v", ids)
	}
	return ids[0].(string)
}

func (c cloud) await(id, status string) map[string]any {
	c.Helper()
	for end := time.Now().Add(c.patience); ; time.Sleep(5 * time.Millisecond) {
		i := c.ok("GET", "/instances/"+id, "")
		if i["status"] == status {
			return i
		}
		if time.Now().After(end) {
			c.Fatalf("%s is %v, not %s", id, i["status"], status)
		}
	}
}

func (c cloud) listed() (ids []string) {
	c.Helper()
	all, _ := c.want("GET", "/instances", "", 200, "").([]any)
	for _, i := range all {
		ids = append(ids, i.(map[string]any)["id"].(string))
	}
	return ids
}

func end(id string) string { return `{"instance_ids":["` + id + `"]}` }

func TestLifeOfAnInstance(t *testing.T) {
	c := start(t)
	c.addKey()
	c.Slow(300 * time.Millisecond)
	id := c.launch(`,"name":"n","tags":[{"key":"a:b-1","value":""}],"user_data":"#!/bin/sh\n\"<&>\""`)
	if other := c.launch(`,"name":"n"`); other == id {
		t.Error("a launch was repeated, not done again")
	}
	i := c.ok("GET", "/instances/"+id, "")
	if _, ok := i["ip"]; ok || i["status"] != "booting" {
		t.Errorf("a new instance has an address or is not booting: %v", i)
	}
	i = c.await(id, "active")
	if i["ip"] == "" || i["private_ip"] == "" || i["name"] != "n" || !c.Billed(id) || i["user_data"] != nil ||
		fmt.Sprint(i["tags"], i["ssh_key_names"]) != "[map[key:a:b-1 value:]] [mine]" || i["region"].(map[string]any)["name"] != "us-east-1" {
		t.Errorf("active: %v", i)
	}
	for _, field := range []string{"id", "status", "ssh_key_names", "file_system_names", "region", "instance_type", "actions"} {
		if i[field] == nil {
			t.Errorf("%s is required", field)
		}
	}
	ended := c.ok("POST", endPath, end(id))["terminated_instances"].([]any)
	if ended[0].(map[string]any)["status"] != "terminating" {
		t.Errorf("ended: %v", ended)
	}
	c.ok("POST", endPath, end(id))
	c.await(id, "terminated")
	if slices.Contains(c.listed(), id) || c.Billed(id) {
		t.Error("a terminated instance is listed or billed")
	}
	if got := c.Inventory(); len(got) != 2 || !strings.HasPrefix(got[0], "instance n ") || !strings.HasPrefix(got[1], "keys mine ") {
		t.Errorf("inventory %q", got)
	}
}

func TestWhatIsWrongIsRefused(t *testing.T) {
	c := start(t)
	c.addKey()
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, body := range []string{
		"", "{", "[]", "{}", request(`,"name":7`), request(`,"name":"` + long(65) + `"`), request(`,"quantity":2`),
		request(`,"hostname":"-a"`), request(`,"hostname":""`), request(`,"image":{}`), request(`,"image":{"id":"a","family":"b"}`),
		request(`,"tags":{"a":"b"}`), request(`,"tags":[{"key":"a","value":""}]`), request(`,"tags":[{"key":"A1","value":""}]`), request(`,"tags":[{"key":"a_1","value":""}]`),
		request(`,"tags":[{"key":"ab"}]`), request(`,"tags":[{"key":"` + long(56) + `","value":""}]`), request(`,"tags":[{"key":"ab","value":"` + long(129) + `"}]`),
		request(`,"tags":[{"key":"lambda-ai-x","value":""}]`), request(`,"firewall_rulesets":["x"]`), request(`,"user_data":"` + long(1_000_001) + `"`),
		strings.Replace(request(""), `["mine"]`, `[]`, 1), strings.Replace(request(""), `["mine"]`, `["mine","mine"]`, 1), strings.Replace(request(""), "us-east-1", "mars", 1),
	} {
		c.want("POST", launchPath, body, 400, "global/invalid-parameters")
	}
	for _, body := range []string{
		strings.Replace(request(""), "mine", "yours", 1), strings.Replace(request(""), "gpu_1x_a10", "gpu_9x", 1),
		request(`,"firewall_rulesets":[{"id":"none"}]`), request(`,"file_system_names":["none"]`),
	} {
		c.want("POST", launchPath, body, 404, "global/object-does-not-exist")
	}
	id := c.launch(`,"quantity":1,"colour":"blue","name":"` + long(64) + `","image":{"family":"lambda-stack-24-04"},"hostname":"a","tags":[{"key":"` + long(55) + `","value":"` + strings.Repeat("ü", 128) + `"}]`)
	c.want("GET", "/instances/none", "", 404, "global/object-does-not-exist")
	c.want("POST", endPath, `{"instance_ids":["`+id+`","none"]}`, 404, "global/object-does-not-exist")
	c.want("POST", endPath, `{"instance_ids":[]}`, 400, "global/invalid-parameters")
	c.await(id, "active")
	c.ok("POST", "/ssh-keys", `{"name":"mine","public_key":"another"}`)
	c.want("POST", launchPath, request(""), 500, "global/unknown")
	c.key = "wrong"
	c.want("GET", "/instances", "", 401, "global/invalid-api-key")
}

func TestRulesets(t *testing.T) {
	c := start(t)
	c.addKey()
	rule := func(ports string) string {
		return `{"protocol":"tcp","port_range":[` + ports + `],"source_network":"0.0.0.0/0","description":""}`
	}
	make := func(rules string) string { return `{"name":"r","region":"us-east-1","rules":[` + rules + `]}` }
	for _, body := range []string{
		make(rule("22")), make(rule("23,22")), make(rule("0,1")), make(rule("1,65536")), make(`{"protocol":"tcp","source_network":"0.0.0.0/0","description":""}`),
		make(strings.Replace(rule("1,2"), "tcp", "icmp", 1)), make(strings.Replace(rule("1,2"), `,"description":""`, "", 1)),
		strings.Replace(make(""), "us-east-1", "mars", 1), `{"name":"r","rules":[]}`,
	} {
		c.want("POST", "/firewall-rulesets", body, 400, "global/invalid-parameters")
	}
	set := c.ok("POST", "/firewall-rulesets", make(rule("8000,8010")+","+rule("22,22")))
	path := "/firewall-rulesets/" + set["id"].(string)
	if set["name"] != "r" || set["region"].(map[string]any)["name"] != "us-east-1" || len(set["rules"].([]any)) != 2 || set["created"] == nil {
		t.Errorf("made %v", set)
	}
	use := fmt.Sprintf(`,"firewall_rulesets":[{"id":%q}]`, set["id"])
	c.want("POST", launchPath, strings.Replace(request(use), "us-east", "us-west", 1), 404, "global/object-does-not-exist")
	id := c.launch(use)
	if got := c.ok("GET", path, "")["instance_ids"]; fmt.Sprint(got) != "["+id+"]" {
		t.Errorf("used by %v", got)
	}
	if got := c.Rules(id); !slices.Equal(got, []string{"22", "8000-8010"}) {
		t.Errorf("open: %q", got)
	}
	c.want("PATCH", path, `{"region":"us-west-1"}`, 400, "global/invalid-parameters")
	c.ok("PATCH", path, `{"rules":[`+rule("80,80")+`]}`)
	if got := c.Rules(id); !slices.Equal(got, []string{"80"}) {
		t.Errorf("open after a change: %q", got)
	}
	c.want("DELETE", path, "", 400, "firewall-rulesets/firewall-ruleset-in-use")
	c.ok("POST", endPath, end(id))
	c.await(id, "terminated")
	c.ok("DELETE", path, "")
	c.want("DELETE", path, "", 404, "global/object-does-not-exist")
	c.want("GET", path, "", 404, "global/object-does-not-exist")
	if all := c.want("GET", "/firewall-rulesets", "", 200, "").([]any); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
	keys := c.want("GET", "/ssh-keys", "", 200, "").([]any)
	c.ok("DELETE", "/ssh-keys/"+keys[0].(map[string]any)["id"].(string), "")
	c.want("POST", "/ssh-keys", `{"name":"","public_key":"k"}`, 400, "global/invalid-parameters")
}

func TestCapacityAndQuota(t *testing.T) {
	c := start(t)
	c.addKey()
	places := func() any {
		return c.ok("GET", "/instance-types", "")["gpu_1x_a10"].(map[string]any)["regions_with_capacity_available"]
	}
	if got := places().([]any); len(got) != 4 {
		t.Errorf("capacity in %v", got)
	}
	c.Fill("us-east-1", "gpu_1x_a10", 1)
	c.launch("")
	c.want("POST", launchPath, request(""), 400, "instance-operations/launch/insufficient-capacity")
	if got := places().([]any); len(got) != 3 {
		t.Errorf("capacity in %v", got)
	}
	c.Restore()
	c.Quota("us-east-1", 0)
	c.want("POST", launchPath, request(""), 400, "global/quota-exceeded")
	c.Restore()
	c.launch("")
}

func TestTroubles(t *testing.T) {
	c := start(t)
	c.addKey()
	id := c.launch("")
	c.await(id, "active")
	for _, trouble := range []struct {
		begin  func()
		status int
		code   string
	}{
		{c.Throttle, 429, ""}, {c.Refuse, 401, "global/invalid-api-key"}, {c.Cut, 0, ""},
		{func() { c.Hang(); c.patience = 200 * time.Millisecond }, 0, ""},
		{func() { c.Inject(model.Fault{Kind: model.Fail, Code: lambdafake.Inactive}) }, 403, "global/account-inactive"},
		{func() { c.Inject(model.Fault{Kind: model.Fail, Code: fluffyapi.Internal}) }, 500, "global/internal-error"},
	} {
		trouble.begin()
		c.want("GET", "/ssh-keys", "", trouble.status, trouble.code)
		c.want("POST", launchPath, request(""), trouble.status, trouble.code)
		c.Restore()
		c.patience = time.Minute
		if got := c.listed(); len(got) != 1 {
			t.Fatalf("a refused launch had its effect: %v", got)
		}
	}
	c.Forbid()
	c.listed()
	for _, call := range [][3]string{{"POST", launchPath, request("")}, {"POST", endPath, end(id)}, {"POST", "/ssh-keys", "{}"}, {"DELETE", "/firewall-rulesets/x", ""}} {
		c.want(call[0], call[1], call[2], 403, "global/forbidden")
	}
	c.Restore()
	c.Inject(model.Fault{Kind: model.Lose, Op: "instances.create", Times: 1})
	c.want("POST", launchPath, request(""), 0, "")
	c.launch("")
	if got := c.listed(); len(got) != 3 {
		t.Errorf("a lost launch had no effect: %v", got)
	}
	c.Inject(model.Fault{Kind: model.Lose, Op: "instances.terminate", Times: 1})
	c.want("POST", endPath, end(id), 0, "")
	c.await(id, "terminated")
	c.HideNew(2)
	hidden := c.launch("")
	for n := range 3 {
		if got := slices.Contains(c.listed(), hidden); got != (n == 2) {
			t.Errorf("list %d has the new instance: %t", n, got)
		}
	}
	c.Restore()
	c.await(hidden, "active")
	c.Lie(hidden, "dreaming")
	c.await(hidden, "dreaming")
	c.Restore()
	c.Preempt(hidden, 0)
	c.await(hidden, "preempted")
	killed := c.launch("")
	c.Kill(killed)
	c.await(killed, "terminated")
}

func TestLimits(t *testing.T) {
	c := start(t)
	c.addKey()
	c.launch("")
	c.launch("")
	c.Limit()
	c.want("GET", "/instances", "", 429, "")
	time.Sleep(1100 * time.Millisecond)
	c.want("POST", launchPath, request(""), 429, "")
	c.want("GET", "/instances", "", 200, "")
}

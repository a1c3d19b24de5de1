package ibmfake

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

const vpcAPI = "https://us-south.iaas.cloud.ibm.com/v1"

// ask makes a call and returns its status and answer.
func ask(t *testing.T, f *Fake, token, method, url string, body any) (int, dict) {
	t.Helper()
	if strings.Contains(url, "/v1/") {
		url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "version=2025-01-01&generation=2"
	}
	return f.Ask(t, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		if _, form := body.(fakehttp.Text); form {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}, method, url, body)
}

func code(answer dict) any {
	all, _ := answer["errors"].([]any)
	if len(all) == 0 {
		return nil
	}
	return all[0].(dict)["code"]
}

// A cluster's network is made, found by its tag, used, and removed from the inside out.
func TestTheLifeOfANetwork(t *testing.T) {
	f := New()
	grant := "grant_type=urn%3Aibm%3Aparams%3Aoauth%3Agrant-type%3Aapikey&apikey="
	if status, answer := ask(t, f, "", "POST", "https://iam.cloud.ibm.com/identity/token", fakehttp.Text(grant+"wrong")); status != 400 || answer["errorCode"] != "BXNIM0415E" {
		t.Errorf("%d %v", status, answer)
	}
	_, answer := ask(t, f, "", "POST", "https://iam.cloud.ibm.com/identity/token", fakehttp.Text(grant+APIKey))
	token := answer["access_token"].(string)
	if status, _ := ask(t, f, "x", "GET", vpcAPI+"/vpcs", nil); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	made := func(path string, body dict) dict {
		t.Helper()
		status, answer := ask(t, f, token, "POST", vpcAPI+path, body)
		if status != 201 {
			t.Fatalf("%s: %d %v", path, status, answer)
		}
		return answer
	}
	vpc := made("/vpcs", dict{"name": "sky-vpc-web"})
	in := dict{"id": vpc["id"]}
	if status, answer := ask(t, f, token, "POST", "https://tags.global-search-tagging.cloud.ibm.com/v3/tags/attach?tag_type=user", dict{"resources": []dict{{"resource_id": vpc["crn"]}}, "tag_names": []string{"web"}}); status != 200 {
		t.Errorf("%v", answer)
	}
	_, found := ask(t, f, token, "POST", "https://api.global-search-tagging.cloud.ibm.com/v3/resources/search", dict{"query": "type:vpc AND tags:web AND region:us-south"})
	if items := found["items"].([]any); len(items) != 1 || items[0].(dict)["crn"] != vpc["crn"] {
		t.Errorf("%v", found)
	}
	gateway := made("/public_gateways", dict{"vpc": in, "zone": dict{"name": "us-south-1"}})
	subnet := made("/subnets", dict{"name": "web", "vpc": in, "zone": dict{"name": "us-south-1"}, "total_ipv4_address_count": 256, "public_gateway": dict{"id": gateway["id"]}})
	group := made("/security_groups", dict{"name": "web", "vpc": in})
	made("/security_groups/"+group["id"].(string)+"/rules", dict{"direction": "inbound", "protocol": "tcp", "port_min": 22, "port_max": 22, "remote": dict{"cidr_block": "0.0.0.0/0"}})
	key := made("/keys", dict{"name": "k", "public_key": "ssh-ed25519 AAAA", "type": "ed25519"})
	if status, answer := ask(t, f, token, "POST", vpcAPI+"/keys", dict{"name": "k2", "public_key": "ssh-ed25519 AAAA"}); status != 400 || code(answer) != "validation_unique_failed" {
		t.Errorf("%d %v", status, answer)
	}
	body := dict{
		"name": "web-head", "zone": dict{"name": "us-south-1"}, "profile": dict{"name": "bx2-4x16"}, "image": dict{"id": images[0]["id"]}, "vpc": in, "keys": []dict{{"id": key["id"]}},
		"primary_network_interface": dict{"subnet": dict{"id": subnet["id"]}, "security_groups": []dict{{"id": group["id"]}}},
	}
	f.Slow(time.Hour)
	instance := made("/instances", body)
	if instance["status"] != "pending" {
		t.Errorf("%v", instance)
	}
	if status, answer := ask(t, f, token, "POST", vpcAPI+"/instances", body); status != 400 || code(answer) != "validation_unique_failed" {
		t.Errorf("%d %v", status, answer)
	}
	id := instance["id"].(string)
	if got := f.Rules(id); !slices.Equal(got, []string{"22"}) {
		t.Errorf("open: %v", got)
	}
	ip := made("/floating_ips", dict{"name": "web-ip", "target": dict{"id": instance["primary_network_interface"].(dict)["id"]}})
	if m, _ := f.Machine(id); ip["address"] != m.PublicIP || ip["target"] == nil {
		t.Errorf("%v", ip)
	}
	for _, path := range []string{"/vpcs/" + vpc["id"].(string), "/subnets/" + subnet["id"].(string), "/security_groups/" + group["id"].(string), "/public_gateways/" + gateway["id"].(string)} {
		if status, answer := ask(t, f, token, "DELETE", vpcAPI+path, nil); status != 409 || !strings.HasSuffix(code(answer).(string), "_in_use") {
			t.Errorf("%s: %d %v", path, status, answer)
		}
	}
	f.Restore()
	if status, _ := ask(t, f, token, "DELETE", vpcAPI+"/instances/"+id, nil); status != 204 {
		t.Error(status)
	}
	for m, _ := f.Machine(id); m.State != fluffyapi.Terminated; m, _ = f.Machine(id) {
		time.Sleep(time.Millisecond)
	}
	if status, answer := ask(t, f, token, "GET", vpcAPI+"/instances/"+id, nil); status != 404 || code(answer) != "not_found" {
		t.Errorf("%d %v", status, answer)
	}
	_, left := ask(t, f, token, "GET", vpcAPI+"/floating_ips/"+ip["id"].(string), nil)
	if left["target"] != nil || left["name"] != "web-ip" {
		t.Errorf("%v", left)
	}
	for _, path := range []string{"/floating_ips/" + ip["id"].(string), "/subnets/" + subnet["id"].(string), "/public_gateways/" + gateway["id"].(string), "/security_groups/" + group["id"].(string), "/vpcs/" + vpc["id"].(string)} {
		if status, answer := ask(t, f, token, "DELETE", vpcAPI+path, nil); status != 204 {
			t.Errorf("%s: %d %v", path, status, answer)
		}
	}
	if left := f.Inventory(); len(left) != 1 || !strings.HasPrefix(left[0], "keys k ") {
		t.Errorf("%v", left)
	}
}

// A lack of room is found out after the call, a lack of quota at once.
func TestNoRoom(t *testing.T) {
	f := New()
	f.tokens.Mint(account, func(int) string { return "t" })
	_, vpc := ask(t, f, "t", "POST", vpcAPI+"/vpcs", dict{"name": "v"})
	_, subnet := ask(t, f, "t", "POST", vpcAPI+"/subnets", dict{"name": "s", "vpc": dict{"id": vpc["id"]}, "zone": dict{"name": "us-south-2"}, "ipv4_cidr_block": "10.240.64.0/24"})
	body := dict{"zone": dict{"name": "us-south-2"}, "profile": dict{"name": "gx3-16x80x1l4"}, "image": dict{"id": images[0]["id"]}, "primary_network_interface": dict{"subnet": dict{"id": subnet["id"]}}}
	f.Fill("us-south-2", "gx3-16x80x1l4", 0)
	status, instance := ask(t, f, "t", "POST", vpcAPI+"/instances", body)
	_, list := ask(t, f, "t", "GET", vpcAPI+"/instances?limit=1", nil)
	one := list["instances"].([]any)[0].(dict)
	if status != 201 || one["id"] != instance["id"] || one["status"] != "failed" || one["status_reasons"].([]any)[0].(dict)["code"] != "cannot_start_capacity" {
		t.Errorf("%d %v", status, list)
	}
	if status, _ := ask(t, f, "t", "DELETE", vpcAPI+"/instances/"+instance["id"].(string), nil); status != 204 {
		t.Error(status)
	}
	f.Restore()
	f.Quota("us-south", 0)
	if status, answer := ask(t, f, "t", "POST", vpcAPI+"/instances", body); status != 400 || code(answer) != "over_quota" {
		t.Errorf("%d %v", status, answer)
	}
	f.Restore()
	for range 3 {
		if status, answer := ask(t, f, "t", "POST", vpcAPI+"/instances", body); status != 201 {
			t.Fatalf("%v", answer)
		}
	}
	_, list = ask(t, f, "t", "GET", vpcAPI+"/instances?limit=2", nil)
	next := list["next"].(dict)["href"].(string)
	next = strings.NewReplacer("version=2025-01-01", "", "generation=2", "").Replace(next)
	if _, rest := ask(t, f, "t", "GET", next, nil); len(list["instances"].([]any)) != 2 || len(rest["instances"].([]any)) != 1 || rest["next"] != nil {
		t.Errorf("%v, then %v", list, rest)
	}
}

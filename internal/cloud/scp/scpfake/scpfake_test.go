package scpfake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const zone = "ZONE-FClPklmysrhRpknZ6DaI2f"

func ask(t *testing.T, f *Fake, secret, method, path string, body any) (int, dict) {
	t.Helper()
	return f.Ask(t, func(r *http.Request) {
		at := strconv.FormatInt(time.Now().UnixMilli(), 10)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(method + r.URL.String() + at + AccessKey + ProjectID + "OpenApi"))
		for name, value := range map[string]string{"AccessKey": AccessKey, "ClientType": "OpenApi", "ProjectId": ProjectID, "Timestamp": at, "Signature": base64.StdEncoding.EncodeToString(mac.Sum(nil))} {
			r.Header.Set("X-Cmp-"+name, value)
		}
	}, method, "https://openapi.samsungsdscloud.com"+path, body)
}

// caller asks with good credentials, again while a request is ongoing.
func caller(t *testing.T, f *Fake) func(method, path string, body any) dict {
	return func(method, path string, body any) dict {
		t.Helper()
		for {
			status, answer := ask(t, f, SecretKey, method, path, body)
			message, _ := answer["message"].(string)
			switch {
			case status == 412 && strings.HasPrefix(message, "There is an ongoing request"):
				time.Sleep(time.Millisecond)
			case status != 200 && status != 202:
				t.Fatalf("%s %s: %d %v", method, path, status, answer)
			default:
				return answer
			}
		}
	}
}

func contents(list dict) (all []dict) {
	for _, o := range list["contents"].([]any) {
		all = append(all, o.(dict))
	}
	return all
}

// spec asks for a server behind a new security group in the first region.
func spec(t *testing.T, f *Fake) (body dict, vpc string) {
	do := caller(t, f)
	vpc = contents(do("GET", "/vpc/v2/vpcs?serviceZoneId="+zone, nil))[0]["vpcId"].(string)
	subnet := contents(do("GET", "/subnet/v2/subnets?subnetTypes=PUBLIC&vpcId="+vpc, nil))[0]["subnetId"]
	group := do("POST", "/security-group/v3/security-groups", dict{"loggable": false, "securityGroupName": "skyabcdefgh", "serviceZoneId": zone, "vpcId": vpc})["resourceId"]
	key := contents(do("GET", "/key-pair/v1/key-pairs", nil))[0]["keyPairId"]
	return dict{
		"virtualServerName": "web-abcde-head", "serviceZoneId": zone, "serverType": "s1v8m16", "imageId": "IMAGE-dW-daWg-sKnGu7v28o2bBh", "contractId": "None", "deletionProtectionEnabled": false, "keyPairId": key,
		"blockStorage": dict{"blockStorageName": "skystorage", "diskSize": 100, "encryptEnabled": false, "productId": "PRODUCT-x"}, "nic": dict{"natEnabled": true, "subnetId": subnet}, "securityGroupIds": []any{group},
		"initialScript": dict{"encodingType": "base64", "initialScriptShell": "bash", "initialScriptType": "text", "initialScriptContent": "dHJ1ZQ=="},
	}, vpc
}

func TestTheLifeOfAServer(t *testing.T) {
	f := New()
	do := caller(t, f)
	if zones := do("GET", "/project/v3/projects/"+ProjectID+"/zones?size=2&page=1", nil); zones["totalCount"] != 3.0 || len(contents(zones)) != 1 {
		t.Errorf("%v", zones)
	}
	body, vpc := spec(t, f)
	group := fmt.Sprint(body["securityGroupIds"].([]any)[0])
	rules := "/security-group/v2/security-groups/" + group + "/rules"
	for _, ports := range []string{"22", "8080-8090"} {
		do("POST", rules, dict{"ruleDirection": "IN", "services": []dict{{"serviceType": "TCP", "serviceValue": ports}}, "sourceIpAddresses": []string{"0.0.0.0/0"}})
	}
	f.Slow(time.Hour)
	id := do("POST", "/virtual-server/v4/virtual-servers", body)["resourceId"].(string)
	server, v2 := "/virtual-server/v3/virtual-servers/"+id, "/virtual-server/v2/virtual-servers/"+id
	if o := do("GET", server, nil); o["virtualServerState"] != "CREATING" || o["ip"] != nil || o["vpcId"] != vpc {
		t.Errorf("%v", o)
	}
	if err := f.Cloud.Booted(id); err != nil {
		t.Fatal(err)
	}
	f.Restore()
	until := func(want string) {
		t.Helper()
		got := ""
		for range 10000 {
			if got, _ = do("GET", server, nil)["virtualServerState"].(string); got == want {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("it is %s", got)
	}
	until("RUNNING")
	ip := do("GET", server, nil)["ip"]
	if nics := contents(do("GET", v2+"/nics", nil)); nics[0]["ip"] != ip || nics[0]["natIp"] == nil || nics[0]["subnetType"] != "PUBLIC" {
		t.Errorf("%v", nics)
	}
	wall := "/firewall/v2/firewalls/" + contents(do("GET", "/firewall/v2/firewalls?vpcId="+vpc, nil))[0]["firewallId"].(string) + "/rules"
	open := dict{
		"sourceIpAddresses": []string{"0.0.0.0/0"}, "destinationIpAddresses": []any{ip}, "services": []dict{{"serviceType": "TCP", "serviceValue": "8080-8090"}}, "ruleDirection": "IN", "ruleAction": "ALLOW",
		"isRuleEnabled": true, "ruleLocationType": "FIRST", "ruleDescription": "sky",
	}
	if got := f.Rules(id); len(got) > 0 {
		t.Errorf("%v", got)
	}
	rule := do("POST", wall, open)["resourceId"].(string)
	for do("GET", wall+"/"+rule, nil)["ruleState"] != "ACTIVE" {
		time.Sleep(time.Millisecond)
	}
	if got := f.Rules(id); !slices.Equal(got, []string{"8080-8090"}) || len(f.firewallRules()) != 1 {
		t.Errorf("%v %v", got, f.firewallRules())
	}
	do("POST", v2+"/stop", dict{})
	until("STOPPED")
	do("POST", v2+"/start", dict{})
	until("RUNNING")
	do("DELETE", wall, dict{"ruleDeletionType": "PARTIAL", "ruleIds": []string{rule}})
	if status, answer := ask(t, f, SecretKey, "DELETE", "/security-group/v2/security-groups/"+group, nil); status != 400 {
		t.Errorf("%d %v", status, answer)
	}
	do("DELETE", v2, nil)
	for status := 200; status != 404; status, _ = ask(t, f, SecretKey, "GET", server, nil) {
		time.Sleep(time.Millisecond)
	}
	if list := do("GET", "/virtual-server/v2/virtual-servers", nil); list["totalCount"] != 0.0 {
		t.Errorf("%v", list)
	}
	do("DELETE", "/security-group/v2/security-groups/"+group, nil)
	if list := do("GET", "/security-group/v2/security-groups?securityGroupName=skyabcdefgh", nil); list["totalCount"] != 0.0 {
		t.Errorf("%v", list)
	}
}

// A VPC, its subnet, and the gateway that brings its firewall are made, and deleted.
func TestNetworks(t *testing.T) {
	f := New()
	do := caller(t, f)
	before := f.Inventory()
	vpc := do("POST", "/vpc/v3/vpcs", dict{"serviceZoneId": zone, "vpcName": "skyVpc"})["resourceId"].(string)
	if o := do("GET", "/vpc/v2/vpcs/"+vpc, nil); o["vpcState"] != "CREATING" && o["vpcState"] != "ACTIVE" {
		t.Errorf("%v", o)
	}
	subnet := do("POST", "/subnet/v2/subnets", dict{"subnetCidrBlock": "192.168.0.0/24", "subnetName": "skySub", "subnetType": "PUBLIC", "vpcId": vpc})["resourceId"].(string)
	gateway := do("POST", "/internet-gateway/v4/internet-gateways", dict{"firewallEnabled": true, "firewallLoggable": false, "internetGatewayType": "SHARED", "vpcId": vpc})["resourceId"].(string)
	if walls := contents(do("GET", "/firewall/v2/firewalls?objectId="+gateway, nil)); len(walls) != 1 || walls[0]["vpcId"] != vpc {
		t.Errorf("%v", walls)
	}
	if status, _ := ask(t, f, SecretKey, "DELETE", "/vpc/v2/vpcs/"+vpc, nil); status != 400 {
		t.Error(status)
	}
	do("DELETE", "/subnet/v2/subnets/"+subnet, nil)
	do("DELETE", "/internet-gateway/v2/internet-gateways/"+gateway, nil)
	do("DELETE", "/vpc/v2/vpcs/"+vpc, nil)
	if after := f.Inventory(); !slices.Equal(before, after) {
		t.Errorf("%v", after)
	}
}

func TestRefusals(t *testing.T) {
	f := New()
	body, _ := spec(t, f)
	create := func() string {
		status, answer := 412, dict(nil)
		for status == 412 {
			status, answer = ask(t, f, SecretKey, "POST", "/virtual-server/v4/virtual-servers", body)
		}
		return fmt.Sprint(status, " ", answer["message"])
	}
	if status, _ := ask(t, f, "wrong", "GET", "/virtual-server/v2/virtual-servers", nil); status != 401 {
		t.Error(status)
	}
	f.Fill("KOREA-WEST-1-SCP-B001", "s1v8m16", 0)
	if got := create(); got != "404 Not found any cluster by requested Scale" {
		t.Error(got)
	}
	f.Restore()
	f.Quota("KOREA-WEST-1-SCP-B001", 0)
	if got := create(); got != "400 The quota of virtual servers is exceeded" {
		t.Error(got)
	}
	f.Restore()
	body["blockStorage"].(dict)["diskSize"] = 105
	if got := create(); !strings.HasPrefix(got, "400 blockStorage: not") {
		t.Error(got)
	}
	body["blockStorage"].(dict)["diskSize"], body["virtualServerName"] = 100, "a-name-that-is-longer-than-28-characters"
	if got := create(); !strings.HasPrefix(got, "400 virtualServerName: not") {
		t.Error(got)
	}
	f.Throttle()
	if status, _ := ask(t, f, SecretKey, "GET", "/vpc/v2/vpcs", nil); status != 429 {
		t.Error(status)
	}
}

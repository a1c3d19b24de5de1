package nebiusfake

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/protobuf/proto"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

var codec = fakehttp.NewGRPC(definitions())

// client makes calls as any client of gRPC does.
type client struct {
	http.RoundTripper
	base, token, key string
}

// call returns the answer, or the code of gRPC and the status in full.
func (c client) call(t *testing.T, path, in, out string, body dict) (answer dict, code string, failure dict) {
	t.Helper()
	text, _ := json.Marshal(body)
	m, err := codec.Message(in, text)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := proto.Marshal(m)
	r, _ := http.NewRequestWithContext(t.Context(), "POST", c.base+"/"+path, bytes.NewReader(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(raw))), raw...)))
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("X-Idempotency-Key", c.key)
	resp, err := c.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if code := resp.Header.Get("Grpc-Status"); code != "" {
		details, _ := base64.RawStdEncoding.DecodeString(resp.Header.Get("Grpc-Status-Details-Bin"))
		text, err := codec.JSON("google.rpc.Status", details)
		if err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(text, &failure)
		return nil, code, failure
	}
	if code := resp.Trailer.Get("Grpc-Status"); code != "0" || len(got) < 5 {
		t.Fatalf("%s: %q, trailers %v", path, got, resp.Trailer)
	}
	if text, err = codec.JSON(out, got[5:]); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	return answer, "0", nil
}

func (c client) instances(t *testing.T, verb, in, out string, body dict) (dict, string, dict) {
	t.Helper()
	return c.call(t, "nebius.compute.v1.InstanceService/"+verb, "nebius.compute.v1."+in, out, body)
}

const operation = "nebius.common.v1.Operation"

func spec(groups ...dict) dict {
	return dict{
		"resources": dict{"platform": "gpu-l40s-a", "preset": "1gpu-8vcpu-32gb"}, "cloud_init_user_data": "#cloud-config",
		"boot_disk":          dict{"attach_mode": "READ_WRITE", "managed_disk": dict{"name": "disk-web", "spec": dict{"type": "NETWORK_SSD", "size_gibibytes": "50", "source_image_family": dict{"image_family": families[1]}}}},
		"network_interfaces": []dict{{"name": "eth0", "subnet_id": Subnet("eu-north1"), "ip_address": dict{}, "public_ip_address": dict{}, "security_groups": groups}},
	}
}

// An instance is made in a group, found by its name, switched off, and ended.
func TestTheLifeOfAnInstance(t *testing.T) {
	f := New()
	c := client{f, "https://compute.api.nebius.cloud", Token, ""}
	vpc := client{f, "https://vpc.api.nebius.cloud", Token, ""}
	group, code, _ := vpc.call(t, "nebius.vpc.v1.SecurityGroupService/Create", "nebius.vpc.v1.CreateSecurityGroupRequest", operation, dict{"metadata": dict{"parent_id": Projects["eu-north1"], "name": "sky-sg-web"}, "spec": dict{"network_id": Network("eu-north1")}})
	if code != "0" || group["status"] == nil || group["finished_at"] == nil {
		t.Fatalf("%v", group)
	}
	id := group["resource_id"].(string)
	rule := dict{"metadata": dict{"parent_id": id, "name": "ports"}, "spec": dict{"access": "ALLOW", "protocol": "TCP", "ingress": dict{"source_cidrs": []string{"0.0.0.0/0"}, "destination_ports": []int{8081, 22, 8080}}}}
	made, _, _ := vpc.call(t, "nebius.vpc.v1.SecurityRuleService/Create", "nebius.vpc.v1.CreateSecurityRuleRequest", operation, rule)
	f.Slow(time.Hour)
	c.key = "7f95c54a-ee0e-4f8c-a64c-c9e0aac605a0"
	body := dict{"metadata": dict{"parent_id": Projects["eu-north1"], "name": "web-0", "labels": dict{"cluster": "web"}}, "spec": spec(dict{"id": id})}
	op, code, failure := c.instances(t, "Create", "CreateInstanceRequest", operation, body)
	if code != "0" || op["status"] != nil || op["resource_id"] == "" {
		t.Fatalf("%v %v %v", op, code, failure)
	}
	if again, _, _ := c.instances(t, "Create", "CreateInstanceRequest", operation, body); again["resource_id"] != op["resource_id"] {
		t.Errorf("the same key made %v, too", again)
	}
	c.key = ""
	if _, code, _ := c.instances(t, "Create", "CreateInstanceRequest", operation, body); code != "6" {
		t.Errorf("a second web-0: %s", code)
	}
	list, _, _ := c.instances(t, "List", "ListInstancesRequest", "nebius.compute.v1.ListInstancesResponse", dict{"parent_id": Projects["eu-north1"]})
	one := list["items"].([]any)[0].(dict)
	if s := one["status"].(dict); len(list["items"].([]any)) != 1 || s["state"] != "STOPPED" || s["reconciling"] != true || one["metadata"].(dict)["labels"].(dict)["cluster"] != "web" {
		t.Errorf("%v", list)
	}
	if err := f.Cloud.Booted(op["resource_id"].(string)); err != nil {
		t.Fatal(err)
	}
	if got := f.Rules(op["resource_id"].(string)); !slices.Equal(got, []string{"22", "8080-8081"}) {
		t.Errorf("open: %v", got)
	}
	one, _, _ = c.call(t, "nebius.compute.v1.InstanceService/GetByName", "nebius.common.v1.GetByNameRequest", "nebius.compute.v1.Instance", dict{"parent_id": Projects["eu-north1"], "name": "web-0"})
	card := one["status"].(dict)["network_interfaces"].([]any)[0].(dict)
	if address := card["public_ip_address"].(dict)["address"].(string); one["status"].(dict)["state"] != "RUNNING" || !strings.HasSuffix(address, "/32") {
		t.Errorf("%v", one)
	}
	if ended, _, _ := c.call(t, "nebius.common.v1.OperationService/Get", "nebius.common.v1.GetOperationRequest", operation, dict{"id": op["id"]}); ended["status"] == nil {
		t.Errorf("%v", ended)
	}
	if _, code, failure := vpc.call(t, "nebius.vpc.v1.SecurityGroupService/Delete", "nebius.vpc.v1.DeleteSecurityGroupRequest", operation, dict{"id": id}); code != "9" {
		t.Errorf("a group in use: %s %v", code, failure)
	}
	f.Lie(op["resource_id"].(string), "sleepy")
	if one, _, _ := c.instances(t, "Get", "GetInstanceRequest", "nebius.compute.v1.Instance", dict{"id": op["resource_id"]}); one["status"].(dict)["state"] != 99.0 {
		t.Errorf("%v", one)
	}
	f.Restore()
	for _, verb := range []string{"Stop", "Start", "Delete"} {
		if _, code, failure := c.instances(t, verb, verb+"InstanceRequest", operation, dict{"id": op["resource_id"]}); code != "0" {
			t.Errorf("%s: %v", verb, failure)
		}
		for m, ok := f.Machine(op["resource_id"].(string)); ok && (m.State == "stopping" || m.State == "terminating"); m, ok = f.Machine(m.ID) {
			time.Sleep(time.Millisecond)
		}
	}
	if _, code, _ := c.instances(t, "Get", "GetInstanceRequest", "nebius.compute.v1.Instance", dict{"id": op["resource_id"]}); code != "5" {
		t.Errorf("after its end: %s", code)
	}
	vpc.call(t, "nebius.vpc.v1.SecurityRuleService/Delete", "nebius.vpc.v1.DeleteSecurityRuleRequest", operation, dict{"id": made["resource_id"]})
	if _, code, failure := vpc.call(t, "nebius.vpc.v1.SecurityGroupService/Delete", "nebius.vpc.v1.DeleteSecurityGroupRequest", operation, dict{"id": id}); code != "0" {
		t.Errorf("%v", failure)
	}
}

// Three things are one code of gRPC, and differ in their details; a lack of room is found
// out after the call.
func TestWhatIsExhausted(t *testing.T) {
	f := New()
	c := client{f, "https://compute.api.nebius.cloud", Token, ""}
	body := dict{"metadata": dict{"parent_id": Projects["eu-north1"], "name": "web-0"}, "spec": spec()}
	f.Fill("eu-north1", "gpu-l40s-a_1gpu-8vcpu-32gb", 0)
	op, code, _ := c.instances(t, "Create", "CreateInstanceRequest", operation, body)
	if code != "0" || op["status"].(dict)["code"] != 8.0 || fmt.Sprint(op["status"].(dict)["details"].([]any)[0].(dict)["code"]) != "NotEnoughResources" {
		t.Errorf("%v", op)
	}
	one, _, _ := c.instances(t, "Get", "GetInstanceRequest", "nebius.compute.v1.Instance", dict{"id": op["resource_id"]})
	if one["status"].(dict)["state"] != "STOPPED" || one["status"].(dict)["reconciling"] != nil {
		t.Errorf("%v", one)
	}
	c.instances(t, "Delete", "DeleteInstanceRequest", operation, dict{"id": op["resource_id"]})
	detail := func(set func()) string {
		f.Restore()
		set()
		_, code, failure := c.instances(t, "Create", "CreateInstanceRequest", operation, body)
		return code + " " + fmt.Sprint(failure["details"].([]any)[0].(dict)["code"])
	}
	if got := detail(func() { f.Quota("eu-north1", 0) }); got != "8 QuotaFailure" {
		t.Error(got)
	}
	if got := detail(f.Throttle); got != "8 TooManyRequests" {
		t.Error(got)
	}
	if got := detail(f.Refuse); got != "16 Unauthenticated" {
		t.Error(got)
	}
}

// A service account's token is exchanged, over HTTP/2 and a socket, at the host for that.
func TestTokensOverTheNetwork(t *testing.T) {
	f := New()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f, Protocols: &protocols}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()
	var file struct {
		Subject map[string]string `json:"subject-credentials"`
	}
	if err := json.Unmarshal(Credentials(), &file); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(file.Subject["private-key"]))
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	claim := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{Issuer: ServiceAccount, Subject: ServiceAccount, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))})
	claim.Header["kid"] = PublicKey
	signed, err := claim.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	c := client{&http.Transport{Protocols: &protocols}, "http://" + l.Addr().String(), "", ""}
	exchange := func(token string) (dict, string, dict) {
		return c.call(t, "nebius.iam.v1.TokenExchangeService/Exchange", "nebius.iam.v1.ExchangeTokenRequest", "nebius.iam.v1.CreateTokenResponse", dict{
			"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": token, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		})
	}
	if _, code, _ := exchange(signed + "x"); code != "16" {
		t.Errorf("a forged token: %s", code)
	}
	token, _, _ := exchange(signed)
	projects := func() (dict, string, dict) {
		return c.call(t, "nebius.iam.v1.ProjectService/List", "nebius.iam.v1.ListProjectsRequest", "nebius.iam.v1.ListProjectsResponse", dict{"parent_id": Tenant, "page_size": "2"})
	}
	if _, code, _ := projects(); code != "16" {
		t.Errorf("without a token: %s", code)
	}
	c.token = token["access_token"].(string)
	if list, _, failure := projects(); failure != nil || len(list["items"].([]any)) != 2 || list["next_page_token"] == nil {
		t.Errorf("%v %v", list, failure)
	}
	if _, code, _ := (client{f, "https://vpc.api.nebius.cloud", c.token, ""}).call(t, "nebius.iam.v1.ProjectService/List", "nebius.iam.v1.ListProjectsRequest", operation, dict{}); code != "12" {
		t.Errorf("at the wrong host: %s", code)
	}
}

package gcpfake_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

type dict = map[string]any

// client calls the fake as a program does.
type client struct {
	*testing.T
	*gcpfake.Fake
	token string
}

// virtual runs a test in virtual time, over a new project.
func virtual(t *testing.T, test func(c client)) {
	synctest.Test(t, func(t *testing.T) {
		f := gcpfake.New()
		test(client{t, f, f.Token()})
	})
}

const (
	project = "https://compute.googleapis.com/compute/v1/projects/" + gcpfake.Project
	zone    = project + "/zones/us-central1-a"
)

func (c client) send(method, url, contentType, body string) (int, dict, http.Header) {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, url, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.Fake.RoundTrip(req)
	if err != nil {
		return 0, nil, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	var out dict
	_ = json.Unmarshal(text, &out)
	return resp.StatusCode, out, resp.Header
}

// call sends JSON and returns the status and the answer.
func (c client) call(method, url string, body any) (int, dict) {
	c.Helper()
	text := ""
	if body != nil {
		b, _ := json.Marshal(body)
		text = string(b)
	}
	status, out, _ := c.send(method, url, "application/json", text)
	return status, out
}

func (c client) ok(method, url string, body any) dict {
	c.Helper()
	status, out := c.call(method, url, body)
	if status != 200 {
		c.Fatalf("%s %s: %d %v", method, url, status, out)
	}
	return out
}

// no wants a refusal, with a reason as Compute Engine gives them, and words of its message.
func (c client) no(method, url string, body any, status int, reason, words string) {
	c.Helper()
	got, out := c.call(method, url, body)
	e, _ := out["error"].(dict)
	first := dict{"reason": e["status"]}
	if list, _ := e["errors"].([]any); len(list) > 0 {
		first = list[0].(dict)
	}
	if got != status || first["reason"] != reason || !strings.Contains(fmt.Sprint(e["message"]), words) {
		c.Errorf("%s %s: %d %v, not %d %s %q", method, url, got, out, status, reason, words)
	}
}

// done waits for an operation, in the way that clients do.
func (c client) done(op dict) dict {
	c.Helper()
	for range 50 {
		if op["status"] == "DONE" {
			return op
		}
		link := strings.Replace(op["selfLink"].(string), "www.googleapis.com", "compute.googleapis.com", 1)
		op = c.ok("POST", link+"/wait", nil)
	}
	c.Fatalf("%v never ends", op)
	return nil
}

func (c client) do(method, url string, body any) dict {
	c.Helper()
	op := c.done(c.ok(method, url, body))
	if op["error"] != nil {
		c.Fatalf("%s %s: %v", method, url, op["error"])
	}
	return op
}

// code is the error of an operation.
func code(op dict) string {
	e, _ := op["error"].(dict)
	if e == nil {
		return ""
	}
	return fmt.Sprint(e["errors"].([]any)[0].(dict)["code"])
}

// instance is the smallest body.
func instance(name string, more dict) dict {
	in := dict{
		"name": name, "machineType": "zones/us-central1-a/machineTypes/e2-standard-4",
		"disks":             []any{dict{"boot": true, "autoDelete": true, "initializeParams": dict{"sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts", "diskSizeGb": "50", "diskType": "zones/us-central1-a/diskTypes/pd-balanced"}}},
		"networkInterfaces": []any{dict{"network": "global/networks/default", "accessConfigs": []any{dict{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}}}},
		"labels":            dict{"cluster": "one"},
	}
	for k, v := range more {
		if v == nil {
			delete(in, k)
		} else {
			in[k] = v
		}
	}
	return in
}

// bulk is the smallest body for several.
func bulk(count int, names string, more dict) dict {
	p := instance("", dict{"name": nil, "machineType": "e2-standard-4"})
	p["disks"].([]any)[0].(dict)["initializeParams"].(dict)["diskType"] = "pd-balanced"
	for k, v := range more {
		p[k] = v
	}
	return dict{"count": fmt.Sprint(count), "namePattern": names, "instanceProperties": p}
}

func names(list dict) (all []string) {
	items, _ := list["items"].([]any)
	for _, i := range items {
		all = append(all, i.(dict)["name"].(string))
	}
	return all
}

func TestInstanceLives(t *testing.T) {
	virtual(t, func(c client) {
		c.Slow(40 * time.Second)
		op := c.ok("POST", zone+"/instances?requestId=0e1e4ab6-7c5c-4f3e-9d2d-6b1b0a7c0001", instance("one", nil))
		if op["kind"] != "compute#operation" || op["operationType"] != "insert" || op["status"] == "DONE" || !strings.HasSuffix(op["targetLink"].(string), "/instances/one") {
			c.Errorf("the operation is %v", op)
		}
		again := c.ok("POST", zone+"/instances?requestId=0e1e4ab6-7c5c-4f3e-9d2d-6b1b0a7c0001", instance("one", dict{"labels": dict{"other": "body"}}))
		if again["name"] != op["name"] {
			c.Errorf("a request sent twice has operations %v and %v", op["name"], again["name"])
		}
		c.no("POST", zone+"/instances", instance("one", nil), 409, "alreadyExists", "/instances/one' already exists")
		i := c.ok("GET", zone+"/instances/one", nil)
		if i["status"] != "PROVISIONING" {
			c.Errorf("a new instance is %v", i["status"])
		}
		time.Sleep(21 * time.Second)
		if i = c.ok("GET", zone+"/instances/one", nil); i["status"] != "STAGING" {
			c.Errorf("it is %v then", i["status"])
		}
		if op = c.done(op); op["error"] != nil || op["progress"] != 100.0 {
			c.Errorf("the insertion ended with %v", op)
		}
		i = c.ok("GET", zone+"/instances/one", nil)
		nic := i["networkInterfaces"].([]any)[0].(dict)
		ip, _ := nic["accessConfigs"].([]any)[0].(dict)["natIP"].(string)
		if i["status"] != "RUNNING" || ip == "" || nic["networkIP"] == nil || nic["subnetwork"] != "https://www.googleapis.com/compute/v1/projects/fake-project-1/regions/us-central1/subnetworks/default" {
			c.Errorf("it runs as %v", i)
		}
		if d := c.ok("GET", zone+"/disks/one", nil); d["sizeGb"] != "50" || !strings.HasSuffix(d["type"].(string), "/pd-balanced") {
			c.Errorf("its disk is %v", d)
		}
		c.no("DELETE", zone+"/disks/one", nil, 400, "resourceInUseByAnotherResource", "already being used by 'projects/fake-project-1/zones/us-central1-a/instances/one'")
		c.do("POST", zone+"/instances/one/stop", nil)
		i = c.ok("GET", zone+"/instances/one", nil)
		if config := i["networkInterfaces"].([]any)[0].(dict)["accessConfigs"].([]any)[0].(dict); i["status"] != "TERMINATED" || config["natIP"] != nil {
			c.Errorf("off, it is %v with %v", i["status"], config)
		}
		c.do("POST", zone+"/instances/one/start", nil)
		if i = c.ok("GET", zone+"/instances/one", nil); i["status"] != "RUNNING" {
			c.Errorf("on again, it is %v", i["status"])
		}
		c.do("DELETE", zone+"/instances/one", nil)
		c.no("GET", zone+"/instances/one", nil, 404, "notFound", "The resource 'projects/fake-project-1/zones/us-central1-a/instances/one' was not found")
		c.no("GET", zone+"/disks/one", nil, 404, "notFound", "/disks/one")
		if left := c.Inventory(); len(left) > 0 {
			c.Errorf("left: %v", left)
		}
	})
}

func TestBodiesAreChecked(t *testing.T) {
	virtual(t, func(c client) {
		for _, test := range []struct {
			more   dict
			status int
			reason string
			words  string
		}{
			{dict{"name": nil}, 400, "required", "'resource.name'"},
			{dict{"name": "Upper"}, 400, "invalid", "'resource.name'"},
			{dict{"name": "a" + strings.Repeat("b", 63)}, 400, "invalid", "'resource.name'"},
			{dict{"name": "-a"}, 400, "invalid", "'resource.name'"},
			{dict{"shape": "round"}, 400, "badRequest", `Unknown name "shape"`},
			{dict{"machineType": nil}, 400, "required", "machineType"},
			{dict{"machineType": "e2-standard-4"}, 400, "invalid", "malformed"},
			{dict{"machineType": "zones/us-central1-b/machineTypes/e2-standard-4"}, 400, "invalid", "does not match"},
			{dict{"machineType": "zones/us-central1-a/machineTypes/e9-none"}, 404, "notFound", "e9-none"},
			{dict{"labels": dict{"Upper": "x"}}, 400, "invalid", "Label key"},
			{dict{"labels": dict{"a": "Upper"}}, 400, "invalid", "Label value"},
			{dict{"labels": many(65)}, 400, "invalid", "at most 64"},
			{dict{"disks": nil}, 400, "invalid", "boot disk"},
			{dict{"networkInterfaces": nil}, 400, "invalid", "At least one network interface"},
			{dict{"networkInterfaces": []any{dict{"network": "global/networks/none"}}}, 404, "notFound", "networks/none"},
			{dict{"networkInterfaces": []any{dict{"subnetwork": "regions/us-east1/subnetworks/default"}}}, 400, "invalid", "must be in the region"},
			{dict{"disks": []any{dict{"boot": true, "initializeParams": dict{"sourceImage": "global/images/none"}}}}, 404, "notFound", "images/none"},
			{dict{"disks": []any{dict{"boot": true, "initializeParams": dict{"sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts", "diskSizeGb": "5"}}}}, 400, "invalid", "smaller than the image size (10 GB)"},
			{dict{"disks": []any{dict{"boot": true, "initializeParams": dict{"sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts", "diskType": "zones/us-central1-a/diskTypes/pd-none"}}}}, 404, "notFound", "pd-none"},
			{dict{"machineType": "zones/us-central1-a/machineTypes/n4-standard-4"}, 400, "badRequest", "not compatible"},
			{dict{"scheduling": dict{"provisioningModel": "SPOT", "automaticRestart": true}}, 400, "invalid", "automaticRestart"},
			{dict{"scheduling": dict{"provisioningModel": "SPOT", "onHostMaintenance": "MIGRATE"}}, 400, "invalid", "onHostMaintenance"},
			{dict{"scheduling": dict{"instanceTerminationAction": "DELETE"}}, 400, "invalid", "instanceTerminationAction"},
			{dict{"guestAccelerators": []any{dict{"acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}}}, 400, "badRequest", "not compatible"},
			{dict{"machineType": "zones/us-central1-a/machineTypes/n1-standard-4", "guestAccelerators": []any{dict{"acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}}}, 400, "badRequest", "live migration"},
			{dict{"machineType": "zones/us-central1-a/machineTypes/g2-standard-4"}, 400, "badRequest", "live migration"},
			{dict{"metadata": dict{"items": []any{dict{"key": "a b", "value": "x"}}}}, 400, "invalid", "metadata.items[0].key"},
			{dict{"tags": dict{"items": []any{"Upper"}}}, 400, "invalid", "tags.items[0]"},
			{dict{"serviceAccounts": []any{dict{"email": "nobody@x.iam.gserviceaccount.com", "scopes": []any{"https://www.googleapis.com/auth/cloud-platform"}}}}, 400, "serviceAccountAccessDenied", "does not have access to service account"},
			{dict{"reservationAffinity": dict{"consumeReservationType": "SPECIFIC_RESERVATION", "key": "compute.googleapis.com/reservation-name", "values": []any{"none"}}}, 400, "invalid", "do not exist"},
			{dict{"resourcePolicies": []any{"regions/us-central1/resourcePolicies/none"}}, 404, "notFound", "resourcePolicies/none"},
		} {
			c.no("POST", zone+"/instances", instance("bad", test.more), test.status, test.reason, test.words)
		}
		c.no("POST", project+"/zones/us-nowhere1-a/instances", instance("bad", nil), 400, "invalid", "Unknown zone")
		c.no("POST", zone+"/instances?requestId=mine", instance("bad", nil), 400, "invalid", "requestId")
		c.no("GET", "https://compute.googleapis.com/compute/v1/projects/other/zones/us-central1-a/instances", nil, 403, "forbidden", "Required 'compute.instances.list'")
		if got := c.Inventory(); len(got) > 0 {
			c.Errorf("a refused insertion left %v", got)
		}
		c.do("POST", zone+"/instances", instance("gpu", dict{
			"machineType": "zones/us-central1-a/machineTypes/n1-standard-4", "scheduling": dict{"onHostMaintenance": "TERMINATE"},
			"guestAccelerators": []any{dict{"acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}},
		}))
		c.no("GET", project+"/zones/us-central1-b/instances/gpu", nil, 404, "notFound", "zones/us-central1-b/instances/gpu")
	})
}

func many(n int) dict {
	all := dict{}
	for k := range n {
		all[fmt.Sprint("k", k)] = "v"
	}
	return all
}

func TestBulkInsert(t *testing.T) {
	virtual(t, func(c client) {
		for _, bad := range []struct {
			body  dict
			words string
		}{
			{dict{"instanceProperties": dict{}, "namePattern": "x-#"}, "count"},
			{bulk(2, "", nil), "Exactly one of"},
			{bulk(20, "x-#", nil), "long enough"},
			{bulk(1, "x-#", dict{"machineType": "zones/us-central1-a/machineTypes/e2-standard-4"}), "a name, not a URL"},
			{bulk(1, "x-#", dict{"hostname": "h"}), `Unknown name "hostname"`},
		} {
			status, out := c.call("POST", zone+"/instances/bulkInsert", bad.body)
			if status != 400 || !strings.Contains(fmt.Sprint(out), bad.words) {
				c.Errorf("%v: %d %v", bad.body, status, out)
			}
		}
		c.Fill("us-central1-a", "e2-standard-4", 3)
		op := c.done(c.ok("POST", zone+"/instances/bulkInsert", bulk(4, "all-##", nil)))
		if code(op) != "ZONE_RESOURCE_POOL_EXHAUSTED" || op["httpErrorStatusCode"] != 503.0 {
			c.Errorf("four of three: %v", op)
		}
		if got := names(c.ok("GET", zone+"/instances", nil)); len(got) > 0 {
			c.Errorf("it left %v", got)
		}
		some := bulk(4, "some-##", nil)
		some["minCount"] = "2"
		op = c.done(c.ok("POST", zone+"/instances/bulkInsert", some))
		made := op["instancesBulkInsertOperationMetadata"].(dict)["perLocationStatus"].(dict)["zones/us-central1-a"].(dict)
		if code(op) != "" || made["createdVmCount"] != 3.0 || made["failedToCreateVmCount"] != 1.0 {
			c.Errorf("three of four: %v", op)
		}
		if got := names(c.ok("GET", zone+"/instances", nil)); !slices.Equal(got, []string{"some-01", "some-02", "some-03"}) {
			c.Errorf("it made %v", got)
		}
		group := c.ok("GET", zone+"/operations?filter="+url.QueryEscape(fmt.Sprintf("operationGroupId=%q", op["operationGroupId"])), nil)
		if len(group["items"].([]any)) != 4 {
			c.Errorf("its operations are %v", group)
		}
		each := bulk(2, "", nil)
		delete(each, "namePattern")
		each["perInstanceProperties"] = dict{"a": dict{}, "b": dict{}}
		c.Restore()
		op = c.done(c.ok("POST", project+"/regions/us-central1/instances/bulkInsert", each))
		if code(op) != "" || op["region"] == nil {
			c.Errorf("in a region: %v", op)
		}
		c.no("POST", zone+"/instances/bulkInsert", each, 409, "alreadyExists", "/instances/a")
	})
}

func TestQuotasHaveThreeShapes(t *testing.T) {
	virtual(t, func(c client) {
		if err := c.LimitQuota("us-central1", "CPUS", 4); err != nil {
			c.Fatal(err)
		}
		c.do("POST", zone+"/instances", instance("fits", nil))
		op := c.done(c.ok("POST", zone+"/instances", instance("more", nil)))
		e := op["error"].(dict)["errors"].([]any)[0].(dict)
		if e["code"] != "QUOTA_EXCEEDED" || e["message"] != "Quota 'CPUS' exceeded.  Limit: 4.0 in region us-central1." || op["httpErrorStatusCode"] != 403.0 || e["errorDetails"].([]any)[0].(dict)["quotaInfo"].(dict)["limit"] != 4.0 {
			c.Errorf("in the operation: %v", op)
		}
		region := c.ok("GET", project+"/regions/us-central1", nil)
		if !slices.ContainsFunc(region["quotas"].([]any), func(q any) bool {
			return q.(dict)["metric"] == "CPUS" && q.(dict)["limit"] == 4.0 && q.(dict)["usage"] == 4.0
		}) {
			c.Errorf("the region has %v", region["quotas"])
		}
		c.AtOnce(true, true)
		c.no("POST", zone+"/instances", instance("more", nil), 403, "quotaExceeded", "Quota 'CPUS' exceeded.")
		c.Fill("us-central1-a", "g2-standard-4", 0)
		g2 := instance("l4", dict{"machineType": "zones/us-central1-a/machineTypes/g2-standard-4", "scheduling": dict{"onHostMaintenance": "TERMINATE"}})
		c.no("POST", zone+"/instances", g2, 503, "resourcePoolExhausted", "does not have enough resources available")
		c.Restore()
		c.GPUs(0)
		op = c.done(c.ok("POST", zone+"/instances", g2))
		if m := fmt.Sprint(op["error"]); code(op) != "QUOTA_EXCEEDED" || !strings.Contains(m, "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.") {
			c.Errorf("in the world: %v", op)
		}
		if p := c.ok("GET", project, nil); fmt.Sprint(p["quotas"].([]any)[0]) != "map[limit:0 metric:GPUS_ALL_REGIONS usage:0]" {
			c.Errorf("the project has %v", p["quotas"])
		}
		c.Throttle()
		c.no("GET", zone+"/instances", nil, 403, "rateLimitExceeded", "per minute")
	})
}

func TestListsAndFilters(t *testing.T) {
	virtual(t, func(c client) {
		c.do("POST", zone+"/instances/bulkInsert", bulk(5, "vm-#", nil))
		b := project + "/zones/us-central1-b"
		other := instance("far", dict{"machineType": "zones/us-central1-b/machineTypes/e2-standard-4", "labels": dict{"cluster": "two", "sky": "1"}})
		other["disks"].([]any)[0].(dict)["initializeParams"].(dict)["diskType"] = "zones/us-central1-b/diskTypes/pd-ssd"
		c.do("POST", b+"/instances", other)
		var got []string
		token, pages := "", 0
		for {
			page := c.ok("GET", zone+"/instances?maxResults=2&pageToken="+token, nil)
			got, pages = append(got, names(page)...), pages+1
			if token, _ = page["nextPageToken"].(string); token == "" {
				break
			}
		}
		if pages != 3 || len(got) != 5 {
			c.Errorf("%d pages have %v", pages, got)
		}
		c.no("GET", zone+"/instances?maxResults=501", nil, 400, "invalid", "maxResults")
		c.no("GET", zone+"/instances?pageToken=xyz", nil, 400, "invalid", "pageToken")
		for filter, want := range map[string]int{
			`labels.cluster=two`: 1, `labels.cluster:*`: 6, `labels.sky:*`: 1, `(labels.cluster = "one") (name = vm-1)`: 1, `labels.cluster=one AND status=RUNNING`: 5, `name=vm-1 OR name=far`: 2,
			`name eq vm-.*`: 5, `labels.cluster!=one`: 1, `NOT labels.sky:*`: 5,
		} {
			all := c.ok("GET", project+"/aggregated/instances?filter="+url.QueryEscape(filter), nil)
			n := 0
			for scope, of := range all["items"].(dict) {
				list, _ := of.(dict)["instances"].([]any)
				if n += len(list); len(list) == 0 && of.(dict)["warning"].(dict)["code"] != "NO_RESULTS_ON_PAGE" {
					c.Errorf("%s: %v", scope, of)
				}
			}
			if n != want {
				c.Errorf("%s finds %d, not %d", filter, n, want)
			}
		}
		c.no("GET", zone+"/instances?filter="+url.QueryEscape("name eq x AND name=y"), nil, 400, "invalid", "filter")
		if got := c.ok("GET", project+"/zones/us-east1-b/instances", nil); got["items"] != nil || got["kind"] != "compute#instanceList" {
			c.Errorf("an empty list is %v", got)
		}
		c.HideNew(1)
		c.do("POST", zone+"/instances", instance("new", nil))
		if got := names(c.ok("GET", zone+"/instances", nil)); slices.Contains(got, "new") {
			c.Error("a new instance is in the first list")
		}
		if got := names(c.ok("GET", zone+"/instances", nil)); !slices.Contains(got, "new") {
			c.Error("a new instance is not in the second list")
		}
		c.Restore()
		c.Lag(2)
		c.ok("POST", project+"/global/networks", dict{"name": "young"})
		c.no("GET", project+"/global/networks/young", nil, 404, "notFound", "young")
		c.no("POST", project+"/global/firewalls", dict{"name": "f", "network": "global/networks/young", "allowed": []any{dict{"IPProtocol": "tcp"}}}, 404, "notFound", "young")
		c.ok("GET", project+"/global/networks/young", nil)
	})
}

func TestFingerprints(t *testing.T) {
	virtual(t, func(c client) {
		c.do("POST", zone+"/instances", instance("one", nil))
		i := c.ok("GET", zone+"/instances/one", nil)
		c.do("POST", zone+"/instances/one/setLabels", dict{"labels": dict{"a": "b"}, "labelFingerprint": i["labelFingerprint"]})
		c.no("POST", zone+"/instances/one/setLabels", dict{"labels": dict{"a": "c"}, "labelFingerprint": i["labelFingerprint"]}, 412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
		if j := c.ok("GET", zone+"/instances/one", nil); fmt.Sprint(j["labels"]) != "map[a:b]" || j["labelFingerprint"] == i["labelFingerprint"] {
			c.Errorf("labels are %v", j["labels"])
		}
		items := []any{dict{"key": "ssh-keys", "value": "u:k"}}
		c.do("POST", zone+"/instances/one/setMetadata", dict{"items": items, "fingerprint": i["metadata"].(dict)["fingerprint"]})
		c.no("POST", zone+"/instances/one/setMetadata", dict{"items": items, "fingerprint": i["metadata"].(dict)["fingerprint"]}, 412, "conditionNotMet", "metadata fingerprint")
		c.no("POST", zone+"/instances/one/setTags", dict{"items": []any{"t"}}, 412, "conditionNotMet", "tags fingerprint")
	})
}

func TestNetworks(t *testing.T) {
	virtual(t, func(c client) {
		c.do("POST", project+"/global/networks", dict{"name": "sky", "autoCreateSubnetworks": true})
		c.ok("GET", project+"/regions/us-east1/subnetworks/sky", nil)
		rule := dict{"name": "sky-ssh", "network": "global/networks/sky", "allowed": []any{dict{"IPProtocol": "tcp", "ports": []any{"22", "8000-8010"}}}, "sourceRanges": []any{"0.0.0.0/0"}, "targetTags": []any{"one"}}
		c.do("POST", project+"/global/firewalls", rule)
		c.no("POST", project+"/global/firewalls", rule, 409, "alreadyExists", "firewalls/sky-ssh")
		for field, bad := range map[string]any{"allowed": []any{}, "priority": 70000, "sourceRanges": []any{"everywhere"}, "network": "global/networks/none", "targetTags": []any{"A"}} {
			body := dict{"name": "bad", "network": "global/networks/sky", "allowed": []any{dict{"IPProtocol": "tcp"}}}
			body[field] = bad
			if status, out := c.call("POST", project+"/global/firewalls", body); status != 400 && status != 404 {
				c.Errorf("%s %v: %d %v", field, bad, status, out)
			}
		}
		for _, ports := range []any{[]any{"70000"}, []any{"9-8"}, []any{"x"}} {
			status, out := c.call("POST", project+"/global/firewalls", dict{"name": "bad", "allowed": []any{dict{"IPProtocol": "tcp", "ports": ports}}})
			if status != 400 {
				c.Errorf("%v: %d %v", ports, status, out)
			}
		}
		c.do("PATCH", project+"/global/firewalls/sky-ssh", dict{"allowed": []any{dict{"IPProtocol": "tcp", "ports": []any{"9000"}}}})
		if f := c.ok("GET", project+"/global/networks/sky/getEffectiveFirewalls", nil); !strings.Contains(fmt.Sprint(f), "9000") {
			c.Errorf("effective firewalls: %v", f)
		}
		c.no("DELETE", project+"/global/networks/sky", nil, 400, "resourceInUseByAnotherResource", "'projects/fake-project-1/global/firewalls/sky-ssh'")
		vm := instance("one", dict{"networkInterfaces": []any{dict{"network": "global/networks/sky"}}, "tags": dict{"items": []any{"one"}}})
		c.do("POST", zone+"/instances", vm)
		if got := c.OpenPorts("one"); !slices.Equal(got, []string{"9000"}) {
			c.Errorf("open: %v", got)
		}
		c.do("DELETE", project+"/global/firewalls/sky-ssh", nil)
		c.no("DELETE", project+"/global/networks/sky", nil, 400, "resourceInUseByAnotherResource", "instances/one")
		c.do("DELETE", zone+"/instances/one", nil)
		c.do("DELETE", project+"/global/networks/sky", nil)
		c.do("POST", project+"/global/networks", dict{"name": "own", "autoCreateSubnetworks": false})
		c.no("POST", zone+"/instances", instance("two", dict{"networkInterfaces": []any{dict{"network": "global/networks/own"}}}), 400, "invalid", "must specify a subnet")
		sub := dict{"name": "s", "network": "global/networks/own", "ipCidrRange": "10.9.0.0/16"}
		c.do("POST", project+"/regions/us-central1/subnetworks", sub)
		sub["name"] = "t"
		c.no("POST", project+"/regions/us-central1/subnetworks", sub, 400, "invalid", "conflicts with existing subnetwork")
		c.no("DELETE", project+"/global/networks/own", nil, 400, "resourceInUseByAnotherResource", "subnetworks/s")
		c.do("DELETE", project+"/regions/us-central1/subnetworks/s", nil)
		c.do("DELETE", project+"/global/networks/own", nil)
		if left := c.Inventory(); len(left) > 0 {
			c.Errorf("left: %v", left)
		}
	})
}

func TestSpot(t *testing.T) {
	virtual(t, func(c client) {
		spot := dict{"provisioningModel": "SPOT", "automaticRestart": false, "onHostMaintenance": "TERMINATE"}
		c.do("POST", zone+"/instances", instance("stops", dict{"scheduling": spot}))
		goes := dict{"instanceTerminationAction": "DELETE"}
		for k, v := range spot {
			goes[k] = v
		}
		c.do("POST", zone+"/instances", instance("goes", dict{"scheduling": goes}))
		c.do("POST", zone+"/instances", instance("stays", nil))
		for _, name := range []string{"stops", "goes", "stays"} {
			c.Preempt(name, 30*time.Second)
		}
		time.Sleep(29 * time.Second)
		if i := c.ok("GET", zone+"/instances/stops", nil); i["status"] != "RUNNING" {
			c.Errorf("during its notice it is %v", i["status"])
		}
		time.Sleep(2 * time.Second)
		if i := c.ok("GET", zone+"/instances/stops", nil); i["status"] != "TERMINATED" {
			c.Errorf("taken back it is %v", i["status"])
		}
		c.no("GET", zone+"/instances/goes", nil, 404, "notFound", "goes")
		if i := c.ok("GET", zone+"/instances/stays", nil); i["status"] != "RUNNING" {
			c.Errorf("no spot machine, it is %v", i["status"])
		}
		ops := c.ok("GET", zone+"/operations?filter="+url.QueryEscape(`operationType="compute.instances.preempted"`), nil)
		if len(ops["items"].([]any)) != 2 || ops["items"].([]any)[0].(dict)["statusMessage"] != "Instance was preempted." {
			c.Errorf("operations: %v", ops)
		}
		if got := c.Inventory(); !slices.Equal(got, []string{"disks stays", "disks stops", "instances us-central1-a/stays", "instances us-central1-a/stops"}) {
			c.Errorf("left: %v", got)
		}
	})
}

func TestOperationsFail(t *testing.T) {
	virtual(t, func(c client) {
		c.Fail("insert", "RESOURCE_OPERATION_RATE_EXCEEDED", "Operation rate exceeded for resource.", 1)
		op := c.done(c.ok("POST", zone+"/instances", instance("one", nil)))
		if code(op) != "RESOURCE_OPERATION_RATE_EXCEEDED" {
			c.Errorf("it failed with %v", op)
		}
		c.no("GET", zone+"/instances/one", nil, 404, "notFound", "one")
		c.do("POST", zone+"/instances", instance("one", nil))
		c.do("POST", zone+"/instances/one/stop", nil)
		c.do("POST", zone+"/instances/one/start", nil)
		c.Halt("one")
		if i := c.ok("GET", zone+"/instances/one", nil); i["status"] != "TERMINATED" {
			c.Errorf("switched off by itself it is %v", i["status"])
		}
		ops := c.ok("GET", zone+"/operations?filter="+url.QueryEscape("operationType=compute.instances.guestTerminate"), nil)
		if len(ops["items"].([]any)) != 1 {
			c.Errorf("operations: %v", ops)
		}
		c.Fill("us-central1-a", "e2-standard-4", 0)
		if op := c.done(c.ok("POST", zone+"/instances/one/start", nil)); code(op) != "ZONE_RESOURCE_POOL_EXHAUSTED" {
			c.Errorf("a start in a full zone: %v", op)
		}
		c.Restore()
		c.no("GET", zone+"/operations/operation-1", nil, 404, "notFound", "operation-1")
		c.no("GET", project+"/zones/us-central1-b/operations/"+op["name"].(string), nil, 404, "notFound", "operation-")
		c.Slow(time.Hour)
		c.do("DELETE", zone+"/instances/one", nil)
		op = c.ok("POST", zone+"/instances", instance("slow", nil))
		begun := time.Now()
		if op = c.ok("POST", zone+"/operations/"+op["name"].(string)+"/wait", nil); op["status"] != "RUNNING" || time.Since(begun).Round(time.Second) != 2*time.Minute {
			c.Errorf("a wait ends after %v with %v", time.Since(begun), op["status"])
		}
		c.ok("DELETE", zone+"/instances/slow", nil)
		c.no("DELETE", zone+"/instances/slow", nil, 400, "resourceNotReady", "is not ready")
	})
}

func TestFaults(t *testing.T) {
	virtual(t, func(c client) {
		c.Inject(model.Fault{Kind: model.Lose, Op: "instances.create", Times: 1})
		if status, out := c.call("POST", zone+"/instances", instance("one", nil)); status != 0 {
			c.Errorf("an answer that is lost: %d %v", status, out)
		}
		c.ok("GET", zone+"/instances/one", nil)
		c.Inject(model.Fault{Kind: model.Fail, Op: "instances.create", Code: cloudtest.OddCode, Times: 1})
		c.no("POST", zone+"/instances", instance("two", nil), 400, cloudtest.OddCode, "refused")
		c.Forbid()
		c.no("POST", zone+"/instances", instance("two", nil), 403, "forbidden", "Required 'compute.instances.create' permission for 'projects/fake-project-1/zones/us-central1-a/instances'")
		c.ok("GET", zone+"/instances/one", nil)
		c.Restore()
		c.Deny("compute.subnetworks.useExternalIp")
		c.no("POST", zone+"/instances", instance("two", nil), 403, "forbidden", "Required 'compute.subnetworks.useExternalIp'")
		c.Restore()
		c.Refuse()
		c.no("GET", zone+"/instances/one", nil, 401, "authError", "invalid authentication credentials")
		c.Restore()
		c.Disable("compute.googleapis.com")
		c.no("GET", zone+"/instances/one", nil, 403, "accessNotConfigured", "has not been used in project fake-project-1 before or it is disabled")
		c.Restore()
		c.Lie("one", "DREAMING")
		if i := c.ok("GET", zone+"/instances/one", nil); i["status"] != "DREAMING" {
			c.Errorf("it is said to be %v", i["status"])
		}
		c.Restore()
		c.Kill("one")
		if left := c.Inventory(); len(left) > 0 {
			c.Errorf("killed, it left %v", left)
		}
	})
}

func TestHostsAndLoopback(t *testing.T) {
	virtual(t, func(c client) {
		if status, _ := c.call("GET", "https://tpu.googleapis.com/compute/v1/projects/"+gcpfake.Project, nil); status != 404 {
			c.Errorf("another service answers with %d", status)
		}
	})
	f := gcpfake.New()
	s := httptest.NewServer(f)
	defer s.Close()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/compute/v1/projects/"+gcpfake.Project+"/zones", nil)
	req.Header.Set("Authorization", "Bearer "+f.Token())
	resp, err := s.Client().Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
}

func TestGroupsAndResizeRequests(t *testing.T) {
	virtual(t, func(c client) {
		p := bulk(1, "x-#", dict{
			"machineType": "g2-standard-4", "scheduling": dict{"onHostMaintenance": "TERMINATE"}, "reservationAffinity": dict{"consumeReservationType": "NO_RESERVATION"},
		})["instanceProperties"]
		templates, groups := project+"/regions/us-central1/instanceTemplates", zone+"/instanceGroupManagers"
		c.no("POST", templates, dict{"name": "sky-it-a", "properties": instance("x", nil)}, 400, "badRequest", `Unknown name "name"`)
		c.do("POST", templates, dict{"name": "sky-it-a", "properties": p})
		group := dict{"name": "sky-mig-a", "instanceTemplate": "regions/us-central1/instanceTemplates/sky-it-a", "targetSize": 0, "baseInstanceName": "a", "instanceLifecyclePolicy": dict{"defaultActionOnFailure": "DO_NOTHING"}}
		c.no("POST", groups, dict{"name": "g", "targetSize": 0, "instanceTemplate": "regions/us-central1/instanceTemplates/none"}, 404, "notFound", "none")
		c.do("POST", groups, group)
		c.no("DELETE", templates+"/sky-it-a", nil, 400, "resourceInUseByAnotherResource", "sky-mig-a")
		requests := groups + "/sky-mig-a/resizeRequests"
		c.no("POST", requests, dict{"name": "r", "resizeBy": 2, "requestedRunDuration": dict{"seconds": "60"}}, 400, "invalid", "10 minutes")
		c.Fill("us-central1-a", "g2-standard-4", 1)
		request := dict{"name": "r", "resizeBy": 2, "requestedRunDuration": dict{"seconds": "3600"}}
		c.do("POST", requests, request)
		if r := c.ok("GET", requests+"/r", nil); r["state"] != "ACCEPTED" {
			t.Errorf("without room it is %v", r)
		}
		if g := c.ok("GET", groups+"/sky-mig-a", nil); g["status"].(dict)["isStable"] != false {
			t.Errorf("the group is %v", g)
		}
		c.no("DELETE", requests+"/r", nil, 400, "invalid", "cancel it first")
		c.do("POST", requests+"/r/cancel", nil)
		c.do("DELETE", requests+"/r", nil)
		c.do("POST", requests, request)
		c.Restore()
		c.ok("GET", requests+"/r", nil)
		time.Sleep(time.Second)
		g := c.ok("GET", groups+"/sky-mig-a", nil)
		if r := c.ok("GET", requests+"/r", nil); r["state"] != "SUCCEEDED" || g["targetSize"] != 2.0 || g["status"].(dict)["isStable"] != true {
			t.Errorf("with room it is %v, and the group %v", r, g)
		}
		if all := c.ok("POST", groups+"/sky-mig-a/listManagedInstances", nil)["managedInstances"].([]any); len(all) != 2 || all[0].(dict)["instanceStatus"] != "RUNNING" {
			t.Errorf("its machines are %v", all)
		}
		c.no("POST", requests+"/r/cancel", nil, 400, "invalid", "SUCCEEDED")
		time.Sleep(time.Hour)
		c.token = c.Token()
		if got := names(c.ok("GET", zone+"/instances", nil)); len(got) > 0 {
			t.Errorf("after their time there are %v", got)
		}
		c.do("POST", requests, dict{"name": "again", "resizeBy": 1})
		c.ok("GET", requests, nil)
		c.do("DELETE", groups+"/sky-mig-a", nil)
		c.do("DELETE", templates+"/sky-it-a", nil)
		if left := c.Inventory(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

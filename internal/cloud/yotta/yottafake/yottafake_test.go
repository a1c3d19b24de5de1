package yottafake

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const small = "1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE"

func ask(t *testing.T, f *Fake, key, method, path string, body any) (int, dict) {
	t.Helper()
	return f.Ask(t, func(r *http.Request) { r.Header.Set("X-API-KEY", key) }, method, "https://api.yottalabs.ai"+path, body)
}

// A cluster is made, then its pod, which is reached at a port of a host, and both end.
func TestTheLifeOfACluster(t *testing.T) {
	f := New()
	do := func(method, path string, body any) any {
		t.Helper()
		status, answer := ask(t, f, Key, method, path, body)
		if status != 200 || answer["code"] != 10000.0 {
			t.Fatalf("%s %s: %d %v", method, path, status, answer)
		}
		return answer["data"]
	}
	const v1 = "/openapi/v1/pods/cluster"
	if do("GET", "/openapi/key/check?orgId="+Org, nil) != true || do("GET", "/openapi/key/check?orgId=x", nil) != false {
		t.Error("the key is not checked")
	}
	if status, answer := ask(t, f, Key, "POST", v1+"/pods/list", dict{"clusterName": "web", "source": 1}); status != 200 || answer["code"] != 44003.0 {
		t.Errorf("%d %v", status, answer)
	}
	body := dict{"clusterName": "web", "instanceType": small, "region": "us-east-2", "imageName": "ubuntu", "nodeNum": 1, "publicKey": "ssh-ed25519 AAAA", "sshUser": "root", "expose": []dict{{"port": 22, "protocol": "SSH"}}}
	cluster := do("POST", v1+"/create", body).(dict)["clusterId"].(string)
	for do("GET", v1+"/status/"+cluster, nil).(dict)["status"] != "RUNNING" {
		time.Sleep(time.Millisecond)
	}
	f.Slow(time.Hour)
	pod := dict{"name": "web-head", "image": "ubuntu", "clusterId": cluster, "clusterName": "web", "expose": []dict{{"port": 22, "protocol": "SSH"}, {"port": 8080, "protocol": "TCP"}}}
	id := do("POST", v1+"/create/pod", pod)
	if status, answer := ask(t, f, Key, "POST", v1+"/create/pod", pod); status != 200 || answer["code"] == 10000.0 {
		t.Errorf("one pod too many: %d %v", status, answer)
	}
	one := do("POST", v1+"/pods/list", dict{"clusterName": "web"}).([]any)[0].(dict)
	if one["id"] != id || one["status"] != "INITIALIZE" || one["expose"].([]any)[0].(dict)["proxyPort"] != nil {
		t.Errorf("%v", one)
	}
	if err := f.Cloud.Booted(fmt.Sprint(int(id.(float64)))); err != nil {
		t.Fatal(err)
	}
	one = do("POST", v1+"/pods/list", dict{"clusterName": "web"}).([]any)[0].(dict)
	if e := one["expose"].([]any)[0].(dict); one["podName"] != "web-head" || e["healthy"] != true || e["host"] == nil || e["proxyPort"].(float64) < 30000 {
		t.Errorf("%v", one)
	}
	do("POST", v1+"/release", dict{"clusterName": "web"})
	for do("POST", v1+"/pods/list", dict{"clusterName": "web"}).([]any)[0].(dict)["status"] != "TERMINATED" {
		time.Sleep(time.Millisecond)
	}
	if left := f.Inventory(); len(left) != 0 {
		t.Errorf("%v", left)
	}
	f.Restore()
	f.Fill("us-east-2", small, 0)
	cluster = do("POST", v1+"/create", body).(dict)["clusterId"].(string)
	if got := do("GET", v1+"/status/"+cluster, nil).(dict)["status"]; got != "TERMINATED" {
		t.Errorf("without room: %v", got)
	}
}

// Version 2 has statuses of HTTP, pods without clusters, and other words.
func TestPods(t *testing.T) {
	f := New()
	body := dict{"name": "web", "image": "ubuntu", "gpuType": "NVIDIA_RTX_5090_32G", "gpuCount": 1, "regions": []string{"us-east-2"}, "expose": []dict{{"port": 22, "protocol": "SSH"}}}
	_, answer := ask(t, f, Key, "POST", "/v2/pods", body)
	path := fmt.Sprint("/v2/pods/", int(answer["data"].(dict)["id"].(float64)))
	until := func(want string) dict {
		t.Helper()
		for range 10000 {
			if _, answer = ask(t, f, Key, "GET", path, nil); answer["data"].(dict)["status"] == want {
				return answer["data"].(dict)
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%v, not %s", answer, want)
		return nil
	}
	if running := until("RUNNING"); !strings.HasPrefix(running["sshCmd"].(string), "ssh root@") {
		t.Errorf("%v", running)
	}
	ask(t, f, Key, "POST", path+"/pause", nil)
	until("STOPPED")
	ask(t, f, Key, "POST", path+"/resume", nil)
	until("RUNNING")
	ask(t, f, Key, "DELETE", path, nil)
	until("TERMINATED")
	refused := func(want string, key, method, path string) {
		t.Helper()
		if status, answer := ask(t, f, key, method, path, body); fmt.Sprint(status, " ", answer["code"]) != want {
			t.Errorf("%d %v", status, answer)
		}
	}
	refused("401 40001", "wrong", "GET", "/v2/pods")
	refused("404 40400", Key, "GET", "/v2/pods/1")
	f.Fill("us-east-2", small, 0)
	refused("400 44010", Key, "POST", "/v2/pods")
	f.Restore()
	f.Throttle()
	refused("429 42900", Key, "GET", "/v2/pods")
}

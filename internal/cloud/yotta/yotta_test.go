package yotta

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/cloud/yotta/yottafake"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-east-2"}, InstanceType: "1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE", CPUs: 14, MemoryGiB: 119, HourlyPrice: 0.65}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-central-2"}, InstanceType: "1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE", CPUs: 14, MemoryGiB: 119, HourlyPrice: 0.65}
)

func start(t testing.TB) (*yottafake.Fake, func() *Provider) {
	fake := yottafake.New()
	o := fake.Tuning(t, ".yotta/credentials", "orgId="+yottafake.Org+"\napikey="+yottafake.Key+"\n")
	return fake, func() *Provider { return New(o) }
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() })
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere
		return h
	})
}

func TestWhatAPodIs(t *testing.T) {
	for status, want := range map[string]vm.State{
		"INITIALIZE": vm.Pending, "INITIALIZING": vm.Pending, "RUNNING": vm.Running, "PAUSING": vm.Stopping, "STOPPING": vm.Stopping, "PAUSED": vm.Stopped, "STOPPED": vm.Stopped,
		"TERMINATING": vm.Ending, "TERMINATED": vm.Ended, "FAILED": vm.Ended, "odd": vm.Unknown,
	} {
		if m := (pod{Status: status}).machine("", nil); m.State != want || m.Reclaimed != (status == "FAILED") {
			t.Errorf("%s: %+v", status, m)
		}
	}
	for text, want := range map[string]cloud.Reach{
		`{"sshCmd": "ssh root@pod-ip -p 10022"}`: {Method: "ssh", Host: "pod-ip", Port: 10022, User: "root"}, `{"sshCmd": "ssh root@1.2.3.4"}`: {Method: "ssh", Host: "1.2.3.4", Port: 22, User: "root"},
		`{"sshCmd": "ssh -p 30035 -i <private key file> root@1.2.3.4"}`:     {Method: "ssh", Host: "1.2.3.4", Port: 30035, User: "root"},
		`{"expose": [{"port": 22, "host": "1.2.3.4", "proxyPort": 30035}]}`: {Method: "ssh", Host: "1.2.3.4", Port: 30035, User: "root"}, `{"sshCmd": ""}`: {Method: "ssh", Port: 22, User: "root"},
	} {
		var p pod
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		if m := p.machine("", nil); m.Reach != want || m.PublicIP != want.Host {
			t.Errorf("%s: %+v", text, m.Reach)
		}
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, refusal, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 200, `{"code": 10001, "message": "Invalid request parameters"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"code": 10001, "message": "Invalid request parameters"}`),
		cloudtest.Means[*cloud.UnreachableError](vm.Lost, 200, `{"code": 10002, "message": "System error"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 200, `{"code": 10007, "message": "Record not exist"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 200, `{"code": 11002, "message": "No terminate permissions"}`),
		cloudtest.Means[error](vm.Changed, 200, `{"code": 12001, "message": "Resource status invalid"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 200, `{"code": 13000, "message": "Pod not found"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 200, `{"code": 44003, "message": "x"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 400, `{"code": 40001, "message": "Invalid API key"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"code": 401, "message": "x"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, ``),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"code": 1, "message": "x"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 200, `{"code": 1, "message": "Insufficient balance"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, ``),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 200, `{"code": 1, "message": "Insufficient resources"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 200, `{"code": 1, "message": "No available GPU"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 200, `{"code": 1, "message": "quota exceeded"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"code": 1, "message": "x"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, ``),
		cloudtest.Means[*rest.Error](vm.Refused, 418, `{"code": 1, "message": "odd"}`),
		cloudtest.Nothing(500, `{"code": 10002, "message": "x"}`),
	})
}

// A pod has its ports from the beginning, and no others.
func TestPorts(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: cloudtest.Key, Ports: []string{"8080-8081"}}
	spec.ImageID = "docker:me/image:1"
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if asked := fake.Asked(nodes[0].ID); asked["image"] != "me/image:1" || len(asked["expose"].([]any)) != 3 || asked["name"] != here.Region+"."+names.Of(spec.ID, 0) {
		t.Errorf("%v", asked)
	}
	at, why, err := p.Endpoints(t.Context(), spec.ID, []int{8081, 9000})
	if err != nil || at[8081] == "" || at[9000] != "" || why == "" {
		t.Errorf("%v, %q, %v", at, why, err)
	}
	if err := p.OpenPorts(t.Context(), spec.ID, []string{"8080"}); err != nil {
		t.Error(err)
	}
	if err := p.OpenPorts(t.Context(), spec.ID, []string{"9000"}); !cloudtest.Is[*cloud.InvalidError](err) {
		t.Error(err)
	}
	if nodes[0].About.InstanceType != "1x_NVIDIA_RTX_5090_32G_SECURE" {
		t.Errorf("%+v", nodes[0].About)
	}
	if _, err := compute(nodes[0].About.InstanceType); err != nil {
		t.Error(err)
	}
}

func TestTypes(t *testing.T) {
	for name, want := range map[string]string{
		"1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE": `{"gpuCount":1,"gpuType":"NVIDIA_RTX_5090_32G","minSingleCardRamInGb":119,"minSingleCardVcpu":14,"resourceType":"GPU"}`,
		"8x128v1440g_NVIDIA_H100_80G_SECURE":           `{"gpuCount":8,"gpuType":"NVIDIA_H100_80G","minSingleCardRamInGb":180,"minSingleCardVcpu":16,"resourceType":"GPU"}`,
		"2x_L4_SECURE":                                 `{"gpuCount":2,"gpuType":"NVIDIA_L4_24G","resourceType":"GPU"}`,
		"1x_T4_SECURE":                                 "", "L4": "", "0x_L4_SECURE": "",
	} {
		asked, err := compute(name)
		got, _ := json.Marshal(asked)
		if want != "" && (err != nil || string(got) != want) || want == "" && !cloudtest.Is[*cloud.InvalidError](err) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	home := t.TempDir()
	_, err := New(Options{Home: home}).Check(t.Context())
	var auth *cloud.AuthError
	if !errors.As(err, &auth) || !auth.NotSetUp || !strings.Contains(auth.Fix, "~/.yotta/credentials") {
		t.Error(err)
	}
	cloudtest.HomeFile(t, home, ".yotta/credentials", "apikey=k\n")
	if _, err := New(Options{Home: home}).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "orgId") {
		t.Error(err)
	}
	_, provider := start(t)
	if who, err := provider().Check(t.Context()); err != nil || who[0] != "the organization "+yottafake.Org {
		t.Errorf("%v, %v", who, err)
	}
}

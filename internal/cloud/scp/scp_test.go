package scp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/scp/scpfake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "KOREA-WEST-1-SCP-B001"}, InstanceType: "s1v8m16", CPUs: 8, MemoryGiB: 16, HourlyPrice: 0.41}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "KOREA-EAST-1-SCP-B001"}, InstanceType: "s1v8m16", CPUs: 8, MemoryGiB: 16, HourlyPrice: 0.41}
)

func start(t testing.TB) (*scpfake.Fake, func() *Provider) {
	fake := scpfake.New()
	o := fake.Tuning(t, ".scp/scp_credential", "access_key = "+scpfake.AccessKey+"\nsecret_key = "+scpfake.SecretKey+"\nproject_id = "+scpfake.ProjectID+"\n")
	return fake, func() *Provider { return New(o) }
}

func launch(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "vpcs", "subnets", "internetgateways", "firewalls", "keypairs")
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere
		return h
	})
}

func TestCredentials(t *testing.T) {
	good := "access_key = " + scpfake.AccessKey + "\nsecret_key = " + scpfake.SecretKey + "\nproject_id = " + scpfake.ProjectID + "\n"
	for keys, want := range map[string]string{
		good: "",
		strings.Replace(good, scpfake.SecretKey, "x", 1):           "401",
		"access_key = " + scpfake.AccessKey + "\nproject_id = x\n": "secret_key",
	} {
		home := t.TempDir()
		cloudtest.HomeFile(t, home, ".scp/scp_credential", keys)
		who, err := New(Options{Home: home, Transport: scpfake.New()}).Check(t.Context())
		var auth *cloud.AuthError
		if want == "" && (err != nil || who[0] != "the project "+scpfake.ProjectID) || want != "" && (!errors.As(err, &auth) || !strings.Contains(auth.Fix, "scp_credential")) {
			t.Errorf("%q: %v, %v", keys, who, err)
		}
	}
	fake, provider := start(t)
	fake.Locked(func() { _ = fake.Drop("keypairs", "KEY_PAIR-fake") })
	var auth *cloud.AuthError
	if _, err := provider().Check(t.Context()); !errors.As(err, &auth) || !strings.Contains(auth.Fix, "key pair") {
		t.Errorf("without a key pair: %v", err)
	}
}

// Samsung's refusals have no codes: statuses and texts tell.
func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, rest.ReadError, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, said("virtualServerName is wrong")),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, said("The quota of virtual servers is exceeded")),
		cloudtest.Means[*rest.Error](vm.Busy, 400, said("The resource is in use")),
		cloudtest.Means[*rest.Error](vm.Busy, 400, said("There is an ongoing request on the resource FIREWALL-1")),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, said("x")),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, said("x")),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 404, said("Not found any cluster by requested Scale")),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, said("not found")),
		cloudtest.Means[*rest.Error](vm.Busy, 412, said("x")),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, said("x")),
		cloudtest.Nothing(500, `{"message":"x"}`),
	})
}

// said is a refusal in Samsung's form.
func said(message string) string { return `{"message":"` + message + `"}` }

func TestStates(t *testing.T) {
	for state, want := range map[string]vm.State{
		"CREATING": vm.Pending, "EDITING": vm.Pending, "STARTING": vm.Pending, "RESTARTING": vm.Pending, "RUNNING": vm.Running, "STOPPING": vm.Stopping, "STOPPED": vm.Stopped,
		"TERMINATING": vm.Ending, "TERMINATED": vm.Ended, "odd": vm.Unknown,
	} {
		if states[state] != want {
			t.Errorf("%s: %v", state, states[state])
		}
	}
}

// What a server is made with, and that both its security group and the firewall let the
// world in, at the ports that are asked for then and later.
func TestTheServerThatIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		before := len(fake.Inventory())
		spec := launch("training-of-a-large-model")
		spec.Nodes, spec.DiskGB, spec.Ports, spec.Labels = 2, 256, []string{"8080-8090"}, map[string]string{"team": "ml"}
		nodes, err := cloudtest.PrepareAndLaunch(t, p, spec)
		if err != nil {
			t.Fatal(err)
		}
		asked := fake.Body(nodes[1].ID)
		disk, tags := asked["blockStorage"].(map[string]any), fmt.Sprint(asked["tags"])
		if disk["diskSize"] != 260.0 || !strings.HasPrefix(asked["virtualServerName"].(string), "training-o-") || !strings.Contains(asked["initialScript"].(string), cloudtest.Key) ||
			!strings.Contains(tags, spec.ID.Name) || !strings.Contains(tags, "team") || asked["imageId"] != "IMAGE-dW-daWg-sKnGu7v28o2bBh" {
			t.Errorf("%v", asked)
		}
		if n := nodes[0]; n.Reach.User != "root" || n.Reach.Host == "" || n.Reach.Host != n.ExternalIP || n.InternalIP == n.ExternalIP {
			t.Errorf("%+v", n)
		}
		if err := p.OpenPorts(t.Context(), spec.ID, []string{"9000"}); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if got := fake.Rules(n.ID); !slices.Equal(got, []string{"22", "8080-8090", "9000"}) {
				t.Errorf("rank %d: %v", n.Rank, got)
			}
		}
		if n := len(slices.DeleteFunc(rules(fake), func(r string) bool { return !strings.HasPrefix(r, "firewalls") })); n != 4 {
			t.Errorf("the firewalls have %d rules: servers of a cluster share them", n)
		}
		// A node that is made later is reached at all ports that are open.
		fake.Kill(nodes[1].ID)
		if nodes, err = cloudtest.PrepareAndLaunch(t, p, spec); err != nil {
			t.Fatal(err)
		}
		if got := fake.Rules(nodes[1].ID); !slices.Equal(got, []string{"22", "8080-8090", "9000"}) {
			t.Errorf("the new one: %v", got)
		}
		within := fmt.Sprint(slices.DeleteFunc(rules(fake), func(r string) bool { return !strings.Contains(r, " within") }))
		for _, n := range nodes {
			if !strings.HasPrefix(within, "[securitygroups") || !strings.Contains(within, n.InternalIP) {
				t.Errorf("rank %d is not let in by the others: %s", n.Rank, within)
			}
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil || len(fake.Inventory()) != before || len(rules(fake)) > 0 {
			t.Errorf("left: %v, %v, %v", fake.Inventory(), rules(fake), err)
		}
	})
}

// rules are all there are, behind the kind of what they belong to.
func rules(fake *scpfake.Fake) (all []string) {
	fake.Locked(func() {
		for _, kind := range []string{"firewalls", "securitygroups"} {
			for _, o := range fake.Things(kind) {
				some, _ := o["rules"].([]any)
				for _, r := range some {
					all = append(all, fmt.Sprint(kind, " ", r))
				}
			}
		}
	})
	return all
}

// Images for GPUs are others, and not everywhere.
func TestImages(t *testing.T) {
	_, provider := start(t)
	c, _, err := provider().API()
	if err != nil {
		t.Fatal(err)
	}
	gpu := here
	gpu.Accelerators = map[string]float64{"V100": 1}
	if id, err := image(t.Context(), c, "ZONE-x", gpu); err != nil || id != "IMAGE-FIN-B001-2e0a6d2872970048192" {
		t.Error(id, err)
	}
}

// A rule that never holds is waited for as long as a launch lasts, and no longer.
func TestARuleThatNeverHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := New(Options{Home: provider().Home, Transport: stuck{fake}, Poll: time.Second, Timeout: time.Hour})
		began := time.Now()
		_, err := cloudtest.PrepareAndLaunch(t, p, launch("web"))
		var overdue *cloud.OverdueError
		if took := time.Since(began); !errors.As(err, &overdue) || !cloudtest.Is[*cloud.UnreachableError](err) || took < time.Hour || took > 2*time.Hour {
			t.Errorf("after %v: %v", took, err)
		}
		if err := provider().Terminate(t.Context(), launch("web").ID); err != nil || len(rules(fake)) > 0 {
			t.Error(err, rules(fake))
		}
	})
}

// stuck is a cloud whose firewalls do not come to do what they were told.
type stuck struct{ http.RoundTripper }

func (s stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == "GET" && strings.Contains(r.URL.Path, "/firewalls/") {
		text, _ := io.ReadAll(resp.Body)
		resp.Body = io.NopCloser(strings.NewReader(strings.ReplaceAll(string(text), `"ACTIVE"`, `"DEPLOYING"`)))
	}
	return resp, err
}

// A firewall that is busy with others does not hold up the end of servers.
func TestABusyFirewall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		if _, err := cloudtest.PrepareAndLaunch(t, provider(), launch("web")); err != nil {
			t.Fatal(err)
		}
		began, b := time.Now(), &busy{RoundTripper: fake}
		p := New(Options{Home: provider().Home, Transport: b, Poll: 5 * time.Second, Settle: 10 * time.Second})
		if err := p.Terminate(t.Context(), launch("web").ID); err != nil || len(rules(fake)) > 0 {
			t.Error(err, rules(fake))
		}
		if b.ended.Sub(began) > time.Second || time.Since(began) < 10*time.Second {
			t.Errorf("the server was deleted after %v, and all after %v", b.ended.Sub(began), time.Since(began))
		}
	})
}

// busy is a cloud whose firewalls refuse changes at first.
type busy struct {
	http.RoundTripper
	refused int
	ended   time.Time // when a server was deleted
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method == "DELETE" && strings.Contains(r.URL.Path, "/firewalls/") && b.refused < 4:
		b.refused++
		return &http.Response{StatusCode: http.StatusPreconditionFailed, Body: io.NopCloser(strings.NewReader(`{"message":"There is an ongoing request"}`)), Request: r}, nil
	case r.Method == "DELETE" && strings.Contains(r.URL.Path, "/virtual-servers/") && b.ended.IsZero():
		b.ended = time.Now()
	}
	return b.RoundTripper.RoundTrip(r)
}

// small is an API whose pages have less than is asked for.
type small struct{ http.RoundTripper }

func (s small) RoundTrip(r *http.Request) (*http.Response, error) {
	cut := r.Clone(r.Context())
	q := cut.URL.Query()
	q.Set("size", "2")
	cut.URL.RawQuery = q.Encode()
	_ = authorize(map[string]string{"access_key": scpfake.AccessKey, "secret_key": scpfake.SecretKey, "project_id": scpfake.ProjectID})(cut)
	return s.RoundTripper.RoundTrip(cut)
}

func TestSmallPages(t *testing.T) {
	fake, provider := start(t)
	p := New(Options{Home: provider().Home, Transport: small{fake}})
	c, _, err := p.API()
	if err != nil {
		t.Fatal(err)
	}
	if all, err := list[zone](t.Context(), c, "/project/v3/projects/"+scpfake.ProjectID+"/zones", ""); err != nil || len(all) != 3 || all[0] == all[2] {
		t.Errorf("%v, %v", all, err)
	}
}

// A region without a network is closed, and says what is missing. A network without a gateway
// is none.
func TestARegionWithoutANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		fake.Locked(func() {
			for _, o := range slices.Clone(fake.Things("internetgateways")) {
				_ = fake.Drop("internetgateways", o["id"])
			}
		})
		var invalid *cloud.InvalidError
		_, err := cloudtest.PrepareAndLaunch(t, provider(), launch("web"))
		if !errors.As(err, &invalid) || invalid.Place.Region != here.Region || !strings.Contains(err.Error(), "internet gateway") {
			t.Error(err)
		}
	})
}

// full refuses servers in a subnet, as one whose addresses are used up does.
type full struct {
	http.RoundTripper
	subnet string
}

func (f full) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/v4/virtual-servers") {
		body, _ := r.GetBody()
		text, _ := io.ReadAll(body)
		if strings.Contains(string(text), f.subnet) {
			return &http.Response{StatusCode: 400, Body: io.NopCloser(strings.NewReader(`{"message":"no address is left"}`)), Request: r}, nil
		}
	}
	return f.RoundTripper.RoundTrip(r)
}

// A subnet that takes no servers costs a call.
func TestTheNextSubnetIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		home := p.Home
		first := ""
		fake.Locked(func() {
			vpc := ""
			for _, o := range fake.Things("vpcs") {
				if o["serviceZoneId"] == "ZONE-FClPklmysrhRpknZ6DaI2f" {
					vpc = o["id"].(string)
				}
			}
			for _, o := range slices.Clone(fake.Things("subnets")) {
				if o["vpcId"] == vpc {
					first = o["id"].(string)
					second := map[string]any{}
					for k, v := range o {
						second[k] = v
					}
					second["id"], second["subnetId"] = "SUBNET-second", "SUBNET-second"
					fake.Put("subnets", second)
				}
			}
		})
		p = New(Options{Home: home, Transport: full{fake, first}, Poll: 100 * time.Millisecond, Busy: -1})
		nodes, err := cloudtest.PrepareAndLaunch(t, p, launch("web"))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(fake.Asked(nodes[0].ID))
		if !strings.Contains(string(text), "SUBNET-second") {
			t.Errorf("%s", text)
		}
		if err := p.Terminate(t.Context(), launch("web").ID); err != nil {
			t.Error(err)
		}
	})
}

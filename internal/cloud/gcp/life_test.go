package gcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// watch is a transport that notes what is called.
type watch struct {
	*gcpfake.Fake
	mu    sync.Mutex
	calls []string
	last  string // body of a call for machines
}

func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.calls = append(w.calls, r.Method+" "+r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/bulkInsert") || r.Method == "POST" && (strings.HasSuffix(r.URL.Path, "/instances") || strings.HasSuffix(r.URL.Path, "/nodes") || strings.HasSuffix(r.URL.Path, "/queuedResources") || strings.HasSuffix(r.URL.Path, "/resizeRequests")) {
		text, _ := io.ReadAll(r.Body)
		w.last, r.Body = string(text), io.NopCloser(bytes.NewReader(text))
	}
	w.mu.Unlock()
	return w.Fake.RoundTrip(r)
}

// called is how many calls of a kind there were.
func (w *watch) called(method, part string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if strings.HasPrefix(c, method+" ") && strings.Contains(c, part) {
			n++
		}
	}
	return n
}

// bed is a project of its own, and a provider over it.
type bed struct {
	*testing.T
	fake *watch
	p    *Provider
	s    Settings
}

func virtual(t *testing.T, test func(b *bed)) {
	t.Helper()
	home(t, t.Setenv)
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, fake: &watch{Fake: gcpfake.New()}}
		b.p = b.another()
		test(b)
	})
}

func (b *bed) another() *Provider {
	o := quick
	o.Transport, o.Settings = b.fake, func() Settings { return b.s }
	o.Image = func(_ context.Context, tag, _ string) (string, bool) {
		return "projects/sky-images/global/images/" + strings.TrimPrefix(tag, "skypilot:"), strings.HasPrefix(tag, "skypilot:")
	}
	return New(o)
}

func (b *bed) spec(name string, nodes int) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "inst", Name: name, Hash: "h1"}, Offer: here, Nodes: nodes, Token: "t-" + name, AuthorizedKey: key, User: "ann", DisplayName: "Übung"}
}

func (b *bed) try(spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := b.p.Prepare(b.Context(), spec); err != nil {
		return nil, err
	}
	return b.p.Launch(b.Context(), spec)
}

func (b *bed) launch(spec cloud.LaunchSpec) []cloud.Node {
	b.Helper()
	nodes, err := b.try(spec)
	if err != nil {
		b.Fatal(err)
	}
	return nodes
}

func (b *bed) refused(spec cloud.LaunchSpec, want string) {
	b.Helper()
	_, err := b.try(spec)
	if m := ""; err != nil {
		if m = meaning(err); !strings.HasPrefix(m, want) {
			b.Errorf("%v means %q, want %q", err, m, want)
		}
		return
	}
	b.Errorf("it was launched, want %q", want)
}

func (b *bed) down(id cloud.ClusterID) {
	b.Helper()
	if err := b.p.Terminate(b.Context(), id); err != nil {
		b.Fatal(err)
	}
}

// body is an instance as text.
func (b *bed) body(n cloud.Node) string {
	text, err := json.Marshal(b.fake.Body(n.ID))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// make makes something in the project, by the API.
func (b *bed) make(path, body string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), "POST", "https://compute.googleapis.com/compute/v1/projects/"+gcpfake.Project+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.fake.Token())
	r.Header.Set("Content-Type", "application/json")
	answer, err := b.fake.Fake.RoundTrip(r)
	if err != nil || answer.StatusCode != 200 {
		b.Fatalf("making %s: %v, %v", path, answer, err)
	}
	time.Sleep(time.Second) // its operation
}

func has(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("there is no %s in %s", p, text)
		}
	}
}

func TestMachinesAreWhatWasAskedFor(t *testing.T) {
	virtual(t, func(b *bed) {
		b.fake.AddImage("sky-images", "custom-cpu-ubuntu-2204", "f", 50)
		spec := b.spec("web", 3)
		spec.Labels, spec.DiskGB, spec.DiskTier = map[string]string{"team": "ml"}, 10, "high"
		nodes := b.launch(spec)
		if n := b.fake.called("POST", "/bulkInsert"); n != 1 {
			t.Errorf("%d calls made three machines", n)
		}
		for rank, n := range nodes {
			has(t, b.body(n), `"team":"ml"`, `"skypilot-cluster-name":"web"`, `"sky-installation":"inst"`, `"skypilot-user":"ann"`, "gcpuser:ssh-ed25519", `"email":"skypilot-v1@`)
			if n.Rank != rank || n.Reach.User != "gcpuser" || n.Reach.Host != n.ExternalIP || n.ExternalIP == "" || n.About.Cluster != "Übung" || n.Place != here.Place {
				t.Errorf("node %+v", n)
			}
		}
		has(t, b.fake.last, `"diskType":"pd-ssd"`, `"diskSizeGb":"50"`, `"minCount":"3"`) // as large as the image needs
		b.down(spec.ID)
		if left := b.fake.Inventory(); !slices.Equal(left, []string{"serviceAccounts skypilot-v1@" + gcpfake.Project + ".iam.gserviceaccount.com"}) {
			t.Errorf("left: %v", left)
		}
	})
}

func TestNetworks(t *testing.T) {
	t.Run("the one of sky is made once, and stays", func(t *testing.T) {
		virtual(t, func(b *bed) {
			b.fake.NoDefault()
			b.fake.Take(30 * time.Second)
			var both sync.WaitGroup
			for _, name := range []string{"a", "b"} {
				both.Go(func() {
					if _, err := b.try(b.spec(name, 1)); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			both.Wait()
			before := b.fake.called("POST", "/global/networks")
			c := b.launch(b.spec("c", 1))
			if n := b.fake.called("POST", "/global/networks"); n != before {
				t.Errorf("it was made %d times, and once more for one that came later", before)
			}
			has(t, b.body(c[0]), "/subnetworks/skypilot-vpc")
			for _, name := range []string{"a", "b", "c"} {
				b.down(b.spec(name, 1).ID)
			}
			has(t, strings.Join(b.fake.Inventory(), ";"), "networks skypilot-vpc", "firewalls skypilot-vpc-allow-custom", "firewalls skypilot-vpc-allow-ssh", "firewalls skypilot-vpc-allow-icmp")
		})
	})
	t.Run("the user's own is left alone", func(t *testing.T) {
		virtual(t, func(b *bed) {
			b.make("/global/networks", `{"name": "mine", "autoCreateSubnetworks": false}`)
			b.make("/regions/us-central1/subnetworks", `{"name": "inner", "network": "global/networks/mine", "ipCidrRange": "10.1.0.0/16"}`)
			b.s = Settings{VPC: "mine", Subnets: []string{"inner"}, InternalIPs: true, GVNIC: true}
			spec := b.spec("web", 1)
			spec.Ports = []string{"8080"}
			n := b.launch(spec)[0]
			has(t, b.body(n), "/subnetworks/inner", "GVNIC")
			if n.ExternalIP != "" || n.Reach.Host != n.InternalIP || n.InternalIP == "" {
				t.Errorf("reached at %+v", n.Reach)
			}
			if b.fake.called("POST", "/global/networks") > 0 || b.fake.called("GET", "getEffectiveFirewalls") > 0 {
				t.Error("its rules were looked at, or another was made")
			}
			has(t, strings.Join(b.fake.Inventory(), ";"), "firewalls sky-ports-web-")
			b.down(spec.ID)
			if left := strings.Join(b.fake.Inventory(), ";"); strings.Contains(left, "sky-ports") || strings.Contains(left, "web") || !strings.Contains(left, "networks mine") {
				t.Errorf("left: %s", left)
			}
			b.s.Subnets = []string{"outer"}
			b.refused(b.spec("other", 1), "invalid gcp/us-central1")
		})
	})
	t.Run("ports of another project's are the other project's", func(t *testing.T) {
		p := New(Options{})
		a := &account{project: "mine"}
		err := driver{p, refusals}.openPorts(t.Context(), a, cloud.ClusterID{Name: "web"}, "https://www.googleapis.com/compute/v1/projects/host/global/networks/shared", []string{"80"})
		if m := meaning(err); m != "invalid gcp" || !strings.Contains(err.Error(), "host") {
			t.Errorf("%v", err)
		}
	})
}

func TestQuotasAreKnownBeforeAnythingIsTried(t *testing.T) {
	virtual(t, func(b *bed) {
		if err := b.fake.LimitQuota("us-central1", "CPUS", 5); err != nil {
			t.Fatal(err)
		}
		big, small := b.spec("web", 3), b.spec("small", 2)
		big.Offer.InstanceType, small.Offer.InstanceType = "e2-standard-2", "e2-standard-2"
		b.refused(big, "quota gcp/us-central1")
		gpu := b.spec("gpu", 1)
		gpu.Offer = cloud.Offer{Place: here.Place, InstanceType: "n1-standard-1", CPUs: 1, Accelerators: map[string]float64{"T4": 2}}
		b.fake.AddImage("sky-images", "custom-gpu-ubuntu-2204-cuda13", "f", 50)
		b.fake.GPUs(1)
		b.refused(gpu, "quota gcp")
		if n := b.fake.called("POST", "/bulkInsert"); n > 0 {
			t.Errorf("%d launches that cannot fit were tried", n)
		}
		b.launch(small)
		b.fake.GPUs(-1)
		n := b.launch(gpu)[0]
		has(t, b.body(n), `"acceleratorCount":2`, "nvidia-tesla-t4", `"onHostMaintenance":"TERMINATE"`, "install-nvidia-driver")
		quotas, err := b.p.Quotas(b.Context(), "us-central1")
		if err != nil || !slices.ContainsFunc(quotas, func(q cloud.Quota) bool { return q.Name == "CPUS" && q.Limit == 5 && q.Used == 4 }) {
			t.Errorf("quotas %+v, %v", quotas, err)
		}
	})
}

func TestFullZonesAndWhatElseGoesWrong(t *testing.T) {
	virtual(t, func(b *bed) {
		for _, atOnce := range []bool{false, true} {
			b.fake.AtOnce(atOnce, atOnce)
			b.fake.Fill("us-central1-a", here.InstanceType, 2)
			b.refused(b.spec("web", 3), "full gcp/us-central1/us-central1-a")
			b.down(b.spec("web", 3).ID)
			if left := strings.Join(b.fake.Inventory(), ";"); strings.Contains(left, "instances") {
				t.Errorf("some of those that fit are left: %s", left)
			}
			b.fake.Restore()
		}
		for code, want := range map[string]string{"UNSUPPORTED_OPERATION": "invalid gcp/us-central1/us-central1-a", "SOMETHING_NEW": "unknown SOMETHING_NEW", "QUOTA_EXCEEDED": "quota gcp/us-central1"} {
			b.fake.Fail("bulkInsert", code, "they said no", 1)
			b.refused(b.spec("web", 2), want)
			b.fake.Restore()
		}
		b.fake.Lag(3) // what is made is not known for a while
		b.fake.NoDefault()
		b.launch(b.spec("web", 2))
		b.fake.Restore()
		b.down(b.spec("web", 2).ID)
	})
}

func TestReservationsAndPlacement(t *testing.T) {
	virtual(t, func(b *bed) {
		b.make("/zones/us-central1-a/reservations", `{"name": "paid", "specificReservationRequired": true, "specificReservation": {"count": "2", "instanceProperties": {"machineType": "n2-standard-2"}}}`)
		b.s = Settings{Reservations: []string{"paid"}, Placement: "compact"}
		nodes := b.launch(b.spec("web", 3))
		for rank, n := range nodes {
			has(t, b.body(n), "sky-place-web-")
			if in := strings.Contains(b.body(n), `"SPECIFIC_RESERVATION"`); in != (rank < 2) {
				t.Errorf("rank %d is in the reservation: %t", rank, in)
			}
		}
		b.down(b.spec("web", 3).ID)

		// Of a reservation in calendar mode, whose machines end with it.
		b.make("/zones/us-central1-a/reservations", `{"name": "calendar", "deploymentType": "DENSE", "specificReservationRequired": true, "specificReservation": {"count": "1", "instanceProperties": {"machineType": "n2-standard-2"}}}`)
		b.s = Settings{Reservations: []string{"calendar"}}
		for rank, n := range b.launch(b.spec("bound", 2)) {
			in := strings.Contains(b.body(n), `"provisioningModel":"RESERVATION_BOUND"`) && strings.Contains(b.body(n), `"instanceTerminationAction":"DELETE"`)
			if in != (rank == 0) {
				t.Errorf("rank %d ends with the reservation: %t", rank, in)
			}
		}
		b.down(b.spec("bound", 2).ID)
		if left := strings.Join(b.fake.Inventory(), ";"); strings.Contains(left, "sky-place") || !strings.Contains(left, "reservations paid") {
			t.Errorf("left: %s", left)
		}
	})
}

// What a plan may count on is what a launch is put into.
func TestListReservations(t *testing.T) {
	virtual(t, func(b *bed) {
		for zone, bodies := range map[string][]string{
			"us-central1-a": {
				`{"name": "paid", "specificReservationRequired": true, "specificReservation": {"count": "2", "instanceProperties": {"machineType": "n2-standard-2"}}}`,
				`{"name": "other", "specificReservationRequired": true, "specificReservation": {"count": "5", "instanceProperties": {"machineType": "n2-standard-4"}}}`,
			},
			"us-east1-b": {
				`{"name": "open", "specificReservation": {"count": "3", "instanceProperties": {"machineType": "n1-standard-8", "guestAccelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 2}]}}}`,
				`{"name": "plain", "specificReservation": {"count": "4", "instanceProperties": {"machineType": "n1-standard-8"}}}`,
			},
		} {
			for _, body := range bodies {
				b.make("/zones/"+zone+"/reservations", body)
			}
		}
		listed := func(section map[string]any, regions []string, want ...string) {
			b.Helper()
			all, err := b.p.ListReservations(b.Context(), section, regions)
			var got []string
			for _, r := range all {
				if r.Near != cloud.NearFree || r.Place.Cloud != Name {
					b.Errorf("%+v", r)
				}
				got = append(got, fmt.Sprint(r.Place.Region, " ", r.Place.Zone, " ", r.InstanceType, " ", r.Accelerators, " ", r.Free))
			}
			if err != nil || !slices.Equal(got, want) {
				b.Errorf("%v in %v: %q, want %q, %v", section, regions, got, want, err)
			}
		}
		const paid, plain, gpus = "us-central1 us-central1-a n2-standard-2 map[] 2", "us-east1 us-east1-b n1-standard-8 map[] 4", "us-east1 us-east1-b n1-standard-8 map[T4:2] 3"
		specific, open := map[string]any{"specific_reservations": []any{"paid"}}, map[string]any{"prioritize_reservations": true}
		both := map[string]any{"specific_reservations": []any{"paid"}, "prioritize_reservations": true}
		listed(specific, nil, paid)
		listed(open, nil, plain, gpus)
		listed(both, nil, paid, plain, gpus)
		listed(both, []string{"us-central1"}, paid)
		both["managed_instance_group"] = map[string]any{"run_duration": 7200}
		listed(both, nil, paid, plain)
		if calls := b.fake.called("GET", "/aggregated/reservations"); calls != 5 {
			b.Errorf("%d calls", calls)
		}

		// Reservations with GPUs and without are told apart.
		a, err := b.p.api(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for gpus, want := range map[float64]string{0: "plain", 2: "open", 1: ""} {
			o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-east1", Zone: "us-east1-b"}, InstanceType: "n1-standard-8"}
			if gpus > 0 {
				o.Accelerators = map[string]float64{"T4": gpus}
			}
			fit, err := a.reservations(b.Context(), o)
			if got := len(fit) == 1 && fit[0].Name == want; len(fit) > 1 || err != nil || got != (want != "") {
				b.Errorf("%v GPUs: %+v, %v", gpus, fit, err)
			}
		}

		b.s = Settings{Reservations: []string{"paid"}}
		b.launch(b.spec("web", 1))
		listed(specific, nil, strings.Replace(paid, "] 2", "] 1", 1))
		b.down(b.spec("web", 1).ID)

		// All that is called is in the role.
		for _, p := range b.fake.Asked() {
			if p != "compute.reservations.create" && !slices.Contains(documented(t), p) { // which this test calls
				b.Errorf("the role lacks %s", p)
			}
		}
		b.s = Settings{Prioritize: true}
		b.fake.Deny("compute.reservations.list")
		if l, err := b.p.Lacking(b.Context()); err != nil || !slices.Equal(l.Permissions, []string{"compute.reservations.list"}) {
			b.Errorf("lacking %v, %v", l.Permissions, err)
		}
		if all, err := b.p.ListReservations(b.Context(), open, nil); all != nil || err == nil || !strings.Contains(err.Error(), "compute.reservations.list") {
			b.Errorf("%v, %v", all, err)
		}
		// Nobody else asks anything.
		b.fake.Revoke()
		before := b.fake.called("GET", "")
		if all, err := b.another().ListReservations(b.Context(), map[string]any{"prioritize_reservations": false}, nil); all != nil || err != nil || b.fake.called("GET", "") != before {
			b.Errorf("%v, %v", all, err)
		}
	})
}

func TestImages(t *testing.T) {
	virtual(t, func(b *bed) {
		b.launch(b.spec("fallback", 1)) // the tag's image is gone
		has(t, b.fake.last, "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts")
		own := b.spec("own", 1)
		for image, want := range map[string]string{
			"projects/none/global/images/none": "invalid gcp", "ami-123": "invalid gcp", "skypilot:unknown": "invalid gcp", "projects/p/zones/z": "invalid gcp",
		} {
			own.ImageID = image
			b.refused(own, want)
		}
		own = b.spec("own", 1)
		own.ImageID = "https://www.googleapis.com/compute/v1/projects/debian-cloud/global/images/family/debian-12"
		b.launch(own)
		has(t, b.fake.last, "debian-cloud/global/images/family/debian-12")
		old := b.spec("old", 1)
		old.Offer.InstanceType, old.Offer.Accelerators = "n1-standard-8", map[string]float64{"V100": 1}
		b.refused(old, "invalid gcp/us-central1/us-central1-a")
		b.fake.AddImage("deeplearning-platform-release", "common-cu124-v1-ubuntu-2204-py310", "common-cu124-ubuntu-2204-py310", 50)
		b.launch(old)
		has(t, b.fake.last, "deeplearning-platform-release/global/images/family/common-cu124-ubuntu-2204-py310", "install-nvidia-driver")
		b.make("/global/machineImages", fmt.Sprintf(`{"name": "whole", "sourceInstance": "projects/%s/zones/us-central1-a/instances/%s"}`, gcpfake.Project, names.Of(b.spec("own", 1).ID, 0)))
		copies := b.spec("copies", 2)
		copies.ImageID = "projects/" + gcpfake.Project + "/global/machineImages/whole"
		for _, n := range b.launch(copies) {
			has(t, b.body(n), "machineImages/whole", `"skypilot-cluster-name":"copies"`)
		}
	})
}

func TestCheck(t *testing.T) {
	virtual(t, func(b *bed) {
		me, err := b.p.Check(b.Context())
		if err != nil || !slices.Equal(me, cloud.Identity{gcpfake.User + " [project_id=" + gcpfake.Project + "]"}) {
			t.Errorf("%v, %v", me, err)
		}
		if l, err := b.p.Lacking(b.Context()); err != nil || len(l.Permissions) > 0 || l.Fix != "" {
			t.Errorf("lacking %v, %v", l, err)
		}
		b.fake.Deny("compute.instances.create", "compute.networks.create")
		b.fake.Disable("iam.googleapis.com")
		l, err := b.p.Lacking(b.Context())
		if err != nil || !slices.Equal(l.Permissions, []string{"compute.instances.create", "compute.networks.create", "the API iam.googleapis.com, which is not enabled"}) {
			t.Errorf("lacking %v, %v", l.Permissions, err)
		}
		has(t, l.Fix, "--permissions compute.instances.create,compute.networks.create", "--member user:"+gcpfake.User, "gcloud services enable iam.googleapis.com --project "+gcpfake.Project)
		b.fake.Disable("compute.googleapis.com")
		if _, err := b.p.Check(b.Context()); meaning(err) != "credentials: gcloud services enable compute.googleapis.com --project "+gcpfake.Project {
			t.Errorf("no API: %v", err)
		}
		b.fake.Revoke()
		if _, err := b.another().Check(b.Context()); !strings.HasPrefix(meaning(err), "credentials: gcloud auth application-default login") {
			t.Errorf("revoked: %v", err)
		}
		files, err := b.p.CarryCredentials(b.Context())
		if err != nil || !strings.Contains(string(files[".config/gcloud/application_default_credentials.json"]), gcpfake.RefreshToken) || !strings.Contains(string(files[".config/gcloud/configurations/config_default"]), gcpfake.Project) {
			t.Errorf("carried: %s, %v", files, err)
		}
	})
}

func TestWithoutCredentials(t *testing.T) {
	home(t, t.Setenv)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	w := &watch{Fake: gcpfake.New()}
	p := New(Options{Transport: w})
	if _, err := p.Check(t.Context()); !strings.HasPrefix(meaning(err), "credentials: gcloud auth application-default login") || len(w.calls) > 0 {
		t.Errorf("%v after %v", err, w.calls)
	}
	home(t, t.Setenv)
	t.Setenv("GOOGLE_CLOUD_PROJECT", "")
	if _, err := p.Check(t.Context()); !strings.HasPrefix(meaning(err), "credentials: gcloud config set project") || len(w.calls) > 0 {
		t.Errorf("without a project: %v after %v", err, w.calls)
	}
	t.Setenv("GOOGLE_CLOUD_PROJECT", "p")
	t.Setenv(vm.EndpointVariable(Name), "http://example.com")
	if _, err := p.Check(t.Context()); !strings.HasPrefix(meaning(err), "credentials: set "+vm.EndpointVariable(Name)) || len(w.calls) > 0 {
		t.Errorf("an endpoint in the clear: %v after %v", err, w.calls)
	}
}

// A server that was not there when a spot machine was taken back still learns why it is
// gone.
func TestPreemptionIsKnownAfterARestart(t *testing.T) {
	virtual(t, func(b *bed) {
		spec := b.spec("web", 1)
		spec.Offer = spot
		n := b.launch(spec)[0]
		b.fake.Preempt(n.ID, 0)
		b.p = b.another()
		nodes, err := b.p.Nodes(b.Context(), spec.ID)
		if err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeGone || !strings.Contains(nodes[0].Reason, "preempted") {
			t.Fatalf("%+v, %v", nodes, err)
		}
		b.launch(spec) // under the same name
		if nodes, err = b.p.Nodes(b.Context(), spec.ID); err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeRunning {
			t.Errorf("after another launch: %+v, %v", nodes, err)
		}
		b.down(spec.ID)
	})
}

func TestServiceAccounts(t *testing.T) {
	virtual(t, func(b *bed) {
		b.launch(b.spec("a", 1))
		b.launch(b.spec("b", 1))
		if n := b.fake.called("POST", ":setIamPolicy"); n != 1 {
			t.Errorf("roles were given %d times", n)
		}
		b.p = b.another()
		b.launch(b.spec("c", 1))
		if n := b.fake.called("POST", ":setIamPolicy"); n != 1 {
			t.Errorf("another server gave roles that it has: %d", n)
		}
		b.s.NoIdentity = true
		d := b.spec("d", 1)
		if strings.Contains(b.body(b.launch(d)[0]), accountID+"@") {
			t.Error("it has an account")
		}
		if err := b.p.WhenOff(b.Context(), d.ID, true); meaning(err) != "invalid gcp" {
			t.Errorf("a machine that could not delete itself: %v", err)
		}
		b.fake.Deny("resourcemanager.projects.setIamPolicy")
	})
}

// documented are the permissions of the role in the documentation.
func documented(t *testing.T) (have []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/gcp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```\ntitle: sky\n")
	block, _, _ := strings.Cut(after, "```")
	var role struct {
		Title, Stage        string
		IncludedPermissions []string `json:"includedPermissions"`
	}
	cloudtest.ReadYAML(t, "title: sky\n"+block, &role)
	if role.Title == "" || role.Stage != "GA" {
		t.Fatalf("the role cannot be pasted:\n%s", block)
	}
	return role.IncludedPermissions
}

// The role in the documentation allows every call that is made.
func TestDocumentedRoleAllowsEveryCall(t *testing.T) {
	have := documented(t)
	for name, set := range crashing {
		virtual(t, func(b *bed) {
			spec := b.spec("web", 2)
			set(&spec)
			if _, err := b.p.Check(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.launch(spec)
			if name == "machines" {
				if err := b.p.OpenPorts(b.Context(), spec.ID, []string{"81"}); err != nil {
					b.Fatal(err)
				}
				if err := b.p.Stop(b.Context(), spec.ID); err != nil {
					b.Fatal(err)
				}
				b.launch(spec)
			}
			if _, err := b.p.Quotas(b.Context(), here.Region); err != nil {
				b.Fatal(err)
			}
			b.down(spec.ID)
			asked := b.fake.Asked()
			if len(asked) < 10 {
				b.Errorf("%s: only %v were asked for", name, asked)
			}
			for _, p := range asked {
				if !slices.Contains(have, p) {
					b.Errorf("%s: the role lacks %s", name, p)
				}
			}
		})
	}
}

// The role in the documentation has every permission that is asked for, and no other.
func TestDocumentedRole(t *testing.T) {
	have := documented(t)
	want := slices.Concat(permissions, ownNetworkPermissions, reservedPermissions, placementPermissions, diskPermissions, fabricPermissions, groupPermissions, tpuPermissions, accountPermissions)
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the role has\n%v\nwant\n%v", have, want)
	}
}

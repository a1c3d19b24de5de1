package nebius

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/grpc"
	"github.com/skypilot-go/sky/internal/cloud/nebius/nebiusapi"
	"github.com/skypilot-go/sky/internal/cloud/nebius/nebiusfake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "eu-north1"}, InstanceType: "cpu-e2_4vcpu-16gb", CPUs: 4, MemoryGiB: 16, HourlyPrice: 0.1}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "eu-west1"}, InstanceType: "cpu-e2_4vcpu-16gb", CPUs: 4, MemoryGiB: 16, HourlyPrice: 0.1}
)

// home is a folder with files below .nebius.
func home(t testing.TB, files map[string]string) string {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".nebius"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, ".nebius", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func start(t testing.TB) (*nebiusfake.Fake, func() cloud.Provider) { return startWith(t, nil) }

// startWith has a section of the configuration.
func startWith(t testing.TB, section map[string]any) (*nebiusfake.Fake, func() cloud.Provider) {
	fake := nebiusfake.New()
	t.Cleanup(fake.Restore)
	dir := home(t, map[string]string{"NEBIUS_IAM_TOKEN.txt": nebiusfake.Token + "\n", "NEBIUS_TENANT_ID.txt": nebiusfake.Tenant + "\n"})
	return fake, func() cloud.Provider {
		return New(Options{Tuning: vm.Tuning{Home: dir, Transport: fake, Poll: 200 * time.Millisecond, Timeout: time.Minute, Busy: -1}, Settings: func() map[string]any { return section }})
	}
}

func TestConformance(t *testing.T) {
	spot := here
	spot.Spot, spot.HourlyPrice = true, 0.05
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider)
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere, &spot
		opened := h.OpenPorts
		h.OpenPorts = func(t testing.TB, n cloud.Node) []string {
			return slices.DeleteFunc(opened(t, n), func(ports string) bool { return ports == "10022" }) // ssh of a task's image
		}
		h.Preempt = nil // machines that are taken back are off, and not gone: see TestPreemption
		return h
	})
}

func cluster(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

// A machine that was taken back is off, says so, and is switched on by the next launch.
func TestPreemption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		spec := cluster("web")
		spec.Offer.Spot = true
		first, err := cloudtest.PrepareAndLaunch(t, p, spec)
		if err != nil {
			t.Fatal(err)
		}
		fake.Preempt(first[0].ID, 0)
		time.Sleep(time.Minute)
		nodes, err := p.Nodes(t.Context(), spec.ID)
		if err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeStopped || !strings.Contains(nodes[0].Reason, "took it back") {
			t.Errorf("%+v, %v", nodes, err)
		}
		if again, err := cloudtest.PrepareAndLaunch(t, p, spec); err != nil || again[0].ID != first[0].ID {
			t.Errorf("%+v, %v", again, err)
		}
		asked := fake.Asked(first[0].ID)["spec"].(map[string]any)
		if pre := asked["preemptible"].(map[string]any); pre["on_preemption"] != "STOP" || pre["priority"] != 1.0 || asked["recovery_policy"] != "FAIL" {
			t.Errorf("%v", asked)
		}
	})
}

func TestWhatStatesMean(t *testing.T) {
	for n, want := range map[int32]vm.State{0: vm.Unknown, 1: vm.Pending, 2: vm.Pending, 3: vm.Pending, 4: vm.Running, 5: vm.Stopping, 6: vm.Stopped, 7: vm.Ending, 8: vm.Pending, 9: vm.Unknown, -1: vm.Unknown} {
		var i nebiusapi.Instance
		i.Status.State = n
		if m := machine(i, "eu-north1", nil); m.State != want {
			t.Errorf("%d: %+v", n, m)
		}
	}
	var i nebiusapi.Instance
	i.Status.State, i.Status.Reconciling = 6, true
	if m := machine(i, "eu-north1", nil); m.State != vm.Pending {
		t.Errorf("%+v", m)
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	r := refusals()
	serviceErrorOf := func(field protowire.Number) []grpc.Any {
		b := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "SomeCode")
		return []grpc.Any{{Type: "type.googleapis.com/nebius.common.v1.ServiceError", Value: protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), nil)}}
	}
	for _, tt := range []struct {
		code    int32
		field   protowire.Number // of ServiceError; 0: there are no details
		message string
		right   func(error) bool
		kind    vm.Kind
	}{
		{16, 0, "", cloudtest.Is[*cloud.AuthError], vm.Refused}, {7, 0, "", cloudtest.Is[*cloud.PermissionError], vm.Refused}, {7, 120, "", cloudtest.Is[*cloud.PermissionError], vm.Refused},
		{5, 0, "", cloudtest.Is[*cloud.InvalidError], vm.Missing}, {5, 111, "", cloudtest.Is[*cloud.InvalidError], vm.Missing}, {6, 0, "", cloudtest.Is[*rest.Error], vm.Changed}, {6, 112, "", cloudtest.Is[*rest.Error], vm.Changed},
		{10, 0, "", cloudtest.Is[*rest.Error], vm.Changed}, {10, 130, "", cloudtest.Is[*rest.Error], vm.Changed}, {10, 131, "", cloudtest.Is[*rest.Error], vm.Changed}, {9, 0, "", cloudtest.Is[*rest.Error], vm.Busy}, {9, 110, "", cloudtest.Is[*rest.Error], vm.Busy},
		{3, 0, "", cloudtest.Is[*cloud.InvalidError], vm.Refused}, {3, 100, "", cloudtest.Is[*cloud.InvalidError], vm.Refused}, {11, 0, "", cloudtest.Is[*cloud.InvalidError], vm.Refused}, {11, 113, "", cloudtest.Is[*cloud.InvalidError], vm.Refused},
		{8, 0, "slow down", cloudtest.Is[*cloud.ThrottledError], vm.Refused}, {8, 140, "", cloudtest.Is[*cloud.ThrottledError], vm.Refused}, {8, 141, "", cloudtest.Is[*cloud.QuotaError], vm.Refused}, {8, 0, "Quota limit exceeded", cloudtest.Is[*cloud.QuotaError], vm.Refused},
		{8, 142, "", cloudtest.Is[*cloud.CapacityError], vm.Refused}, {8, 0, "Not enough resources", cloudtest.Is[*cloud.CapacityError], vm.Refused}, {9, 142, "", cloudtest.Is[*cloud.CapacityError], vm.Refused},
		{4, 0, "", cloudtest.Is[*cloud.UnreachableError], vm.Lost}, {14, 0, "", cloudtest.Is[*cloud.UnreachableError], vm.Lost}, {12, 0, "", cloudtest.Is[*rest.Error], vm.Refused}, {77, 0, "odd", cloudtest.Is[*rest.Error], vm.Refused},
	} {
		s := grpc.Status{Code: tt.code, Message: tt.message}
		if tt.field > 0 {
			s.Details = serviceErrorOf(tt.field)
		}
		e := s.Refusal(nebiusapi.Detail)
		if err := r.Refusal(t.Context(), here.Place, e); !tt.right(err) || r.Kind(e) != tt.kind {
			t.Errorf("%+v: %T (%v), %v", tt, err, err, r.Kind(e))
		}
	}
	// What an operation ends with is about room, and never about too many calls.
	for message, right := range map[string]func(error) bool{"": cloudtest.Is[*cloud.CapacityError], "the quota of GPUs": cloudtest.Is[*cloud.QuotaError]} {
		err := nebiusapi.Failure(nebiusapi.Operation{Status: &grpc.Status{Code: 8, Message: message}})
		if err := r.Refusal(t.Context(), here.Place, err); !right(err) {
			t.Errorf("%q: %T", message, err)
		}
	}
	if e := (grpc.Status{Code: 13, Details: serviceErrorOf(999)}).Refusal(nebiusapi.Detail); e.Status != 500 {
		t.Errorf("%+v", e)
	}
}

func TestDisks(t *testing.T) {
	for _, tt := range []struct {
		tier, image, kind string
		gb                int
		want              nebiusapi.DiskSpec
	}{
		{"", "", "cpu-d3_4vcpu-16gb", 0, nebiusapi.DiskSpec{GiB: 100, Type: 1, Family: &nebiusapi.Family{Name: "ubuntu24.04-driverless"}}},
		{"low", "", "gpu-h100-sxm_1gpu-16vcpu-200gb", 100, nebiusapi.DiskSpec{GiB: 186, Type: 3, Family: &nebiusapi.Family{Name: "ubuntu24.04-cuda13.0"}}},
		{"medium", "computeimage-x", "gpu-h100-sxm_1gpu-16vcpu-200gb", 100, nebiusapi.DiskSpec{GiB: 100, Type: 1, Image: "computeimage-x"}},
		{"high", "mine", "gpu-h100-sxm_1gpu-16vcpu-200gb", 93, nebiusapi.DiskSpec{GiB: 93, Type: 4, Family: &nebiusapi.Family{Name: "mine"}}},
		{"best", "", "cpu-d3_4vcpu-16gb", 94, nebiusapi.DiskSpec{GiB: 186, Type: 4, Family: &nebiusapi.Family{Name: "ubuntu24.04-driverless"}}},
	} {
		spec := cluster("web")
		spec.DiskTier, spec.ImageID, spec.Offer.InstanceType, spec.DiskGB = tt.tier, tt.image, tt.kind, tt.gb
		if got := bootDisk(spec); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

func TestRequirementsThatCannotBeMet(t *testing.T) {
	for name, change := range map[string]func(*cloud.LaunchSpec){
		"type": func(s *cloud.LaunchSpec) { s.Offer.InstanceType = "gpu-h100-sxm" }, "ultra": func(s *cloud.LaunchSpec) { s.DiskTier = "ultra" }, "fast network": func(s *cloud.LaunchSpec) { s.NetworkTier = "best" },
		"name": func(s *cloud.LaunchSpec) { s.ID.Name = "Web" }, "key": func(s *cloud.LaunchSpec) { s.AuthorizedKey = "" },
	} {
		spec := cluster("web")
		if err := valid(spec); err != nil {
			t.Fatal(err)
		}
		if change(&spec); valid(spec) == nil {
			t.Error(name)
		}
	}
}

// Machines with 8 GPUs are in a GPU cluster if they are to have the fast network, which goes with them.
func TestTheFastNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		for name, change := range map[string]func(*cloud.LaunchSpec){
			"best": func(s *cloud.LaunchSpec) { s.NetworkTier = "best" }, "set": func(s *cloud.LaunchSpec) { s.Settings = map[string]any{"fabric": "fabric-4"} },
		} {
			spec := cluster(name)
			spec.Offer.InstanceType, spec.Offer.HourlyPrice = "gpu-h100-sxm_8gpu-128vcpu-1600gb", 23.6
			change(&spec)
			nodes, err := cloudtest.PrepareAndLaunch(t, p, spec)
			if err != nil {
				t.Fatal(err)
			}
			of, _ := fake.Asked(nodes[0].ID)["spec"].(map[string]any)["gpu_cluster"].(map[string]any)
			if of["id"] == nil {
				t.Errorf("%s: no GPU cluster", name)
			}
			if err := p.Terminate(t.Context(), spec.ID); err != nil || len(fake.Things("gpucluster")) > 0 || len(fake.Things("disk")) > 0 {
				t.Errorf("%s: %v, %v", name, err, fake.Inventory())
			}
		}
	})
}

func TestCrashesWithTheFastNetwork(t *testing.T) {
	cloudtest.Crashes(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider)
		h.Spec = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key, MachineSpec: cloud.MachineSpec{NetworkTier: "best"}}
		h.Spec.Offer.InstanceType, h.Spec.Offer.HourlyPrice = "gpu-h100-sxm_8gpu-128vcpu-1600gb", 23.6
		return h
	})
}

// What the configuration says about a region is kept to.
func TestSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := startWith(t, map[string]any{"ssh_proxy_command": map[string]any{here.Region: "jump"}})
		p := provider()
		spec := cluster("web")
		spec.Settings = map[string]any{
			"project_id": nebiusfake.Projects["eu-north1"], "subnet_id": nebiusfake.Subnet("eu-north1"), "use_static_ip_address": true,
			"filesystems": []any{map[string]any{"filesystem_id": "computefilesystem-1", "mount_path": "/data", "attach_mode": "READ_ONLY"}},
		}
		nodes, err := cloudtest.PrepareAndLaunch(t, p, spec)
		if err != nil {
			t.Fatal(err)
		}
		asked := fake.Asked(nodes[0].ID)["spec"].(map[string]any)
		card := asked["network_interfaces"].([]any)[0].(map[string]any)
		if card["subnet_id"] != nebiusfake.Subnet("eu-north1") || card["public_ip_address"].(map[string]any)["static"] != true || nodes[0].Reach.User != "ubuntu" || nodes[0].Reach.Host != nodes[0].ExternalIP {
			t.Errorf("%v, %+v", card, nodes[0])
		}
		data, _ := asked["cloud_init_user_data"].(string)
		fs := asked["filesystems"].([]any)[0].(map[string]any)
		if !strings.HasPrefix(data, "#cloud-config\n") || !strings.Contains(data, `["sky-filesystem-0","/data","virtiofs","ro,nofail","0","0"]`) || fs["attach_mode"] != "READ_ONLY" || fs["mount_tag"] != "sky-filesystem-0" {
			t.Errorf("%s, %v", data, fs)
		}
		inner := cluster("inner")
		inner.Settings = map[string]any{"use_internal_ips": true}
		if nodes, err = cloudtest.PrepareAndLaunch(t, p, inner); err != nil || nodes[0].Reach.Host != nodes[0].InternalIP || nodes[0].ExternalIP != "" || nodes[0].Reach.ProxyCommand != "jump" {
			t.Errorf("%+v, %v", nodes, err)
		}
		for _, settings := range []map[string]any{
			{"project_id": "project-none"}, {"tenant_id": "tenant-other"}, {"domain": "elsewhere.example"}, {"credentials_file_path": "~/team.json"}, {"filesystems": []any{map[string]any{"filesystem_id": "x"}}}, {"security_group_name": "none"},
		} {
			wrong := cluster("wrong")
			wrong.Settings = settings
			if _, err := cloudtest.PrepareAndLaunch(t, p, wrong); !cloudtest.Is[*cloud.InvalidError](err) {
				t.Errorf("%v: %v", settings, err)
			}
		}
	})
}

func TestRules(t *testing.T) {
	all, err := wanted("g", nil, []string{"22", "8000-8009", "1-65535"})
	if err != nil || len(all) != 5 || len(all[3].Spec.Ingress.Ports) != 8 || len(all[4].Spec.Ingress.Ports) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	if again, err := wanted("g", all, []string{"22", "8005", "1-65535"}); err != nil || len(again) != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	for _, ports := range []string{"1-2000", "x"} {
		if _, err := wanted("g", nil, []string{ports}); !cloudtest.Is[*cloud.InvalidError](err) {
			t.Errorf("%s: %v", ports, err)
		}
	}
}

// A place that is full is known before anything is made there.
func TestAvailable(t *testing.T) {
	fake, provider := start(t)
	p := provider().(*Provider)
	if a, err := p.Available(t.Context(), here, 1); err != nil || a.Verdict != cloud.AvailableNow {
		t.Errorf("%+v, %v", a, err)
	}
	fake.Fill("eu-north1", here.InstanceType, 1)
	if a, err := p.Available(t.Context(), here, 2); err != nil || a.Verdict != cloud.AvailableNone {
		t.Errorf("%+v, %v", a, err)
	}
	strange := here
	strange.InstanceType = "cpu-x_1vcpu-1gb"
	if a, err := p.Available(t.Context(), strange, 2); err != nil || a.Verdict != cloud.AvailabilityUnknown {
		t.Errorf("%+v, %v", a, err)
	}
}

// A token comes before the key of a service account, and both need a tenant.
func TestCredentials(t *testing.T) {
	tenant := map[string]string{"NEBIUS_TENANT_ID.txt": nebiusfake.Tenant}
	with := func(name, text string) map[string]string {
		return map[string]string{"NEBIUS_TENANT_ID.txt": nebiusfake.Tenant, name: text}
	}
	for name, tt := range map[string]struct {
		files     map[string]string
		want, fix string
		none      bool
	}{
		"nothing": {nil, "is not there", "get-access-token", true}, "no key": {tenant, "is not there", "get-access-token", true},
		"no tenant":    {map[string]string{"NEBIUS_IAM_TOKEN.txt": nebiusfake.Token}, "NEBIUS_TENANT_ID.txt", "nebius iam tenant list", false},
		"wrong token":  {with("NEBIUS_IAM_TOKEN.txt", "x"), "UNAUTHENTICATED", "get-access-token", false},
		"no PEM":       {with("credentials.json", `{"subject-credentials": {"private-key": "x", "kid": "k", "sub": "s"}}`), "no PEM file", "auth-public-key generate", false},
		"no subject":   {with("credentials.json", `{"subject-credentials": {"private-key": "x", "kid": "k"}}`), `no "subject-credentials.sub"`, "auth-public-key generate", false},
		"another key":  {with("credentials.json", strings.Replace(string(nebiusfake.Credentials()), nebiusfake.PublicKey, "publickey-other", 1)), "cannot be exchanged", "auth-public-key generate", false},
		"a good token": {files: with("NEBIUS_IAM_TOKEN.txt", nebiusfake.Token)}, "a good key": {files: with("credentials.json", string(nebiusfake.Credentials()))},
	} {
		p := New(Options{Tuning: vm.Tuning{Home: home(t, tt.files), Transport: nebiusfake.New()}})
		who, err := p.Check(t.Context())
		if tt.want == "" {
			if err != nil || len(who) != 1 || !strings.Contains(who[0], nebiusfake.Tenant) {
				t.Errorf("%s: %v, %v", name, who, err)
			}
			carried, err := p.CarryCredentials(t.Context())
			if err != nil || len(carried) != 2 || p.CredentialStamp() == "" || !strings.Contains(string(carried[".nebius/NEBIUS_TENANT_ID.txt"]), nebiusfake.Tenant) {
				t.Errorf("%s: %s, %v", name, carried, err)
			}
			continue
		}
		var auth *cloud.AuthError
		if !errors.As(err, &auth) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(auth.Fix, tt.fix) || auth.NotSetUp != tt.none {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

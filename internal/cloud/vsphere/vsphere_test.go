package vsphere

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vcenter"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/cloud/vsphere/vspherefake"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: vspherefake.Vcenter, Zone: vspherefake.Zone}, InstanceType: "vm-2c-8g", CPUs: 2, MemoryGiB: 8}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: vspherefake.Vcenter, Zone: vspherefake.Other}, InstanceType: "vm-2c-8g", CPUs: 2, MemoryGiB: 8}
)

func home(t testing.TB, text string) string {
	dir := t.TempDir()
	if text == "" {
		return dir
	}
	if err := os.MkdirAll(filepath.Join(dir, ".vsphere"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, vcenter.Path), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func start(t testing.TB) (*vspherefake.Fake, func() cloud.Provider) {
	fake := vspherefake.New()
	t.Cleanup(fake.Close)
	dir := home(t, vspherefake.Credentials)
	return fake, func() cloud.Provider {
		return New(Options{Home: dir, Transport: fake, Poll: 200 * time.Millisecond, Timeout: time.Minute, Busy: -1})
	}
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		t.Cleanup(fake.Restore)
		h := fake.Harness(provider)
		h.Spec, h.Elsewhere, h.Beside = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere, &elsewhere
		return h
	})
}

func cluster(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

// launch is a cluster that has to come to run.
func launch(t *testing.T, p cloud.Provider, spec cloud.LaunchSpec) []cloud.Node {
	t.Helper()
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func soapFault(kind string) string {
	return `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="` + vcenter.SchemaInstance + `"><soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>Why.</faultstring>` +
		`<detail><` + kind + `Fault xmlns="urn:vim25" xsi:type="` + kind + `"><privilegeId>Some.Right</privilegeId></` + kind + `Fault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`
}

func TestWhatFaultsMean(t *testing.T) {
	r := refusalsOf("fix")
	for _, tt := range []struct {
		faults string
		right  func(error) bool
		kind   vm.Kind
	}{
		{"NoCompatibleHost NoCompatibleHostWithAccessToDevice InsufficientResourcesFault InsufficientMemoryResourcesFault InsufficientCpuResourcesFault InsufficientFailoverResourcesFault InsufficientHostCapacityFault InsufficientGraphicsResourcesFault " +
			"InsufficientStorageSpace NoDiskSpace NoHost NoActiveHostInCluster InvalidHostState InvalidHostConnectionState HostNotConnected HostNotReachable HostConnectFault DatastoreNotWritableOnHost InaccessibleDatastore InvalidDatastore InvalidDatastoreState OutOfBounds NoAvailableIp",
			cloudtest.Is[*cloud.CapacityError], vm.Refused},
		{"VmLimitLicense NotEnoughLicenses LicenseExpired ExpiredEditionLicense ExpiredFeatureLicense LicenseServerUnavailable InvalidLicense InvalidEdition LicenseRestricted", cloudtest.Is[*cloud.QuotaError], vm.Refused},
		{"InvalidLogin NotAuthenticated PasswordExpired", cloudtest.Is[*cloud.AuthError], vm.Refused},
		{"NoPermission NoPermissionOnHost RestrictedByAdministrator RestrictedVersion SecurityError", cloudtest.Is[*cloud.PermissionError], vm.Refused},
		{"InvalidName InvalidArgument InvalidRequest InvalidProperty InvalidType InvalidDeviceSpec InvalidDeviceBacking InvalidVmConfig NotSupported UnsupportedVmxLocation CannotAccessNetwork CannotAccessFile DeviceNotSupported DeviceBackingNotSupported " +
			"DatacenterMismatch InvalidFolder InvalidController MemorySizeNotSupported MemorySizeNotSupportedByDatastore NumVirtualCpusNotSupported NumVirtualCpusIncompatible NotEnoughCpus NotEnoughLogicalCpus TooManyDevices VirtualHardwareVersionNotSupported " +
			"VirtualHardwareCompatibilityIssue RuleViolation MethodNotFound MethodDisabled", cloudtest.Is[*cloud.InvalidError], vm.Refused},
		{"TooManyConcurrentNativeClients", cloudtest.Is[*cloud.ThrottledError], vm.Refused},
		{"Timedout RequestCanceled HostCommunication", cloudtest.Is[*cloud.UnreachableError], vm.Lost},
		{"ManagedObjectNotFound NotFound", cloudtest.Is[*cloud.InvalidError], vm.Missing},
		{"DuplicateName AlreadyExists InvalidPowerState InvalidState TaskInProgress VAppTaskInProgress ConcurrentAccess", cloudtest.Is[*rest.Error], vm.Changed},
		{"ResourceInUse FileLocked", cloudtest.Is[*rest.Error], vm.Busy},
		{"SystemError GenericVmConfigFault MartianWeather", cloudtest.Is[*rest.Error], vm.Refused},
	} {
		for kind := range strings.FieldsSeq(tt.faults) {
			err := vcenter.ReadFault(500, nil, []byte(soapFault(kind)))
			if err == nil {
				t.Errorf("%s is no refusal", kind)
				continue
			}
			got := r.Refusal(t.Context(), here.Place, err)
			if !tt.right(got) || r.Kind(err) != tt.kind || !strings.Contains(got.Error(), kind+": Why (privilegeId: Some.Right)") {
				t.Errorf("%s: %T (%v), %v", kind, got, got, r.Kind(err))
			}
		}
	}
	for _, body := range []string{"", "<html>503 Service Unavailable</html>", "<x/>"} { // it proves nothing
		if err := vcenter.ReadFault(503, nil, []byte(body)); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	}
	if err := vcenter.ReadFault(429, nil, nil); r.Means(err) != vm.Throttled {
		t.Error(err)
	}
}

func TestWhatStatesMean(t *testing.T) {
	for power, want := range map[string]vm.State{"poweredOn": vm.Running, "poweredOff": vm.Stopped, "suspended": vm.Stopped, "odd": vm.Unknown, "": vm.Unknown} {
		o := vcenter.Object{Props: map[string]*vcenter.Element{"runtime.powerState": vcenter.Leaf("val", power), "guest.ipAddress": vcenter.Leaf("val", "10.0.0.1"), "runtime.connectionState": vcenter.Leaf("val", "disconnected")}}
		if m := (driver{Provider: &Provider{}}).machine(o, "", "", nil); m.State != want || m.RawState != power || m.PublicIP != "10.0.0.1" || !strings.Contains(m.Reason, "disconnected") {
			t.Errorf("%q: %+v", power, m)
		}
	}
}

func TestAddresses(t *testing.T) {
	card := func(id int, ips ...string) *vcenter.Element {
		c := vcenter.Elem("GuestNicInfo")
		for _, ip := range ips {
			c.Kids = append(c.Kids, vcenter.Leaf("ipAddress", ip))
		}
		c.Kids = append(c.Kids, vcenter.Leaf("deviceConfigId", id))
		return c
	}
	for _, tt := range []struct {
		cards []*vcenter.Element
		guest string
		want  string
	}{
		{nil, "", ""}, {nil, "10.0.0.1", "10.0.0.1"}, {nil, "fe80::1", ""}, {nil, "169.254.3.4", ""},
		{[]*vcenter.Element{card(-1, "172.17.0.1"), card(4000, "fe80::1", "10.0.0.2")}, "172.17.0.1", "10.0.0.2"},
		{[]*vcenter.Element{card(4000, "169.254.1.1"), card(4001, "10.0.0.3")}, "169.254.1.1", "10.0.0.3"},
		{[]*vcenter.Element{card(4000)}, "10.0.0.4", "10.0.0.4"},
	} {
		o := vcenter.Object{Props: map[string]*vcenter.Element{"guest.net": vcenter.Elem("val", tt.cards...), "guest.ipAddress": vcenter.Leaf("val", tt.guest)}}
		if got := address(o); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

func TestMemoryOfGPUs(t *testing.T) {
	for name, want := range map[string]int{"T4": 16, "A100": 40, "A100-80GB": 80, "H100": 80, "nobody's": 96} {
		if got := gpuMemory(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// Hosts are picked by what they have left.
func TestHosts(t *testing.T) {
	h := func(name string, cores, gib, gpus int) vcenter.Host {
		out := vcenter.Host{Ref: vcenter.Ref{Kind: "HostSystem", ID: name}, Name: name, Usable: true, Cores: cores, MHz: 2000, MiB: gib << 10}
		for range gpus {
			out.GPUs = append(out.GPUs, vcenter.Device{Name: "A100"})
		}
		return out
	}
	off := h("off", 64, 512, 8)
	off.Usable = false
	used := h("used", 8, 64, 0)
	used.UsedMHz, used.UsedMiB = 9000, 40<<10 // 3 vCPUs and 24 GiB are left
	for name, tt := range map[string]struct {
		hosts []vcenter.Host
		s     vcenter.Size
		n     int
		busy  map[vcenter.Ref]int
		want  string // or what the error says
	}{
		"most memory":        {[]vcenter.Host{h("a", 8, 32, 0), h("b", 8, 64, 0)}, vcenter.Size{CPUs: 2, GiB: 8}, 1, nil, "b"},
		"spread":             {[]vcenter.Host{h("a", 8, 32, 0), h("b", 8, 40, 0)}, vcenter.Size{CPUs: 2, GiB: 16}, 3, nil, "b a b"},
		"too many":           {[]vcenter.Host{h("a", 8, 32, 0)}, vcenter.Size{CPUs: 2, GiB: 16}, 3, nil, "2 of 3 VMs of the size vm-2c-16g fit: a has 4 vCPUs and 0 GiB left"},
		"no vCPUs":           {[]vcenter.Host{used}, vcenter.Size{CPUs: 4, GiB: 8}, 1, nil, "used has 3 vCPUs and 24 GiB left"},
		"just":               {[]vcenter.Host{used}, vcenter.Size{CPUs: 3, GiB: 24}, 1, nil, "used"},
		"no memory":          {[]vcenter.Host{used}, vcenter.Size{CPUs: 2, GiB: 32}, 1, nil, "used has 3 vCPUs"},
		"maintenance":        {[]vcenter.Host{off, h("a", 4, 16, 0)}, vcenter.Size{CPUs: 2, GiB: 8}, 1, nil, "a"},
		"all in maintenance": {[]vcenter.Host{off}, vcenter.Size{CPUs: 2, GiB: 8}, 1, nil, "off is in maintenance or not connected"},
		"none":               {nil, vcenter.Size{CPUs: 2, GiB: 8}, 1, nil, "the cluster has no hosts"},
		"GPUs":               {[]vcenter.Host{h("a", 64, 512, 0), h("b", 32, 256, 4)}, vcenter.Size{CPUs: 8, GiB: 64, GPUs: 2, GPU: "A100"}, 2, nil, "b b"},
		"GPUs of others":     {[]vcenter.Host{h("b", 32, 256, 4)}, vcenter.Size{CPUs: 8, GiB: 64, GPUs: 2, GPU: "A100"}, 2, map[vcenter.Ref]int{{Kind: "HostSystem", ID: "b"}: 1}, "1 of 2 VMs of the size vm-8c-64g-2xA100 fit: b has 24 vCPUs and 192 GiB left and 1 A100"},
		"other GPUs":         {[]vcenter.Host{h("b", 32, 256, 4)}, vcenter.Size{CPUs: 8, GiB: 64, GPUs: 1, GPU: "H100"}, 1, nil, "and 0 H100"},
	} {
		picked, err := pick(tt.hosts, tt.s, tt.n, tt.busy)
		var got []string
		for _, p := range picked {
			got = append(got, p.Name)
		}
		if text := strings.Join(got, " "); err == nil && text != tt.want || err != nil && (got != nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestTemplates(t *testing.T) {
	dc, other := vcenter.Ref{Kind: "Datacenter", ID: "1"}, vcenter.Ref{Kind: "Datacenter", ID: "2"}
	all := []template{{name: "skypilot-cpu", datacenter: dc}, {name: "x", tags: "old SKYPILOT-NVIDIA", datacenter: dc}, {name: "GPU-T4", datacenter: other}, {name: "y", tags: "for\nGPU-A100", datacenter: dc}, {name: "GPU-L4", datacenter: dc}}
	for _, tt := range []struct {
		image string
		s     vcenter.Size
		want  string
	}{
		{"", vcenter.Size{}, "skypilot-cpu"}, {"", vcenter.Size{GPUs: 1, GPU: "L4"}, "GPU-L4"}, {"", vcenter.Size{GPUs: 1, GPU: "A100"}, "y"}, {"", vcenter.Size{GPUs: 1, GPU: "T4"}, "x"}, {"GPU-L4", vcenter.Size{}, "GPU-L4"}, {"old", vcenter.Size{}, ""}, {"GPU-T4", vcenter.Size{}, ""},
	} {
		got, err := choose(all, dc, tt.image, tt.s)
		if got.name != tt.want || (err == nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), "docs/vsphere.md") {
			t.Errorf("%+v: %+v, %v", tt, got, err)
		}
	}
}

func extra(spec types.VirtualMachineCloneSpec, key string) string {
	for _, o := range spec.Config.ExtraConfig {
		if o := o.GetOptionValue(); o.Key == key {
			return fmt.Sprint(o.Value)
		}
	}
	return ""
}

// What a VM is made with.
func TestTheMachineThatIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		spec := cluster("web")
		spec.Labels, spec.DiskGB = map[string]string{"team": "a&b"}, 100
		n := launch(t, p, spec)[0]
		made := fake.Made(n.ID)
		data, err := base64.StdEncoding.DecodeString(extra(made, "guestinfo.userdata"))
		meta, err2 := base64.StdEncoding.DecodeString(extra(made, "guestinfo.metadata"))
		if err != nil || err2 != nil || !strings.HasPrefix(string(data), "#cloud-config\n") || !strings.Contains(string(data), cloudtest.Key) || string(meta) != `{"instance-id":"`+n.ID+`","local-hostname":"`+n.ID+`"}` {
			t.Errorf("%s %s", data, meta)
		}
		c := made.Config
		if c.NumCPUs != 2 || c.NumCoresPerSocket != 2 || c.MemoryMB != 8<<10 || *c.MemoryAllocation.Reservation != 8<<10 || !*c.MemoryReservationLockedToMax || !strings.Contains(c.Annotation, "cluster: web\nrank: 0\nsize: vm-2c-8g\nteam: a&b") || made.PowerOn ||
			extra(made, "pciPassthru.use64bitMMIO") != "" || extra(made, "sky.cluster") != "web" {
			t.Errorf("%+v", c)
		}
		disk, ok := c.DeviceChange[0].GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk)
		if !ok || disk.CapacityInKB != 100<<20 || disk.CapacityInBytes != 100<<30 || disk.Key == 0 || disk.Backing == nil {
			t.Errorf("%+v", c.DeviceChange[0])
		}
		if n.Reach.User != "ubuntu" || n.Reach.Host != "10.0.0.1" || n.InternalIP != n.ExternalIP || n.Created.IsZero() {
			t.Errorf("%+v", n)
		}
		small := cluster("small")
		small.DiskGB = 20
		if made := fake.Made(launch(t, p, small)[0].ID); len(made.Config.DeviceChange) != 0 {
			t.Errorf("%+v", made.Config.DeviceChange)
		}
	})
}

// GPUs are devices of a host, which VMs that are on hold.
func TestGPUMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		offers, err := p.Offers(t.Context())
		at := slices.IndexFunc(offers, func(o cloud.Offer) bool { return o.InstanceType == "vm-12c-48g-3xA100-80GB" })
		two := slices.IndexFunc(offers, func(o cloud.Offer) bool { return o.Accelerators["A100-80GB"] == 2 })
		if err != nil || at >= 0 || two < 0 || offers[two].Zone != vspherefake.Zone {
			t.Fatalf("%d offers, %v", len(offers), err)
		}
		spec := cluster("train")
		spec.Offer = offers[two]
		n := launch(t, p, spec)[0]
		made := fake.Made(n.ID)
		if len(made.Config.DeviceChange) != 2 || extra(made, "pciPassthru.use64bitMMIO") != "TRUE" || extra(made, "pciPassthru.64bitMMIOSizeGB") != "320" {
			t.Errorf("%+v", made.Config)
		}
		more := cluster("more")
		more.Offer = offers[two]
		a := p.(cloud.AvailabilityProber)
		if can, err2 := a.Available(t.Context(), more.Offer, 2); err2 != nil || can.Verdict != cloud.AvailableNone || !strings.Contains(can.Reason, "and 0 A100-80GB") {
			t.Errorf("%+v, %v", can, err2)
		}
		launch(t, p, more)
		if can, err := a.Available(t.Context(), more.Offer, 1); err != nil || can.Verdict != cloud.AvailableNone {
			t.Errorf("%+v, %v", can, err)
		}
		if err := p.(cloud.Stopper).Stop(t.Context(), spec.ID); err != nil {
			t.Fatal(err)
		}
		if can, err := a.Available(t.Context(), more.Offer, 1); err != nil || can.Verdict != cloud.AvailableNow {
			t.Errorf("%+v, %v", can, err)
		}
	})
}

// Guests are asked to shut down. A VM whose guest cannot hear is switched off.
func TestStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		spec := cluster("web")
		n := launch(t, p, spec)[0]
		stop := func() []string {
			t.Helper()
			fake.Calls()
			if err := p.(cloud.Stopper).Stop(t.Context(), spec.ID); err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(fake.Calls(), func(call string) bool { return call == "RetrievePropertiesEx" })
		}
		if got := stop(); !slices.Equal(got, []string{"ShutdownGuest"}) {
			t.Error(got)
		}
		launch(t, p, spec)
		fake.NoTools()
		if got := stop(); !slices.Equal(got, []string{"ShutdownGuest", "PowerOffVM_Task"}) {
			t.Error(got)
		}
		fake.Restore()
		launch(t, p, spec)
		fake.Suspend(n.ID)
		if list, err := p.Nodes(t.Context(), spec.ID); err != nil || list[0].State != cloud.NodeStopped || !strings.Contains(list[0].Reason, "suspended") {
			t.Errorf("%+v, %v", list, err)
		}
		if again := launch(t, p, spec); again[0].ID != n.ID {
			t.Errorf("%+v", again)
		}
		fake.Suspend(n.ID)
		if err := p.Terminate(t.Context(), spec.ID); err != nil || len(fake.Inventory()) != 0 {
			t.Errorf("%v, %v", err, fake.Inventory())
		}
	})
}

// What fails after vCenter said yes is a refusal as well.
func TestTasksThatFail(t *testing.T) {
	for _, tt := range []struct {
		method string
		why    types.BaseMethodFault
		want   func(error) bool
	}{
		{"CloneVM_Task", &types.InsufficientStorageSpace{}, cloudtest.Is[*cloud.CapacityError]}, {"CloneVM_Task", &types.NotEnoughLicenses{}, cloudtest.Is[*cloud.QuotaError]}, {"CloneVM_Task", &types.CannotAccessNetwork{}, cloudtest.Is[*cloud.InvalidError]},
		{"PowerOnVM_Task", &types.InsufficientMemoryResourcesFault{}, cloudtest.Is[*cloud.CapacityError]}, {"PowerOnVM_Task", &types.NoPermission{PrivilegeId: "Some.Right"}, cloudtest.Is[*cloud.PermissionError]},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake, provider := start(t)
			p := provider()
			fake.Fail(tt.method, tt.why)
			if _, err := p.Launch(t.Context(), cluster("web")); !tt.want(err) {
				t.Errorf("%s %T: %T (%v)", tt.method, tt.why, err, err)
			}
			fake.Restore()
			if err := p.Terminate(t.Context(), cluster("web").ID); err != nil || len(fake.Inventory()) != 0 {
				t.Errorf("%v, %v", err, fake.Inventory())
			}
		})
	}
}

func TestPlacesThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		fake.Maintain(vspherefake.Zone)
		if _, err := p.Launch(t.Context(), cluster("web")); !cloudtest.Is[*cloud.CapacityError](err) || !strings.Contains(err.Error(), "in maintenance") {
			t.Error(err)
		}
		for _, place := range []cloud.Place{{Cloud: Name, Region: vspherefake.Vcenter, Zone: "mars"}, {Cloud: Name, Region: "mars", Zone: "x"}} {
			spec := cluster("web")
			spec.Offer.Place = place
			if _, err := p.Launch(t.Context(), spec); !cloudtest.Is[*cloud.InvalidError](err) || !strings.Contains(err.Error(), `"mars", but `) {
				t.Error(err)
			}
		}
		spec := cluster("web")
		spec.ImageID, spec.Offer = "none", elsewhere
		if _, err := p.Launch(t.Context(), spec); !cloudtest.Is[*cloud.InvalidError](err) || !strings.Contains(err.Error(), "no VM template with the name none") {
			t.Error(err)
		}
	})
}

// A session that ended is begun anew, and wrong passwords are not tried again at once.
func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		id := cluster("web").ID
		logins := func() (n int) {
			for _, call := range fake.Calls() {
				if call == "Login" {
					n++
				}
			}
			return n
		}
		for range 3 {
			if _, err := p.Nodes(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if n := logins(); n != 1 {
			t.Errorf("%d logins", n)
		}
		fake.EndSessions()
		if _, err := p.Nodes(t.Context(), id); err != nil || logins() != 1 {
			t.Error(err)
		}
		if _, err := p.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if calls := fake.Calls(); !slices.Contains(calls, "Logout") {
			t.Error(calls)
		}
		fake.EndSessions()
		fake.Refuse("Login", "InvalidLogin")
		h := fake.Harness(provider)
		h.Refuse(t)
		for range 3 {
			_, err := p.Nodes(t.Context(), id)
			var auth *cloud.AuthError
			if !errors.As(err, &auth) || auth.Region != vspherefake.Vcenter {
				t.Error(err)
			}
		}
		if n := logins(); n != 1 {
			t.Errorf("%d logins with a wrong password", n)
		}
		fake.Restore()
		if who, err := p.Check(t.Context()); err != nil || who[0] != vspherefake.User+" on "+vspherefake.Vcenter {
			t.Errorf("%v, %v", who, err)
		}
		if _, err := p.Nodes(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
}

// Credentials that are no good say how to get better ones.
func TestCredentials(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing": {"", "is not there"}, "empty": {"x: 1\n", "no vcenters"}, "no YAML": {"{", "not the YAML"}, "a list": {"- a\n", "not the YAML"}, "no password": {"vcenters:\n- name: a\n  username: b\n", "lacks its name, username or password"},
		"no list of clusters": {vspherefake.Credentials + "  clusters: one\n", "not the YAML"},
		"wrong password":      {strings.Replace(vspherefake.Credentials, vspherefake.Password, "wrong", 1), "InvalidLogin"}, "good": {vspherefake.Credentials, ""},
		"two": {vspherefake.Credentials + "- name: other\n  username: " + vspherefake.User + "\n  password: wrong\n", ""},
	} {
		fake := vspherefake.New()
		p := New(Options{Home: home(t, tt.text), Transport: fake})
		who, err := p.Check(t.Context())
		fake.Close()
		if tt.want == "" {
			carried, err2 := p.CarryCredentials(t.Context())
			if err != nil || err2 != nil || len(who) != 1 || string(carried[vcenter.Path]) != tt.text {
				t.Errorf("%s: %v, %v, %v, %s", name, who, err, err2, carried)
			}
			continue
		}
		var auth *cloud.AuthError
		if !errors.As(err, &auth) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(auth.Fix, "~/.vsphere/credential.yaml") || strings.Contains(err.Error(), "wrong:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An old vCenter is refused in words, and so is a vCenter that is none.
func TestVersions(t *testing.T) {
	fake := vspherefake.New()
	fake.Version = "6.5"
	defer fake.Close()
	p := New(Options{Home: home(t, vspherefake.Credentials), Transport: fake})
	if _, err := p.Check(t.Context()); !cloudtest.Is[*cloud.InvalidError](err) || !strings.Contains(err.Error(), "version 6.5, and sky needs vCenter 6.7") {
		t.Error(err)
	}
}

// The clusters of the file are the only ones.
func TestClustersOfTheFile(t *testing.T) {
	fake := vspherefake.New()
	defer fake.Close()
	p := New(Options{Home: home(t, vspherefake.Credentials+"  clusters:\n  - name: "+vspherefake.Other+"\n"), Transport: fake})
	offers, err := p.Offers(t.Context())
	if err != nil || len(offers) == 0 || slices.ContainsFunc(offers, func(o cloud.Offer) bool { return o.Zone != vspherefake.Other || o.Accelerators != nil }) {
		t.Errorf("%d offers, %v", len(offers), err)
	}
}

// A certificate that nobody knows is refused, unless the file says so.
func TestCertificates(t *testing.T) {
	fake := vspherefake.New()
	defer fake.Close()
	server := httptest.NewTLSServer(fake)
	defer server.Close()
	server.Config.ErrorLog = nil
	for skip, want := range map[bool]bool{false: false, true: true} {
		text := strings.Replace(vspherefake.Credentials, vspherefake.Vcenter, strings.TrimPrefix(server.URL, "https://"), 1) + fmt.Sprintf("  skip_verification: %t\n", skip)
		_, err := New(Options{Home: home(t, text)}).Check(t.Context())
		if (err == nil) != want || err != nil && !cloudtest.Is[*cloud.UnreachableError](err) {
			t.Errorf("skip_verification: %t: %v", skip, err)
		}
	}
}

// The price list has what is offered, and plans can be made over it without a vCenter.
func TestThePriceList(t *testing.T) {
	fake, provider := start(t)
	offers, err := provider().Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(fake)
	defer server.Close()
	t.Setenv(vm.EndpointVariable(Name), server.URL)
	rows, err := fetch.VSphere{Home: home(t, vspherefake.Credentials)}.Rows(t.Context())
	if err != nil || len(rows) != len(offers) {
		t.Fatalf("%d rows and %d offers, %v", len(rows), len(offers), err)
	}
	if calls := fake.Calls(); calls[len(calls)-1] != "Logout" {
		t.Errorf("the session is left: %v", calls)
	}
	var text bytes.Buffer
	if err := fetch.Write(&text, Name, rows); err != nil {
		t.Fatal(err)
	}
	table, err := catalog.Load(Name, text.Bytes(), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		q    catalog.Query
		want string
	}{
		{catalog.Query{Zones: []string{vspherefake.Other}}, "vm-2c-8g"},
		{catalog.Query{Accelerator: "A100-80GB", Count: 2}, "vm-8c-32g-2xA100-80GB"},
		{catalog.Query{InstanceType: "vm-96c-768g"}, "vm-96c-768g"},
		{catalog.Query{Accelerator: "A100-80GB", Count: 2, Zones: []string{vspherefake.Other}}, ""},
		{catalog.Query{InstanceType: "vm-2c-8g", Spot: true}, ""},
	} {
		got := append(table.Find(tt.q), cloud.Offer{})[0]
		if got.InstanceType != tt.want || got.HourlyPrice != 0 || tt.want != "" && got.Region != vspherefake.Vcenter {
			t.Errorf("%+v: %s %+v", tt.q, got.InstanceType, got)
		}
	}
}

// A list that lacks a vCenter would be no list.
func TestThePriceListNeedsAll(t *testing.T) {
	fake, _ := start(t)
	for text, want := range map[string]string{
		"": "write the vCenters and a user of each into ~/.vsphere/credential.yaml",
		vspherefake.Credentials + "- name: other\n  username: " + vspherefake.User + "\n  password: wrong\n": "other: InvalidLogin",
	} {
		if rows, err := (fetch.VSphere{Home: home(t, text), Transport: fake}).Rows(t.Context()); rows != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d rows, %v", len(rows), err)
		}
	}
}

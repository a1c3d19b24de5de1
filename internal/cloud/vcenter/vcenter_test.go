package vcenter

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func TestSizes(t *testing.T) {
	for name, want := range map[string]Size{
		"vm-4c-16g": {4, 16, 0, ""}, "vm-8c-64g-1xA100": {8, 64, 1, "A100"}, "vm-96c-768g-8xA100-80GB": {96, 768, 8, "A100-80GB"},
	} {
		if got, err := ParseSize(name); err != nil || got != want || got.String() != name {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "vm-4c", "vm-0c-16g", "vm-4c-0g", "vm-4c-16g-0xA100", "m5.large", "vm-99999c-1g", "vm-4c-16g-x"} {
		if s, err := ParseSize(name); err == nil {
			t.Errorf("%s is %+v", name, s)
		}
	}
	z := Zone{Hosts: []Host{{Cores: 8, MiB: 33 << 10, GPUs: []Device{{Name: "T4"}, {Name: "T4"}, {Name: "T4"}}}}}
	var all []string
	for _, s := range z.Sizes(8) {
		all = append(all, s.String())
	}
	want := "vm-1c-2g vm-1c-4g vm-1c-8g vm-2c-4g vm-2c-8g vm-2c-16g vm-4c-8g vm-4c-16g vm-4c-32g vm-8c-16g vm-8c-32g vm-4c-16g-1xT4 vm-4c-32g-1xT4 vm-8c-32g-1xT4 vm-8c-32g-2xT4"
	if got := strings.Join(all, " "); got != want {
		t.Error(got)
	}
	if all := z.Sizes(6.7); slices.ContainsFunc(all, func(s Size) bool { return s.GPUs > 0 }) {
		t.Errorf("an old vCenter hands out devices: %v", all)
	}
}

func TestGPUs(t *testing.T) {
	for device, want := range map[string]string{
		"GA100 [A100 PCIe 40GB]": "A100", "GA100 [A100 PCIe 80GB]": "A100-80GB", "TU104GL [Tesla T4]": "T4", "NVIDIATesla T4": "T4", "GH100 [H100 PCIe]": "H100", "AD102GL [L40S]": "L40S", "NVIDIA A40-48Q": "A40-48Q", "GA102GL [RTX A6000]": "RTXA6000",
	} {
		if got := GPUName(device); got != want {
			t.Errorf("%s: %s, want %s", device, got, want)
		}
	}
}

func TestDatacenters(t *testing.T) {
	dc, root, hosts, sub := Ref{"Datacenter", "1"}, Ref{"Folder", "root"}, Ref{"Folder", "hosts"}, Ref{"Folder", "sub"}
	loop := Ref{"Folder", "loop"}
	in := Inventory{parents: map[Ref]Ref{dc: root, hosts: dc, sub: hosts, loop: loop}}
	for of, want := range map[Ref]Ref{dc: dc, hosts: dc, sub: dc, root: {}, loop: {}, {"Folder", "unknown"}: {}} {
		if got := in.Datacenter(of); got != want {
			t.Errorf("%v is in %v, want %v", of, got, want)
		}
	}
	if in.parents[dc] != root || len(in.parents) != 4 {
		t.Errorf("looking changes what launches share: %v", in.parents)
	}
}

// A single host makes no machines from templates.
func TestHostsWithoutAVCenter(t *testing.T) {
	v := New(account{Name: "esx"}, rest.Options{Transport: answer(func(*http.Request, string) string {
		return body("RetrieveServiceContentResponse", `<returnval><about><fullName>VMware ESXi</fullName><apiType>HostAgent</apiType><apiVersion>8.0</apiVersion></about></returnval>`)
	})})
	if err := v.Check(t.Context()); !is[*cloud.InvalidError](err) || !strings.Contains(err.Error(), "no vCenter") {
		t.Error(err)
	}
}

func body(response, text string) string {
	return `<?xml version="1.0"?><E:Envelope xmlns:E="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="` + SchemaInstance + `"><E:Body><` + response + ` xmlns="urn:vim25">` + text + `</` + response + `></E:Body></E:Envelope>`
}

type answer func(r *http.Request, call string) string

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	text, _ := io.ReadAll(r.Body)
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(a(r, string(text)))), Header: http.Header{"Set-Cookie": {cookie + `="abc"; Path=/`}}, Request: r}, nil
}

// Properties come in pages, and what is broken is no list.
func TestPages(t *testing.T) {
	ask := func(second string) ([]Object, error) {
		v := New(account{Name: "v"}, rest.Options{Transport: answer(func(_ *http.Request, call string) string {
			page := func(id string) string {
				return `<objects><obj type="VirtualMachine">` + id + `</obj><propSet><name>name</name><val xsi:type="xsd:string">n</val></propSet></objects>`
			}
			switch {
			case strings.Contains(call, "<RetrieveServiceContent"):
				return body("RetrieveServiceContentResponse", `<returnval><rootFolder type="Folder">f</rootFolder><propertyCollector type="PropertyCollector">p</propertyCollector><about><apiType>VirtualCenter</apiType><apiVersion>7.0.3.0</apiVersion></about><sessionManager type="SessionManager">s</sessionManager></returnval>`)
			case strings.Contains(call, "<Login "):
				return body("LoginResponse", `<returnval><key>k</key></returnval>`)
			case strings.Contains(call, "<ContinueRetrievePropertiesEx ") && strings.Contains(call, "<token>next</token>"):
				return body("ContinueRetrievePropertiesExResponse", `<returnval>`+page("vm-2")+second+`</returnval>`)
			}
			return body("RetrievePropertiesExResponse", `<returnval><token>next</token>`+page("vm-1")+`</returnval>`)
		})})
		return v.Properties(t.Context(), nil, "VirtualMachine", "name")
	}
	all, err := ask("")
	if err != nil || len(all) != 2 || all[1].Ref != (Ref{"VirtualMachine", "vm-2"}) || all[1].Text("name") != "n" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := ask("<"); !is[*rest.NoAnswerError](err) {
		t.Error(err)
	}
	if _, err := ask(`<objects><obj type="VirtualMachine">x</obj><missingSet><path>name</path><fault><fault xsi:type="NotAuthenticated"/></fault></missingSet></objects>`); Code(err) != "NotAuthenticated" {
		t.Error(err)
	}
}

// What is written can be read again, whatever is in it.
func FuzzElements(f *testing.F) {
	f.Add("a<b>&\"'", "kind")
	f.Fuzz(func(t *testing.T, text, kind string) {
		var back Element
		if err := xml.Unmarshal(envelope(Ref{"X", kind}, "Do", []*Element{Leaf("value", text).As("xsd:string")}), &back); err != nil {
			t.Fatal(err)
		}
		got := back.At("Body.Do.value")
		if got == nil || got.Kind() != "string" || back.At("Body.Do._this").Ref().Kind != "X" {
			t.Errorf("%+v", back)
		}
	})
}

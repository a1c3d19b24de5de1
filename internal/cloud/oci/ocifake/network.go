package ocifake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// keep answers the calls about a kind of thing in a region: parents holds what it is in.
func (f *Fake) keep(kind, parents string) {
	k := fakehttp.Kind{
		Name: kind, Path: "/" + kind, Make: fakehttp.Schema{"!compartmentId": fakehttp.Filled, "displayName": fakehttp.Filled, "freeformTags": fakehttp.Object, "cidrBlock": `"[0-9./]+"`}, Change: fakehttp.Schema{}, ChangeBy: http.MethodPut,
		Within: func(r *http.Request, o dict) bool { return o["region"] == region(r) }, Removable: f.Unused,
	}
	k.All = func(r *http.Request, all []dict) (any, error) {
		if r.URL.Query().Get("compartmentId") == "" {
			return nil, fluffyapi.Errorf(missing, "compartmentId")
		}
		return slices.DeleteFunc(all, func(o dict) bool {
			for field, want := range r.URL.Query() {
				if o[field] != nil && o[field] != want[0] {
					return true
				}
			}
			return false
		}), nil
	}
	k.Complete = func(r *http.Request, in dict) error {
		if r.Method != http.MethodPost {
			return nil
		}
		if parents != "" && f.Thing(parents, in["vcnId"]) == nil {
			return fluffyapi.Errorf(related, "vcnId")
		}
		in["id"], in["region"], in["name"], in["lifecycleState"] = f.ocid(kind), region(r), in["displayName"], "AVAILABLE"
		return nil
	}
	k.Added = func(o dict) {
		if kind != "vcns" {
			return
		}
		for field, made := range map[string]string{"defaultRouteTableId": "routeTables", "defaultSecurityListId": "securityLists"} { // which come with it
			o[field] = f.Put(made, dict{"id": f.ocid(made), "region": o["region"], "vcnId": o["id"], "compartmentId": o["compartmentId"], "name": "default", "lifecycleState": "AVAILABLE"})["id"]
		}
	}
	f.Keep(k)
}

func (f *Fake) ocid(kind string) string {
	return fmt.Sprintf("ocid1.%s.oc1..%s", strings.ToLower(kind), f.NewID())
}

func (f *Fake) addRules(r *http.Request, in dict) (any, error) {
	o := f.Thing("networkSecurityGroups", r.PathValue("id"))
	if o == nil {
		return nil, fakehttp.Missing(r.PathValue("id"))
	}
	for _, rule := range fakehttp.Items(in["securityRules"]) {
		rule.(dict)["id"] = f.NewID()
	}
	o["rules"] = append(fakehttp.Items(o["rules"]), fakehttp.Items(in["securityRules"])...)
	return dict{"securityRules": in["securityRules"]}, nil
}

// Rules are the ports, sorted, that the security groups of an instance open to the world.
func (f *Fake) Rules(id string) (opened []string) {
	vnic, _ := f.Asked(id)["createVnicDetails"].(dict)
	for _, nsg := range fakehttp.Items(vnic["nsgIds"]) {
		for _, rule := range fakehttp.Items(f.Thing("networkSecurityGroups", nsg)["rules"]) {
			o := rule.(dict)
			if tcp, _ := o["tcpOptions"].(dict); tcp != nil && o["source"] == "0.0.0.0/0" && o["direction"] == "INGRESS" {
				ports := tcp["destinationPortRange"].(dict)
				opened = append(opened, fakehttp.Ports(ports["min"], ports["max"]))
			}
		}
	}
	slices.Sort(opened)
	return slices.Compact(opened)
}

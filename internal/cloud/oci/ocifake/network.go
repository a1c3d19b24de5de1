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
	find := func(r *http.Request) (dict, error) {
		if o := f.Thing(kind, r.PathValue("id")); o != nil && o["region"] == region(r) {
			return o, nil
		}
		return nil, fakehttp.Missing(r.PathValue("id"))
	}
	put := func(r *http.Request, o dict) dict {
		o["id"], o["region"], o["name"], o["lifecycleState"] = fmt.Sprintf("ocid1.%s.oc1..%s", strings.ToLower(kind), f.NewID()), region(r), o["displayName"], "AVAILABLE"
		return f.Put(kind, o)
	}
	f.Route("GET", "/"+kind, kind+".list", nil, func(r *http.Request, _ dict) (any, error) {
		if r.URL.Query().Get("compartmentId") == "" {
			return nil, fluffyapi.Errorf(missing, "compartmentId")
		}
		return slices.DeleteFunc(f.Things(kind), func(o dict) bool {
			for field, want := range r.URL.Query() {
				if o[field] != nil && o[field] != want[0] {
					return true
				}
			}
			return o["region"] != region(r)
		}), nil
	})
	f.Route("GET", "/"+kind+"/{id}", kind+".get", nil, func(r *http.Request, _ dict) (any, error) { return find(r) })
	f.Route("POST", "/"+kind, kind+".put", fakehttp.Schema{"!compartmentId": word, "displayName": word, "freeformTags": object, "cidrBlock": `"[0-9./]+"`}, func(r *http.Request, in dict) (any, error) {
		if parents != "" && f.Thing(parents, in["vcnId"]) == nil {
			return nil, fluffyapi.Errorf(related, "vcnId")
		}
		o := put(r, in)
		if kind == "vcns" { // which comes with these
			for field, made := range map[string]string{"defaultRouteTableId": "routeTables", "defaultSecurityListId": "securityLists"} {
				id := fmt.Sprintf("ocid1.%s.oc1..%s", strings.ToLower(made), f.NewID())
				o[field] = f.Put(made, dict{"id": id, "region": region(r), "vcnId": o["id"], "compartmentId": o["compartmentId"], "name": "default", "lifecycleState": "AVAILABLE"})["id"]
			}
		}
		return o, nil
	})
	f.Route("PUT", "/"+kind+"/{id}", kind+".put", fakehttp.Schema{}, func(r *http.Request, in dict) (any, error) {
		o, err := find(r)
		for field, v := range in {
			o[field] = v
		}
		return o, err
	})
	f.Route("DELETE", "/"+kind+"/{id}", kind+".delete", nil, func(r *http.Request, _ dict) (any, error) {
		o, err := find(r)
		if err != nil {
			return nil, err
		}
		for _, m := range f.Cloud.Machines() {
			if m.State != fluffyapi.Terminated && strings.Contains(m.Tags["asked"], o["id"].(string)) {
				return nil, fluffyapi.Errorf(fluffyapi.InUse, "%v is used by %s", o["id"], m.ID)
			}
		}
		return nil, f.Drop(kind, o["id"])
	})
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
				opened = append(opened, strings.TrimSuffix(fmt.Sprint(ports["min"], "-", ports["max"]), fmt.Sprint("-", ports["min"])))
			}
		}
	}
	slices.Sort(opened)
	return slices.Compact(opened)
}

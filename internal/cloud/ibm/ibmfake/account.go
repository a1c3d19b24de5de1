package ibmfake

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// account answers for IAM, tagging and search, and about what can be had.
func (f *Fake) account() {
	// "IAM Identity Services", "Create an IAM access token for … an API key"
	f.Route("POST", "/identity/token", "token", nil, func(r *http.Request, _ dict) (any, error) {
		if r.FormValue("grant_type") != "urn:ibm:params:oauth:grant-type:apikey" || r.FormValue("apikey") != APIKey {
			return nil, fluffyapi.Errorf(fluffyapi.Invalid, "Provided API key could not be found.")
		}
		token := f.tokens.Mint(account, func(int) string { return "eyJ" + f.NewID() })
		return fakehttp.TokenReply(token, 3600, dict{"refresh_token": "not_supported", "expiration": time.Now().Add(fakehttp.TokenLife).Unix(), "scope": "ibm openid"}), nil
	})
	// "Global Tagging": attach, detach, list
	tag := func(r *http.Request, in dict) (any, error) {
		results, names := []dict{}, fakehttp.Items(in["tag_names"])
		if one, ok := in["tag_name"].(string); ok {
			names = append(names, one)
		}
		for _, res := range fakehttp.Items(in["resources"]) {
			at := fmt.Sprint(res.(dict)["resource_id"])
			for _, n := range names {
				f.tags[at] = slices.DeleteFunc(f.tags[at], func(t string) bool { return t == n })
				if strings.HasSuffix(r.URL.Path, "attach") {
					f.tags[at] = append(f.tags[at], strings.ToLower(fmt.Sprint(n)))
				}
			}
			results = append(results, dict{"resource_id": at, "is_error": !strings.HasPrefix(at, "crn:")})
		}
		return dict{"results": results}, nil
	}
	tagging := fakehttp.Schema{"!resources": fakehttp.List(`\{.*"resource_id":` + fakehttp.Filled + `.*\}`), "tag_names": fakehttp.List(`"[A-Za-z0-9:_ .-]{1,128}"`), "tag_name": `"[A-Za-z0-9:_ .-]{1,128}"`}
	f.Route("POST", "/v3/tags/attach", "tags.put", tagging, tag)
	f.Route("POST", "/v3/tags/detach", "tags.put", tagging, tag)
	f.Route("GET", "/v3/tags", "tags.list", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, t := range f.tags[r.URL.Query().Get("attached_to")] {
			all = append(all, dict{"name": t})
		}
		return dict{"total_count": len(all), "offset": 0, "limit": 100, "items": all}, nil
	})
	// "Global Search", "Find instances of resources"
	f.Route("POST", "/v3/resources/search", "search", fakehttp.Schema{"query": fakehttp.Filled, "search_cursor": fakehttp.Filled}, f.search)
	// "Virtual Private Cloud API": Regions, Instance profiles, Images
	f.Route("GET", "/v1/regions", "regions", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for _, name := range slices.Sorted(maps.Keys(regions)) {
			all = append(all, dict{"name": name, "endpoint": "https://" + name + ".iaas.cloud.ibm.com", "status": "available"})
		}
		return dict{"regions": all}, nil
	})
	f.Route("GET", "/v1/regions/{region}/zones", "regions", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, z := range regions[r.PathValue("region")] {
			all = append(all, dict{"name": z, "status": "available", "region": dict{"name": r.PathValue("region")}})
		}
		return dict{"zones": all}, nil
	})
	f.Route("GET", "/v1/instance/profiles", "offers", nil, func(*http.Request, dict) (any, error) {
		all := []dict{}
		for _, name := range slices.Sorted(maps.Keys(profiles)) {
			p := profiles[name]
			one := dict{"name": name, "family": p.family, "vcpu_count": dict{"type": "fixed", "value": p.cpus}, "memory": dict{"type": "fixed", "value": p.memory}, "vcpu_architecture": dict{"type": "fixed", "value": "amd64"}, "status": "current"}
			if p.gpu > 0 {
				one["gpu_count"], one["gpu_model"] = dict{"type": "fixed", "value": p.gpu}, dict{"type": "enum", "values": []string{p.model}}
			}
			all = append(all, one)
		}
		return dict{"profiles": all, "total_count": len(all)}, nil
	})
	f.Route("GET", "/v1/images", "images", nil, func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, i := range images {
			one := maps.Clone(i)
			one["status"], one["visibility"], one["owner_type"] = "available", "public", "provider"
			one["operating_system"] = dict{"name": "ubuntu-22-04-amd64", "architecture": "amd64", "family": "Ubuntu Linux"}
			if v := r.URL.Query().Get("visibility"); v == "" || v == "public" {
				all = append(all, one)
			}
		}
		return page(r, "images", all)
	})
}

var term = regexp.MustCompile(`(\w+):\(?"?([^"\s()]+)"?\)?`)

// search finds what all terms of a query such as "type:vpc AND tags:web" fit.
func (f *Fake) search(r *http.Request, in dict) (any, error) {
	all := []dict{}
	add := func(kind, region string, name, at any) {
		o := dict{"crn": at, "name": name, "region": region, "type": kind, "resource_id": at.(string)[strings.LastIndex(at.(string), ":")+1:], "tags": append([]string{}, f.tags[at.(string)]...), "service_name": "is", "family": "is"}
		for _, t := range term.FindAllStringSubmatch(fmt.Sprint(in["query"]), -1) {
			values := []string{fmt.Sprint(o[t[1]])}
			if t[1] == "tags" {
				values = o["tags"].([]string)
			}
			if !slices.ContainsFunc(values, func(v string) bool {
				prefix, wild := strings.CutSuffix(t[2], "*")
				return strings.EqualFold(v, t[2]) || wild && strings.HasPrefix(v, prefix)
			}) {
				return
			}
		}
		all = append(all, o)
	}
	for _, kind := range []string{"vpcs", "subnets", "public_gateways", "security_groups", "keys", "floating_ips"} {
		for _, o := range f.Things(kind) {
			add(strings.ReplaceAll(strings.TrimSuffix(kind, "s"), "_", "-"), o["region"].(string), o["name"], o["crn"])
		}
	}
	list, err := f.Existing(r, f.view)
	for _, o := range list {
		if o["status"] != "failed" {
			add("instance", strings.Split(o["crn"].(string), ":")[5], o["name"], o["crn"])
		}
	}
	token, _ := in["search_cursor"].(string)
	part, err2 := fakehttp.Pages{Token: "search_cursor", Usual: 100}.Part(url.Values{"search_cursor": {token}}, all)
	out := dict{"items": part.Items, "limit": part.Size}
	if part.Next != nil {
		out["search_cursor"] = part.Next
	}
	return out, cmp.Or(err, err2)
}

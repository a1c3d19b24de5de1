package gcpfake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// accountRoutes are those of the project, its services and its service accounts.
func (f *Fake) accountRoutes() {
	resource := func(method, path, op, permission string, do fakehttp.Handler) {
		f.Route(method, path, op, nil, func(r *http.Request, _ dict) (any, error) {
			if permission != "" && !f.may(permission) {
				return nil, rpc(403, nil, "The caller does not have permission")
			}
			in, no := body(r, nil)
			if no != nil {
				return nil, no
			}
			return do(r, in)
		})
	}
	mine := func(r *http.Request) (verb string, no error) {
		name, verb, _ := strings.Cut(r.PathValue("project"), ":")
		if name != Project && name != Number {
			return "", rpc(403, nil, "The caller does not have permission")
		}
		return verb, nil
	}
	// https://cloud.google.com/resource-manager/reference/rest/v1/projects and …/v3/projects
	for _, version := range []string{"v1", "v3"} {
		resource("GET", "/"+version+"/projects/{project}", "project.get", "resourcemanager.projects.get", func(r *http.Request, _ dict) (any, error) {
			if _, no := mine(r); no != nil {
				return nil, no
			}
			state := "ACTIVE"
			if f.inactive {
				state = "DELETE_REQUESTED"
			}
			if version == "v3" {
				return dict{"name": "projects/" + Number, "projectId": Project, "state": state, "displayName": "Fake"}, nil
			}
			return dict{"projectId": Project, "projectNumber": Number, "lifecycleState": state, "name": "Fake", "createTime": "2024-01-01T00:00:00Z"}, nil
		})
		resource("POST", "/"+version+"/projects/{project}", "project.test", "", func(r *http.Request, in dict) (any, error) {
			verb, no := mine(r)
			if no != nil {
				return nil, no
			}
			switch verb {
			case "testIamPermissions":
				asked, have := fakehttp.Items(in["permissions"]), []any{}
				if len(asked) > 100 {
					return nil, rpc(400, nil, "You can test at most 100 permissions at once.")
				}
				for _, p := range asked {
					if !strings.Contains(fmt.Sprint(p), ".") || strings.Contains(fmt.Sprint(p), "*") {
						return nil, rpc(400, nil, "Permission %v is not valid for this resource.", p)
					}
					if f.may(fmt.Sprint(p)) {
						have = append(have, p)
					}
				}
				if len(have) == 0 {
					return dict{}, nil
				}
				return dict{"permissions": have}, nil
			case "getIamPolicy":
				if !f.may("resourcemanager.projects.getIamPolicy") {
					return nil, rpc(403, nil, "The caller does not have permission")
				}
				return f.policy, nil
			case "setIamPolicy":
				policy, _ := in["policy"].(dict)
				switch {
				case !f.may("resourcemanager.projects.setIamPolicy"):
					return nil, rpc(403, nil, "Policy update access denied.")
				case policy == nil:
					return nil, rpc(400, nil, "Policy is required.")
				case policy["etag"] != nil && policy["etag"] != f.policy["etag"]:
					return nil, &fakehttp.Reply{Status: 409, Body: dict{"error": dict{"code": 409, "status": "ABORTED", "message": "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff."}}}
				}
				for _, b := range fakehttp.Items(policy["bindings"]) {
					for _, m := range fakehttp.Items(b.(dict)["members"]) {
						email, account := strings.CutPrefix(fmt.Sprint(m), "serviceAccount:")
						if account && f.items["projects/"+Project+"/serviceAccounts/"+email] == nil {
							return nil, rpc(400, nil, "Service account %s does not exist.", email)
						}
					}
				}
				policy["etag"] = fingerprint(policy["bindings"])
				f.policy = policy
				return policy, nil
			}
			return nil, rpc(404, nil, "there is no method %s", verb)
		})
	}
	// https://cloud.google.com/service-usage/docs/reference/rest/v1/services
	service := func(name string) dict {
		state := "DISABLED"
		if f.services[name] {
			state = "ENABLED"
		}
		return dict{"name": "projects/" + Number + "/services/" + name, "parent": "projects/" + Number, "config": dict{"name": name}, "state": state}
	}
	resource("GET", "/v1/projects/{project}/services", "services.list", "serviceusage.services.list", func(r *http.Request, _ dict) (any, error) {
		if _, no := mine(r); no != nil {
			return nil, no
		}
		all := []dict{}
		for name, on := range f.services {
			if on || r.URL.Query().Get("filter") != "state:ENABLED" {
				all = append(all, service(name))
			}
		}
		slices.SortFunc(all, func(a, b dict) int { return strings.Compare(a["name"].(string), b["name"].(string)) })
		return dict{"services": all}, nil
	})
	resource("GET", "/v1/projects/{project}/services/{service}", "services.get", "serviceusage.services.get", func(r *http.Request, _ dict) (any, error) {
		if _, no := mine(r); no != nil {
			return nil, no
		}
		return service(r.PathValue("service")), nil
	})
	resource("GET", "/v1/projects/{project}/services:batchGet", "services.get", "serviceusage.services.get", func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, name := range r.URL.Query()["names"] {
			all = append(all, service(name[strings.LastIndex(name, "/")+1:]))
		}
		return dict{"services": all}, nil
	})
	enable := func(names ...string) (any, error) {
		f.serial++
		all := []dict{}
		for _, name := range names {
			f.services[name] = true
			all = append(all, service(name))
		}
		return dict{"name": fmt.Sprintf("operations/acat.p2-%s-%d", Number, f.serial), "done": true, "response": dict{"@type": "type.googleapis.com/google.api.serviceusage.v1.EnableServiceResponse", "service": all[0], "services": all}}, nil
	}
	resource("POST", "/v1/projects/{project}/services/{service}", "services.put", "serviceusage.services.enable", func(r *http.Request, _ dict) (any, error) {
		name, ok := strings.CutSuffix(r.PathValue("service"), ":enable")
		if !ok {
			return nil, rpc(404, nil, "there is no such method")
		}
		return enable(name)
	})
	resource("POST", "/v1/projects/{project}/services:batchEnable", "services.put", "serviceusage.services.enable", func(r *http.Request, in dict) (any, error) {
		var names []string
		for _, n := range fakehttp.Items(in["serviceIds"]) {
			names = append(names, fmt.Sprint(n))
		}
		if len(names) == 0 || len(names) > 20 {
			return nil, rpc(400, nil, "Between 1 and 20 services must be given.")
		}
		return enable(names...)
	})
	resource("GET", "/v1/operations/{name}", "services.get", "", func(r *http.Request, _ dict) (any, error) {
		return dict{"name": "operations/" + r.PathValue("name"), "done": true}, nil
	})
	// https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts
	accounts := "/v1/projects/{project}/serviceAccounts"
	resource("GET", accounts, "serviceAccounts.list", "iam.serviceAccounts.list", func(r *http.Request, _ dict) (any, error) {
		all := []dict{}
		for _, p := range f.under("projects/" + Project + "/serviceAccounts/") {
			all = append(all, f.items[p])
		}
		return dict{"accounts": all}, nil
	})
	resource("GET", accounts+"/{email}", "serviceAccounts.get", "iam.serviceAccounts.get", func(r *http.Request, _ dict) (any, error) {
		p := "projects/" + Project + "/serviceAccounts/" + r.PathValue("email")
		if !f.exists(p) {
			return nil, rpc(404, nil, "Unknown service account")
		}
		return f.items[p], nil
	})
	resource("POST", accounts, "serviceAccounts.put", "iam.serviceAccounts.create", func(r *http.Request, in dict) (any, error) {
		id, _ := in["accountId"].(string)
		if len(id) < 6 || len(id) > 30 || !rfc1035.MatchString(id) {
			return nil, rpc(400, nil, "Invalid service account ID (%s). Service account IDs must be between 6 and 30 characters, can contain lowercase alphanumeric characters and dashes, and must start with a letter.", id)
		}
		email := id + "@" + Project + ".iam.gserviceaccount.com"
		if f.items["projects/"+Project+"/serviceAccounts/"+email] != nil {
			return nil, rpc(409, nil, "Service account %s already exists within project projects/%s.", id, Project)
		}
		o := f.serviceAccount(email)
		if account, ok := in["serviceAccount"].(dict); ok {
			o["displayName"] = account["displayName"]
		}
		return o, nil
	})
	resource("DELETE", accounts+"/{email}", "serviceAccounts.delete", "iam.serviceAccounts.delete", func(r *http.Request, _ dict) (any, error) {
		p := "projects/" + Project + "/serviceAccounts/" + r.PathValue("email")
		if f.items[p] == nil {
			return nil, rpc(404, nil, "Unknown service account")
		}
		delete(f.items, p)
		return dict{}, nil
	})
}

// serviceAccount makes one.
func (f *Fake) serviceAccount(email string) dict {
	f.serial++
	p := "projects/" + Project + "/serviceAccounts/" + email
	f.items[p] = dict{"name": p, "projectId": Project, "uniqueId": fmt.Sprintf("1%020d", f.serial), "email": email, "etag": "MDEwMjE5MjA=", "oauth2ClientId": fmt.Sprint(f.serial)}
	if f.lag > 0 {
		f.young[p] = f.lag
	}
	return f.items[p]
}

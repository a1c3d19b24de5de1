package azurefake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

func noGroup(name string) *fakehttp.Reply {
	return refuse(404, "ResourceGroupNotFound", "Resource group '%s' could not be found.", name)
}

func (f *Fake) serveGroup(r *http.Request, t *target, in dict) (any, error) {
	key := strings.ToLower(groupID(t.group))
	g := f.items[key]
	if t.group == "" {
		var all []dict
		for _, id := range sorted(f.items) {
			if strings.Count(id, "/") == 4 {
				all = append(all, f.items[id])
			}
		}
		all, err := filter(r, all)
		if err != nil {
			return nil, err
		}
		return f.page(r, all)
	}
	if r.Method != "PUT" && (g == nil || f.isYoung(key)) {
		return nil, noGroup(t.group)
	}
	switch r.Method {
	case "HEAD":
		return &fakehttp.Reply{Status: 204}, nil
	case "GET":
		return g, nil
	case "PUT", "PATCH":
		if !groupName.MatchString(t.group) {
			return nil, refuse(400, "InvalidResourceGroup", "The provided resource group name '%s' is invalid: it can have up to 90 alphanumerics, underscores, parentheses, hyphens and periods, and not end with a period.", t.group)
		}
		if f.deleting[key] {
			return nil, refuse(409, "ResourceGroupBeingDeleted", "The resource group '%s' is in deprovisioning state and cannot perform this operation.", t.group)
		}
		if err := checkTags(in["tags"]); err != nil {
			return nil, err
		}
		location, _ := in["location"].(string)
		if r.Method == "PATCH" {
			if in["tags"] != nil {
				g["tags"] = in["tags"]
			}
			return g, nil
		}
		if err := checkLocation(location, "resource group"); err != nil {
			return nil, err
		}
		if g != nil && !strings.EqualFold(location, g["location"].(string)) {
			return nil, refuse(409, "InvalidResourceGroupLocation", "Invalid resource group location '%s'. The Resource group already exists in location '%s'.", location, g["location"])
		}
		status := 200
		if g == nil {
			status = 201
			g = dict{"id": groupID(t.group), "name": t.group, "type": "Microsoft.Resources/resourceGroups", "location": strings.ToLower(location), "properties": dict{"provisioningState": "Succeeded"}}
			f.items[key] = g
			f.makeYoung(key)
		}
		delete(g, "tags")
		if in["tags"] != nil {
			g["tags"] = in["tags"]
		}
		return &fakehttp.Reply{Status: status, Body: g}, nil
	case "DELETE":
		op, err := f.deleteGroup(r, key)
		if err != nil {
			return nil, err
		}
		return &fakehttp.Reply{Status: 202, Header: map[string]string{
			"Location": base(r) + "/subscriptions/" + Subscription + "/operationresults/" + op.name + "?api-version=" + r.URL.Query().Get("api-version"), "Retry-After": fmt.Sprint(f.retryAfter),
		}}, nil
	}
	return nil, refuse(405, "MethodNotAllowed", "%s", r.Method)
}

// deleteGroup begins the end of a group and of all that is in it.
func (f *Fake) deleteGroup(r *http.Request, key string) (*operation, error) {
	mine := func(id string) bool { return id == key || strings.HasPrefix(id, key+"/") }
	for id, v := range f.vms {
		if mine(id) && v.id != "" {
			if _, err := f.Terminate(r, v.id); err != nil {
				return nil, err
			}
		}
	}
	for id := range f.items {
		if mine(id) {
			f.deleting[id] = true
			if p, ok := f.items[id]["properties"].(dict); ok {
				p["provisioningState"] = "Deleting"
			}
		}
	}
	return f.begin(func() bool { return !f.busy(mine) }, func() {
		for id := range f.items {
			if mine(id) {
				f.forget(id)
			}
		}
		for id := range f.assignments {
			if mine(id) {
				delete(f.assignments, id)
			}
		}
	}), nil
}

// forget removes a thing and what was known of it.
func (f *Fake) forget(id string) {
	delete(f.items, id)
	delete(f.vms, id)
	delete(f.deleting, id)
	delete(f.young, id)
}

func (f *Fake) isYoung(id string) bool {
	if f.young[id] == 0 {
		return false
	}
	f.young[id]--
	return true
}

func (f *Fake) makeYoung(id string) {
	if f.lag > 0 {
		f.young[id] = f.lag
	}
}

// checkTags are the limits of
// https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources#limitations.
func checkTags(tags any) error {
	all, ok := tags.(dict)
	if tags != nil && !ok {
		return refuse(400, "InvalidRequestContent", "The request content was invalid and could not be deserialized: tags must be an object.")
	}
	if len(all) > 50 {
		return refuse(400, "TagCountExceedsLimit", "The number of tags '%d' exceeds the limit of 50.", len(all))
	}
	for k, v := range all {
		value, ok := v.(string)
		switch {
		case len(k) == 0 || len(k) > 512:
			return refuse(400, "InvalidTagName", "The tag name must be non-null, non-empty and have at most 512 characters.")
		case strings.ContainsAny(k, `<>%&\?/`):
			return refuse(400, "InvalidTagNameCharacters", "The tag names '%s' have reserved characters '<,>,%%,&,\\,?,/' or control characters.", k)
		case slices.ContainsFunc([]string{"microsoft", "azure", "windows"}, func(p string) bool { return strings.HasPrefix(strings.ToLower(k), p) }):
			return refuse(400, "ReservedTagName", "The tag name '%s' has a reserved prefix.", k)
		case !ok || len(value) > 256:
			return refuse(400, "InvalidTagValue", "The value of the tag '%s' must be a text of at most 256 characters.", k)
		}
	}
	return nil
}

func checkLocation(location, what string) error {
	if location == "" {
		return refuse(400, "LocationRequired", "The location property is required for this definition.")
	}
	if !slices.Contains(regions, strings.ToLower(strings.ReplaceAll(location, " ", ""))) {
		return refuse(400, "LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type '%s'. List of available regions for the resource type is '%s'.", location, what, strings.Join(regions, ","))
	}
	return nil
}

// filter picks from a list by $filter.
func filter(r *http.Request, all []dict) ([]dict, error) {
	text := r.URL.Query().Get("$filter")
	if text == "" {
		return all, nil
	}
	bad := refuse(400, "InvalidFilterInQueryString", "Invalid $filter '%s' specified in the query string.", text)
	var tests []func(dict) bool
	tag, other, or := "", false, false
	for rest := text; rest != ""; {
		m := clause.FindStringSubmatch(rest)
		if m == nil {
			return nil, bad
		}
		rest = rest[len(m[0]):]
		if m[4] != "" && strings.TrimSpace(rest) == "" {
			return nil, bad
		}
		or = or || strings.EqualFold(m[4], "or")
		field, equal, want := strings.ToLower(m[1]), strings.EqualFold(m[2], "eq"), strings.ReplaceAll(m[3], "''", "'")
		switch field {
		case "tagname":
			tag = want
			tests = append(tests, func(o dict) bool { _, ok := tagOf(o, want); return ok == equal })
		case "tagvalue":
			if tag == "" {
				return nil, bad
			}
			name := tag
			tests = append(tests, func(o dict) bool { v, ok := tagOf(o, name); return ok && (v == want) == equal })
		case "resourcetype", "location", "name", "resourcegroup":
			other = true
			tests = append(tests, func(o dict) bool {
				got, _ := o["type"].(string)
				switch field {
				case "location":
					got, _ = o["location"].(string)
				case "name":
					got, _ = o["name"].(string)
				case "resourcegroup":
					got = strings.Split(o["id"].(string), "/")[4]
				}
				return strings.EqualFold(got, want) == equal
			})
		default:
			return nil, bad
		}
	}
	if tag != "" && (other || or) {
		return nil, bad // a tag goes with nothing else
	}
	return slices.DeleteFunc(all, func(o dict) bool {
		test := func(fits func(dict) bool) bool { return fits(o) }
		if or {
			return !slices.ContainsFunc(tests, test)
		}
		return slices.ContainsFunc(tests, func(fits func(dict) bool) bool { return !fits(o) })
	}), nil
}

// tagOf finds a tag: the case of names does not count.
func tagOf(o dict, name string) (value string, ok bool) {
	tags, _ := o["tags"].(dict)
	for k, v := range tags {
		if strings.EqualFold(k, name) {
			return fmt.Sprint(v), true
		}
	}
	return "", false
}

// page is a list's answer, in pages if tests want them.
func (f *Fake) page(r *http.Request, all []dict) (any, error) {
	q := r.URL.Query()
	from, size := 0, f.pageSize
	if top := q.Get("$top"); top != "" {
		n, err := strconv.Atoi(top)
		if err != nil || n < 1 {
			return nil, refuse(400, "InvalidTopQueryParameter", "The $top query parameter '%s' is invalid.", top)
		}
		if size == 0 || n < size {
			size = n
		}
	}
	if token := q.Get("$skiptoken"); token != "" {
		n, err := strconv.Atoi(token)
		if err != nil || n < 0 || n > len(all) {
			return nil, refuse(400, "InvalidSkipToken", "The $skiptoken query parameter '%s' is invalid.", token)
		}
		from = n
	}
	to := len(all)
	if size > 0 {
		to = min(from+size, to)
	}
	out := dict{"value": append([]dict{}, all[from:to]...)}
	if to < len(all) {
		next := *r.URL
		q.Set("$skiptoken", strconv.Itoa(to))
		next.RawQuery = q.Encode()
		out["nextLink"] = base(r) + next.RequestURI()
	}
	return out, nil
}

// resources lists all kinds. After a filter by a tag no tags are told.
func (f *Fake) resources(r *http.Request, t *target) (any, error) {
	hidden := f.hidden(r)
	var all []dict
	for _, id := range sorted(f.items) {
		o := f.items[id]
		if strings.Count(id, "/") != 8 || t.group != "" && !strings.HasPrefix(id, strings.ToLower(groupID(t.group))+"/") || hidden[id] || f.isYoung(id) {
			continue
		}
		short := dict{}
		for _, field := range []string{"id", "name", "type", "location", "tags", "sku", "identity", "zones"} {
			if o[field] != nil {
				short[field] = o[field]
			}
		}
		all = append(all, short)
	}
	if t.group != "" && f.items[strings.ToLower(groupID(t.group))] == nil {
		return nil, noGroup(t.group)
	}
	all, err := filter(r, all)
	if err != nil {
		return nil, err
	}
	if strings.Contains(strings.ToLower(r.URL.Query().Get("$filter")), "tagname") {
		for n, o := range all {
			all[n] = maps.Clone(o)
			delete(all[n], "tags")
		}
	}
	return f.page(r, all)
}

package gcpfake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// resize is a request for machines of a group, which waits for room:
// https://cloud.google.com/compute/docs/reference/rest/v1/instanceGroupManagerResizeRequests.
type resize struct {
	path, group string
	body        dict
	state       string
	life        time.Duration // of its machines; 0: until they are deleted
}

// checkTemplate is https://cloud.google.com/compute/docs/reference/rest/v1/instanceTemplates/insert.
func checkTemplate(f *Fake, r *http.Request, in dict) error {
	p, _ := in["properties"].(dict)
	if p == nil {
		return missing("properties")
	}
	zone := "us-central1-a"
	if region := r.PathValue("region"); region != "" {
		zone = zonesOf[region][0]
	}
	rest := maps.Clone(p)
	if r.PathValue("region") == "" { // a network of a template of all regions is looked up when it is used
		rest["networkInterfaces"] = []any{dict{"network": "global/networks/default"}}
		if f.items["projects/"+Project+"/global/networks/default"] == nil {
			return nil
		}
	}
	_, err := f.check(zone, rest, true)
	return err
}

// templateUsers are the groups whose machines are made from a template.
func templateUsers(f *Fake, p string) (users []string) {
	for q, o := range f.items {
		if strings.Contains(q, "/instanceGroupManagers/") && path(Project, fmt.Sprint(o["instanceTemplate"])) == p {
			users = append(users, q)
		}
	}
	return users
}

// checkGroup is https://cloud.google.com/compute/docs/reference/rest/v1/instanceGroupManagers/insert.
func checkGroup(f *Fake, r *http.Request, in dict) error {
	t, _ := in["instanceTemplate"].(string)
	for _, v := range fakehttp.Items(in["versions"]) {
		if s, ok := mapOf(v)["instanceTemplate"].(string); ok && t == "" {
			t = s
		}
	}
	if t == "" {
		return missing("instanceTemplate")
	}
	if f.items[path(Project, t)] == nil {
		return notFound(path(Project, t))
	}
	n, err := strconv.Atoi(fmt.Sprint(in["targetSize"]))
	if in["targetSize"] == nil || err != nil || n < 0 {
		return invalid("targetSize", in["targetSize"], "The target size must be given, and not be negative.")
	}
	if n > 0 {
		return invalid("targetSize", n, "the fake makes machines of groups by resize requests only")
	}
	if in["baseInstanceName"] == nil {
		in["baseInstanceName"] = in["name"]
	}
	if base := fmt.Sprint(in["baseInstanceName"]); !rfc1035.MatchString(base) || len(base) > 58 {
		return invalid("baseInstanceName", base, "Must be a match of regex '[a-z](([-a-z0-9]{0,57})|([-a-z0-9]{0,51}-#{1,10}(\\[[0-9]{1,10}\\])?))'")
	}
	in["instanceTemplate"] = link(path(Project, t))
	return nil
}

// groupMembers are the machines of a group.
func (f *Fake) groupMembers(group string) (all []*vm) {
	for _, v := range f.alive() {
		if v.group == group {
			all = append(all, v)
		}
	}
	return all
}

// fulfilGroups makes what resize requests wait for: all of it, or nothing.
func (f *Fake) fulfilGroups() {
	for _, p := range slices.Sorted(maps.Keys(f.resizes)) {
		x := f.resizes[p]
		if x.state != "ACCEPTED" {
			continue
		}
		g := f.items[x.group]
		zone := strings.Split(x.group, "/")[3]
		properties := f.items[path(Project, g["instanceTemplate"].(string))]["properties"].(dict)
		plan, err := f.check(zone, properties, true)
		count, _ := strconv.Atoi(fmt.Sprint(x.body["resizeBy"]))
		var made []*vm
		for err == nil && len(made) < count {
			var v *vm
			f.serial++
			if v, err = f.create(zone, fmt.Sprintf("%v-%04x", g["baseInstanceName"], f.serial), plan); err == nil {
				v.group = x.group
				if x.life > 0 {
					v.until = time.Now().Add(x.life)
				}
				made = append(made, v)
			}
		}
		if err != nil { // there is no room yet
			for _, v := range made {
				_ = f.Cloud.Kill(v.id, "not enough")
			}
			continue
		}
		x.state = "SUCCEEDED"
		g["targetSize"] = len(f.groupMembers(x.group))
	}
}

// toldGroup is a group with its state.
func (f *Fake) toldGroup(p string) dict {
	o := maps.Clone(f.items[p])
	members := f.groupMembers(p)
	creating := 0
	for _, v := range members {
		if f.is(v, fluffyapi.Pending) {
			creating++
		}
	}
	waiting := slices.ContainsFunc(slices.Collect(maps.Values(f.resizes)), func(x *resize) bool { return x.group == p && x.state == "ACCEPTED" })
	o["targetSize"], o["status"] = len(members), dict{"isStable": creating == 0 && !waiting}
	o["currentActions"] = dict{"creating": creating, "none": len(members) - creating}
	o["instanceGroup"] = strings.Replace(link(p), "/instanceGroupManagers/", "/instanceGroups/", 1)
	return o
}

// resizing refuses a resize request that a group and its template do not fit:
// https://cloud.google.com/compute/docs/instance-groups/about-resize-requests-mig.
func (f *Fake) resizing(group string, in dict) error {
	g := f.items[group]
	p := mapOf(f.items[path(Project, g["instanceTemplate"].(string))]["properties"])
	count, _ := strconv.Atoi(fmt.Sprint(in["resizeBy"]))
	name, _ := in["name"].(string)
	switch {
	case known(in, "name description resizeBy requestedRunDuration instances", "") != nil:
		return known(in, "name description resizeBy requestedRunDuration instances", "")
	case checkName(name) != nil:
		return checkName(name)
	case count < 1:
		return invalid("resizeBy", in["resizeBy"], "Must be positive.")
	case mapOf(g["instanceLifecyclePolicy"])["defaultActionOnFailure"] != "DO_NOTHING":
		return refuse(400, "invalid", "Resize requests are not supported for managed instance groups with repairs: set instanceLifecyclePolicy.defaultActionOnFailure to DO_NOTHING.")
	case mapOf(p["reservationAffinity"])["consumeReservationType"] != "NO_RESERVATION":
		return refuse(400, "invalid", "Resize requests are only supported for instance templates whose reservationAffinity is NO_RESERVATION.")
	case mapOf(p["scheduling"])["provisioningModel"] == "SPOT" || mapOf(p["scheduling"])["preemptible"] == true:
		return refuse(400, "invalid", "Resize requests are not supported for Spot VMs.")
	}
	if d := mapOf(in["requestedRunDuration"]); in["requestedRunDuration"] != nil {
		seconds, err := strconv.Atoi(fmt.Sprint(d["seconds"]))
		if err != nil || seconds < 600 || seconds > 7*24*3600 {
			return invalid("requestedRunDuration", d["seconds"], "Must be between 10 minutes and 7 days.")
		}
	}
	return nil
}

func (f *Fake) groupRoutes() {
	base := "/compute/{version}/projects/{project}/zones/{zone}/instanceGroupManagers"
	about := func(method, tail, op, permission string, do func(r *http.Request, group string, in dict) (any, error)) {
		f.on(method, base+"/{name}"+tail, op, "compute.instanceGroupManagers."+permission, nil, func(r *http.Request, in dict) (any, error) {
			f.sweep()
			p := "projects/" + Project + "/" + scopeOf(r) + "/instanceGroupManagers/" + r.PathValue("name")
			if !f.exists(p) {
				return nil, notFound(p)
			}
			return do(r, p, in)
		})
	}
	f.on("GET", base, "instanceGroupManagers.list", "compute.instanceGroupManagers.list", nil, func(r *http.Request, _ dict) (any, error) {
		f.sweep()
		var all []dict
		for _, p := range f.under("projects/" + Project + "/" + scopeOf(r) + "/instanceGroupManagers/") {
			all = append(all, f.toldGroup(p))
		}
		return f.page(r, "compute#instanceGroupManagerList", all)
	})
	f.on("GET", "/compute/{version}/projects/{project}/aggregated/instanceGroupManagers", "instanceGroupManagers.list", "compute.instanceGroupManagers.list", nil, func(r *http.Request, _ dict) (any, error) {
		f.sweep()
		var all []scoped
		for _, p := range slices.Sorted(maps.Keys(f.items)) {
			if s := strings.Split(p, "/"); len(s) == 6 && s[4] == "instanceGroupManagers" {
				all = append(all, scoped{"zones/" + s[3], f.toldGroup(p)})
			}
		}
		return f.aggregate(r, "compute#instanceGroupManagerAggregatedList", "instanceGroupManagers", all)
	})
	f.on("POST", base, "instanceGroupManagers.put", "compute.instanceGroupManagers.create", nil, func(r *http.Request, in dict) (any, error) {
		name, _ := in["name"].(string)
		p := "projects/" + Project + "/" + scopeOf(r) + "/instanceGroupManagers/" + name
		const fields = "name description baseInstanceName instanceTemplate versions targetSize targetPools namedPorts autoHealingPolicies updatePolicy instanceLifecyclePolicy statefulPolicy distributionPolicy targetSizePolicy standbyPolicy allInstancesConfig listManagedInstancesResults zone instanceFlexibilityPolicy resourcePolicies targetStoppedSize targetSuspendedSize fingerprint"
		if no := cmpError(known(in, fields, ""), checkName(name)); no != nil {
			return nil, no
		}
		if no := checkGroup(f, r, in); no != nil {
			return nil, no
		}
		if f.items[p] != nil {
			return nil, refuse(409, "alreadyExists", "The resource '%s' already exists", p)
		}
		op := f.begin(r, "insert", scopeOf(r), p, "")
		if op.no = f.fails("insert"); op.no == nil {
			op.targetID = f.keep("compute#instanceGroupManager", false, p, in)["id"].(string)
		}
		return op.told(), nil
	})
	about("GET", "", "instanceGroupManagers.get", "get", func(r *http.Request, p string, _ dict) (any, error) { return f.toldGroup(p), nil })
	about("DELETE", "", "instances.terminate", "delete", func(r *http.Request, p string, _ dict) (any, error) {
		for _, v := range f.groupMembers(p) {
			if _, err := f.Terminate(r, v.id); err != nil {
				return nil, err
			}
		}
		op := f.begin(r, "delete", scopeOf(r), p, fmt.Sprint(f.items[p]["id"]))
		op.after = func() bool { f.sweep(); return len(f.groupMembers(p)) == 0 }
		op.effect = func() {
			delete(f.items, p)
			for q, x := range f.resizes {
				if x.group == p {
					delete(f.resizes, q)
				}
			}
		}
		return op.told(), nil
	})
	about("POST", "/listManagedInstances", "instances.list", "get", func(r *http.Request, p string, _ dict) (any, error) {
		all := []any{}
		instances, err := f.Instances(r)
		for _, i := range instances {
			if v := f.vms[i.ID]; v != nil && !v.gone && v.group == p {
				told := f.told(i)
				action := "NONE"
				if i.State == fluffyapi.Pending {
					action = "CREATING"
				}
				all = append(all, dict{"instance": link(v.path()), "id": v.id, "name": v.name, "instanceStatus": told["status"], "currentAction": action})
			}
		}
		return dict{"managedInstances": all}, err
	})
	resizeRequest := func(r *http.Request, p string) (*resize, error) {
		x := f.resizes[p+"/resizeRequests/"+r.PathValue("request")]
		if x == nil {
			return nil, notFound(p + "/resizeRequests/" + r.PathValue("request"))
		}
		return x, nil
	}
	told := func(x *resize) dict {
		o := maps.Clone(x.body)
		o["kind"], o["selfLink"], o["state"], o["zone"] = "compute#instanceGroupManagerResizeRequest", link(x.path), x.state, link(strings.Join(strings.Split(x.path, "/")[:4], "/"))
		return o
	}
	about("GET", "/resizeRequests", "instanceGroupManagers.list", "get", func(r *http.Request, p string, _ dict) (any, error) {
		var all []dict
		for _, q := range slices.Sorted(maps.Keys(f.resizes)) {
			if f.resizes[q].group == p {
				all = append(all, told(f.resizes[q]))
			}
		}
		return f.page(r, "compute#instanceGroupManagerResizeRequestList", all)
	})
	about("GET", "/resizeRequests/{request}", "instanceGroupManagers.get", "get", func(r *http.Request, p string, _ dict) (any, error) {
		x, no := resizeRequest(r, p)
		if no != nil {
			return nil, no
		}
		return told(x), nil
	})
	about("POST", "/resizeRequests", "instances.create", "update", func(r *http.Request, p string, in dict) (any, error) {
		if no := f.resizing(p, in); no != nil {
			return nil, no
		}
		q := p + "/resizeRequests/" + in["name"].(string)
		if f.resizes[q] != nil {
			return nil, refuse(409, "alreadyExists", "The resource '%s' already exists", q)
		}
		x := &resize{path: q, group: p, body: in, state: "CREATING"}
		seconds, _ := strconv.Atoi(fmt.Sprint(mapOf(in["requestedRunDuration"])["seconds"]))
		x.life = time.Duration(seconds) * time.Second
		f.resizes[q] = x
		op := f.begin(r, "insert", scopeOf(r), q, f.newID())
		if op.no = f.fails("insert"); op.no != nil {
			delete(f.resizes, q)
		}
		op.effect = func() { x.state = "ACCEPTED" }
		return op.told(), nil
	})
	about("POST", "/resizeRequests/{request}/cancel", "instanceGroupManagers.put", "update", func(r *http.Request, p string, _ dict) (any, error) {
		x, no := resizeRequest(r, p)
		if no != nil {
			return nil, no
		}
		if x.state != "ACCEPTED" && x.state != "CREATING" {
			return nil, refuse(400, "invalid", "The resize request '%s' cannot be cancelled because its state is %s.", x.path, x.state)
		}
		x.state = "CANCELLED"
		return f.begin(r, "cancel", scopeOf(r), x.path, "").told(), nil
	})
	about("DELETE", "/resizeRequests/{request}", "instanceGroupManagers.delete", "update", func(r *http.Request, p string, _ dict) (any, error) {
		x, no := resizeRequest(r, p)
		if no != nil {
			return nil, no
		}
		if x.state == "ACCEPTED" || x.state == "CREATING" {
			return nil, refuse(400, "invalid", "The resize request '%s' cannot be deleted because its state is %s; cancel it first.", x.path, x.state)
		}
		delete(f.resizes, x.path)
		return f.begin(r, "delete", scopeOf(r), x.path, "").told(), nil
	})
}

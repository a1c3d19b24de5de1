package azurefake

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// kind is one of the kinds of resources.
type kind struct {
	name   *regexp.Regexp
	why    string // names must be so
	code   string // of the refusal of a name
	child  bool   // of another resource, without location and tags of its own
	within bool   // of another resource, with both
	etag   bool
	sync   bool // it is made at once
	check  func(f *Fake, id string, in, old dict) error
	// users are what keeps one from being deleted, and the refusal.
	users func(f *Fake, id string) error
	told  func(f *Fake, id string, o dict) dict
}

var (
	netName = regexp.MustCompile(`^[a-zA-Z0-9](?:[\w.-]{0,78}\w)?$`)
	vmName  = regexp.MustCompile(`^[a-zA-Z0-9](?:[\w.-]{0,62}[a-zA-Z0-9_-])?$`)
	idName  = regexp.MustCompile(`^[a-zA-Z0-9][\w-]{2,127}$`)
)

const netWhy = "The name can be up to 80 characters long. It must begin with a word character, and it must end with a word character or with '_'. The name may contain word characters or '.', '-', '_'."

// kinds are those of https://learn.microsoft.com/rest/api/virtualnetwork/ (virtual-networks,
// subnets, network-security-groups, security-rules, public-ip-addresses, network-interfaces),
// https://learn.microsoft.com/rest/api/compute/ (virtual-machines, disks) and
// https://learn.microsoft.com/rest/api/managedidentity/user-assigned-identities.
var kinds = func() map[string]*kind {
	network := func(k kind) *kind {
		k.name, k.why, k.code, k.etag = netName, netWhy, "InvalidResourceName", true
		return &k
	}
	return map[string]*kind{
		"microsoft.network/virtualnetworks":                                network(kind{check: checkVNet, users: vnetUsers, told: withChildren("subnets")}),
		"microsoft.network/virtualnetworks/subnets":                        network(kind{child: true, check: checkSubnet, users: subnetUsers}),
		"microsoft.network/networksecuritygroups":                          network(kind{check: checkNSG, users: nsgUsers, told: withChildren("securityRules")}),
		"microsoft.network/networksecuritygroups/securityrules":            network(kind{child: true, check: checkRule}),
		"microsoft.network/publicipaddresses":                              network(kind{check: checkPublicIP, users: publicIPUsers, told: publicIPTold}),
		"microsoft.network/networkinterfaces":                              network(kind{check: checkNIC, users: nicUsers, told: nicTold}),
		"microsoft.compute/virtualmachines":                                {name: vmName, why: "The entity name 'vmName' is invalid according to its validation rule: ^[^_\\W][\\w-._]{0,79}(?<![-.])$.", code: "InvalidParameter"},
		"microsoft.compute/disks":                                          {name: netName, why: netWhy, code: "InvalidParameter", check: checkDisk, users: diskUsers},
		"microsoft.compute/snapshots":                                      {name: netName, why: netWhy, code: "InvalidParameter", check: checkSnapshot},
		"microsoft.compute/proximityplacementgroups":                       {name: netName, why: netWhy, code: "InvalidParameter", sync: true, check: checkPlacement, users: placementUsers},
		"microsoft.compute/capacityreservationgroups":                      {name: netName, why: netWhy, code: "InvalidParameter", sync: true},
		"microsoft.compute/capacityreservationgroups/capacityreservations": {name: netName, why: netWhy, code: "InvalidParameter", sync: true, within: true, check: checkReservation, users: reservationUsers, told: reservationTold},
		"microsoft.managedidentity/userassignedidentities":                 {name: idName, why: "The name must have 3 to 128 alphanumerics, hyphens and underscores, and begin with an alphanumeric.", code: "InvalidResourceName", sync: true, check: makeIdentity},
	}
}()

// serveResource is what all kinds have in common.
func (f *Fake) serveResource(r *http.Request, t *target, k *kind, in dict) (any, error) {
	id := t.id()
	key := strings.ToLower(id)
	o := f.items[key]
	if len(t.names) < len(t.kinds) {
		if r.Method != "GET" {
			return nil, refuse(405, "HttpMethodNotAllowed", "The http method '%s' is not supported for a resource collection.", r.Method)
		}
		return f.listKind(r, t, k)
	}
	if k.child || k.within {
		parent := strings.ToLower(id[:strings.LastIndex(id[:strings.LastIndex(id, "/")], "/")])
		if f.items[parent] == nil {
			return nil, refuse(404, "ParentResourceNotFound", "Failed to perform '%s' on resource(s) of type '%s', because the parent resource '%s' could not be found.", strings.ToLower(r.Method), t.kind(), parent)
		}
	}
	if r.Method != "PUT" && r.Method != "DELETE" && (o == nil || f.isYoung(key)) {
		if k.child {
			return nil, refuse(404, "NotFound", "Resource %s not found.", id)
		}
		return nil, refuse(404, "ResourceNotFound", "The Resource '%s/%s/%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", spell(t.namespace), spell(t.kinds[0]), t.name(), t.group)
	}
	if vmKind := t.kinds[0] == "virtualmachines"; vmKind {
		return f.serveVM(r, t, id, in)
	}
	if t.verb != "" {
		return nil, refuse(404, "InvalidResourceType", "there is no %s", r.URL.Path)
	}
	if match := r.Header.Get("If-Match"); o != nil && k.etag && r.Method != "GET" && match != "" && match != "*" && match != o["etag"] {
		return nil, refuse(412, "PreconditionFailed", "Precondition failed. Etag provided in if-match header %s does not match etag %s of resource %s in NRP data store.", match, o["etag"], id)
	}
	if f.deleting[key] && r.Method == "PUT" {
		return nil, refuse(409, "AnotherOperationInProgress", "Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: %s", base(r))
	}
	switch r.Method {
	case "GET":
		return f.tell(k, key), nil
	case "PUT":
		return f.put(r, t, k, id, in, o)
	case "PATCH":
		if err := checkTags(in["tags"]); err != nil {
			return nil, err
		}
		if in["tags"] != nil {
			o["tags"] = in["tags"]
		}
		// Of a disk the performance tier can be changed: https://learn.microsoft.com/rest/api/compute/disks/update
		if change, ok := in["properties"].(dict); ok && t.kind() == "disks" && change["tier"] != nil {
			o["properties"].(dict)["tier"] = change["tier"]
		}
		f.stamp(k, o)
		return f.tell(k, key), nil
	case "DELETE":
		if o == nil {
			return &fakehttp.Reply{Status: 204}, nil
		}
		if k.users != nil {
			if err := k.users(f, key); err != nil {
				return nil, err
			}
		}
		if k.sync {
			f.forget(key)
			return &fakehttp.Reply{Status: 200}, nil
		}
		if no := f.fails(t.kinds[len(t.kinds)-1] + ".delete"); no != nil {
			op := f.begin(nil, nil)
			op.no = no
			return f.accepted(r, t, 202, op, nil), nil
		}
		f.deleting[key] = true
		o["properties"].(dict)["provisioningState"] = "Deleting"
		op := f.begin(nil, func() {
			for child := range f.items {
				if strings.HasPrefix(child, key+"/") {
					f.forget(child)
				}
			}
			f.forget(key)
		})
		return f.accepted(r, t, 202, op, nil), nil
	}
	return nil, refuse(405, "MethodNotAllowed", "%s", r.Method)
}

// checkResource is what is asked of all bodies.
func (f *Fake) checkResource(t *target, k *kind, in, old dict) error {
	if !k.name.MatchString(t.name()) {
		return refuse(400, k.code, "Resource name %s is invalid. %s", t.name(), k.why)
	}
	if k.child {
		return nil
	}
	location, _ := in["location"].(string)
	what := spell(t.namespace) + "/" + spell(t.kinds[0])
	if err := checkLocation(location, what); err != nil {
		return err
	}
	if old != nil && !strings.EqualFold(old["location"].(string), location) {
		return refuse(409, "InvalidResourceLocation", "The resource '%s' already exists in location '%s' in resource group '%s'. A resource with the same name cannot be created in location '%s'. Please select a new resource name.", t.name(), old["location"], t.group, location)
	}
	return checkTags(in["tags"])
}

func (f *Fake) put(r *http.Request, t *target, k *kind, id string, in, old dict) (any, error) {
	key := strings.ToLower(id)
	if err := f.checkResource(t, k, in, old); err != nil {
		return nil, err
	}
	in = maps.Clone(in)
	p, _ := in["properties"].(dict)
	if p == nil {
		p = dict{}
	}
	in["properties"] = p
	if k.check != nil {
		if err := k.check(f, id, in, old); err != nil {
			return nil, err
		}
	}
	what := spell(t.namespace)
	for _, part := range t.kinds {
		what += "/" + spell(part)
	}
	in["id"], in["name"], in["type"] = id, t.name(), what
	if old != nil { // whose name is shown as it was made
		in["id"], in["name"] = old["id"], old["name"]
	}
	if location, ok := in["location"].(string); ok {
		in["location"] = strings.ToLower(location)
	}
	for _, lost := range []string{"etag", "systemData"} {
		delete(in, lost)
	}
	f.items[key] = in
	if old == nil {
		f.makeYoung(key)
	}
	f.children(k, key, in)
	f.stamp(k, in)
	p["provisioningState"], p["resourceGuid"] = "Succeeded", f.guid()
	status := 200
	if old == nil {
		status = 201
	}
	if k.sync {
		return &fakehttp.Reply{Status: status, Body: f.tell(k, key)}, nil
	}
	p["provisioningState"] = "Updating"
	op := f.begin(nil, func() {
		if f.items[key] != nil && !f.deleting[key] {
			p["provisioningState"] = "Succeeded"
		}
	})
	if no := f.fails(t.kinds[len(t.kinds)-1] + ".put"); no != nil {
		op.no, op.effect = no, nil
		p["provisioningState"] = "Failed"
	}
	return f.accepted(r, t, status, op, f.tell(k, key)), nil
}

// stamp gives a resource another etag.
func (f *Fake) stamp(k *kind, o dict) {
	if k.etag {
		o["etag"] = `W/"` + f.guid() + `"`
	}
}

func (f *Fake) tell(k *kind, key string) dict {
	o := f.items[key]
	if k.told != nil {
		return k.told(f, key, o)
	}
	return o
}

// listKind lists a group's, the subscription's or a parent's.
func (f *Fake) listKind(r *http.Request, t *target, k *kind) (any, error) {
	prefix, depth := "/subscriptions/", 8
	if t.group != "" {
		prefix = strings.ToLower(t.scope) + "/"
	}
	what := "/providers/" + t.namespace + "/" + t.kinds[0] + "/"
	if k.child || k.within {
		prefix, depth = strings.ToLower(t.id())+"/"+t.kinds[1]+"/", 10
		what = prefix
		if f.items[strings.ToLower(t.id())] == nil {
			return nil, refuse(404, "ResourceNotFound", "The Resource '%s' under resource group '%s' was not found.", t.name(), t.group)
		}
	}
	hidden := map[string]bool{}
	if t.kinds[0] == "virtualmachines" {
		hidden = f.hidden(r)
	}
	var all []dict
	for _, id := range sorted(f.items) {
		if strings.HasPrefix(id, prefix) && strings.Contains(id, what) && strings.Count(id, "/") == depth && !hidden[id] && !f.isYoung(id) {
			if t.kinds[0] == "virtualmachines" {
				all = append(all, f.tellVM(r, id))
			} else {
				all = append(all, f.tell(k, id))
			}
		}
	}
	return f.page(r, all)
}

// children keeps those that came with the body as resources of their own.
func (f *Fake) children(k *kind, key string, in dict) {
	field, of := "subnets", "virtualNetworks/subnets"
	switch {
	case strings.Contains(key, "/networksecuritygroups/") && !k.child:
		field, of = "securityRules", "networkSecurityGroups/securityRules"
	case !strings.Contains(key, "/virtualnetworks/") || k.child:
		return
	}
	p := in["properties"].(dict)
	keep := map[string]bool{}
	for _, x := range fakehttp.Items(p[field]) {
		c, _ := x.(dict)
		id := in["id"].(string) + "/" + field + "/" + fmt.Sprint(c["name"])
		low := strings.ToLower(id)
		keep[low] = true
		child := dict{"id": id, "name": c["name"], "type": "Microsoft.Network/" + of, "properties": c["properties"], "etag": `W/"` + f.guid() + `"`}
		if child["properties"] == nil {
			child["properties"] = dict{}
		}
		child["properties"].(dict)["provisioningState"] = "Succeeded"
		f.items[low] = child
	}
	for id := range f.items {
		if strings.HasPrefix(id, key+"/"+strings.ToLower(field)+"/") && !keep[id] {
			f.forget(id)
		}
	}
	delete(p, field)
}

// withChildren shows them in their parent.
func withChildren(field string) func(f *Fake, key string, o dict) dict {
	return func(f *Fake, key string, o dict) dict {
		out, p := maps.Clone(o), maps.Clone(o["properties"].(dict))
		all := []dict{}
		for _, id := range sorted(f.items) {
			if strings.HasPrefix(id, key+"/"+strings.ToLower(field)+"/") {
				all = append(all, f.items[id])
			}
		}
		p[field] = all
		if field == "securityRules" {
			p["defaultSecurityRules"] = []any{dict{"name": "DenyAllInBound", "properties": dict{"priority": 65500, "access": "Deny", "direction": "Inbound", "protocol": "*"}}}
		}
		out["properties"] = p
		return out
	}
}

package azurefake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// target is what a call is about. Ids are the same whatever their case, but for the
// names in them, which are shown as they were made.
type target struct {
	top       string   // what is directly below the subscription, if nothing else
	sub       string   // of the path; "": none
	group     string   // "": none
	scope     string   // what the provider's part of the path is below
	namespace string   // in lower case
	kinds     []string // in lower case
	names     []string
	verb      string // what follows a name and is no kind
}

// kind is "virtualnetworks/subnets".
func (t *target) kind() string { return strings.Join(t.kinds, "/") }

func (t *target) name() string {
	if len(t.names) == 0 {
		return ""
	}
	return t.names[len(t.names)-1]
}

// spelled are namespaces and kinds as ids show them.
var spelled = map[string]string{
	"microsoft.compute": "Microsoft.Compute", "microsoft.network": "Microsoft.Network", "microsoft.managedidentity": "Microsoft.ManagedIdentity", "microsoft.authorization": "Microsoft.Authorization", "microsoft.resources": "Microsoft.Resources",
	"virtualmachines": "virtualMachines", "disks": "disks", "snapshots": "snapshots", "virtualnetworks": "virtualNetworks", "subnets": "subnets", "networksecuritygroups": "networkSecurityGroups", "securityrules": "securityRules", "publicipaddresses": "publicIPAddresses",
	"networkinterfaces": "networkInterfaces", "userassignedidentities": "userAssignedIdentities", "roleassignments": "roleAssignments", "proximityplacementgroups": "proximityPlacementGroups", "capacityreservationgroups": "capacityReservationGroups", "capacityreservations": "capacityReservations", "resourcegroups": "resourceGroups",
}

func spell(s string) string {
	if w, ok := spelled[s]; ok {
		return w
	}
	return s
}

// id is the resource's.
func (t *target) id() string {
	var b strings.Builder
	b.WriteString(t.scope + "/providers/" + spell(t.namespace))
	for n, name := range t.names {
		b.WriteString("/" + spell(t.kinds[n]) + "/" + name)
	}
	return b.String()
}

func groupID(group string) string {
	return "/subscriptions/" + Subscription + "/resourceGroups/" + group
}

// collections are the kinds that are lists or have lists, and no verbs.
var collections = []string{
	"virtualmachines", "disks", "snapshots", "skus", "locations", "usages", "operations", "publishers", "artifacttypes", "offers", "versions", "virtualnetworks", "subnets", "networksecuritygroups", "securityrules", "publicipaddresses", "networkinterfaces",
	"userassignedidentities", "roleassignments", "roledefinitions", "permissions", "communitygalleries", "images", "proximityplacementgroups", "capacityreservationgroups", "capacityreservations", "tags",
}

// parse reads a path.
func parse(path string) (*target, bool) {
	t := &target{}
	path = strings.TrimSuffix(path, "/")
	low := strings.ToLower(path)
	at := strings.LastIndex(low, "/providers")
	head, rest := path, ""
	if at >= 0 && (len(low) == at+10 || low[at+10] == '/') {
		head, rest = path[:at], strings.Trim(path[at+10:], "/")
		t.top = "providers"
	}
	t.scope = head
	s := strings.Split(strings.Trim(head, "/"), "/")
	if len(s) == 1 && strings.EqualFold(s[0], "tenants") {
		t.top = "tenants"
		return t, true
	}
	if !strings.EqualFold(s[0], "subscriptions") {
		return nil, false
	}
	if len(s) > 1 {
		t.sub = s[1]
	}
	if len(s) > 2 {
		t.top = strings.ToLower(s[2])
		switch {
		case t.top == "resourcegroups" && len(s) > 3:
			t.group = s[3]
			if len(s) > 4 && at < 0 {
				t.verb = strings.ToLower(strings.Join(s[4:], "/"))
			}
		case len(s) > 3:
			t.verb = strings.Join(s[3:], "/")
		}
	}
	if rest == "" {
		return t, true
	}
	p := strings.Split(rest, "/")
	t.namespace, p = strings.ToLower(p[0]), p[1:]
	for len(p) > 0 {
		kind := strings.ToLower(p[0])
		if !slices.Contains(collections, kind) {
			t.verb = strings.Join(p, "/")
			break
		}
		t.kinds = append(t.kinds, kind)
		if len(p) > 1 {
			t.names = append(t.names, p[1])
			p = p[2:]
		} else {
			p = nil
		}
	}
	return t, true
}

// operationOf is how faults name a call.
func (f *Fake) operationOf(r *http.Request) string {
	t, ok := parse(r.URL.Path)
	if !ok {
		return "unknown"
	}
	kind := "resources"
	if len(t.kinds) > 0 {
		kind = t.kinds[len(t.kinds)-1]
	}
	if kind == "virtualmachines" {
		kind = "instances"
	}
	switch {
	case t.namespace == "" && t.group != "" && t.verb == "":
		if r.Method == "DELETE" && f.hasMachines(t.group) {
			return "instances.terminate"
		}
		kind = "resourcegroups"
	case kind == "instances" && r.Method == "DELETE":
		return "instances.terminate"
	case kind == "instances" && r.Method == "PUT":
		made := false
		f.Locked(func() { made = f.items[strings.ToLower(t.id())] != nil })
		if made {
			return "instances.put"
		}
		return "instances.create"
	case kind == "instances" && r.Method == "POST" && (strings.EqualFold(t.verb, "deallocate") || strings.EqualFold(t.verb, "poweroff")):
		return "instances.stop"
	case kind == "instances" && r.Method == "POST" && strings.EqualFold(t.verb, "start"):
		return "instances.start"
	}
	switch {
	case r.Method == "DELETE":
		return kind + ".delete"
	case r.Method != "GET":
		return kind + ".put"
	case len(t.names) == len(t.kinds) && len(t.names) > 0:
		return kind + ".get"
	}
	return kind + ".list"
}

func (f *Fake) hasMachines(group string) (has bool) {
	f.Locked(func() {
		for id := range f.vms {
			has = has || strings.HasPrefix(id, strings.ToLower(groupID(group))+"/")
		}
	})
	return has
}

// may reports whether the account may do something.
func (f *Fake) may(action string) bool {
	f.asked[action] = true
	if f.readOnly && !strings.HasSuffix(action, "/read") {
		return false
	}
	for denied := range f.denied {
		if strings.EqualFold(denied, action) {
			return false
		}
	}
	return true
}

// action is what a call does, as roles name it:
// https://learn.microsoft.com/azure/role-based-access-control/resource-provider-operations.
func (t *target) action(method string) string {
	what := "Microsoft.Resources/subscriptions"
	switch {
	case t.namespace != "" && len(t.kinds) > 0:
		what = spell(t.namespace)
		for _, k := range t.kinds {
			what += "/" + spell(k)
		}
	case t.group != "" || t.top == "resourcegroups":
		what += "/resourceGroups"
	case t.namespace != "" && method == "GET":
		what += "/providers"
	case t.namespace != "":
		what = spell(t.namespace)
	}
	switch method {
	case "GET":
		return what + "/read"
	case "DELETE":
		return what + "/delete"
	case "POST":
		return what + "/" + strings.ToLower(t.verb) + "/action"
	}
	return what + "/write"
}

// serve answers a call of Azure Resource Manager, with the checks in its order.
func (f *Fake) serve(r *http.Request) (any, error) {
	t, ok := parse(r.URL.Path)
	if !ok {
		return nil, refuse(404, "InvalidResourceType", "The resource type could not be found in the namespace '%s'.", r.URL.Path)
	}
	f.sweep()
	if err := checkVersion(r, t); err != nil {
		return nil, err
	}
	if t.sub != "" && t.sub != Subscription {
		if !guid.MatchString(t.sub) {
			return nil, refuse(400, "InvalidSubscriptionId", "The provided subscription identifier '%s' is malformed or invalid.", t.sub)
		}
		return nil, refuse(404, "SubscriptionNotFound", "The subscription '%s' could not be found.", t.sub)
	}
	if action := t.action(r.Method); t.sub != "" && !f.may(action) {
		return nil, f.forbidden(r, action, r.URL.Path)
	}
	if f.state != "Enabled" && r.Method != "GET" && r.Method != "HEAD" && r.Method != "DELETE" {
		return nil, refuse(409, "ReadOnlyDisabledSubscription", "The subscription '%s' is disabled and therefore marked as read only. You cannot perform any write actions on this subscription until it is re-enabled.", Subscription)
	}
	var in dict
	if r.Method == "PUT" || r.Method == "PATCH" || r.Method == "POST" {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if len(text) == 0 && r.Method == "POST" {
			text = []byte("{}")
		}
		if err := json.Unmarshal(text, &in); err != nil {
			return nil, refuse(400, "InvalidRequestContent", "The request content was invalid and could not be deserialized: '%v'.", err)
		}
	}
	if t.namespace == "" {
		return f.serveTop(r, t, in)
	}
	if t.namespace == "microsoft.authorization" {
		return f.serveRoles(r, t, in)
	}
	if len(t.kinds) == 0 {
		return f.serveProvider(r, t)
	}
	if !f.providers[t.namespace] {
		return nil, refuse(409, "MissingSubscriptionRegistration", "The subscription is not registered to use namespace '%s'. See https://aka.ms/rps-not-found for how to register subscriptions.", spell(t.namespace))
	}
	if t.kinds[0] == "locations" {
		return f.serveLocation(r, t)
	}
	if t.kind() == "skus" {
		return f.serveSKUs(r)
	}
	if t.group != "" {
		g := f.items[strings.ToLower(groupID(t.group))]
		if g == nil {
			return nil, noGroup(t.group)
		}
		if f.deleting[strings.ToLower(groupID(t.group))] && r.Method != "GET" && r.Method != "DELETE" {
			return nil, refuse(409, "ResourceGroupBeingDeleted", "The resource group '%s' is in deprovisioning state and cannot perform this operation.", t.group)
		}
		t.scope = g["id"].(string) // as it was made
	}
	k := kinds[t.namespace+"/"+t.kind()]
	if k == nil {
		return nil, refuse(404, "InvalidResourceType", "The resource type '%s' could not be found in the namespace '%s' for api version '%s'.", t.kind(), spell(t.namespace), r.URL.Query().Get("api-version"))
	}
	return f.serveResource(r, t, k, in)
}

var guid = regexp.MustCompile(`^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)

// operation is something that takes time:
// https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations.
type operation struct {
	name     string
	began    time.Time
	ends     time.Time
	after    func() bool // it is over, too; nil: by the time alone
	no       *fakehttp.Reply
	finished time.Time
	effect   func()
}

// failure makes operations fail.
type failure struct {
	operation string // "virtualmachines.put"; "": any
	no        *fakehttp.Reply
	left      int
}

func (op *operation) done() bool {
	if op.finished.IsZero() && !time.Now().Before(op.ends) && (op.after == nil || op.after()) {
		op.finished = time.Now()
		if op.effect != nil {
			op.effect()
		}
	}
	return !op.finished.IsZero()
}

func (f *Fake) guid() string {
	f.serial++
	return fmt.Sprintf("c0ffee00-1111-4222-8333-%012x", f.serial)
}

// begin starts an operation.
func (f *Fake) begin(after func() bool, effect func()) *operation {
	op := &operation{name: f.guid(), began: time.Now(), ends: time.Now().Add(f.took), after: after, effect: effect}
	f.operations[op.name] = op
	return op
}

// fails takes the failure that tests want of the next such operation; nil: none.
func (f *Fake) fails(operation string) *fakehttp.Reply {
	for n, x := range f.failing {
		if x.operation == operation || x.operation == "" {
			if x.left--; x.left <= 0 {
				f.failing = slices.Delete(f.failing, n, n+1)
			}
			return x.no
		}
	}
	return nil
}

// base is where a call came to: links lead back there.
func base(r *http.Request) string {
	if strings.HasPrefix(r.Host, "management.azure.com") || r.TLS != nil { // with its port, too
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// accepted is the answer to a call that goes on: how to hear of its end is in the headers.
func (f *Fake) accepted(r *http.Request, t *target, status int, op *operation, body any) *fakehttp.Reply {
	v := "?api-version=" + r.URL.Query().Get("api-version")
	at := base(r) + "/subscriptions/" + Subscription + "/providers/" + spell(t.namespace) + "/locations/eastus/"
	h := map[string]string{"Azure-AsyncOperation": at + "operations/" + op.name + v, "Retry-After": fmt.Sprint(f.retryAfter), "x-ms-request-id": op.name}
	if status == 202 {
		h["Location"] = at + "operations/" + op.name + v + "&monitor=true"
	}
	return &fakehttp.Reply{Status: status, Header: h, Body: body}
}

// serveOperation tells of an operation.
func (f *Fake) serveOperation(r *http.Request, name string) (any, error) {
	op := f.operations[name]
	if op == nil {
		return nil, refuse(404, "OperationNotFound", "The operation '%s' was not found.", name)
	}
	later := map[string]string{"Retry-After": fmt.Sprint(f.retryAfter)}
	monitor := r.URL.Query().Get("monitor") == "true"
	out := dict{"name": op.name, "startTime": op.began.UTC().Format(time.RFC3339Nano), "status": "InProgress"}
	switch {
	case !op.done() && monitor:
		return &fakehttp.Reply{Status: 202, Header: later}, nil
	case !op.done():
		return &fakehttp.Reply{Status: 200, Header: later, Body: out}, nil
	case op.no != nil && monitor:
		return op.no, nil
	case monitor:
		return &fakehttp.Reply{Status: 204}, nil
	}
	out["status"], out["endTime"] = "Succeeded", op.finished.UTC().Format(time.RFC3339Nano)
	if op.no != nil {
		out["status"], out["error"] = "Failed", op.no.Body.(dict)["error"]
	}
	return out, nil
}

// serveTop are subscriptions, resource groups and lists over all kinds:
// https://learn.microsoft.com/rest/api/resources/ (subscriptions, resource-groups, resources, providers).
func (f *Fake) serveTop(r *http.Request, t *target, in dict) (any, error) {
	subscription := dict{
		"id": "/subscriptions/" + Subscription, "subscriptionId": Subscription, "tenantId": Tenant, "displayName": "Fake", "state": f.state, "authorizationSource": "RoleBased",
		"subscriptionPolicies": dict{"locationPlacementId": "Public_2014-09-01", "quotaId": "PayAsYouGo_2014-09-01", "spendingLimit": "Off"},
	}
	switch {
	case t.top == "tenants":
		return dict{"value": []any{dict{"id": "/tenants/" + Tenant, "tenantId": Tenant, "displayName": "Fake"}}}, nil
	case t.top == "operationresults":
		op := f.operations[t.verb]
		if op == nil {
			return nil, refuse(404, "NotFound", "The operation result was not found.")
		}
		if !op.done() {
			return &fakehttp.Reply{Status: 202, Header: map[string]string{"Location": base(r) + r.URL.RequestURI(), "Retry-After": fmt.Sprint(f.retryAfter)}}, nil
		}
		return &fakehttp.Reply{Status: 200}, nil
	case t.top == "locations":
		all := []any{}
		for _, region := range regions {
			all = append(all, dict{"id": "/subscriptions/" + Subscription + "/locations/" + region, "name": region, "displayName": region, "metadata": dict{"regionType": "Physical", "geographyGroup": "US"}})
		}
		return dict{"value": all}, nil
	case t.top == "providers":
		all := []any{}
		for _, ns := range sorted(f.providers) {
			all = append(all, f.provider(ns))
		}
		return dict{"value": all}, nil
	case t.top == "resources" || t.group != "" && t.verb == "resources":
		return f.resources(r, t)
	case t.top == "resourcegroups":
		return f.serveGroup(r, t, in)
	case t.sub == "":
		return dict{"value": []any{subscription}, "count": dict{"type": "Total", "value": 1}}, nil
	case t.top == "":
		return subscription, nil
	}
	return nil, refuse(404, "NotFound", "%s", r.URL.Path)
}

func (f *Fake) provider(ns string) dict {
	state := "NotRegistered"
	if f.providers[ns] {
		state = "Registered"
	}
	return dict{"id": "/subscriptions/" + Subscription + "/providers/" + spell(ns), "namespace": spell(ns), "registrationState": state, "registrationPolicy": "RegistrationRequired"}
}

func (f *Fake) serveProvider(r *http.Request, t *target) (any, error) {
	switch {
	case r.Method == "POST" && t.verb == "register":
		f.providers[t.namespace] = true
		out := f.provider(t.namespace)
		out["registrationState"] = "Registering"
		return out, nil
	case r.Method == "GET" && t.verb == "":
		return f.provider(t.namespace), nil
	}
	return nil, refuse(404, "InvalidResourceType", "%s", r.URL.Path)
}

var groupName = regexp.MustCompile(`^[-\p{L}\p{N}_.()]{0,89}[-\p{L}\p{N}_()]$`)

var clause = regexp.MustCompile(`(?i)^\s*([\w/.]+)\s+(eq|ne)\s+'((?:[^']|'')*)'\s*(?:(and|or)\b|$)`)

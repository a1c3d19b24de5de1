package azurefake

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

func invalidParameter(format string, args ...any) *fakehttp.Reply {
	return refuse(400, "InvalidRequestFormat", "Cannot parse the request. "+format, args...)
}

func prefixesOf(p dict) (all []netip.Prefix, err error) {
	space, _ := p["addressSpace"].(dict)
	for _, x := range fakehttp.Items(space["addressPrefixes"]) {
		one, bad := netip.ParsePrefix(fmt.Sprint(x))
		if bad != nil || one.Masked() != one {
			return nil, refuse(400, "InvalidCIDRNotation", "The address prefix %v in resource has an invalid CIDR notation. For the given prefix length, the address prefix should be %s.", x, one.Masked())
		}
		all = append(all, one)
	}
	return all, nil
}

func checkVNet(f *Fake, id string, in, old dict) error {
	p := in["properties"].(dict)
	space, err := prefixesOf(p)
	if err != nil {
		return err
	}
	if len(space) == 0 {
		return refuse(400, "InvalidRequestFormat", "Required property 'addressSpace' not found in JSON.")
	}
	keep := map[string]bool{}
	var seen []netip.Prefix
	for _, x := range fakehttp.Items(p["subnets"]) {
		c, _ := x.(dict)
		name, _ := c["name"].(string)
		if !netName.MatchString(name) {
			return refuse(400, "InvalidResourceName", "Resource name %s is invalid. %s", name, netWhy)
		}
		keep[strings.ToLower(id+"/subnets/"+name)] = true
		q, _ := c["properties"].(dict)
		one, err := subnetIn(f, name, q, space, seen)
		if err != nil {
			return err
		}
		seen = append(seen, one)
	}
	for child := range f.items { // those that the body leaves out go
		if strings.HasPrefix(child, strings.ToLower(id)+"/subnets/") && !keep[child] {
			if err := subnetUsers(f, child); err != nil {
				return err
			}
		}
	}
	return nil
}

// subnetIn checks a subnet of an address space.
func subnetIn(f *Fake, name string, q dict, space, beside []netip.Prefix) (one netip.Prefix, err error) {
	text, _ := q["addressPrefix"].(string)
	if many := fakehttp.Items(q["addressPrefixes"]); text == "" && len(many) > 0 {
		text = fmt.Sprint(many[0])
	}
	one, bad := netip.ParsePrefix(text)
	if bad != nil || one.Masked() != one {
		return one, refuse(400, "InvalidCIDRNotation", "The address prefix %s in resource %s has an invalid CIDR notation.", text, name)
	}
	if !slices.ContainsFunc(space, func(p netip.Prefix) bool { return p.Overlaps(one) && p.Bits() <= one.Bits() }) {
		return one, refuse(400, "NetcfgInvalidSubnet", "Subnet '%s' is not valid because its IP address range is outside the IP address range of virtual network.", name)
	}
	if slices.ContainsFunc(beside, one.Overlaps) {
		return one, refuse(400, "NetcfgSubnetRangesOverlap", "Subnet '%s' is not valid because its IP address range overlaps with that of an existing subnet in virtual network.", name)
	}
	return one, f.refers(q["networkSecurityGroup"], "networksecuritygroups", name)
}

func checkSubnet(f *Fake, id string, in, old dict) error {
	parent := strings.ToLower(id[:strings.LastIndex(strings.ToLower(id), "/subnets/")])
	space, err := prefixesOf(f.items[parent]["properties"].(dict))
	if err != nil {
		return err
	}
	var beside []netip.Prefix
	for other, o := range f.items {
		if strings.HasPrefix(other, parent+"/subnets/") && other != strings.ToLower(id) {
			p, _ := netip.ParsePrefix(fmt.Sprint(o["properties"].(dict)["addressPrefix"]))
			beside = append(beside, p)
		}
	}
	_, err = subnetIn(f, id[strings.LastIndex(id, "/")+1:], in["properties"].(dict), space, beside)
	return err
}

// refers wants that what a body refers to exists.
func (f *Fake) refers(ref any, kind, by string) error {
	if ref == nil {
		return nil
	}
	d, _ := ref.(dict)
	id, _ := d["id"].(string)
	if !strings.HasPrefix(strings.ToLower(id), "/subscriptions/") || !strings.Contains(strings.ToLower(id), "/"+kind+"/") {
		return refuse(400, "LinkedInvalidPropertyId", "Property id '%s' at path 'properties.%s.id' is invalid. Expect fully qualified resource Id that start with '/subscriptions/{subscriptionId}' or '/providers/{resourceProviderNamespace}/'.", id, kind)
	}
	if key := strings.ToLower(id); f.items[key] == nil || f.deleting[key] {
		return refuse(400, "InvalidResourceReference", "Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", id, by)
	}
	return nil
}

// users are the resources that refer to an id.
func (f *Fake) users(id, kind, field string) (users []string) {
	for _, key := range sorted(f.items) {
		if !strings.Contains(key, "/"+kind+"/") {
			continue
		}
		p := f.items[key]["properties"].(dict)
		for _, x := range append(fakehttp.Items(p["ipConfigurations"]), any(dict{"properties": p})) {
			c, _ := x.(dict)
			q, _ := c["properties"].(dict)
			ref, _ := q[field].(dict)
			if at, _ := ref["id"].(string); strings.ToLower(at) == id {
				user := f.items[key]["id"].(string)
				if name, ok := c["name"].(string); ok {
					user += "/ipConfigurations/" + name
				}
				users = append(users, user)
			}
		}
	}
	return users
}

func subnetUsers(f *Fake, id string) error {
	if users := f.users(id, "networkinterfaces", "subnet"); len(users) > 0 {
		return refuse(400, "InUseSubnetCannotBeDeleted", "Subnet %s is in use by %s and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.", id[strings.LastIndex(id, "/")+1:], users[0])
	}
	return nil
}

func vnetUsers(f *Fake, id string) error {
	for child := range f.items {
		if strings.HasPrefix(child, id+"/subnets/") {
			if err := subnetUsers(f, child); err != nil {
				return err
			}
		}
	}
	return nil
}

func nsgUsers(f *Fake, id string) error {
	users := append(f.users(id, "networkinterfaces", "networkSecurityGroup"), f.users(id, "subnets", "networkSecurityGroup")...)
	if len(users) > 0 {
		return refuse(400, "InUseNetworkSecurityGroupCannotBeDeleted", "Network security group %s cannot be deleted because it is in use by the following resources: %s. In order to delete the Network security group, remove the association with the resource(s). To learn how to do this, see aka.ms/deletensg.", f.items[id]["id"], strings.Join(users, ", "))
	}
	return nil
}

func publicIPUsers(f *Fake, id string) error {
	if users := f.users(id, "networkinterfaces", "publicIPAddress"); len(users) > 0 {
		return refuse(400, "PublicIPAddressCannotBeDeleted", "Public IP address %s can not be deleted since it is still allocated to resource %s. In order to delete the public IP, disassociate/detach the Public IP address from the resource.  To learn how to do this, see aka.ms/deletepublicip.", f.items[id]["id"], users[0])
	}
	return nil
}

func checkNSG(f *Fake, id string, in, old dict) error {
	seen := map[string]bool{}
	for _, x := range fakehttp.Items(in["properties"].(dict)["securityRules"]) {
		c, _ := x.(dict)
		q, _ := c["properties"].(dict)
		at := fmt.Sprint(q["priority"], " ", q["direction"])
		if seen[at] {
			return refuse(400, "SecurityRuleConflict", "Security rule %v conflicts with another rule. Rules cannot have the same Priority and Direction. To learn more, see aka.ms/nsgrules.", c["name"])
		}
		seen[at] = true
		if err := checkRuleBody(fmt.Sprint(c["name"]), q); err != nil {
			return err
		}
	}
	return nil
}

func checkRule(f *Fake, id string, in, old dict) error {
	p := in["properties"].(dict)
	parent := strings.ToLower(id[:strings.LastIndex(strings.ToLower(id), "/securityrules/")])
	for other, o := range f.items {
		q, _ := o["properties"].(dict)
		if strings.HasPrefix(other, parent+"/securityrules/") && other != strings.ToLower(id) && fmt.Sprint(q["priority"]) == fmt.Sprint(p["priority"]) && q["direction"] == p["direction"] {
			return refuse(400, "SecurityRuleConflict", "Security rule %s conflicts with rule %s. Rules cannot have the same Priority and Direction. To learn more, see aka.ms/nsgrules.", id[strings.LastIndex(id, "/")+1:], o["name"])
		}
	}
	return checkRuleBody(id[strings.LastIndex(id, "/")+1:], p)
}

var portRange = regexp.MustCompile(`^(?:\*|(\d+)(?:-(\d+))?)$`)

// checkRuleBody is https://learn.microsoft.com/rest/api/virtualnetwork/security-rules/create-or-update.
func checkRuleBody(name string, p dict) error {
	oneOf := func(field string, words ...string) error {
		if !slices.Contains(words, fmt.Sprint(p[field])) {
			return refuse(400, "SecurityRuleInvalid"+strings.ToUpper(field[:1])+field[1:], "Security rule %s has invalid %s. Value provided: %v. Allowed values: %s.", name, field, p[field], strings.Join(words, ", "))
		}
		return nil
	}
	for field, words := range map[string][]string{"access": {"Allow", "Deny"}, "direction": {"Inbound", "Outbound"}, "protocol": {"*", "Tcp", "Udp", "Icmp", "Esp", "Ah", "TCP", "UDP"}} {
		if err := oneOf(field, words...); err != nil {
			return err
		}
	}
	if n, ok := p["priority"].(float64); !ok || n < 100 || n > 4096 {
		return refuse(400, "SecurityRuleInvalidPriority", "Security rule has invalid Priority. Value provided: %v Allowed range 100-4096.", p["priority"])
	}
	for _, way := range []string{"source", "destination"} {
		for _, what := range []string{"AddressPrefix", "PortRange"} {
			one, many := p[way+what], fakehttp.Items(p[way+what+map[string]string{"AddressPrefix": "es", "PortRange": "s"}[what]])
			if (one == nil || one == "") == (len(many) == 0) && p[way+"ApplicationSecurityGroups"] == nil {
				return refuse(400, "SecurityRuleParameterIsMissing", "Required Security rule parameter missing for security rule with Id: %s. Exactly one of %s%s and its list must be given.", name, way, what)
			}
			if one != nil && one != "" {
				many = []any{one}
			}
			for _, x := range many {
				if what == "PortRange" && !isPorts(fmt.Sprint(x)) {
					return refuse(400, "SecurityRuleInvalidPortRange", "Security rule has invalid Port range. Value provided: %v. Value should be an integer OR integer range with '-' delimiter. Valid range 0-65535.", x)
				}
				if what == "AddressPrefix" && !isPlace(fmt.Sprint(x)) {
					return refuse(400, "SecurityRuleInvalidAddressPrefix", "Security rule %s has invalid Address prefix. Value provided: %v.", name, x)
				}
			}
		}
	}
	return nil
}

func isPorts(s string) bool {
	m := portRange.FindStringSubmatch(s)
	if m == nil || s == "*" {
		return m != nil
	}
	low, _ := strconv.Atoi(m[1])
	high := low
	if m[2] != "" {
		high, _ = strconv.Atoi(m[2])
	}
	return low <= high && high <= 65535
}

func isPlace(s string) bool {
	if s == "*" || regexp.MustCompile(`^[A-Z][A-Za-z.]+$`).MatchString(s) { // a service tag
		return true
	}
	_, err := netip.ParsePrefix(s)
	if err != nil {
		_, err = netip.ParseAddr(s)
	}
	return err == nil
}

func checkPublicIP(f *Fake, id string, in, old dict) error {
	p := in["properties"].(dict)
	sku, _ := in["sku"].(dict)
	name, _ := sku["name"].(string)
	if name == "" {
		name = "Basic"
	}
	if name == "Basic" { // retired in September 2025
		return refuse(400, "IPv4BasicSkuPublicIpCountLimitReached", "Cannot create more than 0 IPv4 Basic SKU public IP addresses for this subscription in this region.")
	}
	if name != "Standard" {
		return invalidParameter("The sku %s is unknown.", name)
	}
	if p["publicIPAllocationMethod"] != "Static" {
		return refuse(400, "StandardSkuPublicIPAddressesCannotHaveDynamicAllocation", "Standard sku publicIp %s must have AllocationMethod set to Static.", id)
	}
	in["sku"] = dict{"name": name, "tier": "Regional"}
	if old != nil {
		p["ipAddress"] = old["properties"].(dict)["ipAddress"]
	} else {
		f.serial++
		p["ipAddress"] = fmt.Sprintf("20.%d.%d.%d", 40+f.serial>>16&63, f.serial>>8&255, f.serial&255)
	}
	if p["publicIPAddressVersion"] == nil {
		p["publicIPAddressVersion"] = "IPv4"
	}
	return nil
}

func publicIPTold(f *Fake, key string, o dict) dict {
	users := f.users(key, "networkinterfaces", "publicIPAddress")
	if len(users) == 0 {
		return o
	}
	out, p := maps.Clone(o), maps.Clone(o["properties"].(dict))
	p["ipConfiguration"] = dict{"id": users[0]}
	out["properties"] = p
	return out
}

func checkNIC(f *Fake, id string, in, old dict) error {
	p := in["properties"].(dict)
	configs := fakehttp.Items(p["ipConfigurations"])
	if len(configs) == 0 {
		return refuse(400, "NetworkInterfaceMustHaveAtLeastOneIpConfiguration", "Network interface %s must have at least one IpConfiguration.", id)
	}
	if err := f.refers(p["networkSecurityGroup"], "networksecuritygroups", id); err != nil {
		return err
	}
	for n, x := range configs {
		c, _ := x.(dict)
		q, _ := c["properties"].(dict)
		name, _ := c["name"].(string)
		if name == "" || q == nil {
			return refuse(400, "InvalidRequestFormat", "Required property 'name' not found in JSON. Path 'properties.ipConfigurations[%d]'.", n)
		}
		if q["subnet"] == nil {
			return refuse(400, "SubnetIsNotProvided", "Subnet is not provided for ipConfiguration %s.", name)
		}
		for _, err := range []error{f.refers(q["subnet"], "subnets", id), f.refers(q["publicIPAddress"], "publicipaddresses", id)} {
			if err != nil {
				return err
			}
		}
		subnet := strings.ToLower(q["subnet"].(dict)["id"].(string))
		vnet := f.items[subnet[:strings.LastIndex(subnet, "/subnets/")]]
		if !strings.EqualFold(fmt.Sprint(vnet["location"]), fmt.Sprint(in["location"])) {
			return refuse(400, "InvalidResourceReference", "Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", subnet, id)
		}
		if ref, ok := q["publicIPAddress"].(dict); ok {
			for _, user := range f.users(strings.ToLower(ref["id"].(string)), "networkinterfaces", "publicIPAddress") {
				if !strings.HasPrefix(strings.ToLower(user), strings.ToLower(id)+"/") {
					return refuse(400, "PublicIPAddressInUse", "Resource %s is referencing public IP address %s that is already allocated to resource %s.", id+"/ipConfigurations/"+name, ref["id"], user)
				}
			}
		}
		before := dict{}
		if old != nil {
			if was := fakehttp.Items(old["properties"].(dict)["ipConfigurations"]); n < len(was) {
				before = was[n].(dict)["properties"].(dict)
			}
		}
		q = maps.Clone(q)
		if q["privateIPAddress"] = before["privateIPAddress"]; q["privateIPAddress"] == nil {
			prefix, _ := netip.ParsePrefix(fmt.Sprint(f.items[subnet]["properties"].(dict)["addressPrefix"]))
			f.serial++
			a := prefix.Addr().As4()
			a[2], a[3] = a[2]+byte(f.serial>>8), byte(f.serial)
			q["privateIPAddress"] = netip.AddrFrom4(a).String()
		}
		if q["privateIPAllocationMethod"] == nil {
			q["privateIPAllocationMethod"] = "Dynamic"
		}
		q["primary"], q["provisioningState"] = n == 0, "Succeeded"
		configs[n] = dict{"name": name, "id": id + "/ipConfigurations/" + name, "type": "Microsoft.Network/networkInterfaces/ipConfigurations", "properties": q}
	}
	p["ipConfigurations"] = configs
	return nil
}

// nicTold says which machine has a network interface.
func nicTold(f *Fake, key string, o dict) dict {
	vm := f.vmWith(key)
	if vm == "" {
		return o
	}
	out, p := maps.Clone(o), maps.Clone(o["properties"].(dict))
	p["virtualMachine"] = dict{"id": f.items[vm]["id"]}
	out["properties"] = p
	return out
}

func nicUsers(f *Fake, id string) error {
	if vm := f.vmWith(id); vm != "" {
		return refuse(400, "NicInUse", "Network Interface %s is used by existing resource %s. In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.", f.items[id]["id"], f.items[vm]["id"])
	}
	return f.isReserved(id, "")
}

func checkDisk(f *Fake, id string, in, old dict) error {
	p := in["properties"].(dict)
	creation, _ := p["creationData"].(dict)
	if creation["createOption"] == nil {
		return refuse(400, "InvalidParameter", "Required parameter 'disk.properties.creationData.createOption' is missing (null).")
	}
	if n, ok := p["diskSizeGB"].(float64); creation["createOption"] == "Empty" && (!ok || n < 1 || n > 65536) {
		return refuse(400, "InvalidParameter", "The value of parameter disk.diskSizeGB is invalid.")
	}
	sku, _ := in["sku"].(dict)
	if name, _ := sku["name"].(string); name != "" && !slices.Contains(diskKinds, name) {
		return refuse(400, "InvalidParameter", "The value '%s' of parameter 'disk.sku' is invalid.", name)
	}
	if creation["createOption"] == "Copy" {
		if err := f.copyOf(in, p, creation, "/snapshots/"); err != nil {
			return err
		}
	}
	p["diskState"] = "Unattached"
	if old != nil { // nothing of this changes by being asked for again
		p["diskState"] = old["properties"].(dict)["diskState"]
	}
	return nil
}

// checkSnapshot is https://learn.microsoft.com/rest/api/compute/snapshots/create-or-update.
func checkSnapshot(f *Fake, id string, in, old dict) error {
	p := in["properties"].(dict)
	creation, _ := p["creationData"].(dict)
	if creation["createOption"] != "Copy" {
		return refuse(400, "InvalidParameter", "The value of parameter snapshot.properties.creationData.createOption is invalid.")
	}
	p["timeCreated"] = time.Now().UTC().Format(time.RFC3339Nano)
	if old != nil {
		p["timeCreated"] = old["properties"].(dict)["timeCreated"]
	}
	return f.copyOf(in, p, creation, "/disks/")
}

// copyOf fills in what a copy has of what it is made of.
func (f *Fake) copyOf(in, p, creation dict, kind string) error {
	from, _ := creation["sourceResourceId"].(string)
	o := f.items[strings.ToLower(from)]
	if o == nil || !strings.Contains(strings.ToLower(from), kind) || f.deleting[strings.ToLower(from)] {
		return refuse(404, "NotFound", "The entity '%s' was not found.", from)
	}
	if !strings.EqualFold(fmt.Sprint(o["location"]), fmt.Sprint(in["location"])) {
		return refuse(400, "InvalidParameter", "The source '%s' is in another region.", from)
	}
	q := o["properties"].(dict)
	for _, field := range []string{"osType", "hyperVGeneration", "securityProfile", "purchasePlan"} {
		if q[field] != nil {
			p[field] = q[field]
		}
	}
	have, _ := q["diskSizeGB"].(float64)
	if n, ok := p["diskSizeGB"].(float64); ok && n < have {
		return refuse(400, "InvalidParameter", "The disk size %v GB is smaller than that of the source: %v GB.", n, have)
	} else if !ok {
		p["diskSizeGB"] = have
	}
	return nil
}

var diskKinds = []string{"Standard_LRS", "StandardSSD_LRS", "Premium_LRS", "PremiumV2_LRS", "UltraSSD_LRS", "StandardSSD_ZRS", "Premium_ZRS"}

func diskUsers(f *Fake, id string) error {
	if vm, _ := f.items[id]["managedBy"].(string); vm != "" && f.items[strings.ToLower(vm)] != nil {
		return refuse(409, "OperationNotAllowed", "Disk %s is attached to VM %s.", f.items[id]["name"], vm)
	}
	return nil
}

func makeIdentity(f *Fake, id string, in, old dict) error {
	p := in["properties"].(dict)
	if old != nil {
		maps.Copy(p, old["properties"].(dict))
		return nil
	}
	p["tenantId"], p["principalId"], p["clientId"] = Tenant, f.guid(), f.guid()
	if f.newPrincipal > 0 {
		f.young["principal "+p["principalId"].(string)] = f.newPrincipal
	}
	return nil
}

// serveRoles are https://learn.microsoft.com/rest/api/authorization/role-assignments and permissions.
func (f *Fake) serveRoles(r *http.Request, t *target, in dict) (any, error) {
	switch t.kind() {
	case "permissions":
		p := dict{"actions": []any{"*"}, "notActions": []any{}, "dataActions": []any{}, "notDataActions": []any{}}
		if f.readOnly {
			p["actions"] = []any{"*/read"}
		}
		for _, action := range sorted(f.denied) {
			p["notActions"] = append(p["notActions"].([]any), action)
		}
		return dict{"value": []any{p}}, nil
	case "roledefinitions":
		return dict{"value": []any{dict{"id": "/subscriptions/" + Subscription + "/providers/Microsoft.Authorization/roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c", "name": "b24988ac-6180-42a0-ab88-20f7382dd24c", "properties": dict{"roleName": "Contributor", "type": "BuiltInRole"}}}}, nil
	case "roleassignments":
	default:
		return nil, refuse(404, "InvalidResourceType", "there is no %s", r.URL.Path)
	}
	if t.group != "" && f.items[strings.ToLower(groupID(t.group))] == nil {
		return nil, noGroup(t.group)
	}
	id := strings.ToLower(t.id())
	if len(t.names) == 0 {
		var all []dict
		want := regexp.MustCompile(`(?i)principalId eq '([^']*)'`).FindStringSubmatch(r.URL.Query().Get("$filter"))
		for _, key := range sorted(f.assignments) {
			if strings.HasPrefix(key, strings.ToLower(t.scope)+"/") && (want == nil || f.assignments[key]["properties"].(dict)["principalId"] == want[1]) {
				all = append(all, f.assignments[key])
			}
		}
		return f.page(r, all)
	}
	old := f.assignments[id]
	switch r.Method {
	case "GET":
		if old == nil {
			return nil, refuse(404, "RoleAssignmentNotFound", "The role assignment '%s' is not found.", t.name())
		}
		return old, nil
	case "DELETE":
		if old == nil {
			return &fakehttp.Reply{Status: 204}, nil
		}
		delete(f.assignments, id)
		return old, nil
	}
	p, _ := in["properties"].(dict)
	role, _ := p["roleDefinitionId"].(string)
	principal, _ := p["principalId"].(string)
	switch {
	case !guid.MatchString(t.name()):
		return nil, refuse(400, "InvalidRoleAssignmentId", "The role assignment ID '%s' is not valid. The role assignment ID must be a GUID.", t.name())
	case role == "" || principal == "":
		return nil, refuse(400, "BadRequestFormat", "The request was incorrectly formatted.")
	case f.isYoung("principal "+principal) && p["principalType"] == nil, !f.isPrincipal(principal):
		return nil, refuse(400, "PrincipalNotFound", "Principal %s does not exist in the directory %s. Check that you have the correct principal ID. If you are creating this principal and then immediately assigning a role, this error might be related to a replication delay. In this case, set the role assignment principalType property to a value, such as ServicePrincipal, User, or Group.  See https://aka.ms/docs-principaltype", strings.ReplaceAll(principal, "-", ""), Tenant)
	}
	for key, a := range f.assignments {
		q := a["properties"].(dict)
		if q["scope"] == t.scope && strings.EqualFold(q["roleDefinitionId"].(string), role) && q["principalId"] == principal {
			if key == id {
				return old, nil
			}
			return nil, refuse(409, "RoleAssignmentExists", "The role assignment already exists. The ID of the existing role assignment is %s.", strings.ReplaceAll(key[strings.LastIndex(key, "/")+1:], "-", ""))
		}
	}
	if old != nil {
		return nil, refuse(400, "RoleAssignmentUpdateNotPermitted", "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.")
	}
	f.assignments[id] = dict{"id": t.id(), "name": t.name(), "type": "Microsoft.Authorization/roleAssignments", "properties": dict{"scope": t.scope, "roleDefinitionId": role, "principalId": principal, "principalType": p["principalType"]}}
	return &fakehttp.Reply{Status: 201, Body: f.assignments[id]}, nil
}

func (f *Fake) isPrincipal(id string) bool {
	for _, o := range f.items {
		if p, ok := o["properties"].(dict); ok && p["principalId"] == id {
			return true
		}
	}
	return id == Object
}

package azurefake

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// vm is a machine besides its resource and what the model has of it.
type vm struct {
	id            string // the model's; "": its allocation failed
	size, region  string
	spot, evicted bool
	deletes       bool // it is deleted when it is taken back
	deallocated   bool // off, it costs nothing
	updating      bool // it has been off or is being changed
	takenBack     time.Time
	nics          []string // ids in lower case
	gone          []string // what goes with it
}

// sweep notices what has become of machines meanwhile.
func (f *Fake) sweep() {
	states := map[string]fluffyapi.State{}
	for _, m := range f.Cloud.Machines() {
		states[m.ID] = m.State
	}
	for _, key := range sorted(f.vms) {
		v := f.vms[key]
		if v.id == "" {
			continue
		}
		if !v.takenBack.IsZero() && !time.Now().Before(v.takenBack) && states[v.id] == fluffyapi.Running {
			v.takenBack, v.evicted = time.Time{}, true
			if v.deletes {
				_ = f.Cloud.Kill(v.id, "evicted")
				states[v.id] = fluffyapi.Terminated
			} else {
				_ = f.Cloud.Halt(v.id)
				v.deallocated = true
			}
		}
		if s, ok := states[v.id]; !ok || s == fluffyapi.Terminated {
			f.end(key)
		}
	}
	for _, name := range sorted(f.operations) {
		f.operations[name].done()
	}
}

// end forgets a machine, and what goes with it.
func (f *Fake) end(key string) {
	v := f.vms[key]
	vm, _ := f.items[key]["id"].(string)
	f.forget(key)
	for _, id := range v.gone {
		f.forget(id)
	}
	for _, o := range f.items { // disks that stay are no longer attached
		if o["managedBy"] == vm && vm != "" {
			delete(o, "managedBy")
			o["properties"].(dict)["diskState"] = "Unattached"
		}
	}
}

// busy tells that machines there are still to end.
func (f *Fake) busy(mine func(id string) bool) bool {
	for key, v := range f.vms {
		if m, ok := f.Machine(v.id); mine(key) && v.id != "" && ok && m.State != fluffyapi.Terminated {
			return true
		}
	}
	return false
}

// hidden are the machines that lists do not have yet.
func (f *Fake) hidden(r *http.Request) map[string]bool {
	all, _ := f.Instances(r)
	listed := map[string]bool{}
	for _, i := range all {
		listed[i.ID] = true
	}
	hidden := map[string]bool{}
	for key, v := range f.vms {
		hidden[key] = v.id != "" && !listed[v.id]
	}
	return hidden
}

// vmWith is the machine that has a network interface; "": none.
func (f *Fake) vmWith(nic string) string {
	for key, v := range f.vms {
		if slices.Contains(v.nics, nic) {
			return key
		}
	}
	return ""
}

// isReserved refuses a network interface for a while after the machine that had it could
// not be allocated: https://learn.microsoft.com/troubleshoot/azure/virtual-network (deletenic).
func (f *Fake) isReserved(nic, vm string) error {
	if held := f.reserved[nic]; time.Now().Before(held.until) && held.vm != vm {
		return refuse(400, "NicReservedForAnotherVm", "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide another nic(s) or retry after 180 seconds. Reserved VM: %s", held.vm)
	}
	return nil
}

// power is what the instance view says of a machine:
// https://learn.microsoft.com/azure/virtual-machines/states-billing.
func (f *Fake) power(i fluffyapi.Instance, v *vm) (provisioning, power string) {
	provisioning = "Succeeded"
	switch i.State {
	case fluffyapi.Pending:
		provisioning, power = "Creating", "starting"
		if v.updating {
			provisioning = "Updating"
		} else if public, _ := f.Addresses(i); public == "" {
			power = "" // there is no host yet
		}
	case fluffyapi.Running:
		power = "running"
	case fluffyapi.Stopping:
		provisioning, power = "Updating", "stopping"
		if v.deallocated {
			power = "deallocating"
		}
	case fluffyapi.Stopped:
		power = "stopped"
		if v.deallocated {
			power = "deallocated"
		}
	case fluffyapi.Terminating, fluffyapi.Terminated:
		provisioning, power = "Deleting", "stopping"
	default:
		power = string(i.State)
	}
	return provisioning, power
}

// view is the instance view of a machine, and its provisioning state.
func (f *Fake) view(r *http.Request, key string) (provisioning string, view dict) {
	v := f.vms[key]
	at := time.Now().UTC().Format(time.RFC3339)
	if v == nil || v.id == "" {
		return "Failed", dict{"statuses": []any{dict{"code": "ProvisioningState/failed/AllocationFailed", "level": "Error", "displayStatus": "Provisioning failed", "message": "Allocation failed.", "time": at}}}
	}
	i, err := f.Owner.Instance(r.Context(), v.id)
	if err != nil {
		return "Deleting", dict{"statuses": []any{}}
	}
	provisioning, power := f.power(i, v)
	statuses := []any{dict{"code": "ProvisioningState/" + strings.ToLower(provisioning), "level": "Info", "displayStatus": "Provisioning " + strings.ToLower(provisioning), "time": at}}
	if power != "" {
		statuses = append(statuses, dict{"code": "PowerState/" + power, "level": "Info", "displayStatus": "VM " + power})
	}
	return provisioning, dict{"statuses": statuses, "computerName": strings.Split(key, "/")[8]}
}

// tellVM is a machine as it is answered. Its instance view is only told if asked for.
func (f *Fake) tellVM(r *http.Request, key string) dict {
	o := f.items[key]
	out, p := maps.Clone(o), maps.Clone(o["properties"].(dict))
	provisioning, view := f.view(r, key)
	p["provisioningState"] = provisioning
	if v := f.vms[key]; v != nil && v.id != "" {
		if i, err := f.Owner.Instance(r.Context(), v.id); err == nil {
			p["timeCreated"] = i.Created.UTC().Format(time.RFC3339Nano)
		}
	}
	q := r.URL.Query()
	if strings.EqualFold(q.Get("$expand"), "instanceView") || q.Get("statusOnly") == "true" {
		p["instanceView"] = view
	}
	if os, ok := p["osProfile"].(dict); ok { // what is secret is not told
		os = maps.Clone(os)
		delete(os, "customData")
		delete(os, "adminPassword")
		p["osProfile"] = os
	}
	out["properties"] = p
	return out
}

// serveVM is https://learn.microsoft.com/rest/api/compute/virtual-machines.
func (f *Fake) serveVM(r *http.Request, t *target, id string, in dict) (any, error) {
	key := strings.ToLower(id)
	o, v := f.items[key], f.vms[key]
	ending := o != nil && v != nil && v.id != "" && f.isIn(v, fluffyapi.Terminating)
	switch {
	case r.Method == "GET" && strings.EqualFold(t.verb, "instanceView"):
		_, view := f.view(r, key)
		return view, nil
	case r.Method == "GET" && t.verb == "":
		return f.tellVM(r, key), nil
	case r.Method == "DELETE" && o == nil:
		return &fakehttp.Reply{Status: 204}, nil
	case r.Method == "DELETE":
		if v.id == "" {
			f.end(key)
			return f.accepted(r, t, 202, f.begin(nil, nil), nil), nil
		}
		if _, err := f.Terminate(r, v.id); err != nil {
			return nil, err
		}
		op := f.begin(func() bool { return f.items[key] == nil || f.vms[key] != v || f.isOver(v) }, nil)
		return f.accepted(r, t, 202, op, nil), nil
	case ending:
		return nil, refuse(409, "OperationNotAllowed", "Operation is not allowed on VM '%s' since the VM is marked for deletion. You can only retry the Delete operation (or wait for an ongoing one to complete).", t.name())
	case r.Method == "PUT":
		return f.putVM(r, t, id, in)
	case r.Method == "PATCH":
		if err := checkTags(in["tags"]); err != nil {
			return nil, err
		}
		if in["tags"] != nil {
			o["tags"] = in["tags"]
		}
		return f.tellVM(r, key), nil
	case r.Method == "POST":
		return f.switchVM(r, t, v)
	}
	return nil, refuse(405, "MethodNotAllowed", "%s", r.Method)
}

func (f *Fake) isIn(v *vm, state fluffyapi.State) bool {
	m, ok := f.Machine(v.id)
	return ok && m.State == state
}

func (f *Fake) isOver(v *vm) bool {
	m, ok := f.Machine(v.id)
	return !ok || m.State == fluffyapi.Terminated
}

// switchVM starts, stops and so on.
func (f *Fake) switchVM(r *http.Request, t *target, v *vm) (any, error) {
	if v.id == "" {
		return nil, refuse(409, "OperationNotAllowed", "Operation '%s' is not allowed on VM '%s' since its provisioning failed.", t.verb, t.name())
	}
	ctx := r.Context()
	fault := f.fails(strings.ToLower(t.verb))
	after := func() bool { return true }
	switch verb := strings.ToLower(t.verb); verb {
	case "start":
		if fault != nil {
			break
		}
		if no := f.room(v.region, v.size); no != nil && !f.isIn(v, fluffyapi.Running) {
			return nil, no
		}
		_, err := f.Owner.Start(ctx, v.id, fluffyapi.Start{})
		var e *fluffyapi.Error
		switch {
		case errors.As(err, &e) && e.Code == fluffyapi.NoCapacity:
			fault = allocationFailed()
		case errors.As(err, &e) && e.Code == fluffyapi.QuotaExceeded:
			return nil, f.overQuota(v.region, v.size, v.spot)
		case errors.As(err, &e) && e.Code == fluffyapi.WrongState:
			return nil, refuse(409, "OperationNotAllowed", "Operation 'start' is not allowed on VM '%s' since the VM is being stopped or deleted.", t.name())
		case err != nil:
			return nil, err
		default:
			v.updating, v.deallocated, v.evicted = true, false, false
		}
		after = func() bool { return !f.isIn(v, fluffyapi.Pending) }
	case "deallocate", "poweroff":
		if fault != nil {
			break
		}
		if _, err := f.Owner.Stop(ctx, v.id); err != nil {
			return nil, err
		}
		v.updating, v.deallocated = true, v.deallocated || verb == "deallocate"
		after = func() bool { return !f.isIn(v, fluffyapi.Stopping) }
	case "restart":
		if !f.isIn(v, fluffyapi.Running) {
			return nil, refuse(409, "OperationNotAllowed", "Cannot restart VM '%s' because it is not running.", t.name())
		}
	default:
		return nil, refuse(404, "InvalidResourceType", "there is no %s", r.URL.Path)
	}
	op := f.begin(after, nil)
	op.no = fault
	return f.accepted(r, t, 202, op, nil), nil
}

func allocationFailed() *fakehttp.Reply {
	return refuse(409, "AllocationFailed", "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read more about improving likelihood of allocation success at https://aka.ms/allocation-guidance")
}

func notThere(size, location, why string) *fakehttp.Reply {
	return refuse(409, "SkuNotAvailable", "The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: %s' is currently not available in location '%s'. Please try another size or deploy to a different location or different zone. See https://aka.ms/azureskunotavailable for details.%s", size, location, why)
}

// overQuota is an error whose sentence says which quota it is:
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-resource-quota.
func (f *Fake) overQuota(region, size string, spot bool) *fakehttp.Reply {
	s, name := sizes[size], sizes[size].family
	limit, used := 0, 0
	have, _ := f.Owner.Quotas(background, region)
	for _, q := range have {
		if q.Name == s.family && !spot || q.Name == "spot-"+s.family && spot {
			limit, used = q.Limit, q.Used
		}
	}
	if spot {
		name = "LowPriorityCores"
	}
	return quotaSentence(name, region, limit, used, s.cpus)
}

func quotaSentence(name, region string, limit, used, more int) *fakehttp.Reply {
	if name != "LowPriorityCores" {
		name += " Cores"
	}
	return refuse(409, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved %s quota. Additional details - Deployment Model: Resource Manager, Location: %s, Current Limit: %d, Current Usage: %d, Additional Required: %d, (Minimum) New Limit Required: %d. Setup Alerts when Quota reaches threshold. Learn more at https://aka.ms/quotamonitoringalerting . Submit a request for Quota increase at https://aka.ms/ProdportalCRP/#blade/Microsoft_Azure_Capacity/UsageAndQuota.ReactView/Parameters/%%7B%%22subscriptionId%%22:%%22%s%%22%%7D by specifying parameters listed in the 'Details' section for deployment to succeed. Please read more about quota limits at https://docs.microsoft.com/en-us/azure/azure-supportability/per-vm-quota-requests",
		name, region, limit, used, more, used+more, Subscription)
}

func (f *Fake) coresUsed(region string) (n int) {
	for _, m := range f.Cloud.Machines() {
		if m.Region == region && m.State != fluffyapi.Stopped && m.State != fluffyapi.Terminated && !m.Spot {
			n += sizes[m.Type].cpus
		}
	}
	return n
}

// room refuses more cores than a region may have in all.
func (f *Fake) room(region, size string) error {
	limit, limited := f.cores[region]
	if used := f.coresUsed(region); limited && used+sizes[size].cpus > limit {
		return quotaSentence("Total Regional", region, limit, used, sizes[size].cpus)
	}
	return nil
}

func badParameter(name, format string, args ...any) *fakehttp.Reply {
	no := refuse(400, "InvalidParameter", format, args...)
	no.Body.(dict)["error"].(dict)["target"] = name
	return no
}

var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,63}$`)

// putVM is https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update.
func (f *Fake) putVM(r *http.Request, t *target, id string, in dict) (any, error) {
	key := strings.ToLower(id)
	old, v := f.items[key], f.vms[key]
	if err := f.checkResource(t, kinds["microsoft.compute/virtualmachines"], in, old); err != nil {
		return nil, err
	}
	p, _ := in["properties"].(dict)
	if old != nil && v.id != "" {
		return f.changeVM(r, t, key, in, p)
	}
	made, err := f.checkVM(key, t, in, p)
	if err != nil {
		return nil, err
	}
	o := maps.Clone(in)
	p = maps.Clone(p)
	o["id"], o["name"], o["type"], o["location"], o["properties"] = id, t.name(), "Microsoft.Compute/virtualMachines", strings.ToLower(in["location"].(string)), p
	delete(o, "resources")
	p["timeCreated"] = time.Now().UTC().Format(time.RFC3339Nano)
	if identity, ok := in["identity"].(dict); ok {
		given, _ := identity["userAssignedIdentities"].(dict)
		shown := dict{}
		for ref := range given {
			q := f.items[strings.ToLower(ref)]["properties"].(dict)
			shown[ref] = dict{"principalId": q["principalId"], "clientId": q["clientId"]}
		}
		o["identity"] = dict{"type": identity["type"], "userAssignedIdentities": shown}
	}
	fault := f.fails("virtualmachines.put")
	if fault == nil {
		i, err := f.Owner.Create(background, fluffyapi.Create{ClientToken: f.NewID(), Name: strings.ToLower(t.group + "/" + t.name()), Zone: made.region + "-a", Type: made.size, Spot: made.spot})
		var e *fluffyapi.Error
		switch {
		case errors.As(err, &e) && e.Code == fluffyapi.QuotaExceeded:
			return nil, f.overQuota(made.region, made.size, made.spot)
		case errors.As(err, &e) && e.Code == fluffyapi.NoCapacity && f.atOnce:
			return nil, notThere(made.size, made.region, "")
		case errors.As(err, &e) && e.Code == fluffyapi.NoCapacity:
			fault = allocationFailed()
			if zones := fakehttp.Items(in["zones"]); len(zones) > 0 {
				fault = refuse(409, "ZonalAllocationFailed", "Allocation failed. We do not have sufficient capacity for the requested VM size in this zone. Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance")
			}
		case err != nil:
			return nil, err
		}
		made.id, p["vmId"] = i.ID, i.ID
		if i.PublicIP == i.PrivateIP { // a real machine, which has the address that it has
			for _, nic := range made.nics {
				for _, c := range fakehttp.Items(f.items[nic]["properties"].(dict)["ipConfigurations"]) {
					q := c.(dict)["properties"].(dict)
					q["privateIPAddress"] = i.PrivateIP
					if ref, ok := q["publicIPAddress"].(dict); ok {
						f.items[strings.ToLower(ref["id"].(string))]["properties"].(dict)["ipAddress"] = i.PublicIP
					}
				}
			}
		}
	}
	f.items[key], f.vms[key] = o, made
	f.makeYoung(key)
	f.osDisk(id, p, made)
	op := f.begin(func() bool { return made.id == "" || !f.isIn(made, fluffyapi.Pending) }, nil)
	if op.no = fault; fault != nil { // the resource stays, and its network interfaces for a while
		for _, nic := range made.nics {
			f.reserved[nic] = reservation{key, time.Now().Add(180 * time.Second)}
		}
		made.nics = nil
	}
	out := f.tellVM(r, key)
	if fault != nil {
		out["properties"].(dict)["provisioningState"] = "Creating"
	}
	return f.accepted(r, t, 201, op, out), nil
}

// osDisk makes the disk that a machine starts from.
func (f *Fake) osDisk(id string, p dict, v *vm) {
	storage := maps.Clone(p["storageProfile"].(dict))
	disk := maps.Clone(storage["osDisk"].(dict))
	if attaches(storage) {
		key := strings.ToLower(disk["managedDisk"].(dict)["id"].(string))
		if v.id != "" {
			o := f.items[key]
			o["managedBy"] = id
			o["properties"].(dict)["diskState"] = "Attached"
			if disk["deleteOption"] == "Delete" {
				v.gone = append(v.gone, key)
			}
		}
		return
	}
	name, _ := disk["name"].(string)
	vmName := id[strings.LastIndex(id, "/")+1:]
	if name == "" {
		name = vmName + "_OsDisk_1_" + strings.ReplaceAll(f.guid(), "-", "")
	}
	diskID := id[:strings.Index(strings.ToLower(id), "/providers/")] + "/providers/Microsoft.Compute/disks/" + name
	managed, _ := disk["managedDisk"].(dict)
	kind, _ := managed["storageAccountType"].(string)
	if kind == "" {
		kind = "Standard_LRS"
	}
	gb := disk["diskSizeGB"]
	if gb == nil {
		gb = 30.0
	}
	disk["name"], disk["managedDisk"], disk["osType"], disk["diskSizeGB"] = name, dict{"id": diskID, "storageAccountType": kind}, "Linux", gb
	storage["osDisk"], p["storageProfile"] = disk, storage
	if v.id == "" {
		return
	}
	f.items[strings.ToLower(diskID)] = dict{
		"id": diskID, "name": name, "type": "Microsoft.Compute/disks", "location": v.region, "sku": dict{"name": kind}, "managedBy": id,
		"properties": dict{"diskState": "Attached", "diskSizeGB": gb, "osType": "Linux", "provisioningState": "Succeeded", "creationData": dict{"createOption": "FromImage"}},
	}
	security, _ := p["securityProfile"].(dict)
	if t := security["securityType"]; t != nil {
		f.items[strings.ToLower(diskID)]["properties"].(dict)["securityProfile"] = dict{"securityType": t}
	}
	if disk["deleteOption"] == "Delete" {
		v.gone = append(v.gone, strings.ToLower(diskID))
	}
}

// fixed are what cannot be changed of a machine.
var fixed = []string{"osProfile.adminUsername", "osProfile.computerName", "storageProfile.imageReference", "priority"}

func (f *Fake) changeVM(r *http.Request, t *target, key string, in, p dict) (any, error) {
	o := f.items[key]
	had := o["properties"].(dict)
	for _, field := range fixed {
		a, b := any(had), any(p)
		for _, part := range strings.Split(field, ".") {
			x, _ := a.(dict)
			y, _ := b.(dict)
			a, b = x[part], y[part]
		}
		if b != nil && fmt.Sprint(a) != fmt.Sprint(b) {
			return nil, refuse(409, "PropertyChangeNotAllowed", "Changing property '%s' is not allowed.", field)
		}
	}
	if hardware, ok := p["hardwareProfile"].(dict); ok {
		if name, _ := hardware["vmSize"].(string); !strings.EqualFold(name, f.vms[key].size) {
			return nil, refuse(409, "OperationNotAllowed", "Unable to resize the VM '%s' because the fake does not.", t.name())
		}
	}
	delete(o, "tags")
	if in["tags"] != nil {
		o["tags"] = in["tags"]
	}
	return f.accepted(r, t, 200, f.begin(nil, nil), f.tellVM(r, key)), nil
}

// checkVM reads the body of a creation.
func (f *Fake) checkVM(key string, t *target, in, p dict) (*vm, error) {
	region := strings.ToLower(in["location"].(string))
	hardware, _ := p["hardwareProfile"].(dict)
	asked, _ := hardware["vmSize"].(string)
	size, s, ok := sizeNamed(asked)
	if asked == "" {
		return nil, badParameter("vmSize", "Required parameter 'vmSize' is missing (null).")
	}
	if !ok {
		return nil, badParameter("vmSize", "The value %s provided for the VM size is not valid. The valid sizes in the current region are: %s.", asked, strings.Join(sorted(sizes), ","))
	}
	v := &vm{size: size, region: region, spot: p["priority"] == "Spot" || p["priority"] == "Low"}
	switch policy := p["evictionPolicy"]; {
	case policy == nil, v.spot && policy == "Deallocate":
	case !v.spot:
		return nil, refuse(409, "OperationNotAllowed", "Eviction policy can be set only on Azure Spot Virtual Machines. For more information, see http://aka.ms/AzureSpot/errormessages.")
	case policy == "Delete":
		v.deletes = true
	default:
		return nil, badParameter("evictionPolicy", "The value '%v' of parameter 'evictionPolicy' is invalid.", policy)
	}
	if p["billingProfile"] != nil && !v.spot {
		return nil, refuse(409, "OperationNotAllowed", "Max price can be set only on Azure Spot Virtual Machines.")
	}
	zones := fakehttp.Items(in["zones"])
	if len(zones) > 1 || len(zones) == 1 && !slices.Contains([]any{"1", "2", "3"}, zones[0]) {
		return nil, refuse(400, "InvalidAvailabilityZone", "The zone(s) '%v' for resource '%s' is not supported. The supported zones for location '%s' are '1,2,3'", zones, key, region)
	}
	for _, z := range append([]any{""}, zones...) {
		if slices.Contains(f.restricted[region+" "+size], fmt.Sprint(z)) {
			return nil, notThere(size, region, "")
		}
	}
	for _, err := range []error{f.checkImage(in, p, s), f.checkOS(p), f.checkNICs(key, region, p, v), f.checkIdentity(in), f.room(region, size)} {
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (f *Fake) checkImage(in, p dict, s size) error {
	storage, _ := p["storageProfile"].(dict)
	image, _ := storage["imageReference"].(dict)
	disk, _ := storage["osDisk"].(dict)
	name := ""
	if disk != nil && disk["createOption"] == "Attach" {
		return f.checkAttached(in, p, image, disk)
	}
	switch {
	case image == nil:
		return badParameter("imageReference", "Required parameter 'imageReference' is missing (null).")
	case image["communityGalleryImageId"] != nil:
		name = fmt.Sprint(image["communityGalleryImageId"])
	case image["id"] != nil:
		name = fmt.Sprint(image["id"])
	default:
		name = fmt.Sprintf("%v:%v:%v:%v", image["publisher"], image["offer"], image["sku"], image["version"])
	}
	switch known := f.images[strings.ToLower(name)]; {
	case !known && image["communityGalleryImageId"] != nil:
		return refuse(404, "GalleryImageNotFound", "The gallery image %s is not available in %s region. Please contact image owner to replicate to this region, or change your requested region.", name, in["location"])
	case !known:
		return refuse(404, "PlatformImageNotFound", "The platform image '%s' is not available. Verify that all fields in the storage profile are correct. For more details about storage profile information, please refer to https://aka.ms/storageprofile", name)
	case f.plans[strings.ToLower(name)] && in["plan"] == nil:
		return refuse(400, "VMMarketplaceInvalidInput", "Creating a virtual machine from Marketplace image or a custom image sourced from a Marketplace image requires Plan information in the request. VM: '/%s'.", name)
	}
	if disk == nil || disk["createOption"] != "FromImage" {
		return badParameter("osDisk.createOption", "The value of parameter 'osDisk.createOption' is invalid: it must be FromImage for a machine from an image.")
	}
	if n, ok := disk["diskSizeGB"].(float64); ok && n < 30 {
		return badParameter("osDisk.diskSizeGB", "The specified disk size %v GB is smaller than the size of the corresponding disk in the VM image: 30 GB. This is not allowed. Please choose equal or greater size or do not specify an explicit size.", n)
	}
	if o := disk["deleteOption"]; o != nil && o != "Delete" && o != "Detach" {
		return badParameter("osDisk.deleteOption", "The value '%v' of parameter 'deleteOption' is invalid.", o)
	}
	managed, _ := disk["managedDisk"].(dict)
	if kind, _ := managed["storageAccountType"].(string); kind != "" {
		if !slices.Contains(diskKinds, kind) || strings.HasPrefix(kind, "Ultra") || strings.HasPrefix(kind, "PremiumV2") {
			return badParameter("osDisk.managedDisk.storageAccountType", "The value '%s' of parameter 'storageAccountType' is invalid for an OS disk.", kind)
		}
		if strings.HasPrefix(kind, "Premium") && !s.premium {
			return badParameter("osDisk.managedDisk.storageAccountType", "Requested operation cannot be performed because the VM size does not support the storage account type %s of disk. Consider updating the VM to a size that supports Premium storage.", kind)
		}
	}
	security, _ := p["securityProfile"].(dict)
	if security["securityType"] == "TrustedLaunch" && s.generations == "V1" {
		return refuse(400, "BadRequest", "The VM size does not support Trusted Launch.")
	}
	return nil
}

// attaches reports whether a machine starts from a disk that is there.
func attaches(storage dict) bool {
	disk, _ := storage["osDisk"].(dict)
	return disk["createOption"] == "Attach"
}

// checkAttached is for a machine that starts from a specialized disk:
// https://learn.microsoft.com/azure/virtual-machines/attach-os-disk.
func (f *Fake) checkAttached(in, p, image, disk dict) error {
	managed, _ := disk["managedDisk"].(dict)
	id, _ := managed["id"].(string)
	o := f.items[strings.ToLower(id)]
	switch {
	case image != nil:
		return badParameter("imageReference", "Cannot specify user image overrides for a disk already defined in the specified image reference.")
	case o == nil || f.deleting[strings.ToLower(id)] || !strings.EqualFold(fmt.Sprint(o["location"]), fmt.Sprint(in["location"])):
		return refuse(404, "NotFound", "Disk %s is not found.", id)
	case disk["osType"] != "Linux":
		return badParameter("osDisk.osType", "Required parameter 'osDisk.osType' is missing (null).")
	case managed["storageAccountType"] != nil:
		return refuse(400, "BadRequest", "storageAccountType of a disk that is attached cannot be given.")
	}
	if err := diskUsers(f, strings.ToLower(id)); err != nil {
		return err
	}
	q := o["properties"].(dict)
	security, _ := p["securityProfile"].(dict)
	has, _ := q["securityProfile"].(dict)
	if fmt.Sprint(security["securityType"]) != fmt.Sprint(has["securityType"]) {
		return refuse(400, "BadRequest", "Security type of VM is not compatible with the security type of attached OS Disk.")
	}
	if q["purchasePlan"] != nil && in["plan"] == nil {
		return refuse(400, "VMMarketplaceInvalidInput", "Creating a virtual machine from Marketplace image or a custom image sourced from a Marketplace image requires Plan information in the request.")
	}
	return nil
}

func (f *Fake) checkOS(p dict) error {
	os, _ := p["osProfile"].(dict)
	if storage, _ := p["storageProfile"].(dict); attaches(storage) {
		if os != nil {
			return badParameter("osProfile", "Parameter 'osProfile' is not allowed.")
		}
		return nil
	}
	if os == nil {
		return badParameter("osProfile", "Required parameter 'osProfile' is missing (null).")
	}
	user, _ := os["adminUsername"].(string)
	computer, _ := os["computerName"].(string)
	linux, _ := os["linuxConfiguration"].(dict)
	ssh, _ := linux["ssh"].(dict)
	keys := fakehttp.Items(ssh["publicKeys"])
	switch {
	case !userName.MatchString(user) || slices.Contains([]string{"root", "admin", "user", "test"}, user):
		return badParameter("adminUsername", "The Admin Username specified is not allowed.")
	case computer == "" || len(computer) > 64 || strings.ContainsAny(computer, "_.~!@#$%^&*()=+[]{}\\|;:'\",<>/? "):
		return badParameter("computerName", "Linux host name cannot exceed 64 characters in length or contain the following characters: ` ~ ! @ # $ %% ^ & * ( ) = + _ [ ] { } \\ | ; : ' \" , < > / ?.")
	case len(keys) == 0 && os["adminPassword"] == nil:
		return badParameter("linuxConfiguration.ssh.publicKeys", "Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	}
	for _, x := range keys {
		k, _ := x.(dict)
		if want := "/home/" + user + "/.ssh/authorized_keys"; k["path"] != want {
			return badParameter("linuxConfiguration.ssh.publicKeys.path", "Destination path for SSH public keys is currently limited to its default value %s due to a known issue in Linux provisioning agent.", want)
		}
		if data, _ := k["keyData"].(string); !strings.HasPrefix(data, "ssh-rsa ") && !strings.HasPrefix(data, "ssh-ed25519 ") {
			return badParameter("linuxConfiguration.ssh.publicKeys.keyData", "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid.")
		}
	}
	if data, ok := os["customData"].(string); ok {
		raw, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return badParameter("customData", "Custom data must be Base64 encoded.")
		}
		if len(raw) > 65535 {
			return badParameter("customData", "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters.")
		}
	}
	return nil
}

func (f *Fake) checkNICs(key, region string, p dict, v *vm) error {
	profile, _ := p["networkProfile"].(dict)
	nics := fakehttp.Items(profile["networkInterfaces"])
	if len(nics) == 0 {
		return badParameter("networkProfile", "Virtual machine must have at least one network interface.")
	}
	for _, x := range nics {
		n, _ := x.(dict)
		id := strings.ToLower(fmt.Sprint(n["id"]))
		o := f.items[id]
		if o == nil || f.deleting[id] || o["location"] != region {
			return refuse(404, "NotFound", "Resource %v not found.", n["id"])
		}
		if user := f.vmWith(id); user != "" && user != key {
			return refuse(400, "NicInUse", "Network Interface %v is used by existing VM %s.", n["id"], f.items[user]["id"])
		}
		if err := f.isReserved(id, key); err != nil {
			return err
		}
		v.nics = append(v.nics, id)
		q, _ := n["properties"].(dict)
		if q["deleteOption"] != "Delete" {
			continue
		}
		v.gone = append(v.gone, id)
		for _, c := range fakehttp.Items(o["properties"].(dict)["ipConfigurations"]) {
			if ref, ok := c.(dict)["properties"].(dict)["publicIPAddress"].(dict); ok {
				if option, _ := ref["properties"].(dict); option["deleteOption"] == "Delete" {
					v.gone = append(v.gone, strings.ToLower(ref["id"].(string)))
				}
			}
		}
	}
	return nil
}

func (f *Fake) checkIdentity(in dict) error {
	identity, _ := in["identity"].(dict)
	given, _ := identity["userAssignedIdentities"].(dict)
	if identity != nil && strings.Contains(fmt.Sprint(identity["type"]), "UserAssigned") && len(given) == 0 {
		return refuse(400, "InvalidIdentityResourceId", "The user assigned identities are missing.")
	}
	for ref := range given {
		if o := f.items[strings.ToLower(ref)]; o == nil {
			return refuse(400, "FailedIdentityOperation", "Identity operation for resource failed with error 'Failed to perform resource identity operation. Status: 'BadRequest'. Response: {\"error\":{\"code\":\"BadRequest\",\"message\":\"Resource '%s' was not found.\"}}'.", ref)
		}
		if !f.may("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action") {
			return refuse(403, "LinkedAuthorizationFailed", "The client '%s' with object id '%s' has permission to perform action 'Microsoft.Compute/virtualMachines/write' on scope; however, it does not have permission to perform action(s) 'Microsoft.ManagedIdentity/userAssignedIdentities/assign/action' on the linked scope(s) '%s'.", Client, Object, ref)
		}
	}
	return nil
}

// serveLocation is what there is in a region:
// https://learn.microsoft.com/rest/api/compute/usage/list, virtual-machine-images, community-gallery-images.
func (f *Fake) serveLocation(r *http.Request, t *target) (any, error) {
	region := ""
	if len(t.names) > 0 {
		region = strings.ToLower(t.names[0])
	}
	if !slices.Contains(regions, region) {
		return nil, refuse(400, "NoRegisteredProviderFound", "No registered resource provider found for location '%s'.", region)
	}
	switch t.kind() {
	case "locations/operations":
		return f.serveOperation(r, t.name())
	case "locations/usages":
		return dict{"value": f.usages(region)}, nil
	case "locations/publishers/artifacttypes/offers/skus/versions":
		// …/publishers/P/artifacttypes/vmimage/offers/O/skus/S/versions
		prefix := strings.ToLower(t.names[1] + ":" + t.names[3] + ":" + t.names[4] + ":")
		all, plan := []any{}, false
		for _, name := range sorted(f.images) {
			if strings.HasPrefix(name, prefix) {
				plan = plan || f.plans[name]
				all = append(all, dict{"name": "22.04.202606010", "location": region, "id": r.URL.Path + "/22.04.202606010"})
			}
		}
		if len(all) == 0 {
			return nil, refuse(404, "NotFound", "Artifact: VMImage was not found.")
		}
		if len(t.names) < len(t.kinds) {
			return all, nil
		}
		o := all[0].(dict)
		o["properties"] = dict{"hyperVGeneration": "V2", "architecture": "x64", "osDiskImage": dict{"operatingSystem": "Linux", "sizeInGb": 30}}
		if plan { // https://learn.microsoft.com/rest/api/compute/virtual-machine-images/get: properties.plan
			o["properties"].(dict)["plan"] = dict{"publisher": t.names[1], "product": t.names[3], "name": t.names[4]}
		}
		return o, nil
	case "locations/communitygalleries/images":
		id := "/communitygalleries/" + strings.ToLower(t.names[1]) + "/images/" + strings.ToLower(t.name())
		if !f.images[id] {
			return nil, refuse(404, "NotFound", "The community gallery image %s was not found in %s.", t.name(), region)
		}
		return dict{"name": t.name(), "location": region, "type": "Microsoft.Compute/locations/communityGalleries/images", "properties": dict{"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2"}, "identifier": dict{"uniqueId": "/CommunityGalleries/" + t.names[1] + "/Images/" + t.name()}}, nil
	}
	return nil, refuse(404, "InvalidResourceType", "there is no %s", r.URL.Path)
}

func (f *Fake) usages(region string) (all []dict) {
	one := func(name, title string, used, limit int) {
		if limit < 0 {
			limit = 100_000
		}
		all = append(all, dict{"unit": "Count", "currentValue": used, "limit": limit, "name": dict{"value": name, "localizedValue": title}})
	}
	total := -1
	if limit, ok := f.cores[region]; ok {
		total = limit
	}
	one("cores", "Total Regional vCPUs", f.coresUsed(region), total)
	have, _ := f.Owner.Quotas(background, region)
	used, low := 0, -1
	for _, q := range have {
		if family, spot := strings.CutPrefix(q.Name, "spot-"); spot {
			used += q.Used
			if q.Limit >= 0 && (low < 0 || q.Limit < low) {
				low = q.Limit
			}
		} else {
			one(family, family+" vCPUs", q.Used, q.Limit)
		}
	}
	one("lowPriorityCores", "Total Regional Low-priority vCPUs", used, low)
	one("virtualMachines", "Virtual Machines", len(f.vms), 25000)
	return all
}

// serveSKUs is https://learn.microsoft.com/rest/api/compute/resource-skus/list.
func (f *Fake) serveSKUs(r *http.Request) (any, error) {
	want := ""
	if text := r.URL.Query().Get("$filter"); text != "" {
		m := regexp.MustCompile(`(?i)^\s*location eq '(\w+)'\s*$`).FindStringSubmatch(text)
		if m == nil {
			return nil, refuse(400, "InvalidFilter", "Only a filter by location is supported: %s", text)
		}
		want = strings.ToLower(m[1])
	}
	var all []dict
	for _, region := range regions {
		if want != "" && want != region {
			continue
		}
		for _, name := range sorted(sizes) {
			s := sizes[name]
			architecture := "x64"
			if strings.Contains(name, "ps_") {
				architecture = "Arm64"
			}
			capability := func(pairs ...string) (out []any) {
				for n := 0; n < len(pairs); n += 2 {
					out = append(out, dict{"name": pairs[n], "value": pairs[n+1]})
				}
				return out
			}
			restrictions := []any{}
			for _, zone := range f.restricted[region+" "+name] {
				if zone == "" {
					restrictions = append(restrictions, dict{"type": "Location", "values": []any{region}, "restrictionInfo": dict{"locations": []any{region}}, "reasonCode": "NotAvailableForSubscription"})
					continue
				}
				restrictions = append(restrictions, dict{"type": "Zone", "values": []any{region}, "restrictionInfo": dict{"locations": []any{region}, "zones": []any{zone}}, "reasonCode": "NotAvailableForSubscription"})
			}
			all = append(all, dict{
				"resourceType": "virtualMachines", "name": name, "tier": "Standard", "size": strings.TrimPrefix(name, "Standard_"), "family": s.family, "locations": []any{region},
				"locationInfo": []any{dict{"location": region, "zones": []any{"1", "2", "3"}, "zoneDetails": []any{}}}, "restrictions": restrictions,
				"capabilities": capability("vCPUs", fmt.Sprint(s.cpus), "MemoryGB", fmt.Sprint(s.memory), "GPUs", fmt.Sprint(s.gpus), "HyperVGenerations", s.generations, "PremiumIO", map[bool]string{true: "True", false: "False"}[s.premium],
					"LowPriorityCapable", "True", "CpuArchitectureType", architecture, "AcceleratedNetworkingEnabled", "True", "vCPUsAvailable", fmt.Sprint(s.cpus)),
			})
		}
		all = append(all, dict{"resourceType": "disks", "name": "Premium_LRS", "size": "P10", "locations": []any{region}, "restrictions": []any{}})
	}
	return dict{"value": all}, nil
}

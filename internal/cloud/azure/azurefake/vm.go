package azurefake

import (
	"errors"
	"maps"
	"net/http"
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

// busy reports that machines there are still to end.
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

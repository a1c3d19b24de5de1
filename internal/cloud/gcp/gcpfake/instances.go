package gcpfake

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// vm is a machine besides what the model has of it.
type vm struct {
	id, zone, name, machine string
	body                    dict
	uses                    map[string][]string // paths by what they are: "network", "disk"
	spot, ends              bool                // ends: it is deleted when it is taken back
	takenBack               time.Time           // when; zero: not
	preempted, gone         bool
	autoDelete              []string // disks
	public                  bool
	group                   string    // that it is of
	until                   time.Time // its time is limited; zero: it is not
}

func (v *vm) path() string {
	return "projects/" + Project + "/zones/" + v.zone + "/instances/" + v.name
}

// What bodies may have, from the discovery document of compute v1.
const (
	instanceFields = "kind id name description zone machineType disks networkInterfaces metadata labels labelFingerprint tags scheduling serviceAccounts guestAccelerators canIpForward minCpuPlatform deletionProtection " +
		"shieldedInstanceConfig confidentialInstanceConfig displayDevice reservationAffinity resourcePolicies hostname params networkPerformanceConfig advancedMachineFeatures keyRevocationActionType sourceMachineImage " +
		"sourceMachineImageEncryptionKey privateIpv6GoogleAccess instanceEncryptionKey workloadIdentityConfig fingerprint localSsdEncryptionMode shieldedInstanceIntegrityPolicy"
	propertyFields = "description machineType disks networkInterfaces metadata labels tags scheduling serviceAccounts guestAccelerators canIpForward minCpuPlatform shieldedInstanceConfig confidentialInstanceConfig " +
		"reservationAffinity resourcePolicies networkPerformanceConfig advancedMachineFeatures keyRevocationActionType privateIpv6GoogleAccess resourceManagerTags workloadIdentityConfig localSsdEncryptionMode"
	diskFields   = "kind type mode source deviceName index boot initializeParams autoDelete licenses interface guestOsFeatures diskEncryptionKey diskSizeGb shieldedInstanceInitialState forceAttach savedState architecture"
	paramsFields = "diskName sourceImage diskSizeGb diskType sourceImageEncryptionKey labels description resourcePolicies onUpdateAction sourceSnapshot sourceSnapshotEncryptionKey provisionedIops licenses architecture " +
		"provisionedThroughput enableConfidentialCompute storagePool resourceManagerTags replicaZones"
	nicFields      = "kind network subnetwork networkIP name accessConfigs aliasIpRanges fingerprint stackType ipv6AccessConfigs nicType queueCount ipv6Address internalIpv6PrefixLength networkAttachment igmpQuery vlan parentNicName aliasIpv6Ranges enableVpcScopedDns serviceClassId"
	scheduleFields = "onHostMaintenance automaticRestart preemptible nodeAffinities minNodeCpus locationHint availabilityDomain provisioningModel instanceTerminationAction maxRunDuration terminationTime onInstanceStopAction " +
		"hostErrorTimeoutSeconds localSsdRecoveryTimeout skipGuestOsShutdown gracefulShutdown preemptionNoticeDuration"
)

// running reports that a machine is neither off nor gone.
func (f *Fake) running(p string) bool {
	v := f.vmAt(p)
	if v == nil {
		return false
	}
	m, _ := f.Machine(v.id)
	return m.State != fluffyapi.Stopped
}

// alive are the machines that are not gone.
func (f *Fake) alive() (all []*vm) {
	for _, v := range f.vms {
		if !v.gone {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *vm) int { return strings.Compare(a.id, b.id) })
	return all
}

// vmAt finds one by its path.
func (f *Fake) vmAt(p string) *vm {
	for _, v := range f.vms {
		if !v.gone && v.path() == p {
			return v
		}
	}
	return nil
}

// sweep notices what has become of machines meanwhile: disks go with those that are gone,
// and those whose time has come are taken back.
func (f *Fake) sweep() {
	states := map[string]fluffyapi.State{}
	for _, m := range f.Cloud.Machines() {
		states[m.ID] = m.State
	}
	for _, v := range f.alive() {
		if !v.takenBack.IsZero() && !time.Now().Before(v.takenBack) && states[v.id] == fluffyapi.Running {
			f.takeBack(v)
			if v.ends {
				states[v.id] = fluffyapi.Terminated
			}
		}
		if !v.until.IsZero() && !time.Now().Before(v.until) && states[v.id] != fluffyapi.Terminated {
			_ = f.Cloud.Kill(v.id, "its time is over")
			states[v.id] = fluffyapi.Terminated
		}
		if s, ok := states[v.id]; !ok || s == fluffyapi.Terminated {
			v.gone = true
			for _, d := range v.autoDelete {
				delete(f.items, d)
			}
		}
	}
	f.sweepNodes(states)
	f.fulfil()
	f.fulfilGroups()
}

// takeBack preempts a spot machine: https://cloud.google.com/compute/docs/instances/spot#preemption.
func (f *Fake) takeBack(v *vm) {
	v.takenBack, v.preempted = time.Time{}, true
	if v.ends {
		_ = f.Cloud.Kill(v.id, "preempted")
	} else {
		_ = f.Cloud.Halt(v.id)
	}
	f.happened(v, "compute.instances.preempted", "Instance was preempted.")
}

// happened keeps an operation that nobody asked for.
func (f *Fake) happened(v *vm, kind, message string) {
	op := &operation{id: f.newID(), kind: kind, scope: "zones/" + v.zone, target: v.path(), targetID: v.id, user: "system", began: time.Now(), ends: time.Now(), also: dict{"statusMessage": message}}
	f.operations = append(f.operations, op)
}

// words are Compute Engine's for the model's states:
// https://cloud.google.com/compute/docs/instances/instance-lifecycle.
var words = map[fluffyapi.State]string{
	fluffyapi.Running: "RUNNING", fluffyapi.Stopping: "STOPPING", fluffyapi.Stopped: "TERMINATED", fluffyapi.Terminating: "STOPPING", fluffyapi.Terminated: "STOPPING",
}

// told is an instance as it is answered.
func (f *Fake) told(i fluffyapi.Instance) dict {
	v := f.vms[i.ID]
	o := maps.Clone(v.body)
	public, private := f.Addresses(i)
	word, ok := words[i.State]
	switch {
	case i.State == fluffyapi.Pending && public == "":
		word = "PROVISIONING"
	case i.State == fluffyapi.Pending:
		word = "STAGING"
	case !ok:
		word = string(i.State)
	}
	o["status"], o["creationTimestamp"] = word, i.Created.UTC().Format(time.RFC3339Nano)
	if i.State == fluffyapi.Stopped || i.State == fluffyapi.Stopping {
		o["lastStopTimestamp"] = now()
	}
	var nics []any
	for n, x := range fakehttp.Items(v.body["networkInterfaces"]) {
		nic := maps.Clone(x.(dict))
		if private != "" {
			nic["networkIP"] = private
			if n > 0 {
				nic["networkIP"] = strings.Replace(private, "10.", fmt.Sprintf("10.%d", n), 1)
			}
		}
		var access []any
		for _, a := range fakehttp.Items(nic["accessConfigs"]) {
			config := maps.Clone(a.(dict))
			if public != "" && n == 0 && i.State != fluffyapi.Stopped { // an ephemeral one is released
				config["natIP"] = public
			}
			access = append(access, config)
		}
		if access != nil {
			nic["accessConfigs"] = access
		}
		nics = append(nics, nic)
	}
	o["networkInterfaces"] = nics
	return o
}

// instance finds the one that a call is about.
func (f *Fake) instance(r *http.Request) (*vm, error) {
	p := "projects/" + Project + "/zones/" + r.PathValue("zone") + "/instances/" + r.PathValue("name")
	v := f.vmAt(p)
	if v == nil { // by its id, too
		if w := f.vms[r.PathValue("name")]; w != nil && !w.gone && w.zone == r.PathValue("zone") {
			v, p = w, w.path()
		}
	}
	if v != nil && f.young[p] > 0 {
		f.young[p]--
		v = nil
	}
	if v == nil {
		return nil, notFound(p)
	}
	return v, nil
}

// instanceRoutes are those of https://cloud.google.com/compute/docs/reference/rest/v1/instances.
func (f *Fake) instanceRoutes() {
	base := "/compute/{version}/projects/{project}/zones/{zone}/instances"
	list := func(r *http.Request) (all []scoped, err error) {
		f.sweep()
		instances, err := f.Instances(r)
		for _, i := range instances {
			v := f.vms[i.ID]
			// What is gone may be listed for a while, as running.
			if v != nil && (!v.gone || i.State == fluffyapi.Running) && (r.PathValue("zone") == "" || v.zone == r.PathValue("zone")) {
				all = append(all, scoped{"zones/" + v.zone, f.told(i)})
			}
		}
		return all, err
	}
	f.on("GET", base, "instances.list", "compute.instances.list", nil, func(r *http.Request, _ dict) (any, error) {
		found, err := list(r)
		if err != nil {
			return nil, err
		}
		var all []dict
		for _, s := range found {
			all = append(all, s.thing)
		}
		return f.page(r, "compute#instanceList", all)
	})
	f.on("GET", "/compute/{version}/projects/{project}/aggregated/instances", "instances.list", "compute.instances.list", nil, func(r *http.Request, _ dict) (any, error) {
		all, err := list(r)
		if err != nil {
			return nil, err
		}
		return f.aggregate(r, "compute#instanceAggregatedList", "instances", all)
	})
	f.on("GET", base+"/{name}", "instances.get", "compute.instances.get", nil, func(r *http.Request, _ dict) (any, error) {
		f.sweep()
		v, no := f.instance(r)
		if no != nil {
			return nil, no
		}
		i, err := f.Owner.Instance(r.Context(), v.id)
		if err != nil {
			return nil, notFound(v.path())
		}
		return f.told(i), nil
	})
	f.on("POST", base, "instances.create", "compute.instances.create", nil, f.insert)
	f.on("POST", base+"/bulkInsert", "instances.create", "compute.instances.create", nil, f.bulkInsert)
	f.on("POST", "/compute/{version}/projects/{project}/regions/{region}/instances/bulkInsert", "instances.create", "compute.instances.create", nil, f.bulkInsert)
	about := func(method, path, op, permission string, do func(r *http.Request, v *vm, in dict) (*operation, error)) {
		f.on(method, base+"/{name}"+path, op, "compute.instances."+permission, nil, func(r *http.Request, in dict) (any, error) {
			f.sweep()
			v, no := f.instance(r)
			if no != nil {
				for id, w := range f.vms { // ended once more, the model may say another word
					if w.gone && w.zone == r.PathValue("zone") && w.name == r.PathValue("name") && method == "DELETE" {
						if _, err := f.Terminate(r, id); err != nil {
							return nil, err
						}
					}
				}
				return nil, no
			}
			made, no := do(r, v, in)
			if no != nil {
				return nil, no
			}
			return made.told(), nil
		})
	}
	about("DELETE", "", "instances.terminate", "delete", func(r *http.Request, v *vm, _ dict) (*operation, error) {
		if v.body["deletionProtection"] == true {
			return nil, refuse(400, "resourceNotDeletable", "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.")
		}
		m, _ := f.Machine(v.id)
		if m.State == fluffyapi.Terminating {
			if _, err := f.Terminate(r, v.id); err != nil { // the model has another word
				return nil, err
			}
			return nil, notReady(v.path())
		}
		return f.move(r, v, "delete", func() error { _, err := f.Terminate(r, v.id); return err }, func() bool { return v.gone })
	})
	about("POST", "/stop", "instances.stop", "stop", func(r *http.Request, v *vm, _ dict) (*operation, error) {
		if len(v.uses["scratch"]) > 0 && r.URL.Query().Get("discardLocalSsd") == "" {
			return nil, refuse(400, "badRequest", "VM has a Local SSD attached but an undefined value for `discard-local-ssd`. If using gcloud, please add `--discard-local-ssd=false` or `--discard-local-ssd=true` to your command.")
		}
		return f.move(r, v, "stop", func() error { _, err := f.Owner.Stop(r.Context(), v.id); return err }, func() bool { return f.is(v, fluffyapi.Stopped) })
	})
	about("POST", "/start", "instances.start", "start", func(r *http.Request, v *vm, _ dict) (*operation, error) {
		return f.move(r, v, "start", func() error {
			if no := f.gpuRoom(v.machine, 1); no != nil && !f.is(v, fluffyapi.Running) {
				return no
			}
			_, err := f.Owner.Start(r.Context(), v.id, fluffyapi.Start{})
			return err
		}, func() bool { return !f.is(v, fluffyapi.Pending) })
	})
	about("POST", "/reset", "instances.reset", "reset", func(r *http.Request, v *vm, _ dict) (*operation, error) {
		if !f.is(v, fluffyapi.Running) {
			return nil, notReady(v.path())
		}
		return f.begin(r, "reset", "zones/"+v.zone, v.path(), v.id), nil
	})
	change := func(verb, permission string, do func(v *vm, in dict) error) {
		about("POST", "/"+verb, "instances.put", permission, func(r *http.Request, v *vm, in dict) (*operation, error) {
			if no := do(v, maps.Clone(in)); no != nil {
				return nil, no
			}
			return f.begin(r, verb, "zones/"+v.zone, v.path(), v.id), nil
		})
	}
	change("setLabels", "setLabels", func(v *vm, in dict) error {
		if no := cmpError(known(in, "labels labelFingerprint", ""), checkLabels(in["labels"], "labels")); no != nil {
			return no
		}
		if in["labelFingerprint"] != v.body["labelFingerprint"] {
			return refuse(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
		}
		v.body["labels"], v.body["labelFingerprint"] = in["labels"], fingerprint(in["labels"])
		return nil
	})
	replace := func(field string, check func(any) error) func(*vm, dict) error {
		return func(v *vm, in dict) error {
			if no := check(in); no != nil {
				return no
			}
			if in["fingerprint"] != v.body[field].(dict)["fingerprint"] {
				return refuse(412, "conditionNotMet", "Supplied fingerprint does not match current %s fingerprint.", field)
			}
			v.body[field] = dict{"kind": "compute#" + field, "items": in["items"], "fingerprint": fingerprint(in["items"])}
			return nil
		}
	}
	change("setMetadata", "setMetadata", replace("metadata", checkMetadata))
	change("setTags", "setTags", replace("tags", checkTags))
	change("setServiceAccount", "setServiceAccount", func(v *vm, in dict) error {
		if !f.is(v, fluffyapi.Stopped) {
			return refuse(400, "resourceNotReady", "The instance must be stopped before the service account can be changed.")
		}
		if no := f.checkAccounts([]any{in}); no != nil {
			return no
		}
		v.body["serviceAccounts"] = []any{in}
		return nil
	})
	change("setMachineType", "setMachineType", func(v *vm, in dict) error {
		if !f.is(v, fluffyapi.Stopped) {
			return refuse(400, "resourceNotReady", "Instance is starting, running or stopping; it must be stopped.")
		}
		return refuse(400, "invalid", "the machine type of a machine of the fake cannot be changed")
	})
	change("setScheduling", "setScheduling", func(v *vm, in dict) error {
		if no := known(in, scheduleFields, "scheduling"); no != nil {
			return no
		}
		schedule := maps.Clone(v.body["scheduling"].(dict))
		maps.Copy(schedule, in)
		v.body["scheduling"] = schedule
		return nil
	})
	about("POST", "/attachDisk", "instances.put", "attachDisk", func(r *http.Request, v *vm, in dict) (*operation, error) {
		source, _ := in["source"].(string)
		if source == "" {
			return nil, missing("source")
		}
		p := path(Project, source)
		if f.items[p] == nil {
			return nil, notFound(p)
		}
		if users := f.usersOf(p, "disk"); len(users) > 0 && in["mode"] != "READ_ONLY" {
			return nil, inUse("disks", p, users[0])
		}
		v.uses["disk"] = append(v.uses["disk"], p)
		return f.begin(r, "attachDisk", "zones/"+v.zone, v.path(), v.id), nil
	})
}

func notReady(p string) *fakehttp.Reply {
	return refuse(400, "resourceNotReady", "The resource '%s' is not ready", p)
}

// is reports that the model has a machine in a state.
func (f *Fake) is(v *vm, state fluffyapi.State) bool {
	m, ok := f.Machine(v.id)
	return ok && m.State == state
}

// move begins a change of a machine's state, which may fail in the operation.
func (f *Fake) move(r *http.Request, v *vm, kind string, do func() error, after func() bool) (*operation, error) {
	no := f.fails(kind)
	if no == nil {
		var e *fluffyapi.Error
		var failed *opError
		switch err := do(); {
		case errors.As(err, &failed):
			no = failed
		case errors.As(err, &e) && (e.Code == fluffyapi.NoCapacity || e.Code == fluffyapi.QuotaExceeded):
			no = out(v.zone, e, func() *opError { return f.quotaError(v.zone, v.machine, v.spot) })
		case errors.As(err, &e) && e.Code == fluffyapi.WrongState:
			return nil, notReady(v.path())
		case err != nil:
			return nil, err
		}
	}
	op := f.begin(r, kind, "zones/"+v.zone, v.path(), v.id)
	op.no, op.after = no, func() bool { f.sweep(); return v.gone || after() }
	return op, nil
}

func (e *opError) Error() string { return e.code + ": " + e.message }

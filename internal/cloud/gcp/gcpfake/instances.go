package gcpfake

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
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

// running tells that a machine is neither off nor gone.
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

// is tells that the model has a machine in a state.
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

// gpusIn are the GPUs of a model's type.
func (f *Fake) gpusIn(machine string) (n int) {
	for gpu, count := range f.Cloud.Accelerators(machine) {
		if accelerators[gpu] != "" {
			n += int(count)
		}
	}
	return n
}

func (f *Fake) gpusInUse() (n int) {
	for _, m := range f.Cloud.Machines() {
		if m.State != fluffyapi.Stopped && m.State != fluffyapi.Terminated {
			n += f.gpusIn(m.Type)
		}
	}
	return n
}

// gpuRoom refuses more GPUs than the project may have in all of the world.
func (f *Fake) gpuRoom(machine string, machines int) error {
	n := f.gpusIn(machine) * machines
	if f.gpus < 0 || n == 0 || f.gpusInUse()+n <= f.gpus {
		return nil
	}
	return overQuota("GPUS_ALL_REGIONS", float64(f.gpus), "", "global", nil)
}

// overQuota is an error of an operation:
// https://cloud.google.com/compute/resource-usage#error_messages.
func overQuota(metric string, limit float64, region, scope string, dimensions dict) *opError {
	where := "globally"
	if region != "" {
		where = "in region " + region
		dimensions = dict{"region": region}
	}
	return &opError{code: "QUOTA_EXCEEDED", status: 403, statusText: "FORBIDDEN", message: fmt.Sprintf("Quota '%s' exceeded.  Limit: %.1f %s.", metric, limit, where), details: []any{dict{"quotaInfo": dict{
		"metricName": "compute.googleapis.com/" + strings.ToLower(metric), "limitName": strings.ReplaceAll(metric, "_", "-") + "-per-project-" + scope, "dimensions": dimensions, "limit": limit,
	}}}}
}

// quotaError is the one of a region that a machine type would go over.
func (f *Fake) quotaError(zone, machine string, spot bool) *opError {
	name, region := "cpus", regionOf(zone)
	for gpu := range f.Cloud.Accelerators(machine) {
		name = gpu
	}
	if spot {
		name = "spot-" + name
	}
	limit := 0.0
	all, _ := f.Owner.Quotas(background, region)
	for _, q := range all {
		if q.Name == name {
			limit = float64(q.Limit)
		}
	}
	return overQuota(metric(name), limit, region, "region", nil)
}

// plan is what a body asks for.
type plan struct {
	machine    string // as the model has it
	spot, ends bool
	uses       map[string][]string
	body       dict
	disks      []plannedDisk
	public     bool
}

type plannedDisk struct {
	name, kind string
	gb         int
	boot, auto bool
	labels     any
}

var metadataKey = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

func checkMetadata(v any) error {
	in, _ := v.(dict)
	if no := known(in, "kind items fingerprint", "metadata"); no != nil {
		return no
	}
	seen, total := map[string]bool{}, 0
	for n, x := range fakehttp.Items(in["items"]) {
		item, _ := x.(dict)
		key, _ := item["key"].(string)
		value, _ := item["value"].(string)
		if !metadataKey.MatchString(key) || seen[key] {
			return invalid(fmt.Sprintf("metadata.items[%d].key", n), key, "Must be unique and a match of regex '[a-zA-Z0-9-_]{1,128}'")
		}
		if len(value) > 256<<10 {
			return refuse(400, "fieldSizeTooLarge", "Value for field 'resource.metadata.items[%d].value' is too large: maximum size 262144 character(s); actual size %d.", n, len(value))
		}
		seen[key], total = true, total+len(key)+len(value)
	}
	if total > 512<<10 {
		return refuse(400, "metadataTooLarge", "Metadata size limit exceeded: %d bytes of 524288.", total)
	}
	return nil
}

func checkTags(v any) error {
	in, _ := v.(dict)
	if no := known(in, "items fingerprint", "tags"); no != nil {
		return no
	}
	items := fakehttp.Items(in["items"])
	if len(items) > 64 {
		return invalid("tags.items", len(items), "At most 64 tags.")
	}
	for n, t := range items {
		if !rfc1035.MatchString(fmt.Sprint(t)) {
			return invalid(fmt.Sprintf("tags.items[%d]", n), t, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		}
	}
	return nil
}

func (f *Fake) checkAccounts(accounts []any) error {
	if len(accounts) > 1 {
		return invalid("serviceAccounts", len(accounts), "At most one service account is allowed.")
	}
	for _, x := range accounts {
		a, _ := x.(dict)
		email, _ := a["email"].(string)
		if email == "default" {
			email = Machine
		}
		if !f.exists("projects/"+Project+"/serviceAccounts/"+email) || !f.may("iam.serviceAccounts.actAs") {
			return refuse(400, "serviceAccountAccessDenied", "The user does not have access to service account '%s'.  User: '%s'.  Ask a project owner to grant you the iam.serviceAccountUser role on the service account", email, User)
		}
		for _, s := range fakehttp.Items(a["scopes"]) {
			if !strings.HasPrefix(fmt.Sprint(s), "https://www.googleapis.com/auth/") {
				return invalid("serviceAccounts[0].scopes", s, "Invalid scope.")
			}
		}
	}
	return nil
}

// check reads the body of an insertion. In properties, as bulk insertions and templates
// have them, types are names; elsewhere they are URLs.
func (f *Fake) check(zone string, in dict, properties bool) (*plan, error) {
	fields := instanceFields
	if properties {
		fields = propertyFields
	}
	p := &plan{uses: map[string][]string{}, body: maps.Clone(in)}
	if no := cmpError(known(in, fields, ""), checkLabels(in["labels"], "labels"), checkMetadata(in["metadata"]), checkTags(in["tags"]), f.checkAccounts(fakehttp.Items(in["serviceAccounts"]))); no != nil {
		return nil, no
	}
	machine, no := typeName(in["machineType"], "machineTypes", "machineType", zone, properties)
	if no != nil {
		return nil, no
	}
	t, ok := machineTypes[machine]
	if !ok {
		return nil, notFound("projects/" + Project + "/zones/" + zone + "/machineTypes/" + machine)
	}
	p.body["machineType"] = link("projects/" + Project + "/zones/" + zone + "/machineTypes/" + machine)
	p.machine = machine
	gpus := t.gpus
	for n, x := range fakehttp.Items(in["guestAccelerators"]) {
		a, _ := x.(dict)
		gpu, no := typeName(a["acceleratorType"], "acceleratorTypes", fmt.Sprintf("guestAccelerators[%d].acceleratorType", n), zone, properties)
		if no != nil {
			return nil, no
		}
		count, _ := strconv.Atoi(fmt.Sprint(a["acceleratorCount"]))
		switch {
		case accelerators[gpu] == "":
			return nil, notFound("projects/" + Project + "/zones/" + zone + "/acceleratorTypes/" + gpu)
		case t.gpu == gpu && t.gpus == count:
			continue
		case t.gpu != "" || !strings.HasPrefix(machine, "n1-"):
			return nil, refuse(400, "badRequest", "[%s] features and [instance with guest accelerators %s] are not compatible for creating instance.", machine, gpu)
		case !slices.Contains(attached[gpu], count):
			return nil, invalid(fmt.Sprintf("guestAccelerators[%d].acceleratorCount", n), count, "The number of accelerators is not supported.")
		}
		p.machine, gpus = modelType(machine, gpu, count), count
	}
	if no := p.schedule(in, gpus); no != nil {
		return nil, no
	}
	if no := f.checkDisks(zone, in, machine, p, properties); no != nil {
		return nil, no
	}
	if no := f.checkNetworks(zone, in, p); no != nil {
		return nil, no
	}
	for _, x := range fakehttp.Items(in["resourcePolicies"]) {
		q := path(Project, fmt.Sprint(x))
		if properties && !strings.Contains(fmt.Sprint(x), "/") {
			q = "projects/" + Project + "/regions/" + regionOf(zone) + "/resourcePolicies/" + fmt.Sprint(x)
		}
		o := f.items[q]
		if o == nil {
			return nil, notFound(q)
		}
		p.uses["policy"] = append(p.uses["policy"], q)
	}
	return p, f.checkReservation(zone, in)
}

// checkReservation is https://cloud.google.com/compute/docs/instances/reservations-consume.
func (f *Fake) checkReservation(zone string, in dict) error {
	affinity, _ := in["reservationAffinity"].(dict)
	switch kind := affinity["consumeReservationType"]; kind {
	case nil, "ANY_RESERVATION", "NO_RESERVATION":
	case "SPECIFIC_RESERVATION":
		values := fakehttp.Items(affinity["values"])
		if affinity["key"] != "compute.googleapis.com/reservation-name" || len(values) == 0 {
			return invalid("reservationAffinity", affinity["key"], "A specific reservation needs the key compute.googleapis.com/reservation-name and its values.")
		}
		for _, v := range values {
			name := fmt.Sprint(v)
			p := "projects/" + Project + "/zones/" + zone + "/reservations/" + name[strings.LastIndex(name, "/")+1:]
			if f.items[p] == nil {
				return refuse(400, "invalid", "Invalid value for field 'resource.reservationAffinity': '%s'. Specified reservations [%s] do not exist.", name, name)
			}
		}
	default:
		return invalid("reservationAffinity.consumeReservationType", kind, "No such value.")
	}
	return nil
}

// typeName is that of a machine or accelerator type.
func typeName(ref any, collection, field, zone string, properties bool) (string, error) {
	s, _ := ref.(string)
	if s == "" {
		return "", missing(field)
	}
	if !strings.Contains(s, "/") {
		if !properties {
			return "", invalid(field, s, "The URL is malformed.")
		}
		return s, nil
	}
	parts := strings.Split(path(Project, s), "/")
	switch {
	case properties:
		return "", invalid(field, s, "Must be a match of regex '[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?': a name, not a URL.")
	case len(parts) != 6 || parts[2] != "zones" || parts[4] != collection:
		return "", invalid(field, s, "The URL is malformed.")
	case parts[3] != zone:
		return "", invalid(field, s, "Zone '%s' does not match the zone '%s' of the instance.", parts[3], zone)
	}
	return parts[5], nil
}

// schedule are the rules of https://cloud.google.com/compute/docs/reference/rest/v1/instances#Scheduling.
func (p *plan) schedule(in dict, gpus int) error {
	s, _ := in["scheduling"].(dict)
	if no := known(s, scheduleFields, "scheduling"); no != nil {
		return no
	}
	out := dict{"onHostMaintenance": "MIGRATE", "automaticRestart": true, "preemptible": false, "provisioningModel": "STANDARD"}
	p.spot = s["provisioningModel"] == "SPOT" || s["preemptible"] == true
	if p.spot {
		out = dict{"onHostMaintenance": "TERMINATE", "automaticRestart": false, "preemptible": true, "provisioningModel": "SPOT", "instanceTerminationAction": "STOP"}
	}
	maps.Copy(out, s)
	limited := s["maxRunDuration"] != nil || s["terminationTime"] != nil
	switch model := out["provisioningModel"]; {
	case !slices.Contains([]any{"STANDARD", "SPOT", "RESERVATION_BOUND", "FLEX_START"}, model):
		return invalid("scheduling.provisioningModel", model, "No such value.")
	case p.spot && out["automaticRestart"] == true:
		return invalid("scheduling.automaticRestart", true, "Automatic restart must be disabled for Spot and preemptible instances.")
	case p.spot && out["onHostMaintenance"] != "TERMINATE":
		return invalid("scheduling.onHostMaintenance", out["onHostMaintenance"], "Spot and preemptible instances must have the on host maintenance option TERMINATE.")
	case s["instanceTerminationAction"] != nil && !p.spot && !limited && model == "STANDARD":
		return invalid("scheduling.instanceTerminationAction", s["instanceTerminationAction"], "You cannot specify a termination action for a VM instance that has the standard provisioning model (default) unless it has a limited run time.")
	case gpus > 0 && out["onHostMaintenance"] != "TERMINATE":
		return refuse(400, "badRequest", "Instances with guest accelerators do not support live migration.")
	}
	p.ends = out["instanceTerminationAction"] == "DELETE"
	p.body["scheduling"] = out
	return nil
}

// family tells that a machine type is of one of the families.
func family(machine string, of ...string) bool {
	return slices.ContainsFunc(of, func(prefix string) bool { return strings.HasPrefix(machine, prefix+"-") })
}

// fitsDisk tells that a machine can have such a disk:
// https://cloud.google.com/compute/docs/disks/persistent-disks#machine_series_support.
func fitsDisk(machine, disk string) bool {
	hyper := strings.HasPrefix(disk, "hyperdisk-")
	switch {
	case family(machine, "n4", "a3-ultragpu", "a4"):
		return hyper
	case disk == "pd-standard":
		return !family(machine, "a3", "g2", "c3")
	case disk == "pd-extreme":
		return family(machine, "n2", "a3", "m1", "m2", "m3")
	case hyper:
		return !family(machine, "n1", "e2", "f1")
	}
	return true
}

func (f *Fake) checkDisks(zone string, in dict, machine string, p *plan, properties bool) error {
	disks := fakehttp.Items(in["disks"])
	if in["sourceMachineImage"] != nil {
		if q := path(Project, fmt.Sprint(in["sourceMachineImage"])); f.items[q] == nil {
			return notFound(q)
		}
		if len(disks) == 0 {
			p.disks = append(p.disks, plannedDisk{kind: "pd-balanced", gb: 10, boot: true, auto: true})
			return nil
		}
	}
	boots := 0
	for n, x := range disks {
		d, _ := x.(dict)
		at := fmt.Sprintf("disks[%d]", n)
		params, _ := d["initializeParams"].(dict)
		if no := cmpError(known(d, diskFields, at), known(params, paramsFields, at+".initializeParams"), checkLabels(params["labels"], at+".initializeParams.labels")); no != nil {
			return no
		}
		if d["boot"] == true {
			boots++
		}
		if source, _ := d["source"].(string); source != "" {
			q := path(Project, source)
			if f.items[q] == nil {
				return notFound(q)
			}
			if users := f.usersOf(q, "disk"); len(users) > 0 && d["mode"] != "READ_ONLY" {
				return inUse("disks", q, users[0])
			}
			p.uses["disk"] = append(p.uses["disk"], q)
			continue
		}
		kind, ref := "pd-standard", params["diskType"]
		if s, _ := ref.(string); s != "" {
			if !strings.Contains(s, "/") && properties {
				ref = "zones/" + zone + "/diskTypes/" + s
			} else if !strings.Contains(s, "/") {
				return invalid(at+".initializeParams.diskType", s, "The URL is malformed.")
			} else if properties {
				return invalid(at+".initializeParams.diskType", s, "Must be a match of regex '[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?': a name, not a URL.")
			}
			if no := checkDiskType(zone, ref, at+".initializeParams.diskType"); no != nil {
				return no
			}
			kind = s[strings.LastIndex(s, "/")+1:]
		}
		if d["type"] == "SCRATCH" {
			if kind != "local-ssd" {
				return invalid(at+".initializeParams.diskType", kind, "A scratch disk must be of the type local-ssd.")
			}
			p.uses["scratch"] = append(p.uses["scratch"], at)
			continue
		}
		if !fitsDisk(machine, kind) {
			return refuse(400, "badRequest", "[%s] features and [instance type %s] are not compatible for creating instance.", kind, machine)
		}
		size := params["diskSizeGb"]
		if size == nil {
			size = d["diskSizeGb"]
		}
		gb, no := f.diskSize(size, params["sourceImage"], at+".initializeParams.diskSizeGb")
		if no != nil {
			return no
		}
		if d["boot"] == true && params["sourceImage"] == nil && params["sourceSnapshot"] == nil {
			return invalid(at, "", "Boot disk must have a source or an image.")
		}
		name, _ := params["diskName"].(string)
		if name != "" {
			if no := checkName(name); no != nil {
				return no
			}
			if q := "projects/" + Project + "/zones/" + zone + "/disks/" + name; f.items[q] != nil {
				return refuse(409, "alreadyExists", "The resource '%s' already exists", q)
			}
		}
		p.disks = append(p.disks, plannedDisk{name, kind, max(gb, 1), d["boot"] == true, d["autoDelete"] == true, params["labels"]})
	}
	if boots != 1 || fakehttp.Items(in["disks"])[0].(dict)["boot"] != true {
		return invalid("disks", boots, "Exactly one boot disk must be given, and first.")
	}
	return nil
}

func (f *Fake) checkNetworks(zone string, in dict, p *plan) error {
	nics := fakehttp.Items(in["networkInterfaces"])
	if len(nics) == 0 {
		return invalid("networkInterfaces", "", "At least one network interface is required.")
	}
	var told []any
	for n, x := range nics {
		nic, _ := x.(dict)
		at := fmt.Sprintf("networkInterfaces[%d]", n)
		if no := known(nic, nicFields, at); no != nil {
			return no
		}
		network, _ := nic["network"].(string)
		subnet, _ := nic["subnetwork"].(string)
		if network == "" && subnet == "" {
			network = "global/networks/default"
		}
		if network != "" {
			if network = path(Project, network); !f.exists(network) {
				return notFound(network)
			}
			if subnet == "" {
				if f.items[network]["autoCreateSubnetworks"] != true {
					return invalid(at, "", "Network interface must specify a subnet if the network resource is in custom subnet mode.")
				}
				subnet = "regions/" + regionOf(zone) + "/subnetworks/" + network[strings.LastIndex(network, "/")+1:]
			}
		}
		if subnet = path(Project, subnet); !f.exists(subnet) {
			return notFound(subnet)
		}
		if strings.Split(subnet, "/")[3] != regionOf(zone) {
			return invalid(at+".subnetwork", subnet, "Subnetwork must be in the region '%s' of the instance.", regionOf(zone))
		}
		of := path(Project, fmt.Sprint(f.items[subnet]["network"]))
		if network != "" && of != network {
			return invalid(at+".subnetwork", subnet, "The subnetwork is not of the network '%s'.", network)
		}
		if slices.Contains(p.uses["network"], of) {
			return invalid(at+".network", of, "Networks must be distinct for NICs in the same zone.")
		}
		if !f.may("compute.subnetworks.use") {
			return refuse(403, "forbidden", "Required 'compute.subnetworks.use' permission for '%s'", subnet)
		}
		access := fakehttp.Items(nic["accessConfigs"])
		if len(access) > 1 {
			return invalid(at+".accessConfigs", len(access), "At most one access config.")
		}
		if len(access) == 1 {
			if !f.may("compute.subnetworks.useExternalIp") {
				return refuse(403, "forbidden", "Required 'compute.subnetworks.useExternalIp' permission for '%s'", subnet)
			}
			if no := known(access[0].(dict), "kind type name natIP networkTier setPublicPtr publicPtrDomainName externalIpv6 externalIpv6PrefixLength securityPolicy", at+".accessConfigs[0]"); no != nil {
				return no
			}
			if t := access[0].(dict)["type"]; t != nil && t != "ONE_TO_ONE_NAT" {
				return invalid(at+".accessConfigs[0].type", t, "No such value.")
			}
			p.public = true
		}
		p.uses["network"], p.uses["subnetwork"] = append(p.uses["network"], of), append(p.uses["subnetwork"], subnet)
		shown := maps.Clone(nic)
		shown["name"], shown["network"], shown["subnetwork"], shown["fingerprint"], shown["kind"] = fmt.Sprintf("nic%d", n), link(of), link(subnet), fingerprint(n), "compute#networkInterface"
		told = append(told, shown)
	}
	p.body["networkInterfaces"] = told
	return nil
}

// create makes a machine with its disks.
func (f *Fake) create(zone, name string, p *plan) (*vm, error) {
	if no := f.gpuRoom(p.machine, 1); no != nil {
		return nil, no
	}
	i, err := f.Owner.Create(background, fluffyapi.Create{ClientToken: f.NewID(), Name: zone + "/" + name, Zone: zone, Type: p.machine, Spot: p.spot})
	if err != nil {
		return nil, err
	}
	v := &vm{id: i.ID, zone: zone, name: name, machine: p.machine, body: maps.Clone(p.body), uses: map[string][]string{}, spot: p.spot, ends: p.ends, public: p.public}
	for as, paths := range p.uses {
		v.uses[as] = slices.Clone(paths)
	}
	b := v.body
	b["kind"], b["id"], b["name"], b["zone"], b["selfLink"] = "compute#instance", i.ID, name, link("projects/"+Project+"/zones/"+zone), link(v.path())
	b["labelFingerprint"], b["cpuPlatform"], b["lastStartTimestamp"] = fingerprint(b["labels"]), "Intel Broadwell", now()
	for _, field := range []string{"metadata", "tags"} {
		given, _ := b[field].(dict)
		b[field] = dict{"kind": "compute#" + field, "items": given["items"], "fingerprint": fingerprint(given["items"])}
	}
	var disks []any
	for n, d := range p.disks {
		disk := d.name
		if disk == "" && d.boot {
			disk = name
		} else if disk == "" {
			disk = fmt.Sprintf("%s-%d", name, n)
		}
		q := "projects/" + Project + "/zones/" + zone + "/disks/" + disk
		f.keep("compute#disk", true, q, dict{"name": disk, "sizeGb": strconv.Itoa(d.gb), "status": "READY", "type": link("projects/" + Project + "/zones/" + zone + "/diskTypes/" + d.kind), "labels": d.labels})
		v.uses["disk"] = append(v.uses["disk"], q)
		if d.auto {
			v.autoDelete = append(v.autoDelete, q)
		}
		disks = append(disks, dict{"kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "source": link(q), "deviceName": disk, "index": n, "boot": d.boot, "autoDelete": d.auto, "diskSizeGb": strconv.Itoa(d.gb), "interface": "SCSI"})
	}
	b["disks"] = disks
	f.vms[i.ID] = v
	if f.lag > 0 {
		f.young[v.path()] = f.lag
	}
	return v, nil
}

// taken refuses a name that a machine, or its boot disk, would have twice.
func (f *Fake) taken(zone, name string) error {
	p := "projects/" + Project + "/zones/" + zone
	if f.vmAt(p+"/instances/"+name) != nil {
		return refuse(409, "alreadyExists", "The resource '%s/instances/%s' already exists", p, name)
	}
	if f.items[p+"/disks/"+name] != nil {
		return refuse(409, "alreadyExists", "The resource '%s/disks/%s' already exists", p, name)
	}
	return nil
}

// refused is the answer, or the operation's error, for a creation that got nothing.
func (f *Fake) refused(zone string, p *plan, err error) (*opError, error) {
	var e *fluffyapi.Error
	var no *opError
	if errors.As(err, &e) {
		if e.Code != fluffyapi.NoCapacity && e.Code != fluffyapi.QuotaExceeded {
			return nil, err
		}
		no = out(zone, e, func() *opError { return f.quotaError(zone, p.machine, p.spot) })
	} else if !errors.As(err, &no) {
		return nil, err
	}
	switch {
	case no.code == "QUOTA_EXCEEDED" && f.quotaHTTP:
		return nil, refuse(403, "quotaExceeded", "%s", no.message)
	case strings.HasPrefix(no.code, "ZONE_RESOURCE_POOL") && f.roomHTTP:
		return nil, refuse(503, "resourcePoolExhausted", "%s", no.message)
	}
	return no, nil
}

// insert is https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert.
func (f *Fake) insert(r *http.Request, in dict) (any, error) {
	f.sweep()
	zone, name := r.PathValue("zone"), fmt.Sprint(in["name"])
	if in["name"] == nil {
		name = ""
	}
	if t := r.URL.Query().Get("sourceInstanceTemplate"); t != "" {
		o := f.items[path(Project, t)]
		if o == nil {
			return nil, notFound(path(Project, t))
		}
		whole := maps.Clone(o["properties"].(dict))
		maps.Copy(whole, in)
		in = whole
		delete(in, "name")
	}
	if no := checkName(name); no != nil {
		return nil, no
	}
	p, no := f.check(zone, in, r.URL.Query().Get("sourceInstanceTemplate") != "")
	if no = cmpError(no, f.taken(zone, name)); no != nil {
		return nil, no
	}
	target := "projects/" + Project + "/zones/" + zone + "/instances/" + name
	if bad := f.fails("insert"); bad != nil {
		op := f.begin(r, "insert", "zones/"+zone, target, f.newID())
		op.no = bad
		return op.told(), nil
	}
	v, err := f.create(zone, name, p)
	if err != nil {
		bad, no := f.refused(zone, p, err)
		if no != nil {
			return nil, no
		}
		op := f.begin(r, "insert", "zones/"+zone, target, f.newID())
		op.no = bad
		return op.told(), nil
	}
	op := f.begin(r, "insert", "zones/"+zone, target, v.id)
	op.after = func() bool { return !f.is(v, fluffyapi.Pending) }
	return op.told(), nil
}

const bulkFields = "count minCount namePattern perInstanceProperties sourceInstanceTemplate instanceProperties locationPolicy instanceFlexibilityPolicy"

var pattern = regexp.MustCompile(`^([^#]*)(#+)([^#]*)$`)

// bulkInsert is https://cloud.google.com/compute/docs/reference/rest/v1/instances/bulkInsert.
// If fewer than minCount are to be had, what was made is deleted again and the operation
// fails; if fewer than count are, the operation succeeds.
func (f *Fake) bulkInsert(r *http.Request, in dict) (any, error) {
	f.sweep()
	if no := known(in, bulkFields, ""); no != nil {
		return nil, no
	}
	count, _ := strconv.Atoi(fmt.Sprint(in["count"]))
	least := count
	if in["minCount"] != nil {
		least, _ = strconv.Atoi(fmt.Sprint(in["minCount"]))
	}
	switch {
	case in["count"] == nil:
		return nil, missing("count")
	case count < 1 || count > 5000:
		return nil, invalid("count", count, "Must be in range [1, 5000]")
	case least < 1 || least > count:
		return nil, invalid("minCount", least, "Must be positive and at most the count.")
	}
	names, no := bulkNames(in, count)
	if no != nil {
		return nil, no
	}
	properties, _ := in["instanceProperties"].(dict)
	if t, _ := in["sourceInstanceTemplate"].(string); t != "" {
		o := f.items[path(Project, t)]
		if o == nil {
			return nil, notFound(path(Project, t))
		}
		properties = o["properties"].(dict)
	}
	if properties == nil {
		return nil, refuse(400, "required", "Required field 'resource.instanceProperties' not specified")
	}
	zones := []string{r.PathValue("zone")}
	if region := r.PathValue("region"); region != "" {
		if zones = f.zonesAllowed(region, in); len(zones) == 0 {
			return nil, invalid("locationPolicy", "", "No zone is allowed.")
		}
	}
	p, no := f.check(zones[0], properties, true)
	if no != nil {
		return nil, no
	}
	for _, name := range names {
		for _, z := range zones {
			if no := cmpError(checkName(name), f.taken(z, name)); no != nil {
				return nil, no
			}
		}
	}
	bad := f.fails("bulkInsert")
	var made []*vm
	zone := zones[0]
	for _, z := range zones { // as many as possible in one
		if bad != nil {
			break
		}
		for len(made) < count {
			q := p
			if z != zones[0] {
				if q, no = f.check(z, properties, true); no != nil {
					return nil, no
				}
			}
			v, err := f.create(z, names[len(made)], q)
			if err != nil {
				failed, no := f.refused(z, q, err)
				if no != nil {
					f.undo(made)
					return nil, no
				}
				bad = failed
				break
			}
			made = append(made, v)
		}
		if len(made) == count {
			bad = nil
			break
		}
		if z != zones[len(zones)-1] {
			bad = nil
		}
	}
	made, deleted := f.enough(made, least)
	if len(made) > 0 {
		bad, zone = nil, made[0].zone
	}
	group := f.newID()
	op := f.begin(r, "bulkInsert", scopeOf(r), "projects/"+Project+"/"+scopeOf(r), f.newID())
	op.group, op.no = group, bad
	op.after = func() bool { return !slices.ContainsFunc(made, func(v *vm) bool { return f.is(v, fluffyapi.Pending) }) }
	op.also = dict{"instancesBulkInsertOperationMetadata": dict{"perLocationStatus": dict{"zones/" + zone: dict{
		"targetVmCount": count, "createdVmCount": len(made), "failedToCreateVmCount": count - len(made), "deletedVmCount": deleted, "status": "DONE",
	}}}}
	for _, v := range made { // each has an operation of its own, which begins later
		one := &operation{id: f.newID(), kind: "insert", scope: "zones/" + v.zone, target: v.path(), targetID: v.id, user: op.user, group: group, began: time.Now(), ends: time.Now()}
		one.after = func() bool { return !f.is(v, fluffyapi.Pending) }
		f.operations = append(f.operations, one)
	}
	return op.told(), nil
}

// enough keeps what was made if it is as much as was asked for at least.
func (f *Fake) enough(made []*vm, least int) ([]*vm, int) {
	if len(made) >= least {
		return made, 0
	}
	f.undo(made)
	return nil, len(made)
}

func (f *Fake) undo(made []*vm) {
	for _, v := range made {
		_ = f.Cloud.Kill(v.id, "not enough")
	}
	f.sweep()
}

func (f *Fake) zonesAllowed(region string, in dict) (zones []string) {
	policy, _ := in["locationPolicy"].(dict)
	locations, _ := policy["locations"].(dict)
	for _, z := range zonesOf[region] {
		l, _ := locations["zones/"+z].(dict)
		if l["preference"] != "DENY" && (l != nil || len(locations) == 0 || !slices.ContainsFunc(slices.Collect(maps.Values(locations)), func(v any) bool { return v.(dict)["preference"] == "ALLOW" })) {
			zones = append(zones, z)
		}
	}
	return zones
}

// bulkNames are those of the machines: given one by one, or by a pattern.
func bulkNames(in dict, count int) (names []string, no error) {
	each, _ := in["perInstanceProperties"].(dict)
	name, _ := in["namePattern"].(string)
	switch {
	case (len(each) > 0) == (name != ""):
		return nil, refuse(400, "invalid", "Invalid value for field 'resource': ''. Exactly one of 'namePattern' and 'perInstanceProperties' must be given.")
	case len(each) > 0 && len(each) != count:
		return nil, invalid("perInstanceProperties", len(each), "The number of names must be the count %d.", count)
	case len(each) > 0:
		return slices.Sorted(maps.Keys(each)), nil
	}
	m := pattern.FindStringSubmatch(name)
	if m == nil || len(strconv.Itoa(count)) > len(m[2]) {
		return nil, invalid("namePattern", name, "Must have a sequence of # that is long enough for the count.")
	}
	for n := range count {
		names = append(names, fmt.Sprintf("%s%0*d%s", m[1], len(m[2]), n+1, m[3]))
	}
	return names, nil
}

package gcpfake

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

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
	image      string
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
	return p, cmpError(f.checkReservation(zone, in, p), f.checkBound(p))
}

// checkBound are the rules of machines that end with their reservation, as those of future
// reservations in calendar mode do: https://cloud.google.com/compute/docs/instances/reservations-consume-calendar-mode.
func (f *Fake) checkBound(p *plan) error {
	s, _ := p.body["scheduling"].(dict)
	bound, dense := s["provisioningModel"] == "RESERVATION_BOUND", false
	for _, q := range p.uses["reservation"] {
		dense = dense || f.items[q]["deploymentType"] == "DENSE"
	}
	switch {
	case bound && len(p.uses["reservation"]) == 0:
		return invalid("scheduling.provisioningModel", "RESERVATION_BOUND", "A specific reservation must be named.")
	case bound && s["onHostMaintenance"] != "TERMINATE":
		return invalid("scheduling.onHostMaintenance", s["onHostMaintenance"], "Must be TERMINATE for the provisioning model RESERVATION_BOUND.")
	case bound && s["instanceTerminationAction"] == nil:
		return invalid("scheduling.instanceTerminationAction", "", "Must be given for the provisioning model RESERVATION_BOUND.")
	case dense && !bound:
		return invalid("scheduling.provisioningModel", s["provisioningModel"], "Must be RESERVATION_BOUND for the reservation.")
	}
	return nil
}

// checkReservation is https://cloud.google.com/compute/docs/instances/reservations-consume.
func (f *Fake) checkReservation(zone string, in dict, q *plan) error {
	affinity, _ := in["reservationAffinity"].(dict)
	switch kind := affinity["consumeReservationType"]; kind {
	case nil, "ANY_RESERVATION", "NO_RESERVATION":
	case "SPECIFIC_RESERVATION":
		values := fakehttp.Items(affinity["values"])
		no := error(nil)
		if affinity["key"] != "compute.googleapis.com/reservation-name" || len(values) == 0 {
			return invalid("reservationAffinity", affinity["key"], "A specific reservation needs the key compute.googleapis.com/reservation-name and its values.")
		}
		for _, v := range values {
			name := fmt.Sprint(v)
			p := "projects/" + Project + "/zones/" + zone + "/reservations/" + name[strings.LastIndex(name, "/")+1:]
			if f.items[p] == nil {
				return refuse(400, "invalid", "Invalid value for field 'resource.reservationAffinity': '%s'. Specified reservations [%s] do not exist.", name, name)
			}
			count, used := f.reserved(p)
			if used < count {
				q.uses["reservation"] = []string{p}
				return nil
			}
			no = refuse(400, "invalid", "Specified reservations [%s] do not have available resources for the request.", name)
		}
		return no
	default:
		return invalid("reservationAffinity.consumeReservationType", kind, "No such value.")
	}
	return nil
}

// reserved is how many machines a reservation is for, and how many use it.
func (f *Fake) reserved(p string) (count, used int) {
	specific, _ := f.items[p]["specificReservation"].(dict)
	count, _ = strconv.Atoi(fmt.Sprint(specific["count"]))
	return count, len(f.usersOf(p, "reservation"))
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

// family reports that a machine type is of one of the families.
func family(machine string, of ...string) bool {
	return slices.ContainsFunc(of, func(prefix string) bool { return strings.HasPrefix(machine, prefix+"-") })
}

// fitsDisk reports that a machine can have such a disk:
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
			if family(machine, "e2", "n4", "f1", "a3-highgpu", "a3-megagpu", "a3-ultragpu", "a4", "a2-ultragpu") || strings.HasSuffix(machine, "-lssd") { // some of which have their own
				return refuse(400, "badRequest", "[%s] features and [local SSD] are not compatible for creating instance.", machine)
			}
			if i, _ := d["interface"].(string); i != "" && i != "NVME" && i != "SCSI" {
				return invalid(at+".interface", i, "No such value.")
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
		image, _ := params["sourceImage"].(string)
		p.disks = append(p.disks, plannedDisk{name, kind, max(gb, 1), d["boot"] == true, d["autoDelete"] == true, params["labels"], image})
	}
	if boots != 1 || fakehttp.Items(in["disks"])[0].(dict)["boot"] != true {
		return invalid("disks", boots, "Exactly one boot disk must be given, and first.")
	}
	return nil
}

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

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

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
		if d.image != "" {
			f.items[q]["sourceImage"] = link(path(Project, d.image))
		}
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

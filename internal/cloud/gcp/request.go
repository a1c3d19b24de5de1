package gcp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// plan is what all machines of a launch have in common.
type plan struct {
	settings     Settings
	tpu          bool
	subnet       subnet
	cards        []card // further ones, between GPUs
	identity     string // the service account's address; "": none
	image        image
	machineImage bool // the image is a whole machine's
	placement    string
	disks        []dataDisk // further ones
}

// plan finds out, once for a launch, what its machines need.
func (d driver) plan(ctx context.Context, a *account, l *vm.Launch) (*plan, error) {
	if have, ok := l.Memory.(*plan); ok {
		return have, nil
	}
	s := d.settings(l.Spec)
	p := &plan{settings: s, tpu: tpuName(l.Spec.Offer) != "", identity: serviceAccount(a, s), machineImage: strings.Contains(l.Spec.ImageID, "/machineImages/")}
	var err error
	if p.subnet, err = d.network(ctx, a, l.Spec, s); err != nil {
		return nil, err
	}
	if p.cards, err = d.ensureCards(ctx, a, l.Spec, s); err != nil {
		return nil, err
	}
	if !p.tpu {
		if p.image, err = d.image(ctx, a, l.Spec); err != nil {
			return nil, err
		}
		if p.disks, err = a.dataDisks(ctx, l.Spec); err != nil {
			return nil, err
		}
	}
	if compact(l.Spec, s) {
		p.placement = placementName(l.Spec.ID)
	}
	l.Memory = p
	return p, nil
}

// labels are the tags of package cloud as far as they are the same for all machines of a
// cluster and fit into labels, and the user's.
func labels(spec cloud.LaunchSpec, s Settings) map[string]string {
	out := maps.Clone(s.Labels)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, spec.NodeTags(0))
	delete(out, cloud.TagRank)
	delete(out, cloud.TagHead)
	if facts.Of(Name).Label(tagUser, spec.User) == "" && spec.User != "" {
		out[tagUser] = spec.User
	}
	return out
}

// tagUser is the label of SkyPilot's own machines that says whose they are.
const tagUser = "skypilot-user"

// metadata lets the key in, and keeps what does not fit into labels.
func metadata(spec cloud.LaunchSpec) []item {
	items := []item{
		{"ssh-keys", user + ":" + strings.TrimSpace(spec.AuthorizedKey)},
		{"enable-oslogin", "FALSE"}, // else no key of the metadata is let in where the project wants OS Login
		{"shutdown-script", endScript},
	}
	if len(spec.Offer.Accelerators) > 0 {
		items = append(items, item{"install-nvidia-driver", "True"})
	}
	if len(spec.Disks) > 0 {
		items = append(items, item{"user-data", bootDisks(spec.Disks)})
	}
	record := spec.RecordTags()
	for _, key := range slices.Sorted(maps.Keys(record)) {
		items = append(items, item{key, record[key]})
	}
	return items
}

// properties are the machines' in a bulk insertion, where things have names.
func (p *plan) properties(spec cloud.LaunchSpec, s share) map[string]any {
	o := spec.Offer
	out := map[string]any{
		"machineType": o.InstanceType, "labels": labels(spec, p.settings), "tags": map[string]any{"items": []string{names.Cluster(spec.ID)}},
		"metadata": map[string]any{"items": metadata(spec)}, "networkInterfaces": p.interfaces(spec), "scheduling": scheduling(spec, s),
		"disks": p.allDisks(spec, ""),
	}
	if p.identity != "" {
		out["serviceAccounts"] = []any{map[string]any{"email": p.identity, "scopes": []string{"https://www.googleapis.com/auth/cloud-platform"}}}
	}
	if kind, count := attached(o); kind != "" {
		out["guestAccelerators"] = []any{map[string]any{"acceleratorType": kind, "acceleratorCount": count}}
	}
	if p.placement != "" {
		out["resourcePolicies"] = []string{p.placement}
	}
	if s.in != "" {
		out["reservationAffinity"] = map[string]any{"consumeReservationType": "SPECIFIC_RESERVATION", "key": "compute.googleapis.com/reservation-name", "values": []string{s.in}}
	}
	return out
}

// allDisks are those of a machine, its own first; kinds is as in [plan.attachments].
func (p *plan) allDisks(spec cloud.LaunchSpec, kinds string) []any {
	own := p.disk(spec)
	own["diskType"] = kinds + own["diskType"].(string)
	return append([]any{map[string]any{"boot": true, "autoDelete": true, "type": "PERSISTENT", "mode": "READ_WRITE", "initializeParams": own}}, p.attachments(spec, kinds)...)
}

// instance is one machine in a call of its own, where things have partial URLs. From a
// machine image it has the image's disks.
func (p *plan) instance(spec cloud.LaunchSpec, s share, name string) map[string]any {
	out := p.properties(spec, s)
	zone := "zones/" + spec.Offer.Zone
	out["name"], out["disks"] = name, p.allDisks(spec, zone+"/diskTypes/")
	if p.machineImage {
		delete(out, "disks")
		out["sourceMachineImage"] = p.image.url
	}
	out["machineType"] = zone + "/machineTypes/" + spec.Offer.InstanceType
	if kind, count := attached(spec.Offer); kind != "" {
		out["guestAccelerators"] = []any{map[string]any{"acceleratorType": zone + "/acceleratorTypes/" + kind, "acceleratorCount": count}}
	}
	if p.placement != "" {
		out["resourcePolicies"] = []string{"regions/" + spec.Offer.Region + "/resourcePolicies/" + p.placement}
	}
	return out
}

func (p *plan) interfaces(spec cloud.LaunchSpec) []any {
	nic := map[string]any{"subnetwork": p.subnet.URL}
	if p.settings.external() {
		nic["accessConfigs"] = []any{map[string]any{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}}
	}
	if p.settings.GVNIC || spec.NetworkTier == "best" || len(p.cards) > 0 {
		nic["nicType"] = "GVNIC"
	}
	all := []any{nic}
	for _, c := range p.cards {
		kind := "GVNIC"
		if c.rdma {
			kind = "MRDMA"
		}
		all = append(all, map[string]any{"subnetwork": c.url, "nicType": kind})
	}
	return all
}

// fixed are the types of machines without accelerators that cannot be moved, either.
//
// https://cloud.google.com/compute/docs/instances/live-migration-process#limitations
var fixed = lazyregexp.New(`^(h3|h4d|z3)-|-metal$`)

// scheduling says when machines end. Those with accelerators cannot be moved to another
// host while they run.
func scheduling(spec cloud.LaunchSpec, s share) map[string]any {
	out := map[string]any{}
	if len(spec.Offer.Accelerators) > 0 || s.dense || fixed.MatchString(spec.Offer.InstanceType) {
		out["onHostMaintenance"] = "TERMINATE"
	}
	if s.dense {
		out["provisioningModel"] = "RESERVATION_BOUND"
		out["instanceTerminationAction"] = "DELETE"
	}
	if spec.Offer.Spot {
		maps.Copy(out, map[string]any{
			"provisioningModel": "SPOT", "preemptible": true, "automaticRestart": false, "onHostMaintenance": "TERMINATE", "instanceTerminationAction": "DELETE",
		})
	}
	return out
}

// defaultDiskGB is the size of the disk when a task names none.
const defaultDiskGB = 256

// disk is the machine's own.
func (p *plan) disk(spec cloud.LaunchSpec) map[string]any {
	kind, iops := diskType(spec.Offer, spec.DiskTier)
	out := map[string]any{
		"sourceImage": p.image.url, "diskSizeGb": fmt.Sprint(max(cmp.Or(spec.DiskGB, defaultDiskGB), p.image.size)), "diskType": kind, "labels": labels(spec, p.settings),
	}
	if iops > 0 {
		out["provisionedIops"] = fmt.Sprint(iops)
	}
	return out
}

var (
	// hyperdisk are the types of machines that have no persistent disks.
	//
	// https://cloud.google.com/compute/docs/disks#pd_machine_series_support
	hyperdisk = lazyregexp.New(`^(n4[ad]?|c4[ad]?|x4|m4n?|h4d|a4x?|g4|z4d?)-|^a3-ultragpu-`)
	// extreme are those that take the disks of the highest tier.
	extreme = lazyregexp.New(`^(m1|m2|m3)-|^n2-[a-z]+-(64|80|96|128)$`)
	// noStandard are those that take no standard disks.
	noStandard = lazyregexp.New(`^(a3|g2|c3d?|h3|m3|z3)-`)
)

// extremeIOPS are those of a disk of tier ultra.
const extremeIOPS = 20000

// diskType is the kind of disk of a tier, and how many operations a second it is given.
func diskType(o cloud.Offer, tier string) (kind string, iops int) {
	t := o.InstanceType
	if hyperdisk.MatchString(t) {
		return "hyperdisk-balanced", 0
	}
	switch tier {
	case "low":
		if noStandard.MatchString(t) {
			return "pd-balanced", 0
		}
		return "pd-standard", 0
	case "high":
		return "pd-ssd", 0
	case "ultra", "best":
		switch {
		case strings.HasPrefix(t, "a3-"), strings.HasPrefix(t, "c3"), strings.HasPrefix(t, "h3-"), strings.HasPrefix(t, "z3-"):
			return "hyperdisk-balanced", 0
		case extreme.MatchString(t):
			return "pd-extreme", extremeIOPS
		}
		return "pd-ssd", 0
	}
	return "pd-balanced", 0
}

// attached is the accelerator that is put onto a machine; "": it has those that its type
// says, or none.
func attached(o cloud.Offer) (kind string, count int) {
	if !strings.HasPrefix(o.InstanceType, "n1-") {
		return "", 0
	}
	for name, n := range o.Accelerators {
		return acceleratorType(name), int(n)
	}
	return "", 0
}

// acceleratorType is Google's name for an accelerator.
func acceleratorType(name string) string {
	switch name {
	case "A100-80GB", "L4", "B200":
		return "nvidia-" + strings.ToLower(name)
	case "H100", "H100-MEGA":
		return "nvidia-" + strings.ToLower(name) + "-80gb"
	case "H200":
		return "nvidia-h200-141gb"
	}
	return "nvidia-tesla-" + strings.ToLower(name)
}

var clusterName = lazyregexp.New(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

// mostLabels is how many labels a machine can have.
const mostLabels = 64

// valid refuses what Google Cloud would refuse, or worse, understand otherwise.
func (p *Provider) valid(spec cloud.LaunchSpec) error {
	name := spec.ID.Name
	if len(name) > maxCluster || !clusterName.MatchString(name) {
		return fmt.Errorf("a cluster's name on Google Cloud has 1 to %d small letters, digits and dashes, begins with a letter and ends with no dash, and this one is %q", maxCluster, name)
	}
	if len(strings.Fields(spec.AuthorizedKey)) < 2 {
		return fmt.Errorf("a machine on Google Cloud needs a public ssh key")
	}
	s := p.settings(spec)
	all := labels(spec, s)
	for k, v := range all {
		if why := facts.Of(Name).Label(k, v); why != "" {
			return fmt.Errorf("%q: %q cannot be a label on Google Cloud: %s", k, v, why)
		}
	}
	if len(all) > mostLabels {
		return fmt.Errorf("a machine has %d labels at most, and with these it would have %d", mostLabels, len(all))
	}
	for _, ports := range spec.Ports {
		if _, _, err := cloud.PortRange(ports); err != nil {
			return err
		}
	}
	switch {
	case spec.Offer.Zone == "":
		return fmt.Errorf("machines on Google Cloud are rented in a zone, and none is named")
	case s.Placement != "" && s.Placement != "compact":
		return fmt.Errorf("gcp.placement_policy is %q, and there is: compact", s.Placement)
	}
	if err := s.validFlex(spec); err != nil {
		return err
	}
	if err := p.validDisks(spec); err != nil {
		return err
	}
	return validTPU(spec)
}

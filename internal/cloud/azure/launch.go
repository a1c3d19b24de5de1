package azure

import (
	"context"
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// launch is what all machines of one launch have in common.
type launch struct {
	spec     cloud.LaunchSpec
	settings settings
	group    string
	subnet   string
	near     string // the id of the proximity placement group; "": none
	identity string // its id; "": machines have none
	image    image
}

// Create makes a machine of each rank, and waits until Azure has found room for all. A
// process that dies meanwhile leaves names that the next one finds.
func (d driver) Create(ctx context.Context, l *vm.Launch, ranks []int) ([]string, error) {
	a, err := d.account(ctx)
	if err != nil {
		return nil, err
	}
	of, ok := l.Memory.(*launch)
	if !ok {
		if of, err = d.prepare(ctx, a, l.Spec); err != nil {
			return nil, err
		}
		l.Memory = of
	}
	groups, err := d.roomBeside(ctx, a, of.settings, l.Spec.Offer, len(ranks))
	if err != nil {
		return nil, err
	}
	reservation := map[int]string{}
	for i, id := range groups {
		reservation[ranks[i]] = id
	}
	var mu sync.Mutex
	var operations []*operation
	var asked []vm.Machine
	made, err := vm.OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) {
		nic, err := d.attach(ctx, a, of, rank)
		if err != nil {
			return "", err
		}
		name := machineName(of.spec.ID, rank)
		var disk *copied
		if of.spec.Clone != nil {
			if disk, err = d.copyDisk(ctx, a, of, rank); err != nil {
				return "", err
			}
		}
		op, err := a.change(ctx, "PUT", in(a.groupPath(of.group), machines, name), apiCompute, of.body(rank, nic, reservation[rank], disk))
		if err != nil {
			return "", err
		}
		mu.Lock()
		defer mu.Unlock()
		operations, asked = append(operations, op), append(asked, vm.Machine{ID: name, Detail: detail{group: of.group}})
		return name, nil
	})
	if err != nil {
		return made, err
	}
	cloud.ReportWait(ctx, "Azure to find room for the machines")
	errs := a.waitAll(ctx, operations)
	var failed []vm.Machine
	for i, err := range errs {
		if err != nil {
			failed = append(failed, asked[i])
		}
	}
	if len(failed) > 0 { // they would stay, and never run
		if err := d.Delete(context.WithoutCancel(ctx), l.Spec.ID, failed); err != nil && d.Kind(err) != vm.Missing {
			errs = append(errs, err)
		}
	}
	return made, errors.Join(errs...)
}

// prepare finds out what the machines have in common.
func (d driver) prepare(ctx context.Context, a *account, spec cloud.LaunchSpec) (*launch, error) {
	l := &launch{spec: spec, settings: d.settings(spec)}
	l.group = l.settings.groupFor(spec.ID, spec.Offer.Region)
	var err error
	if l.subnet, err = d.subnet(ctx, a, spec, l.group, false); err != nil {
		return nil, err
	}
	l.near = l.settings.placement(a, spec.ID, l.group)
	if l.identity, err = d.identity(ctx, a, spec, l.group, false); err != nil {
		return nil, err
	}
	if spec.Clone != nil {
		return l, l.sameOff(*spec.Clone)
	}
	l.image, err = d.image(ctx, a, spec)
	return l, err
}

// maxPrice is what a spot machine may cost an hour before it is taken back; -1: no more than
// one on demand.
func maxPrice(o cloud.Offer) float64 {
	if o.MaxHourlyCost == 0 {
		return -1
	}
	return math.Floor(o.MaxHourlyCost*1e5+1e-6) / 1e5
}

// body asks for the machine of a rank, in a capacity reservation group if one is named. One
// whose disk is a copy, made already, is not provisioned again: it has the user and the key
// that are on the disk.
func (l *launch) body(rank int, nic, reservation string, from *copied) map[string]any {
	name := machineName(l.spec.ID, rank)
	kind, _ := diskOf(l.spec.Offer.InstanceType, l.spec.DiskTier)
	disk := map[string]any{
		"name": name + "-disk", "createOption": "FromImage", "deleteOption": "Delete", "caching": "ReadWrite", "managedDisk": map[string]string{"storageAccountType": kind},
	}
	if l.spec.DiskGB > 0 {
		disk["diskSizeGB"] = l.spec.DiskGB
	}
	properties := map[string]any{
		"hardwareProfile": map[string]string{"vmSize": l.spec.Offer.InstanceType},
		"storageProfile":  map[string]any{"imageReference": l.image.reference, "osDisk": disk},
		"networkProfile":  map[string]any{"networkInterfaces": []any{map[string]any{"id": nic, "properties": map[string]any{"primary": true, "deleteOption": "Delete"}}}},
		"osProfile": map[string]any{
			"computerName": name, "adminUsername": user,
			"customData": base64.StdEncoding.EncodeToString([]byte(customData(l.identity, l.settings.group() == ""))),
			"linuxConfiguration": map[string]any{
				"disablePasswordAuthentication": true,
				"ssh":                           map[string]any{"publicKeys": []any{map[string]string{"path": "/home/" + user + "/.ssh/authorized_keys", "keyData": strings.TrimSpace(l.spec.AuthorizedKey)}}},
			},
		},
	}
	if from != nil {
		delete(properties, "osProfile")
		properties["storageProfile"] = map[string]any{"osDisk": map[string]any{
			"createOption": "Attach", "osType": "Linux", "deleteOption": "Delete", "caching": "ReadWrite", "managedDisk": map[string]string{"id": from.ID},
		}}
	}
	if l.spec.Offer.Spot { // one that is taken back goes with its disk: nothing of it costs money
		properties["priority"], properties["evictionPolicy"] = "Spot", "Delete"
		properties["billingProfile"] = map[string]any{"maxPrice": maxPrice(l.spec.Offer)}
	}
	if l.near != "" {
		properties["proximityPlacementGroup"] = reference{l.near}
	}
	if reservation != "" {
		properties["capacityReservation"] = map[string]any{"capacityReservationGroup": reference{reservation}}
	}
	if l.image.trusted || from != nil && from.Properties.Security.Type == "TrustedLaunch" {
		// Without secure boot, which drivers that are not signed would not survive.
		properties["securityProfile"] = map[string]any{"securityType": "TrustedLaunch", "uefiSettings": map[string]bool{"secureBootEnabled": false, "vTpmEnabled": true}}
	}
	body := map[string]any{"location": l.spec.Offer.Region, "tags": l.settings.tags(l.spec, rank), "properties": properties}
	if l.image.plan != nil {
		body["plan"] = l.image.plan
	}
	if from != nil && from.Properties.Plan["name"] != "" {
		body["plan"] = map[string]string{"name": from.Properties.Plan["name"], "publisher": from.Properties.Plan["publisher"], "product": from.Properties.Plan["product"]}
	}
	if l.identity != "" {
		body["identity"] = map[string]any{"type": "UserAssigned", "userAssignedIdentities": map[string]any{l.identity: map[string]any{}}}
	}
	return body
}

// fastTier is the performance tier of a disk of "high".
const fastTier = "P50"

// diskOf is the kind of disk that a tier means on machines of a type, and whether its
// performance is to be raised.
func diskOf(instanceType, tier string) (kind string, fast bool) {
	const plain, premium = "Standard_LRS", "Premium_LRS"
	switch able := facts.AzurePremium(instanceType); {
	case !able || tier == "low":
		return plain, false
	case tier == "high" || tier == "best":
		return premium, true
	}
	return premium, false
}

// Launch makes every rank run, and raises the tier of disks that are to be fast, which
// Azure does with disks that exist.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	nodes, err := p.StopProvider.Launch(ctx, spec)
	if _, fast := diskOf(spec.Offer.InstanceType, spec.DiskTier); err != nil || !fast {
		return nodes, err
	}
	a, err := p.account(ctx)
	if err != nil {
		return nil, err
	}
	scope := a.groupPath(p.settings(spec).groupFor(spec.ID, spec.Offer.Region))
	for _, n := range nodes {
		path := in(scope, disks, n.ID+"-disk")
		have, err := get[struct {
			Properties struct {
				Tier string `json:"tier"`
			} `json:"properties"`
		}](ctx, a, path, apiDisks)
		if err == nil && have.Properties.Tier != fastTier {
			_, err = a.change(ctx, "PATCH", path, apiDisks, map[string]any{"properties": map[string]string{"tier": fastTier}})
		}
		if err != nil {
			return nil, p.Refused(ctx, spec.Offer.Place, err)
		}
	}
	return nodes, nil
}

package gcp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/googleauth"
)

// Check asks whose credentials these are, and whether the project takes calls.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	at := cloud.Place{Cloud: Name}
	a, err := p.api(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := a.quotas(ctx, ""); err != nil {
		return nil, p.Refused(ctx, at, err)
	}
	who, err := a.who(ctx)
	if err != nil {
		return nil, p.Refused(ctx, at, err)
	}
	return cloud.Identity{who + " [project_id=" + a.project + "]"}, nil
}

// who is the account's address. Users whose login does not let their address be known go
// by the one of gcloud, else by their file.
func (a *account) who(ctx context.Context) (string, error) {
	if a.creds.Email != "" {
		return a.creds.Email, nil
	}
	me, err := rest.Do[struct {
		Email string `json:"email"`
	}](ctx, a.openid, "GET", "/userinfo", nil)
	if r, ok := errors.AsType[*refusal](err); ok && r.Status != http.StatusTooManyRequests {
		err = nil
	}
	switch account := googleauth.Active("account"); {
	case err != nil || me.Email != "":
		return me.Email, err
	case account != "":
		return account, nil
	}
	return "the user of " + a.creds.Path, nil
}

// apis are the services that sky calls.
var apis = []string{"compute.googleapis.com", "cloudresourcemanager.googleapis.com", "iam.googleapis.com"}

// permissions are what sky needs in a project, besides those that a network of its own
// and TPUs need.
var permissions = []string{
	"compute.disks.create", "compute.firewalls.get", "compute.globalOperations.get", "compute.globalOperations.list", "compute.images.get", "compute.images.getFromFamily", "compute.images.useReadOnly", "compute.instances.create", "compute.instances.delete",
	"compute.instances.get", "compute.instances.list", "compute.instances.setLabels", "compute.instances.setMetadata", "compute.instances.setServiceAccount",
	"compute.instances.setTags", "compute.instances.start", "compute.instances.stop", "compute.networks.get", "compute.networks.getEffectiveFirewalls",
	"compute.projects.get", "compute.regionOperations.get", "compute.regions.get", "compute.resourcePolicies.list", "compute.subnetworks.list",
	"compute.subnetworks.use", "compute.subnetworks.useExternalIp", "compute.zoneOperations.get", "iam.serviceAccounts.actAs",
	"iam.serviceAccounts.get", "resourcemanager.projects.get", "resourcemanager.projects.getIamPolicy", "serviceusage.services.get", "serviceusage.services.use",
}

// rarely are what only some projects need: those whose networks let no machines in, and
// tasks with ports; reservations; placement; further disks; GPUDirect; managed instance groups; TPUs, which no check asks for; and the first launch.
var (
	ownNetworkPermissions = []string{"compute.firewalls.create", "compute.firewalls.delete", "compute.firewalls.update", "compute.networks.create", "compute.networks.updatePolicy"}
	reservedPermissions   = []string{"compute.reservations.list"}
	placementPermissions  = []string{"compute.resourcePolicies.create", "compute.resourcePolicies.delete", "compute.resourcePolicies.use"}
	diskPermissions       = []string{"compute.disks.get", "compute.disks.list", "compute.disks.use", "compute.disks.useReadOnly"}
	fabricPermissions     = []string{"compute.subnetworks.create"}
	tpuPermissions        = []string{"tpu.locations.list", "tpu.nodes.create", "tpu.nodes.delete", "tpu.nodes.get", "tpu.nodes.list", "tpu.nodes.start", "tpu.nodes.stop", "tpu.operations.get",
		"tpu.queuedresources.create", "tpu.queuedresources.delete", "tpu.queuedresources.get", "tpu.queuedresources.list"}
	groupPermissions = []string{"compute.instanceGroupManagers.create", "compute.instanceGroupManagers.delete", "compute.instanceGroupManagers.get", "compute.instanceGroupManagers.list", "compute.instanceGroupManagers.update",
		"compute.instanceTemplates.create", "compute.instanceTemplates.delete", "compute.instanceTemplates.list", "compute.instanceTemplates.useReadOnly"}
	accountPermissions = []string{"iam.serviceAccounts.create", "resourcemanager.projects.setIamPolicy"}
)

// Lacking asks which permissions are missing, and which APIs are not enabled.
func (p *Provider) Lacking(ctx context.Context) (cloud.Lack, error) {
	a, err := p.api(ctx)
	if err != nil {
		return cloud.Lack{}, err
	}
	s := p.o.Settings()
	want := slices.Clone(permissions)
	if s.VPC == "" && len(s.Subnets) == 0 || s.GPUDirect {
		want = append(want, ownNetworkPermissions...)
	}
	if s.Prioritize || len(s.Reservations) > 0 {
		want = append(want, reservedPermissions...)
	}
	if s.RunSeconds != 0 {
		want = append(want, groupPermissions...)
	}
	if s.Placement != "" || s.GPUDirect {
		want = append(want, placementPermissions...)
	}
	if s.GPUDirect {
		want = append(want, fabricPermissions...)
	}
	if email := serviceAccount(a, s); email != "" {
		if _, err := rest.Do[any](ctx, a.iam, "GET", a.on("/serviceAccounts/%s", email), nil); missing(err) { // it will have to be made
			want = append(want, accountPermissions...)
		}
	}
	slices.Sort(want)
	granted, err := rest.Do[struct {
		Permissions []string `json:"permissions"`
	}](ctx, a.manager, "POST", a.on(":testIamPermissions"), map[string]any{"permissions": want})
	if err != nil {
		return cloud.Lack{}, p.Refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	var l cloud.Lack
	var fixes []string
	l.Permissions = slices.DeleteFunc(want, func(w string) bool { return slices.Contains(granted.Permissions, w) })
	if len(l.Permissions) > 0 {
		fixes = append(fixes, "grant them by a role of the project "+a.project+": gcloud iam roles create sky --project "+a.project+" --permissions "+strings.Join(l.Permissions, ",")+
			"  and: gcloud projects add-iam-policy-binding "+a.project+" --role projects/"+a.project+"/roles/sky --member "+a.member(ctx))
	}
	if off := a.disabled(ctx); len(off) > 0 {
		for _, api := range off {
			l.Permissions = append(l.Permissions, "the API "+api+", which is not enabled")
		}
		fixes = append(fixes, enable(strings.Join(off, " "), a.project))
	}
	l.Fix = strings.Join(fixes, "; and: ")
	return l, nil
}

// member is the account as policies write it.
func (a *account) member(ctx context.Context) string {
	who, err := a.who(ctx)
	switch {
	case err != nil || !strings.Contains(who, "@"):
		return "ACCOUNT"
	case strings.HasSuffix(who, ".gserviceaccount.com"):
		return "serviceAccount:" + who
	}
	return "user:" + who
}

// disabled are the services that the project has not enabled. Who may not ask is told
// nothing: calls to them say it.
func (a *account) disabled(ctx context.Context) (off []string) {
	query := url.Values{}
	for _, api := range apis {
		query.Add("names", "projects/"+a.project+"/services/"+api)
	}
	found, err := rest.Send[struct {
		Services []struct {
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"services"`
	}](ctx, a.usage, rest.Call{Method: "GET", Path: a.on("/services:batchGet"), Query: query})
	if err != nil {
		return nil
	}
	for _, s := range found.Services {
		if s.State == "DISABLED" {
			off = append(off, s.Name[strings.LastIndexByte(s.Name, '/')+1:])
		}
	}
	slices.Sort(off)
	return off
}

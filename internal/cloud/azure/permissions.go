package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// needed are the permissions that sky uses, which docs/azure.md has as a role.
var needed = []string{
	"Microsoft.Authorization/roleAssignments/delete",
	"Microsoft.Authorization/roleAssignments/write",
	"Microsoft.Compute/disks/delete",
	"Microsoft.Compute/disks/read",
	"Microsoft.Compute/disks/write",
	"Microsoft.Compute/locations/operations/read",
	"Microsoft.Compute/locations/usages/read",
	"Microsoft.Compute/skus/read",
	"Microsoft.Compute/virtualMachines/deallocate/action",
	"Microsoft.Compute/virtualMachines/delete",
	"Microsoft.Compute/virtualMachines/read",
	"Microsoft.Compute/virtualMachines/start/action",
	"Microsoft.Compute/virtualMachines/write",
	"Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
	"Microsoft.ManagedIdentity/userAssignedIdentities/delete",
	"Microsoft.ManagedIdentity/userAssignedIdentities/read",
	"Microsoft.ManagedIdentity/userAssignedIdentities/write",
	"Microsoft.Network/locations/operations/read",
	"Microsoft.Network/networkInterfaces/delete",
	"Microsoft.Network/networkInterfaces/join/action",
	"Microsoft.Network/networkInterfaces/read",
	"Microsoft.Network/networkInterfaces/write",
	"Microsoft.Network/networkSecurityGroups/delete",
	"Microsoft.Network/networkSecurityGroups/join/action",
	"Microsoft.Network/networkSecurityGroups/read",
	"Microsoft.Network/networkSecurityGroups/securityRules/write",
	"Microsoft.Network/networkSecurityGroups/write",
	"Microsoft.Network/publicIPAddresses/delete",
	"Microsoft.Network/publicIPAddresses/join/action",
	"Microsoft.Network/publicIPAddresses/read",
	"Microsoft.Network/publicIPAddresses/write",
	"Microsoft.Network/virtualNetworks/delete",
	"Microsoft.Network/virtualNetworks/read",
	"Microsoft.Network/virtualNetworks/subnets/join/action",
	"Microsoft.Network/virtualNetworks/write",
	"Microsoft.Resources/subscriptions/resourceGroups/delete",
	"Microsoft.Resources/subscriptions/resourceGroups/read",
	"Microsoft.Resources/subscriptions/resourceGroups/write",
}

// Permissions that only some settings need: azure.placement_policy and azure.specific_reservations.
var (
	placementPermissions = []string{
		"Microsoft.Compute/proximityPlacementGroups/delete", "Microsoft.Compute/proximityPlacementGroups/read", "Microsoft.Compute/proximityPlacementGroups/write",
	}
	reservedPermissions = []string{
		"Microsoft.Compute/capacityReservationGroups/capacityReservations/deploy/action", "Microsoft.Compute/capacityReservationGroups/capacityReservations/read",
		"Microsoft.Compute/capacityReservationGroups/deploy/action", "Microsoft.Compute/capacityReservationGroups/read",
	}
)

// namespaces are the resource providers that must be registered.
var namespaces = []string{"Microsoft.Compute", "Microsoft.Network", "Microsoft.ManagedIdentity"}

// granted is one of the roles that the credentials have, by patterns with "*".
type granted struct {
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions"`
}

func (g granted) allows(action string) bool {
	fits := func(pattern string) bool { return matches(strings.ToLower(pattern), strings.ToLower(action)) }
	return slices.ContainsFunc(g.Actions, fits) && !slices.ContainsFunc(g.NotActions, fits)
}

// matches reports whether a pattern with "*" fits, which stands for anything.
func matches(pattern, text string) bool {
	first, rest, ok := strings.Cut(pattern, "*")
	if !ok {
		return pattern == text
	}
	if text, ok = strings.CutPrefix(text, first); !ok {
		return false
	}
	for i := 0; i <= len(text); i++ {
		if matches(rest, text[i:]) {
			return true
		}
	}
	return false
}

// Lacking finds out which of the permissions that sky needs are missing, and which
// resource providers are not registered, without changing anything.
func (p *Provider) Lacking(ctx context.Context) (cloud.Lack, error) {
	at := cloud.Place{Cloud: Name}
	a, err := p.account(ctx)
	if err != nil {
		return cloud.Lack{}, p.Refused(ctx, at, err)
	}
	scope := "/subscriptions/" + a.subscription
	wanted := needed
	s := settings(p.o.Settings())
	if s.compact() {
		wanted = slices.Concat(wanted, placementPermissions)
	}
	if len(vm.Texts(s["specific_reservations"])) > 0 {
		wanted = slices.Concat(wanted, reservedPermissions)
	}
	if g := s.group(); g != "" { // what is needed in the user's group, and no group of sky's own
		scope = a.groupPath(g)
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(action string) bool {
			return strings.HasPrefix(action, "Microsoft.Resources/") || action == "Microsoft.Compute/skus/read" || strings.Contains(action, "/locations/")
		})
	}
	roles, err := list[granted](ctx, a, in(scope, "Microsoft.Authorization/permissions"), apiAuthorization)
	if err != nil {
		return cloud.Lack{}, p.Refused(ctx, at, err)
	}
	var lack cloud.Lack
	var fixes []string
	for _, action := range wanted {
		if !slices.ContainsFunc(roles, func(g granted) bool { return g.allows(action) }) {
			lack.Permissions = append(lack.Permissions, action)
		}
	}
	if len(lack.Permissions) > 0 {
		who, err := a.login.who(ctx)
		if err != nil {
			return cloud.Lack{}, p.Refused(ctx, at, err)
		}
		fixes = append(fixes, fmt.Sprintf("az role assignment create --assignee %s --scope %s --role ROLE, with ROLE made of the definition in docs/azure.md (or Contributor and Role Based Access Control Administrator)", who, scope))
	}
	for _, name := range namespaces {
		seen, err := get[struct {
			State string `json:"registrationState"`
		}](ctx, a, "/subscriptions/"+a.subscription+"/providers/"+name, apiResources)
		if err != nil {
			return cloud.Lack{}, p.Refused(ctx, at, err)
		}
		if seen.State != "Registered" && seen.State != "Registering" {
			lack.Permissions = append(lack.Permissions, "the registration of "+name+" ("+seen.State+")")
			fixes = append(fixes, "az provider register --namespace "+name)
		}
	}
	lack.Fix = strings.Join(fixes, "; ")
	return lack, nil
}

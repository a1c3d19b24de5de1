package azure

import "github.com/skypilot-go/sky/internal/cloud/vm"

// throttled stands for every answer with status 429, whatever code it has.
const throttled = "TooManyRequests"

const (
	fixLogin    = "run: az login  (or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET), then: sky check azure"
	fixRegister = "register what sky uses, once for a subscription: az provider register --namespace Microsoft.Compute; az provider register --namespace Microsoft.Network; " +
		"az provider register --namespace Microsoft.ManagedIdentity"
)

// refusals are Azure's codes, by what they rule out.
//
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
// https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/error-messages
// https://learn.microsoft.com/azure/virtual-machines/error-codes-spot
var refusals = vm.Refusals{
	Cloud: Name, DisplayName: displayName, Fix: fixLogin,
	Codes: map[string]vm.Meaning{
		"SkuNotAvailable":                       vm.Full,
		"AllocationFailed":                      vm.Full,
		"ZonalAllocationFailed":                 vm.Full,
		"OverconstrainedAllocationRequest":      vm.Full,
		"OverconstrainedZonalAllocationRequest": vm.Full,
		"RegionDoesNotAllowProvisioning":        vm.Full,
		"SubnetIsFull":                          vm.Full,

		"QuotaExceeded":                        vm.OverQuota,
		"ResourceQuotaExceeded":                vm.OverQuota,
		"PublicIPCountLimitReached":            vm.OverQuota,
		"StaticPublicIPCountLimitReached":      vm.OverQuota,
		"StandardSkuPublicIPCountLimitReached": vm.OverQuota,
		"VnetCountLimitReached":                vm.OverQuota,
		"ResourceGroupQuotaExceeded":           vm.OverQuotaAll,
		"RoleAssignmentLimitExceeded":          vm.OverQuotaAll,

		"InvalidAuthenticationToken":       vm.BadCredentials,
		"InvalidAuthenticationTokenTenant": vm.BadCredentials,
		"ExpiredAuthenticationToken":       vm.BadCredentials,
		"AuthenticationFailed":             vm.BadCredentials,
		"ReadOnlyDisabledSubscription":     vm.BadCredentials,
		"DisabledSubscription":             vm.BadCredentials,
		"SubscriptionNotFound":             vm.BadCredentials,
		"InvalidSubscriptionId":            vm.BadCredentials,
		"SubscriptionNotRegistered":        vm.BadCredentials,
		"MissingSubscriptionRegistration":  vm.BadCredentials,

		"AuthorizationFailed":                       vm.Forbidden,
		"LinkedAuthorizationFailed":                 vm.Forbidden,
		"ScopeLocked":                               vm.Forbidden,
		"RequestDisallowedByPolicy":                 vm.ForbiddenHere,
		"RequestDisallowedByAzure":                  vm.ForbiddenHere,
		"SubscriptionNotAuthorizedForImage":         vm.ForbiddenHere,
		"MarketplacePurchaseEligibilityFailed":      vm.ForbiddenHere,
		"ResourcePurchaseValidationFailed":          vm.ForbiddenHere,
		"AzureSpotFeatureNotEnabledForSubscription": vm.ForbiddenHere,

		"BadRequest":                           vm.Invalid,
		"InvalidParameter":                     vm.Invalid,
		"InvalidRequestContent":                vm.Invalid,
		"InvalidRequestFormat":                 vm.Invalid,
		"AzureSpotIsNotSupportedForThisVMSize": vm.Invalid,
		"SpotPriceGreaterThanProvidedMaxPrice": vm.Invalid,
		"OSProvisioningTimedOut":               vm.Invalid,
		"ImageNotFound":                        vm.InvalidInRegion,
		"PlatformImageNotFound":                vm.InvalidInRegion,
		"GalleryImageNotFound":                 vm.InvalidInRegion,
		"VMMarketplaceInvalidInput":            vm.InvalidInRegion,
		"LocationNotAvailableForResourceType":  vm.InvalidInRegion,
		"NoRegisteredProviderFound":            vm.InvalidInRegion,
		"MissingRegistrationForLocation":       vm.InvalidInRegion,
		"ReservedResourceName":                 vm.InvalidAnywhere,

		throttled:                       vm.Throttled,
		"Throttled":                     vm.Throttled,
		"SubscriptionRequestsThrottled": vm.Throttled,
		"RetryableError":                vm.Throttled,

		"ResourceNotFound":         vm.NotThere,
		"ResourceGroupNotFound":    vm.NotThere,
		"ParentResourceNotFound":   vm.NotThere,
		"NotFound":                 vm.NotThere,
		"InvalidResourceReference": vm.NotThere,
		"PrincipalNotFound":        vm.NotThere,

		"PropertyChangeNotAllowed": vm.Moved,
		"OperationPreempted":       vm.Moved,
		"Canceled":                 vm.Moved,
		"CanceledAndSupersededDueToAnotherOperation": vm.Moved,
		"PreconditionFailed":                         vm.Moved,

		"ResourceGroupBeingDeleted":                vm.InUse,
		"ResourceGroupDeletionBlocked":             vm.InUse,
		"AnotherOperationInProgress":               vm.InUse,
		"RetryableErrorDueToAnotherOperation":      vm.InUse,
		"ReferencedResourceNotProvisioned":         vm.InUse,
		"NicReservedForAnotherVm":                  vm.InUse,
		"NicInUse":                                 vm.InUse,
		"InUseSubnetCannotBeDeleted":               vm.InUse,
		"InUseNetworkSecurityGroupCannotBeDeleted": vm.InUse,
		"PublicIPAddressCannotBeDeleted":           vm.InUse,

		"NetworkingInternalOperationError": vm.NoAnswer,
		"InternalServerError":              vm.NoAnswer,
	},
	Texts: []vm.Text{
		// OperationNotAllowed says many things, a quota in several shapes among them:
		// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-resource-quota
		{Holds: "exceeding approved", Means: vm.OverQuota},
		{Holds: "exceeding quota", Means: vm.OverQuota},
		{Holds: "exceed the quota", Means: vm.OverQuota},
		{Holds: "too many requests", Means: vm.Throttled},
		{Holds: "marked for deletion", Means: vm.InUse},
	},
	Fixes: map[string]string{
		"ReadOnlyDisabledSubscription": fixSubscription, "DisabledSubscription": fixSubscription, "SubscriptionNotFound": fixSubscription, "InvalidSubscriptionId": fixSubscription,
		"SubscriptionNotRegistered": fixRegister, "MissingSubscriptionRegistration": fixRegister,
		"InvalidAuthenticationTokenTenant": "log in to the tenant of the subscription: az login --tenant TENANT",
	},
}

package gcp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/googleauth"
)

// refusals are the reasons of Compute Engine and the other services, the codes of
// operations that failed, and those of TPUs.
//
// https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation,
// https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability,
// https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-bulk-vm-creation,
// https://cloud.google.com/compute/docs/reference/rest/v1/errors,
// https://cloud.google.com/service-infrastructure/docs/service-management/reference/rpc/google.api#google.api.ErrorReason,
// https://developers.google.com/youtube/v3/docs/core_errors (the global domain, which Compute Engine shares),
// https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
//
// testdata/codes.txt lists all codes of these.
var refusals = vm.Refusals{
	Cloud: Name, DisplayName: "Google Cloud", Fix: googleauth.Fix + ", then: sky check gcp",
	Codes: map[string]vm.Meaning{
		"ZONE_RESOURCE_POOL_EXHAUSTED": vm.Full, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": vm.Full, "REGION_RESOURCE_POOL_EXHAUSTED": vm.Full,
		"RESOURCE_POOL_EXHAUSTED": vm.Full,
		"insufficientCapacity":    vm.Full, "RESOURCE_OPERATION_RATE_EXCEEDED": vm.Full, "resourceOperationRateExceeded": vm.Full, "TIMEOUT": vm.Full,
		minCount: vm.Full, "SERVICE_UNAVAILABLE_FOR_LOCATION": vm.Full,

		"QUOTA_EXCEEDED": vm.OverQuota, "quotaExceeded": vm.OverQuota, quotaEverywhere: vm.OverQuotaAll, tpuQuota: vm.OverQuota,
		"IP_SPACE_EXHAUSTED": vm.OverQuota, "IP_SPACE_EXHAUSTED_WITH_DETAILS": vm.OverQuota, // a subnet is one of a region
		"dailyLimitExceeded": vm.OverQuotaAll, "dailyLimitExceededUnreg": vm.OverQuotaAll, "variableTermLimitExceeded": vm.OverQuotaAll, "variableTermExpiredDailyExceeded": vm.OverQuotaAll,
		"dailyLimitExceeded402": vm.OverQuotaAll, "quotaExceeded402": vm.OverQuotaAll,

		"authError": vm.BadCredentials, "UNAUTHENTICATED": vm.BadCredentials, tpuCode + "UNAUTHENTICATED": vm.BadCredentials, "ACCESS_TOKEN_SCOPE_INSUFFICIENT": vm.BadCredentials,
		"accessNotConfigured": vm.BadCredentials, "SERVICE_DISABLED": vm.BadCredentials, "BILLING_DISABLED": vm.BadCredentials, "billingNotActive": vm.BadCredentials,
		"CONSUMER_INVALID": vm.BadCredentials, "USER_PROJECT_DENIED": vm.BadCredentials, "CONSUMER_SUSPENDED": vm.BadCredentials,
		"RESOURCE_PROJECT_INVALID": vm.BadCredentials, "GCP_SUSPENDED": vm.BadCredentials, "user402": vm.BadCredentials,
		"ACCESS_TOKEN_EXPIRED": vm.BadCredentials, "ACCESS_TOKEN_TYPE_UNSUPPORTED": vm.BadCredentials, "ACCOUNT_STATE_INVALID": vm.BadCredentials, "ACCOUNT_TYPE_UNSUPPORTED": vm.BadCredentials,
		"CREDENTIALS_MISSING": vm.BadCredentials, "CREDENTIAL_TYPE_UNSUPPORTED": vm.BadCredentials, "OVERLOADED_CREDENTIALS": vm.BadCredentials, "JWT_TOKEN_INVALID": vm.BadCredentials,
		"USER_BLOCKED_BY_ADMIN": vm.BadCredentials, "accountDeleted": vm.BadCredentials, "accountDisabled": vm.BadCredentials, "accountUnverified": vm.BadCredentials,
		"insufficientAudience": vm.BadCredentials, "insufficientAuthorizedParty": vm.BadCredentials, "unknownAuth": vm.BadCredentials,

		"forbidden": vm.Forbidden, "PERMISSION_DENIED": vm.Forbidden, "IAM_PERMISSION_DENIED": vm.Forbidden, "PERMISSIONS_ERROR": vm.Forbidden, tpuCode + "PERMISSION_DENIED": vm.ForbiddenHere,
		"LOCATION_POLICY_VIOLATED": vm.ForbiddenHere, "LOCATION_ORG_POLICY_VIOLATED": vm.ForbiddenHere, "LOCATION_TAX_POLICY_VIOLATED": vm.ForbiddenHere,
		"ORG_RESTRICTION_VIOLATION": vm.Forbidden, "ORG_RESTRICTION_HEADER_INVALID": vm.Forbidden, "SECURITY_POLICY_VIOLATED": vm.Forbidden, "SERVICE_NOT_VISIBLE": vm.Forbidden,
		"RESOURCE_USAGE_RESTRICTION_VIOLATED": vm.Forbidden, "ENDPOINT_USAGE_RESTRICTION_VIOLATED": vm.Forbidden, "TLS_ORG_POLICY_VIOLATED": vm.Forbidden, "TLS_CIPHER_RESTRICTION_VIOLATED": vm.Forbidden,

		"UNSUPPORTED_OPERATION": vm.Invalid, "unsupportedOperation": vm.Invalid, "INVALID_USAGE": vm.Invalid, "INVALID_FIELD_VALUE": vm.Invalid,
		"FIELD_SIZE_TOO_LARGE": vm.Invalid, "MISSING_REQUIRED_FIELD": vm.Invalid,
		"httpMethodNotAllowed": vm.Invalid, "backendRequestTooLarge": vm.Invalid, "uploadTooLarge": vm.Invalid,
		tpuCode + "INVALID_ARGUMENT": vm.Invalid, tpuCode + "OUT_OF_RANGE": vm.Invalid, tpuCode + "UNIMPLEMENTED": vm.Invalid,
		tpuCode + "RESOURCE_EXHAUSTED": vm.Full, tpuCode + "FAILED_PRECONDITION": vm.Full,

		"rateLimitExceeded": vm.Throttled, "userRateLimitExceeded": vm.Throttled, "RATE_LIMIT_EXCEEDED": vm.Throttled, "concurrentLimitExceeded": vm.Throttled,
		"RESOURCE_QUOTA_EXCEEDED": vm.Throttled, "RESOURCE_EXHAUSTED": vm.Throttled, "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED": vm.Throttled,
		"limitExceeded": vm.Throttled, "servingLimitExceeded": vm.Throttled, "rateLimitExceededUnreg": vm.Throttled, "userRateLimitExceededUnreg": vm.Throttled,

		"INTERNAL_ERROR": vm.NoAnswer, "SERVICE_UNAVAILABLE": vm.NoAnswer, tpuCode + "INTERNAL": vm.NoAnswer,
		tpuCode + "UNAVAILABLE": vm.NoAnswer, tpuCode + "DEADLINE_EXCEEDED": vm.NoAnswer, tpuCode + "DATA_LOSS": vm.NoAnswer,

		"notFound": vm.NotThere, "NOT_FOUND": vm.NotThere, "RESOURCE_NOT_FOUND": vm.NotThere, tpuCode + "NOT_FOUND": vm.NotThere, "SUBNET_NOT_FOUND_FOR_VPC": vm.InvalidInRegion,
		"VPC_NOT_FOUND": vm.InvalidAnywhere, "NETWORK_NOT_FOUND": vm.InvalidAnywhere, "PROJECT_NOT_FOUND": vm.BadCredentials,

		"alreadyExists": vm.Moved, "RESOURCE_ALREADY_EXISTS": vm.Moved, "ALREADY_EXISTS": vm.Moved, tpuCode + "ALREADY_EXISTS": vm.Moved,
		"ABORTED": vm.Moved, tpuCode + "ABORTED": vm.Moved, tpuCode + "CANCELLED": vm.Moved, "duplicate": vm.Moved, "preconditionRequired": vm.Moved,

		"resourceInUseByAnotherResource": vm.InUse, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": vm.InUse, "resourceNotReady": vm.InUse, "RESOURCE_NOT_READY": vm.InUse,
	},
	Texts: []vm.Text{
		{Holds: "constraints/gcp.resourcelocations", Means: vm.InvalidInRegion},
		{Holds: "constraint constraints/", Means: vm.InvalidAnywhere},
		{Holds: "org policy", Means: vm.InvalidAnywhere}, // "Operation denied by custom org policy"
		{Holds: "fingerprint", Means: vm.Moved},
		{Holds: "policy update access denied", Means: vm.Forbidden},
		{Holds: "disk size cannot be smaller than the image size", Means: vm.InvalidAnywhere},
		{Holds: "is smaller than the image", Means: vm.InvalidAnywhere},
		{Holds: "is not found or access is unauthorized", Means: vm.Invalid},
		{Holds: "does not have enough resources available", Means: vm.Full},
		{Holds: "no more capacity in the zone", Means: vm.Full},
		{Holds: "there is no more capacity", Means: vm.Full},
	},
	// Mostly a policy, when no fingerprint is meant.
	Vague: map[string]vm.Meaning{"conditionNotMet": vm.Invalid, "CONDITION_NOT_MET": vm.Invalid, "conflict": vm.InUse},
	Statuses: map[int]vm.Meaning{
		http.StatusBadRequest: vm.Invalid,
		500:                   vm.NoAnswer, 501: vm.NoAnswer, 502: vm.NoAnswer, 503: vm.NoAnswer, 504: vm.NoAnswer,
	},
}

// Refusal says what a refusal means, with a command that helps against this one.
func (d driver) Refusal(ctx context.Context, at cloud.Place, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return d.Refusals.Refusal(ctx, at, err)
	}
	project := d.project()
	switch r.Code {
	case "accessNotConfigured", "SERVICE_DISABLED":
		return d.Say(vm.BadCredentials, at, enable(r.service, project), err)
	case "BILLING_DISABLED", "billingNotActive", "user402":
		return d.Say(vm.BadCredentials, at, "link the project "+project+" to a billing account at https://console.cloud.google.com/billing/linkedaccount?project="+project+", then: sky check gcp", err)
	case "CONSUMER_INVALID", "USER_PROJECT_DENIED", "CONSUMER_SUSPENDED", "PROJECT_NOT_FOUND", "RESOURCE_PROJECT_INVALID", "GCP_SUSPENDED":
		return d.Say(vm.BadCredentials, at, fixProject, err)
	case "ACCESS_TOKEN_SCOPE_INSUFFICIENT":
		return d.Say(vm.BadCredentials, at, "give the machine or the login the scope cloud-platform, then: sky check gcp", err)
	case "notFound", "RESOURCE_NOT_FOUND", tpuCode + "NOT_FOUND":
		// A type of machine or accelerator may be in the next zone.
		if at.Zone != "" && (strings.Contains(r.Message, "/zones/") || r.Code == tpuCode+"NOT_FOUND") {
			return d.Say(vm.Invalid, at, "", err)
		}
	}
	return d.Refusals.Refusal(ctx, at, err)
}

// enable is the command that switches an API on.
func enable(service, project string) string {
	return "gcloud services enable " + service + " --project " + project
}

// project is the one in use; "": none was used so far.
func (p *Provider) project() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.account == nil {
		return ""
	}
	return p.account.project
}

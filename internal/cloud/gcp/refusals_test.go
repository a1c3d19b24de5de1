package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// meaning names an error of package cloud, and what it closes.
func meaning(err error) string {
	var (
		full      *cloud.CapacityError
		quota     *cloud.QuotaError
		auth      *cloud.AuthError
		forbidden *cloud.PermissionError
		invalid   *cloud.InvalidError
		throttled *cloud.ThrottledError
		lost      *cloud.UnreachableError
		unknown   *cloud.UnknownError
	)
	switch {
	case errors.As(err, &full):
		return "full " + full.Place.String()
	case errors.As(err, &quota):
		return "quota " + quota.Place.String()
	case errors.As(err, &auth):
		return "credentials: " + auth.Fix
	case errors.As(err, &forbidden):
		return "forbidden " + forbidden.Place.String()
	case errors.As(err, &invalid):
		return "invalid " + invalid.Place.String()
	case errors.As(err, &throttled):
		return "throttled"
	case errors.As(err, &lost):
		return "lost"
	case errors.As(err, &unknown):
		return "unknown " + unknown.Code
	}
	return "unclear"
}

const everywhere, inRegion, inZone = "gcp", "gcp/us-central1", "gcp/us-central1/us-central1-a"

// The shapes that refusals come in.
type (
	ofHTTP      struct{ reason, message string } // Compute Engine's answers
	ofStatus    struct{ status, message, detail string }
	ofOperation struct{ code, message string }
	ofBulk      struct{ code, message string } // behind what a bulk insertion always says
	ofTPU       struct {
		code    int
		message string
		quota   bool
	}
)

// read reads a refusal as the provider does.
func read(t *testing.T, shape any, status int) error {
	t.Helper()
	say := func(host string, body any) error {
		text, err := json.Marshal(map[string]any{"error": body})
		if err != nil {
			t.Fatal(err)
		}
		if err := reads(host)(status, nil, text); err != nil {
			return err
		}
		return &rest.NoAnswerError{Cloud: "Google Cloud", Err: errors.New("status")}
	}
	switch s := shape.(type) {
	case ofHTTP:
		return say("compute", map[string]any{"code": status, "message": s.message, "errors": []any{map[string]any{"reason": s.reason, "message": s.message, "domain": "global"}}})
	case ofStatus:
		e := map[string]any{"code": status, "message": s.message, "status": s.status}
		if s.detail != "" {
			e["details"] = []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": s.detail, "metadata": map[string]any{"service": "iam.googleapis.com"}}}
		}
		return say("iam", e)
	case ofOperation:
		var o operation
		text := fmt.Sprintf(`{"status": "DONE", "httpErrorStatusCode": %d, "error": {"errors": [{"code": %q, "message": %q}, {"code": %q, "message": %q}]}}`, status, s.code, s.message, s.code, s.message)
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return o.failure()
	case ofBulk:
		return operation{HTTP: status, Error: operationError{[]operationFault{{minCount, "Requested minimum count of 4 VMs could not be created."}, {s.code, s.message}}}}.failure()
	case ofTPU:
		var o tpuOperation
		detail := ""
		if s.quota {
			detail = `{"@type": "type.googleapis.com/google.rpc.QuotaFailure"}`
		}
		if err := json.Unmarshal(fmt.Appendf(nil, `{"done": true, "error": {"code": %d, "message": %q, "details": [%s]}}`, s.code, s.message, detail), &o); err != nil {
			t.Fatal(err)
		}
		return o.failure()
	}
	t.Fatalf("%T", shape)
	return nil
}

func TestRefusals(t *testing.T) {
	p := New(Options{})
	p.account = &account{project: "mine"}
	d := driver{p, refusals}
	at := cloud.Place{Cloud: Name, Region: "us-central1", Zone: "us-central1-a"}
	login := "credentials: gcloud auth application-default login"
	shown := map[string]bool{}
	for _, c := range []struct {
		shape  any
		status int
		means  string
		kind   vm.Kind
	}{
		{ofOperation{"ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available to fulfill the request."}, 503, "full " + inZone, vm.Refused},
		{ofOperation{"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "The zone does not have enough resources available, '(resource type:compute)'."}, 503, "full " + inZone, vm.Refused},
		{ofHTTP{"ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources"}, 503, "full " + inZone, vm.Refused},
		{ofOperation{"REGION_RESOURCE_POOL_EXHAUSTED", "no"}, 503, "full " + inZone, vm.Refused},
		{ofHTTP{"backendError", "The zone 'z' does not have enough resources available to fulfill the request."}, 503, "full " + inZone, vm.Refused},
		{ofHTTP{"insufficientCapacity", "no"}, 400, "full " + inZone, vm.Refused},
		{ofOperation{"RESOURCE_OPERATION_RATE_EXCEEDED", "Operation rate exceeded for resource 'projects/p/global/images/i'."}, 400, "full " + inZone, vm.Refused},
		{ofHTTP{"resourceOperationRateExceeded", "no"}, 400, "full " + inZone, vm.Refused},
		{ofOperation{"TIMEOUT", "no"}, 0, "full " + inZone, vm.Refused},
		{ofOperation{minCount, "Requested minimum count of 4 VMs could not be created."}, 400, "full " + inZone, vm.Refused},
		{ofBulk{"QUOTA_EXCEEDED", "Quota 'N2_CPUS' exceeded.  Limit: 8.0 in region us-central1."}, 400, "quota " + inRegion, vm.Refused},
		{ofHTTP{"SERVICE_UNAVAILABLE_FOR_LOCATION", "'compute' in location 'us-central1-a' cannot accept requests."}, 500, "full " + inZone, vm.Refused},
		{ofHTTP{"FIELD_SIZE_TOO_LARGE", "Value for field 'metadata' is too large"}, 400, "invalid " + inZone, vm.Refused},
		{ofHTTP{"MISSING_REQUIRED_FIELD", "Required field 'name' not specified"}, 400, "invalid " + inZone, vm.Refused},
		{ofHTTP{"NETWORK_NOT_FOUND", "Network 'n' was not found in project 'mine'"}, 404, "invalid " + everywhere, vm.Refused},
		{ofHTTP{"PROJECT_NOT_FOUND", "The resource 'projects/mine' was not found"}, 404, "credentials: gcloud config set project", vm.Refused},
		{ofOperation{"QUOTA_EXCEEDED", "Quota 'N2_CPUS' exceeded.  Limit: 8.0 in region us-central1."}, 403, "quota " + inRegion, vm.Refused},
		{ofHTTP{"quotaExceeded", "Quota 'N2_CPUS' exceeded.  Limit: 8.0 in region us-central1."}, 403, "quota " + inRegion, vm.Refused},
		{ofOperation{"QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally."}, 403, "quota " + everywhere, vm.Refused},
		{ofHTTP{"quotaExceeded", "Quota 'NETWORKS' exceeded.  Limit: 5.0 globally."}, 403, "quota " + everywhere, vm.Refused},
		{ofOperation{quotaEverywhere, "no"}, 403, "quota " + everywhere, vm.Refused},
		{ofHTTP{"authError", "Invalid Credentials"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "Request had invalid authentication credentials.", ""}, 401, login, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "Request had insufficient authentication scopes.", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}, 403, "credentials: give the machine or the login the scope", vm.Refused},
		{ofHTTP{"accessNotConfigured", "Compute Engine API has not been used in project mine before or it is disabled."}, 403, "credentials: gcloud services enable compute.googleapis.com --project mine", vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "IAM API has not been used in project mine before", "SERVICE_DISABLED"}, 403, "credentials: gcloud services enable iam.googleapis.com --project mine", vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "This API method requires billing to be enabled.", "BILLING_DISABLED"}, 403, "credentials: link the project mine to a billing account", vm.Refused},
		{ofHTTP{"billingNotActive", "no"}, 403, "credentials: link the project mine to a billing account", vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "Project 'nope' not found or deleted.", "CONSUMER_INVALID"}, 403, "credentials: gcloud config set project", vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "Caller does not have required permission to use project nope.", "USER_PROJECT_DENIED"}, 403, "credentials: gcloud config set project", vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "suspended", "CONSUMER_SUSPENDED"}, 403, "credentials: gcloud config set project", vm.Refused},
		{ofHTTP{"forbidden", "Required 'compute.instances.create' permission for 'projects/mine'"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "The caller does not have permission", ""}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "Permission denied", "IAM_PERMISSION_DENIED"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofOperation{"PERMISSIONS_ERROR", "no"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "Policy update access denied.", ""}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"FAILED_PRECONDITION", "no", "LOCATION_POLICY_VIOLATED"}, 400, "forbidden " + inZone, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "ORG_RESTRICTION_VIOLATION"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofHTTP{"conditionNotMet", "Constraint constraints/gcp.resourceLocations violated for projects/mine."}, 412, "invalid " + inRegion, vm.Refused},
		{ofHTTP{"conditionNotMet", "Constraint constraints/compute.vmExternalIpAccess violated for project 1. Add instance to the constraint."}, 412, "invalid " + everywhere, vm.Refused},
		{ofHTTP{"conditionNotMet", "Operation denied by custom org policy: [\"customConstraints/custom.noBig\": \"too big\"]."}, 412, "invalid " + everywhere, vm.Refused},
		{ofHTTP{"conditionNotMet", "nobody knows"}, 412, "invalid " + inZone, vm.Refused},
		{ofOperation{"UNSUPPORTED_OPERATION", "no"}, 400, "invalid " + inZone, vm.Refused},
		{ofHTTP{"unsupportedOperation", "no"}, 400, "invalid " + inZone, vm.Refused},
		{ofOperation{"INVALID_USAGE", "no"}, 400, "invalid " + inZone, vm.Refused},
		{ofOperation{"INVALID_FIELD_VALUE", "no"}, 400, "invalid " + inZone, vm.Refused},
		{ofHTTP{"invalid", "Invalid value for field 'resource.machineType'"}, 400, "invalid " + inZone, vm.Refused},
		{ofHTTP{"invalid", "Requested disk size cannot be smaller than the image size (50 GB)"}, 400, "invalid " + everywhere, vm.Refused},
		{ofOperation{"VPC_NOT_FOUND", "no"}, 404, "invalid " + everywhere, vm.Refused},
		{ofOperation{"SUBNET_NOT_FOUND_FOR_VPC", "no"}, 404, "invalid " + inRegion, vm.Refused},
		{ofHTTP{"notFound", "The resource 'projects/p/zones/us-central1-a/acceleratorTypes/x' was not found"}, 404, "invalid " + inZone, vm.Missing},
		{ofOperation{"RESOURCE_NOT_FOUND", "The resource 'projects/p/global/networks/x' was not found"}, 404, "invalid " + inRegion, vm.Missing},
		{ofStatus{"NOT_FOUND", "Unknown service account", ""}, 404, "invalid " + inRegion, vm.Missing},
		{ofHTTP{"other", "The resource is not found or access is unauthorized"}, 400, "invalid " + inZone, vm.Refused},
		{ofHTTP{"rateLimitExceeded", "Quota exceeded for quota metric 'Queries'"}, 403, "throttled", vm.Refused},
		{ofHTTP{"userRateLimitExceeded", "no"}, 403, "throttled", vm.Refused},
		{ofHTTP{"concurrentLimitExceeded", "no"}, 403, "throttled", vm.Refused},
		{ofStatus{"RESOURCE_EXHAUSTED", "no", "RATE_LIMIT_EXCEEDED"}, 429, "throttled", vm.Refused},
		{ofStatus{"RESOURCE_EXHAUSTED", "no", ""}, 429, "throttled", vm.Refused},
		{ofStatus{"RESOURCE_EXHAUSTED", "no", "RESOURCE_QUOTA_EXCEEDED"}, 429, "throttled", vm.Refused},
		{ofHTTP{"backendError", "Internal error"}, 503, "lost", vm.Lost},
		{ofHTTP{"internalError", "Internal error"}, 500, "lost", vm.Lost},
		{ofOperation{"INTERNAL_ERROR", "Internal error."}, 500, "lost", vm.Lost},
		{ofOperation{"SERVICE_UNAVAILABLE", "no"}, 503, "lost", vm.Lost},
		{ofHTTP{"alreadyExists", "The resource 'x' already exists"}, 409, "unclear", vm.Changed},
		{ofOperation{"RESOURCE_ALREADY_EXISTS", "The resource 'x' already exists"}, 409, "unclear", vm.Changed},
		{ofStatus{"ALREADY_EXISTS", "no", ""}, 409, "unclear", vm.Changed},
		{ofStatus{"ABORTED", "There were concurrent policy changes.", ""}, 409, "unclear", vm.Changed},
		{ofHTTP{"conditionNotMet", "Labels fingerprint either invalid or resource labels have changed"}, 412, "unclear", vm.Changed},
		{ofHTTP{"resourceInUseByAnotherResource", "no"}, 400, "unclear", vm.Busy},
		{ofOperation{"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "no"}, 400, "unclear", vm.Busy},
		{ofHTTP{"resourceNotReady", "The resource 'x' is not ready"}, 400, "unclear", vm.Busy},
		{ofOperation{"RESOURCE_NOT_READY", "no"}, 400, "unclear", vm.Busy},
		{ofOperation{"SOMETHING_NEW", "nobody knows"}, 0, "unknown SOMETHING_NEW", vm.Refused},
		{ofHTTP{"somethingNew", "nobody knows"}, 409, "unknown somethingNew", vm.Busy},
		{ofOperation{"RESOURCE_POOL_EXHAUSTED", "no"}, 503, "full " + inZone, vm.Refused},
		{ofOperation{"IP_SPACE_EXHAUSTED", "no"}, 400, "quota " + inRegion, vm.Refused},
		{ofOperation{"IP_SPACE_EXHAUSTED_WITH_DETAILS", "no"}, 400, "quota " + inRegion, vm.Refused},
		{ofHTTP{"dailyLimitExceeded", "no"}, 403, "quota " + everywhere, vm.Refused},
		{ofHTTP{"dailyLimitExceededUnreg", "no"}, 403, "quota " + everywhere, vm.Refused},
		{ofHTTP{"variableTermLimitExceeded", "no"}, 403, "quota " + everywhere, vm.Refused},
		{ofHTTP{"variableTermExpiredDailyExceeded", "no"}, 403, "quota " + everywhere, vm.Refused},
		{ofHTTP{"dailyLimitExceeded402", "no"}, 402, "quota " + everywhere, vm.Refused},
		{ofHTTP{"quotaExceeded402", "no"}, 402, "quota " + everywhere, vm.Refused},
		{ofHTTP{"user402", "no"}, 402, "credentials: link the project mine to a billing account", vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "RESOURCE_PROJECT_INVALID"}, 403, "credentials: gcloud config set project", vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "GCP_SUSPENDED"}, 403, "credentials: gcloud config set project", vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "ACCESS_TOKEN_EXPIRED"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "ACCESS_TOKEN_TYPE_UNSUPPORTED"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "ACCOUNT_STATE_INVALID"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "ACCOUNT_TYPE_UNSUPPORTED"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "CREDENTIALS_MISSING"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "CREDENTIAL_TYPE_UNSUPPORTED"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "OVERLOADED_CREDENTIALS"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "JWT_TOKEN_INVALID"}, 401, login, vm.Refused},
		{ofStatus{"UNAUTHENTICATED", "no", "USER_BLOCKED_BY_ADMIN"}, 401, login, vm.Refused},
		{ofHTTP{"accountDeleted", "no"}, 403, login, vm.Refused},
		{ofHTTP{"accountDisabled", "no"}, 403, login, vm.Refused},
		{ofHTTP{"accountUnverified", "no"}, 403, login, vm.Refused},
		{ofHTTP{"insufficientAudience", "no"}, 403, login, vm.Refused},
		{ofHTTP{"insufficientAuthorizedParty", "no"}, 403, login, vm.Refused},
		{ofHTTP{"unknownAuth", "no"}, 403, login, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "LOCATION_ORG_POLICY_VIOLATED"}, 403, "forbidden " + inZone, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "LOCATION_TAX_POLICY_VIOLATED"}, 403, "forbidden " + inZone, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "ORG_RESTRICTION_HEADER_INVALID"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "SECURITY_POLICY_VIOLATED"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "SERVICE_NOT_VISIBLE"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "RESOURCE_USAGE_RESTRICTION_VIOLATED"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "ENDPOINT_USAGE_RESTRICTION_VIOLATED"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "TLS_ORG_POLICY_VIOLATED"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "TLS_CIPHER_RESTRICTION_VIOLATED"}, 403, "forbidden " + everywhere, vm.Refused},
		{ofHTTP{"httpMethodNotAllowed", "no"}, 405, "invalid " + inZone, vm.Refused},
		{ofHTTP{"backendRequestTooLarge", "no"}, 413, "invalid " + inZone, vm.Refused},
		{ofHTTP{"uploadTooLarge", "no"}, 413, "invalid " + inZone, vm.Refused},
		{ofStatus{"PERMISSION_DENIED", "no", "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED"}, 403, "throttled", vm.Refused},
		{ofHTTP{"limitExceeded", "no"}, 403, "throttled", vm.Refused},
		{ofHTTP{"servingLimitExceeded", "no"}, 403, "throttled", vm.Refused},
		{ofHTTP{"rateLimitExceededUnreg", "no"}, 403, "throttled", vm.Refused},
		{ofHTTP{"userRateLimitExceededUnreg", "no"}, 403, "throttled", vm.Refused},
		{ofHTTP{"duplicate", "no"}, 409, "unclear", vm.Changed},
		{ofHTTP{"preconditionRequired", "no"}, 428, "unclear", vm.Changed},
		{ofHTTP{"conflict", "no"}, 409, "unclear", vm.Busy},
		{ofOperation{"CONDITION_NOT_MET", "Constraint constraints/compute.vmExternalIpAccess violated for project 1."}, 412, "invalid " + everywhere, vm.Refused},
		{ofOperation{"CONDITION_NOT_MET", "nobody knows"}, 412, "invalid " + inZone, vm.Refused},
		{ofTPU{4, "no", false}, 0, "lost", vm.Lost},
		{ofTPU{15, "no", false}, 0, "lost", vm.Lost},
		{ofTPU{1, "no", false}, 0, "unclear", vm.Changed},

		{ofTPU{8, "There is no more capacity in the zone \"us-central1-a\"; you can try in another zone", false}, 0, "full " + inZone, vm.Refused},
		{ofTPU{8, "no", true}, 0, "quota " + inRegion, vm.Refused},
		{ofTPU{8, "Quota limit 'TPUV2sPreemptiblePodPerProjectPerZoneForTPUAPI' has been exceeded.", false}, 0, "quota " + inRegion, vm.Refused},
		{ofTPU{9, "no", false}, 0, "full " + inZone, vm.Refused},
		{ofTPU{3, "no", false}, 0, "invalid " + inZone, vm.Refused},
		{ofTPU{11, "no", false}, 0, "invalid " + inZone, vm.Refused},
		{ofTPU{12, "no", false}, 0, "invalid " + inZone, vm.Refused},
		{ofTPU{5, "no", false}, 0, "invalid " + inZone, vm.Missing},
		{ofTPU{6, "no", false}, 0, "unclear", vm.Changed},
		{ofTPU{10, "no", false}, 0, "unclear", vm.Changed},
		{ofTPU{7, "no", false}, 0, "forbidden " + inZone, vm.Refused},
		{ofTPU{16, "no", false}, 0, login, vm.Refused},
		{ofTPU{13, "no", false}, 0, "lost", vm.Lost},
		{ofTPU{14, "no", false}, 0, "lost", vm.Lost},
		{ofTPU{2, "nobody knows", false}, 0, "unknown tpu/UNKNOWN", vm.Refused},
	} {
		err := read(t, c.shape, c.status)
		if r, ok := errors.AsType[*refusal](err); ok {
			shown[r.Code] = true
			if r.Message == "" {
				t.Errorf("%+v: the message is lost", c.shape)
			}
		}
		got := d.Refusal(t.Context(), at, err)
		if m := meaning(got); m != c.means && !(strings.HasPrefix(c.means, "credentials:") && strings.HasPrefix(m, c.means)) {
			t.Errorf("%+v with status %d means %q, want %q", c.shape, c.status, m, c.means)
		}
		if k := d.Kind(err); k != c.kind {
			t.Errorf("%+v with status %d is of kind %d, want %d", c.shape, c.status, k, c.kind)
		}
		if r, ok := errors.AsType[*refusal](got); ok && !strings.Contains(got.Error(), r.Code) {
			t.Errorf("%+v: the code is not told: %v", c.shape, got)
		}
	}
	for _, table := range []map[string]vm.Meaning{refusals.Codes, refusals.Vague} {
		for code := range table {
			if !shown[code] {
				t.Errorf("no row has the code %s", code)
			}
		}
	}
}

// Every code of the references is in the table, has a status that says enough, or cannot be
// met.
func TestEveryDocumentedCode(t *testing.T) {
	text, err := os.ReadFile("testdata/codes.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		code, reason, excused := strings.Cut(line, ": ")
		code, status, byStatus := strings.Cut(code, " ")
		known := refusals.Knows(code) || refusals.Knows(tpuCode+code)
		switch {
		case excused && (known || reason == ""), !excused && !byStatus && !known:
			t.Errorf("%s: the table has it: %t", line, known)
		case byStatus:
			n, err := strconv.Atoi(status)
			if m := refusals.Means(&rest.Error{Status: n, Code: code}); err != nil || m == vm.Unclear {
				t.Errorf("%s means %v", line, m)
			}
		}
	}
	if n < 130 {
		t.Errorf("only %d codes", n)
	}
}

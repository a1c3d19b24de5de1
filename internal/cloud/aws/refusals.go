package aws

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// meanings are the codes of the EC2, IAM, STS and Service Quotas references, by
// what they rule out.
var meanings = map[string]vm.Meaning{
	"AuthFailure":                 vm.BadCredentials,
	"InvalidClientTokenId":        vm.BadCredentials,
	"InvalidClientToken":          vm.BadCredentials,
	"UnrecognizedClientException": vm.BadCredentials,
	"SignatureDoesNotMatch":       vm.BadCredentials,
	"IncompleteSignature":         vm.BadCredentials,
	"InvalidAccessKeyId":          vm.BadCredentials,
	"MissingAuthenticationToken":  vm.BadCredentials,
	"InvalidSignatureException":   vm.BadCredentials,
	"Blocked":                     vm.BadCredentials,
	"ExpiredToken":                vm.BadCredentials,
	"ExpiredTokenException":       vm.BadCredentials,
	"RequestExpired":              vm.BadCredentials,
	"RequestTimeTooSkewed":        vm.BadCredentials,

	"UnauthorizedOperation": vm.Forbidden,
	"AccessDenied":          vm.Forbidden,
	"AccessDeniedException": vm.Forbidden,
	"OptInRequired":         vm.ForbiddenHere,
	"PendingVerification":   vm.ForbiddenHere,

	"InsufficientInstanceCapacity":         vm.Full,
	"InsufficientCapacity":                 vm.Full,
	"InsufficientHostCapacity":             vm.Full,
	"InsufficientCapacityOnHost":           vm.Full,
	"InsufficientReservedInstanceCapacity": vm.Full,
	"InsufficientAddressCapacity":          vm.Full,
	"InsufficientVolumeCapacity":           vm.Full,
	"InsufficientFreeAddressesInSubnet":    vm.Full,
	"ReservationCapacityExceeded":          vm.Full,
	"InvalidCapacityReservationState":      vm.Full,
	"SpotMaxPriceTooLow":                   vm.Full,
	"UnfulfillableCapacity":                vm.Full,

	"VcpuLimitExceeded":                  vm.OverQuota,
	"InstanceLimitExceeded":              vm.OverQuota,
	"MaxSpotInstanceCountExceeded":       vm.OverQuota,
	"MaxIOPSLimitExceeded":               vm.OverQuota,
	"SecurityGroupsPerInterfaceExceeded": vm.OverQuota,
	"ResourceCountExceeded":              vm.OverQuota,
	"ConcurrentLaunchLimitExceeded":      vm.OverQuota,
	"ServiceQuotaExceededException":      vm.OverQuota,

	"Unsupported":                   vm.Invalid,
	"UnsupportedOperation":          vm.Invalid,
	"UnsupportedInstanceAttribute":  vm.Invalid,
	"InvalidParameter":              vm.Invalid,
	"InvalidParameterValue":         vm.Invalid,
	"InvalidParameterCombination":   vm.Invalid,
	"MissingParameter":              vm.Invalid,
	"InvalidInput":                  vm.Invalid,
	"InvalidInstanceType":           vm.Invalid,
	"InvalidAvailabilityZone":       vm.Invalid,
	"InvalidZone.NotFound":          vm.Invalid,
	"InvalidBlockDeviceMapping":     vm.Invalid,
	"InvalidUserData.Malformed":     vm.InvalidInRegion,
	"InvalidSubnet":                 vm.Invalid,
	"VPCIdNotSpecified":             vm.InvalidInRegion,
	"VPCResourceNotSpecified":       vm.InvalidInRegion,
	"InvalidVpcID.NotFound":         vm.InvalidInRegion,
	"InvalidSubnetID.NotFound":      vm.InvalidInRegion,
	"InvalidGroup.NotFound":         vm.InvalidInRegion,
	"IdempotentParameterMismatch":   vm.Invalid,
	"TagLimitExceeded":              vm.InvalidInRegion,
	"InvalidTagKey.Malformed":       vm.InvalidInRegion,
	"EncryptedVolumesNotSupported":  vm.Invalid,
	"InvalidAMIID.NotFound":         vm.InvalidInRegion,
	"InvalidAMIID.Malformed":        vm.InvalidInRegion,
	"InvalidAMIID.Unavailable":      vm.InvalidInRegion,
	"InvalidAMIName.NotFound":       vm.InvalidInRegion,
	"DefaultVpcDoesNotExist":        vm.InvalidInRegion,
	"InvalidPlacementGroup.Unknown": vm.InvalidInRegion,

	"RequestLimitExceeded":     vm.Throttled,
	"Throttling":               vm.Throttled,
	"ThrottlingException":      vm.Throttled,
	"TooManyRequestsException": vm.Throttled,
	"EC2ThrottledException":    vm.Throttled,

	"InternalError":      vm.NoAnswer,
	"InternalFailure":    vm.NoAnswer,
	"ServerInternal":     vm.NoAnswer,
	"ServiceUnavailable": vm.NoAnswer,
	"Unavailable":        vm.NoAnswer,
	"RequestTimeout":     vm.NoAnswer,

	"ConcurrentModification": vm.NoAnswer, // somebody else changes the role at the moment
}

// fixClock mends calls that AWS thinks were signed at another time.
const fixClock = "set the clock of the machine that the API server runs on (AWS accepts five minutes of difference), then: sky check aws"

// translate says in sky's words why a call about a place failed.
func translate(ctx context.Context, at cloud.Place, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("asking AWS: %w", context.Cause(ctx))
	}
	var told *cloud.PermissionError
	if errors.As(err, &told) {
		return err
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return silent(err)
	}
	region := cloud.Place{Cloud: Name, Region: at.Region}
	m, fix, words := meaningOf(api), fixCredentials, plain(api, err)
	switch code := api.ErrorCode(); {
	case m == vm.Forbidden:
		if strings.Contains(api.ErrorMessage(), "explicit deny") { // as organizations deny regions
			m, at = vm.ForbiddenHere, region
		}
		words = permission(api, err)
	case m == vm.ForbiddenHere: // a region that is closed
		at = region
	case code == "ExpiredToken" || code == "ExpiredTokenException":
		fix = "log in again (aws sso login, or new keys), then: sky check aws"
	case code == "RequestExpired" || code == "RequestTimeTooSkewed": // the clock of this machine
		fix = "log in again if the keys in use are temporary (aws sso login, or new keys); if they are not, " + fixClock
	case strings.Contains(api.ErrorMessage(), "Signature expired"), strings.Contains(api.ErrorMessage(), "Signature not yet current"):
		fix = fixClock
	case m == vm.Unclear && (api.ErrorFault() == smithy.FaultServer || status(err) >= 500):
		m = vm.NoAnswer
	}
	said := vm.Refusals{Cloud: Name, DisplayName: "AWS"}.Say(m, at, fix, words)
	if m == vm.Unclear {
		return &cloud.UnknownError{Code: api.ErrorCode(), Err: said}
	}
	return said
}

// refusal is an error of AWS in its own words, without those of the SDK.
type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// plain tells code, message and, for a question to AWS, the request.
func plain(api smithy.APIError, err error) error {
	text := api.ErrorCode() + ": " + strings.TrimSuffix(api.ErrorMessage(), ".")
	var r interface{ ServiceRequestID() string }
	if errors.As(err, &r) && r.ServiceRequestID() != "" {
		text += " (request " + r.ServiceRequestID() + ")"
	}
	return &refusal{text, err}
}

// silent is an error without an answer of AWS: from the way there, or from
// credentials that could not be had.
func silent(err error) error {
	var process interface{ CredentialsError() }
	text := err.Error()
	if errors.As(err, &process) || strings.Contains(text, "get credentials") || strings.Contains(text, "refresh cached credentials") {
		return &cloud.AuthError{Cloud: Name, Fix: fixCredentials, Err: err}
	}
	if s := status(err); s == 401 || s == 403 {
		return &cloud.AuthError{Cloud: Name, Fix: fixCredentials, Err: err}
	} else if s == 429 {
		return &cloud.ThrottledError{Err: err}
	}
	var way *url.Error
	if errors.As(err, &way) { // without the words of the SDK around it
		return &cloud.UnreachableError{Err: &refusal{fmt.Sprintf("no answer from %s: %v", way.URL, way.Err), err}}
	}
	return &cloud.UnreachableError{Err: err}
}

func meaningOf(api smithy.APIError) vm.Meaning {
	code := api.ErrorCode()
	if m, ok := meanings[code]; ok {
		switch text := api.ErrorMessage(); {
		case code == "Unsupported" && strings.Contains(strings.ToLower(text), "capacity"):
			return vm.Full
		case code == "AuthFailure" && strings.Contains(text, "Not authorized for images"): // somebody else's
			return vm.InvalidInRegion
		}
		return m
	}
	switch {
	case code == noSpotRole:
		return vm.Forbidden
	case strings.HasSuffix(code, "LimitExceeded"):
		return vm.OverQuota
	case strings.HasSuffix(code, ".NotFound"), strings.HasSuffix(code, ".Malformed"):
		return vm.InvalidInRegion
	case strings.HasPrefix(code, "InvalidParameter"):
		return vm.Invalid
	}
	return vm.Unclear
}

// noSpotRole refuses the first spot machine of an account to those who may not
// make the role that EC2 itself uses for them.
const noSpotRole = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

// permission names the action that was refused, when the message tells it.
func permission(api smithy.APIError, err error) error {
	text := api.ErrorMessage()
	if api.ErrorCode() == noSpotRole {
		return fmt.Errorf("the account has had no spot machine yet, and the permission iam:CreateServiceLinkedRole is missing; "+
			"let somebody who has it run, once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com: %w", plain(api, err))
	}
	if _, rest, ok := strings.Cut(text, "perform: "); ok {
		action, _, _ := strings.Cut(rest, " ")
		return fmt.Errorf("the permission %s is missing: %w", action, plain(api, err))
	}
	var op *smithy.OperationError
	if errors.As(err, &op) {
		return fmt.Errorf("the permission %s:%s is missing: %w", strings.ToLower(op.Service()), op.Operation(), plain(api, err))
	}
	return plain(api, err)
}

func apiError(err error) (smithy.APIError, bool) {
	var api smithy.APIError
	ok := errors.As(err, &api)
	return api, ok
}

// codeOf is the code of an error of AWS; "" for others.
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func status(err error) int {
	var r *smithyhttp.ResponseError
	if errors.As(err, &r) {
		return r.HTTPStatusCode()
	}
	return 0
}

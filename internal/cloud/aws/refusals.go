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
)

// meaning is what an error code of AWS says about the map.
type meaning int

const (
	other meaning = iota
	badCredentials
	expired
	wrongTime // the clock of this machine
	forbidden
	regionClosed
	full
	overQuota
	invalid       // in that zone
	wrongInRegion // in all zones of the region
	throttled
	theirs // on their side; it may work in a moment
)

// meanings are the codes of the EC2, IAM, STS and Service Quotas references, by
// what they rule out.
var meanings = map[string]meaning{
	"AuthFailure":                 badCredentials,
	"InvalidClientTokenId":        badCredentials,
	"InvalidClientToken":          badCredentials,
	"UnrecognizedClientException": badCredentials,
	"SignatureDoesNotMatch":       badCredentials,
	"IncompleteSignature":         badCredentials,
	"InvalidAccessKeyId":          badCredentials,
	"MissingAuthenticationToken":  badCredentials,
	"InvalidSignatureException":   badCredentials,
	"Blocked":                     badCredentials,
	"ExpiredToken":                expired,
	"ExpiredTokenException":       expired,
	"RequestExpired":              wrongTime,
	"RequestTimeTooSkewed":        wrongTime,

	"UnauthorizedOperation": forbidden,
	"AccessDenied":          forbidden,
	"AccessDeniedException": forbidden,
	"OptInRequired":         regionClosed,
	"PendingVerification":   regionClosed,

	"InsufficientInstanceCapacity":         full,
	"InsufficientCapacity":                 full,
	"InsufficientHostCapacity":             full,
	"InsufficientCapacityOnHost":           full,
	"InsufficientReservedInstanceCapacity": full,
	"InsufficientAddressCapacity":          full,
	"InsufficientVolumeCapacity":           full,
	"InsufficientFreeAddressesInSubnet":    full,
	"ReservationCapacityExceeded":          full,
	"InvalidCapacityReservationState":      full,
	"SpotMaxPriceTooLow":                   full,
	"UnfulfillableCapacity":                full,

	"VcpuLimitExceeded":                  overQuota,
	"InstanceLimitExceeded":              overQuota,
	"MaxSpotInstanceCountExceeded":       overQuota,
	"MaxIOPSLimitExceeded":               overQuota,
	"SecurityGroupsPerInterfaceExceeded": overQuota,
	"ResourceCountExceeded":              overQuota,
	"ConcurrentLaunchLimitExceeded":      overQuota,
	"ServiceQuotaExceededException":      overQuota,

	"Unsupported":                   invalid,
	"UnsupportedOperation":          invalid,
	"UnsupportedInstanceAttribute":  invalid,
	"InvalidParameter":              invalid,
	"InvalidParameterValue":         invalid,
	"InvalidParameterCombination":   invalid,
	"MissingParameter":              invalid,
	"InvalidInput":                  invalid,
	"InvalidInstanceType":           invalid,
	"InvalidAvailabilityZone":       invalid,
	"InvalidZone.NotFound":          invalid,
	"InvalidBlockDeviceMapping":     invalid,
	"InvalidUserData.Malformed":     wrongInRegion,
	"InvalidSubnet":                 invalid,
	"VPCIdNotSpecified":             wrongInRegion,
	"VPCResourceNotSpecified":       wrongInRegion,
	"InvalidVpcID.NotFound":         wrongInRegion,
	"InvalidSubnetID.NotFound":      wrongInRegion,
	"InvalidGroup.NotFound":         wrongInRegion,
	"IdempotentParameterMismatch":   invalid,
	"TagLimitExceeded":              wrongInRegion,
	"InvalidTagKey.Malformed":       wrongInRegion,
	"EncryptedVolumesNotSupported":  invalid,
	"InvalidAMIID.NotFound":         wrongInRegion,
	"InvalidAMIID.Malformed":        wrongInRegion,
	"InvalidAMIID.Unavailable":      wrongInRegion,
	"InvalidAMIName.NotFound":       wrongInRegion,
	"DefaultVpcDoesNotExist":        wrongInRegion,
	"InvalidPlacementGroup.Unknown": wrongInRegion,

	"RequestLimitExceeded":     throttled,
	"Throttling":               throttled,
	"ThrottlingException":      throttled,
	"TooManyRequestsException": throttled,
	"EC2ThrottledException":    throttled,

	"InternalError":      theirs,
	"InternalFailure":    theirs,
	"ServerInternal":     theirs,
	"ServiceUnavailable": theirs,
	"Unavailable":        theirs,
	"RequestTimeout":     theirs,

	"ConcurrentModification": theirs, // somebody else changes the role at the moment
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
	lacks := err
	err = plain(api, err)
	switch meaningOf(api) {
	case badCredentials:
		fix := fixCredentials
		if text := api.ErrorMessage(); strings.Contains(text, "Signature expired") || strings.Contains(text, "Signature not yet current") {
			fix = fixClock
		}
		return &cloud.AuthError{Cloud: Name, Fix: fix, Err: err}
	case expired:
		return &cloud.AuthError{Cloud: Name, Fix: "log in again (aws sso login, or new keys), then: sky check aws", Err: err}
	case wrongTime:
		return &cloud.AuthError{Cloud: Name, Fix: "log in again if the keys in use are temporary (aws sso login, or new keys); if they are not, " + fixClock, Err: err}
	case forbidden:
		where := cloud.Place{Cloud: Name}
		if strings.Contains(api.ErrorMessage(), "explicit deny") { // as organizations deny regions
			where = region
		}
		return &cloud.PermissionError{Place: where, Err: permission(api, lacks)}
	case regionClosed:
		return &cloud.PermissionError{Place: region, Err: err}
	case full:
		return &cloud.CapacityError{Place: at, Err: err}
	case overQuota:
		return &cloud.QuotaError{Place: region, Err: err}
	case invalid:
		return &cloud.InvalidError{Place: at, Err: err}
	case wrongInRegion:
		return &cloud.InvalidError{Place: region, Err: err}
	case throttled:
		return &cloud.ThrottledError{Err: err}
	case theirs:
		return &cloud.UnreachableError{Err: err}
	}
	if api.ErrorFault() == smithy.FaultServer || status(err) >= 500 {
		return &cloud.UnreachableError{Err: err}
	}
	return fmt.Errorf("AWS refused: %w", err)
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

func meaningOf(api smithy.APIError) meaning {
	code := api.ErrorCode()
	if m, ok := meanings[code]; ok {
		switch text := api.ErrorMessage(); {
		case code == "Unsupported" && strings.Contains(strings.ToLower(text), "capacity"):
			return full
		case code == "AuthFailure" && strings.Contains(text, "Not authorized for images"): // somebody else's
			return wrongInRegion
		}
		return m
	}
	switch {
	case code == noSpotRole:
		return forbidden
	case strings.HasSuffix(code, "LimitExceeded"):
		return overQuota
	case strings.HasSuffix(code, ".NotFound"), strings.HasSuffix(code, ".Malformed"):
		return wrongInRegion
	case strings.HasPrefix(code, "InvalidParameter"):
		return invalid
	}
	return other
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
